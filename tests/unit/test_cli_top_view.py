"""What `jetspark top` shows of what was collected."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from jetspark.cli.top_collect import read_pipeline
from jetspark.cli.top_view import (
    Account,
    Consumer,
    Moment,
    Pipeline,
    Stream,
    as_json,
    picture,
    rate_text,
    render,
    size_text,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def stream(name: str, last: int, **fields: object) -> Stream:
    values = {"messages": last, "bytes": last * 100, "consumers": 0, **fields}
    return Stream(name=name, last_sequence=last, **values)  # type: ignore[arg-type]


def consumer(name: str, delivered: int, pending: int = 0, **fields: object) -> Consumer:
    values = {"ack_pending": 0, "redelivered": 0, **fields}
    return Consumer(
        stream="S",
        name=name,
        delivered=delivered,
        pending=pending,
        **values,  # type: ignore[arg-type]
    )


def moment(at: float, **fields: object) -> Moment:
    return Moment(at=at, time=NOW, servers="nats://a:4222", version="2.12.0", **fields)  # type: ignore[arg-type]


def text_of(shown: object, *, height: int | None = None, width: int = 120) -> str:
    screen = Console(file=io.StringIO(), width=width, color_system=None, emoji=False)
    screen.print(render(shown, height=height))  # type: ignore[arg-type]
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def test_rates_are_differences() -> None:
    before = moment(10, streams=[stream("A", 100), stream("B", 50)], consumers=[consumer("c", 7)])
    now = moment(
        12,
        streams=[stream("A", 100), stream("B", 250), stream("NEW", 5)],
        consumers=[consumer("c", 17), consumer("new", 3)],
    )
    shown = picture(now, before)
    assert [(one.name, one.rate) for one in shown.streams] == [
        ("B", 100.0),
        ("A", 0.0),
        ("NEW", None),
    ]
    assert [(one.name, one.rate) for one in shown.consumers] == [("c", 5.0), ("new", None)]


def test_a_stream_that_was_made_anew_has_no_rate() -> None:
    shown = picture(moment(2, streams=[stream("A", 1)]), moment(1, streams=[stream("A", 100)]))
    assert shown.streams[0].rate is None


def test_the_first_picture_has_no_rates() -> None:
    shown = picture(moment(1, streams=[stream("A", 1), stream("B", 9)]))
    assert [(one.name, one.rate) for one in shown.streams] == [("B", None), ("A", None)]


def test_those_with_much_to_do_come_first() -> None:
    consumers = [
        consumer("idle", 0),
        consumer("late", 0, 500),
        consumer("unacked", 0, 1, ack_pending=9),
    ]
    shown = picture(moment(1, consumers=consumers))
    assert [(one.name, one.lag) for one in shown.consumers] == [
        ("late", 500),
        ("unacked", 10),
        ("idle", 0),
    ]


def test_the_screen() -> None:
    pipelines = [
        Pipeline(
            pipeline="orders", query="revenue", host="h1", state="running", rows=1234, rate=56.7,
            lag=8, dead=2, updated=NOW,
        ),
        Pipeline(
            pipeline="old", query="q", host="h2", state="running", rows=1, rate=None, lag=None,
            dead=0, updated=NOW - timedelta(minutes=2),
        ),
    ]  # fmt: skip
    now = moment(
        3,
        account=Account(streams=2, consumers=1, storage=3 * 2**20, max_storage=2**30),
        streams=[stream("ORDERS[bold]", 12_345, leader="n1"), stream("quiet", 1)],
        consumers=[consumer("billing", 10, 20, redelivered=3, paused=True)],
        pipelines=pipelines,
    )
    text = text_of(picture(now, moment(1, streams=[stream("ORDERS[bold]", 12_145)])))
    lines = [line.split() for line in text.splitlines()]
    assert lines[0] == ["nats://a:4222", "nats-server", "2.12.0", "2026-01-02T03:04:05Z"]
    assert "2 streams, 1 consumers, storage 3.0 MiB of 1.0 GiB, memory 0 B" in text
    assert ["ORDERS[bold]", "12,345", "1.2", "MiB", "100", "0", "n1"] in lines
    assert ["quiet", "1", "100", "B", "-", "0", "-"] in lines
    assert ["billing", "(paused)", "S", "20", "0", "3", "20", "-"] in lines
    assert ["orders", "revenue", "running", "1,234", "57", "8", "2", "h1"] in lines
    assert "silent since 2026-01-02T03:02:05Z" in text
    assert text.index("revenue") < text.index("ORDERS") < text.index("billing")


def test_a_problem_is_shown_with_what_was_known() -> None:
    text = text_of(picture(moment(1, streams=[stream("A", 1)], problem="disconnected, trying")))
    assert "disconnected, trying" in text
    assert " A " in text


def test_nothing_there() -> None:
    assert "there are no streams" in text_of(picture(moment(1)))


@pytest.mark.parametrize("height", [10, 24, 60])
def test_hundreds_of_streams_fit_on_a_screen(height: int) -> None:
    streams = [stream(f"S{number}", number) for number in range(500)]
    consumers = [consumer(f"c{number}", number, number) for number in range(300)]
    shown = picture(moment(1, streams=streams, consumers=consumers, unasked=70))
    text = text_of(shown, height=height)
    assert len(text.splitlines()) <= max(height, 17)
    assert "S499" in text
    assert "more streams" in text
    assert "more consumers" in text
    assert "the consumers of 70 quieter streams are not shown" in text


def test_few_rows_leave_room_for_others() -> None:
    streams = [stream(f"S{number}", number) for number in range(100)]
    text = text_of(picture(moment(1, streams=streams, consumers=[consumer("only", 1)])), height=40)
    assert text.count("\n S") >= 20
    assert "only" in text


def test_json_has_it_all() -> None:
    now = moment(
        3, streams=[stream("A", 5)], consumers=[consumer("c", 1, 4, ack_pending=2)], problem="x"
    )
    found = json.loads(json.dumps(as_json(picture(now))))
    assert found["time"] == "2026-01-02T03:04:05Z"
    assert found["problem"] == "x"
    assert found["streams"][0] == {
        "name": "A", "messages": 5, "bytes": 500, "last_sequence": 5, "consumers": 0, "leader": "",
        "rate": None,
    }  # fmt: skip
    assert found["consumers"][0]["lag"] == 6
    assert found["pipelines"] == []


def test_what_a_pipeline_reports() -> None:
    report = {
        "pipeline": "orders",
        "host": "h",
        "updated": "2026-01-02T03:04:05+00:00",
        "queries": [
            {"name": "q", "rows": 5, "rate": 2, "lag": 0, "dead": 1, "state": "running"},
            {},
        ],
    }
    first, second = read_pipeline("key", report)
    assert (first.query, first.rows, first.rate, first.lag, first.dead) == ("q", 5, 2.0, 0, 1)
    assert first.updated == NOW
    assert (second.pipeline, second.rate, second.lag) == ("orders", None, None)
    [other] = read_pipeline("key", {"updated": NOW.timestamp(), "queries": [{"name": "x"}]})
    assert (other.pipeline, other.updated) == ("key", NOW)
    assert read_pipeline("key", {}) == []


def test_numbers_for_people() -> None:
    assert [size_text(size) for size in (0, 1023, 1024, 5 * 2**30, 3 * 2**50)] == [
        "0 B", "1023 B", "1.0 KiB", "5.0 GiB", "3,072.0 TiB",
    ]  # fmt: skip
    assert [rate_text(rate) for rate in (None, 0.0, 0.25, 9.94, 12_345.6)] == [
        "-", "0", "0.2", "9.9", "12,346",
    ]  # fmt: skip
