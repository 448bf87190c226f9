"""What the demo says, and that its pipeline file fits to the rest of it."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from jetspark.cli.demo_output import print_result
from jetspark.pipeline.demo.books import LARGE_CENTS, Evidence, Order, Totals, prove
from jetspark.pipeline.demo.flow import Sent
from jetspark.pipeline.demo.places import ALERTS, BUCKET, DEAD, ORDERS, Places
from jetspark.pipeline.demo.result import Result
from jetspark.pipeline.parse import parse
from jetspark.pipeline.problems import Problems
from jetspark.pipeline.spec import Pipeline


@pytest.fixture
def pipeline() -> Pipeline:
    text = files("jetspark.pipeline.demo").joinpath("pipeline.yml").read_text(encoding="utf-8")
    problems = Problems("pipeline.yml")
    found = parse(text, problems, {"DEMO_DIR": "here"})
    problems.raise_if_any()
    assert found is not None
    return found


def test_the_pipeline_uses_the_places_of_the_demo(pipeline: Pipeline) -> None:
    places = Places(Path("here"))
    assert pipeline.checkpoint == str(places.checkpoints)
    assert pipeline.sources["orders"].target == ORDERS
    assert pipeline.dead_letters.stream == DEAD
    assert pipeline.dead_subject("orders") == "dead.demo.orders"
    assert pipeline.sinks["archive"].path == str(places.archive)
    assert pipeline.sinks["totals"].target == BUCKET
    assert pipeline.sinks["alerts"].target == ALERTS


def test_the_pipeline_and_the_books_agree_on_what_is_large(pipeline: Pipeline) -> None:
    found = re.search(r"amount >= (\d+)", pipeline.transforms["large"].sql)
    assert found is not None
    assert int(found[1]) * 100 == LARGE_CENTS


def _result(*, archived: bool = True) -> Result:
    sent = Sent(messages=1, kinds=Counter(order=1), cents=1250, last_sequence=1)
    archive = [Order(1, "o-1", "de", 1250, "2026-11-27-1159")] if archived else []
    found = Evidence(1, archive, [], {"de.2026-11-27-1159": Totals(1, 1250)}, [])
    return Result(
        sent=sent,
        found=found,
        proofs=prove(sent, found),
        samples=[],
        steps={"run the pipeline": 2.0},
        live=(0.0, 0.0),
        server="nats://127.0.0.1:4222",
        places=Places(Path("here")),
    )


def test_the_books_are_printed_with_both_sides(capsys: pytest.CaptureFixture[str]) -> None:
    result = _result()
    print_result(result, options="", report=True)
    text = capsys.readouterr().out
    for proof in result.proofs:
        assert re.search(rf"^{re.escape(proof.equation)} .*ok$", text, re.MULTILINE)
    assert re.search(r"EUR sent = EUR archived +12\.50 +12\.50 +ok", text)
    assert "the books balance: 1 messages in 2 s" in text
    assert "here/report.html" in text


def test_the_books_fit_into_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    result = _result()
    proofs = [replace(p, left=99_999_999_99, right=99_999_999_98) for p in result.proofs]
    print_result(replace(result, proofs=proofs), options="", report=True)
    lines = capsys.readouterr().out.splitlines()[: len(proofs) + 1]
    assert [line.endswith("FAILED") for line in lines] == [False] + [True] * len(proofs)
    assert max(map(len, lines)) <= 80


def test_books_that_do_not_balance_are_seen(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(_result(archived=False), options="", report=False)
    text = capsys.readouterr().out
    assert "the books do NOT balance" in text
    assert re.search(r"stored = archived \+ dead-lettered +1 +0 +FAILED", text)
    assert "report.html" not in text


def test_what_to_try_next_is_a_command_each() -> None:
    commands = _result().next_steps(" --server nats://a")
    words = [shlex.split(command) for command in commands]
    assert [command[:2] for command in words] == [
        ["jetspark", "sql"],
        ["jetspark", "top"],
        ["jetspark", "archive"],
    ]
    assert all(command[-2:] == ["--server", "nats://a"] for command in words)
