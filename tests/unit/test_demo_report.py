"""The report of the demo: whole, well-formed, with nothing from elsewhere; and its numbers."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from jetspark.pipeline.demo.books import Evidence, Order, Totals, prove
from jetspark.pipeline.demo.charts import bars, lines, sheet
from jetspark.pipeline.demo.flow import Sent
from jetspark.pipeline.demo.places import Places
from jetspark.pipeline.demo.report import as_html, as_svg
from jetspark.pipeline.demo.result import Result
from jetspark.pipeline.demo.watch import Sample, Watch, position, rates
from jetspark.pipeline.progress import Progress, QueryProgress

SVG = "{http://www.w3.org/2000/svg}"


def _result(**changes: Any) -> Result:
    sent = Sent(messages=2, kinds=Counter(order=1, malformed=1), cents=1250, last_sequence=2)
    archive = [Order(1, "o-1", "de", 1250, "2026-11-27-1159")]
    found = Evidence(2, archive, [2], {"de.2026-11-27-1159": Totals(1, 1250)}, [])
    samples = [
        Sample(t, min(t * 100, 1000), {"archive": t * 50, "totals": t * 40}) for t in range(20)
    ]
    values: dict[str, Any] = {
        "sent": sent,
        "found": found,
        "proofs": prove(sent, found),
        "samples": samples,
        "steps": {"publish the backlog": 3.21, "run": 20.0},
        "live": (4.0, 12.0),
        "server": "nats://127.0.0.1:4222",
        "places": Places(Path("there & <here>")),
    }
    return Result(**{**values, **changes})


class _Page(HTMLParser):
    """Collects text and tags, and sees that tags are closed."""

    VOID = frozenset({"meta", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags[tag] += 1
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.tags[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def _parse(html: str) -> _Page:
    page = _Page()
    page.feed(html)
    page.close()
    assert page.open == []
    return page


def test_the_page_has_everything() -> None:
    result = _result()
    html = as_html(result, made=datetime(2026, 11, 27, tzinfo=UTC))
    page = _parse(html)
    text = " ".join(page.text)
    assert page.tags["svg"] == 4
    assert "the books balance" in text
    assert "there & <here>" in text  # escaped in the page
    for proof in result.proofs:
        assert proof.name in text
    for command in result.next_steps():
        assert command in text


def test_the_page_needs_nothing_from_elsewhere() -> None:
    html = as_html(_result(), made=datetime(2026, 11, 27, tzinfo=UTC))
    assert not re.search(r"https?:|src=|href=|@import|url\(|<script", html)


def test_a_proof_that_fails_is_seen() -> None:
    sent, found = Sent(messages=3), Evidence(2, [], [], {}, [])
    result = _result(sent=sent, found=found, proofs=prove(sent, found))
    assert not result.balanced
    html = as_html(result, made=datetime(2026, 11, 27, tzinfo=UTC))
    assert "do NOT balance" in html
    assert html.count(">FAILED<") == sum(not proof.holds for proof in result.proofs) > 0
    assert result.as_json()["balanced"] is False


def test_a_demo_without_samples_has_a_report() -> None:
    found = Evidence(0, [], [], {}, [])
    _parse(as_html(_result(samples=[], found=found), made=datetime(2026, 11, 27, tzinfo=UTC)))


def test_the_picture_is_an_svg_file() -> None:
    root = ElementTree.fromstring(as_svg(_result()))
    assert root.tag == f"{SVG}svg"
    titles = [text.text for text in root.iter(f"{SVG}text") if text.get("class") == "title"]
    assert titles[0] == "jetspark demo: the books balance"
    assert [(title or "").partition(":")[0] for title in titles[1:3]] == ["Throughput", "Lag"]


def test_lines_stay_inside_the_chart() -> None:
    chart = lines(
        "t",
        {"a": [(0, 0), (10, 73)], "b": [(3, 5)], "none": []},
        x_label=str,
        y_label=str,
        marks={"in": 5, "out": 50},
    )
    root = ElementTree.fromstring(sheet([chart]))
    drawn = list(root.iter(f"{SVG}polyline"))
    assert len(drawn) == 2
    for line in drawn:
        for point in line.attrib["points"].split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= 880
            assert 0 <= y <= chart.height
    assert sum(line.get("class") == "mark" for line in root.iter(f"{SVG}line")) == 1


def test_bars_are_as_long_as_their_values() -> None:
    root = ElementTree.fromstring(sheet([bars("t", {"a": 100, "b": 50, "c": 0}, label=str)]))
    widths = [float(bar.attrib["width"]) for bar in root.iter(f"{SVG}rect")][1:]
    assert widths[0] == pytest.approx(2 * widths[1], abs=0.2)
    assert widths[2] == 1


# -- samples ------------------------------------------------------------------------------------


def test_positions_are_read_from_the_progress() -> None:
    assert position(None, "S") == 0
    assert position({"sources": [{"endOffset": None}]}, "S") == 0
    assert position({"sources": [{"endOffset": '{"S": 12}'}]}, "S") == 12
    assert position({"sources": [{"endOffset": {"T": 3}}, {"endOffset": {"S": 5}}]}, "S") == 5


def _progress(seconds: float, *reports: dict[str, Any] | None) -> Progress:
    queries = tuple(
        QueryProgress(
            name=name,
            what=what,
            state="running",
            rows=0,
            rate=0.0,
            lag=None,
            dead=0,
            late=0,
            batches=0,
            report=report,
        )
        for (name, what), report in zip(
            [("orders", "source"), ("archive", "sink")], reports, strict=True
        )
    )
    return Progress("demo", seconds, queries)


def test_a_watch_never_goes_back() -> None:
    watch = Watch("S")
    half = {"sources": [{"endOffset": {"S": 5}}]}
    whole = {"sources": [{"endOffset": {"S": 9}}]}
    first = watch.take(9, _progress(0.5, None, half))
    assert first.rows == {"dead letters": 0, "archive": 5}
    assert first.lag("archive") == 4
    second = watch.take(9, _progress(1.0, whole, {"sources": []}))  # a query began again
    assert second.rows == {"dead letters": 9, "archive": 5}
    assert not second.caught_up
    assert watch.take(9, _progress(1.5, whole, whole)).caught_up
    assert [sample.seconds for sample in watch.samples] == [0.5, 1.0, 1.5]


def test_rates_are_those_of_the_batches() -> None:
    counts = [0, 0, 0, 60, 60, 100, 100, 100]
    samples = [Sample(float(t), 100, {"q": count}) for t, count in enumerate(counts)]
    assert rates(samples, "q") == [
        *((0.0, 20.0), (3.0, 20.0)),  # 60 rows in 3 s
        *((3.0, 20.0), (5.0, 20.0)),
        *((5.0, 0.0), (7.0, 0.0)),
    ]
    assert rates([], "q") == []
    assert rates(samples[:1], "q") == []
