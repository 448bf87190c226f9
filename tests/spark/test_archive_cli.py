"""The commands `archive` and `replay`, on a stream and back: what they print, and how they end."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from jetspark.cli import console, session
from jetspark.cli.main import app
from jetspark.server import NatsServer

from .conftest import Streams

Run = Callable[..., Result]


@pytest.fixture
def run(
    request: pytest.FixtureRequest,
    nats: NatsServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Run]:
    """Runs a command in this process, with the Spark of the tests."""

    @contextmanager
    def shared(*args: Any, **kwargs: Any) -> Iterator[SparkSession]:
        yield request.getfixturevalue("spark")

    monkeypatch.setattr(session, "spark_session", shared)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NATS_URL", nats.url)

    def run(*arguments: object) -> Result:
        console.out.cache_clear()
        console.stderr.cache_clear()
        return CliRunner().invoke(app, [str(each) for each in arguments])

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)
    console.out.cache_clear()
    console.stderr.cache_clear()


def failed(result: Result) -> tuple[int, str]:
    """The exit status, and what the program says of it."""
    return result.exit_code, result.stderr.strip().removeprefix("error: ")


def test_there_and_back(run: Run, streams: Streams, tmp_path: Path) -> None:
    name = streams.new()
    streams.publish(name, 100)
    archived = run("archive", name, "a", "--json")
    assert archived.exit_code == 0, archived.output
    summary = json.loads(archived.stdout)
    assert (summary["rows"], summary["last"], summary["lag"]) == (100, 100, 0)
    assert "nothing new; a has the stream up to sequence 100" in run("archive", name, "a").stdout
    assert "100 messages in 1 file are as they were" in run("archive", name, "a", "--verify").stdout

    copy = ("replay", "a", f"{name}_COPY", "--subject-prefix", "copy", "--create")
    replayed = run(*copy, "--json")
    assert replayed.exit_code == 0, replayed.output
    summary = json.loads(replayed.stdout)
    assert (summary["published"], summary["found"]) == (100, 0)
    assert "0 messages stored" in run(*copy).stdout
    assert "would be stored" in run(*copy, "--dry-run").stdout

    next((tmp_path / "a").rglob("*.parquet")).unlink()
    proof = run("archive", name, "a", "--verify")
    assert "missing, with 100 messages" in proof.stdout
    status, text = failed(proof)
    assert status == 4
    assert "is not what it should be" in text


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (("archive", "NO", "a"), 1, "there is no stream 'NO'"),
        (("archive", "NO", "a", "--from", "yesterday"), 2, "--from 'yesterday' is no time"),
        (("archive", "NO", "a", "--from", "0"), 2, "sequences begin with 1"),
        (("archive", "NO", "a", "--subjects", "a.>,a.b"), 2, "overlap"),
        (("archive", "NO", "a", "--subjects", "a..b"), 2, "empty token"),
        (("archive", "NO", "a", "--interval", "soon"), 2, "'soon' is no time span"),
        (("archive", "NO", "a", "--continuous", "--until", "7"), 2, "exclude each other"),
        (("archive", "NO", "a", "--verify"), 1, "there is no archive in a"),
        (("replay", "a", "NO"), 1, "there is no archive in a"),
        (("replay", "a", "NO", "--speed", "fast"), 2, "must be full, original, or a factor"),
        (("replay", "a", "NO", "--subject-prefix", "a b"), 2, "white space"),
    ],
)
def test_what_is_wrong(run: Run, arguments: tuple[str, ...], status: int, text: str) -> None:
    found, line = failed(run(*arguments))
    assert (found, text in line, line.count("\n")) == (status, True, 0), line
