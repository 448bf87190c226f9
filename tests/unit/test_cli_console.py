"""What the commands print, on a terminal and in a log."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from rich.console import Console

from jetspark.cli import console


@pytest.fixture(autouse=True)
def _own_consoles() -> Iterator[None]:
    """Consoles of a test write where the test looks."""
    console.out.cache_clear()
    console.stderr.cache_clear()
    yield
    console.out.cache_clear()
    console.stderr.cache_clear()


def test_lines_go_to_stderr_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    console.say("a [bold]stream[/] :smile: " + "x" * 200)
    console.warn("take care")
    console.error("it [failed]")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "a [bold]stream[/] :smile: " + "x" * 200,
        "warning: take care",
        "error: it [failed]",
    ]


def test_json_is_one_line_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_json({"a": "é\n", "time": datetime(2026, 1, 2, tzinfo=UTC)})
    out, err = capsys.readouterr()
    assert err == ""
    assert out.count("\n") == 1
    assert json.loads(out) == {"a": "é\n", "time": "2026-01-02 00:00:00+00:00"}


def test_a_meter_in_a_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "_LINE_EVERY", 0.0)
    with console.meter("archive") as meter:
        meter.show(10)
        meter.show(1_500, 3_000, note="2 files")
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("archive: 10 messages, ")
    assert second.startswith("archive: 1,500 of 3,000 messages, ")
    assert second.endswith("/s, 2 files")


def test_a_meter_in_a_log_is_rare(capsys: pytest.CaptureFixture[str]) -> None:
    with console.meter("archive") as meter:
        for done in range(1000):
            meter.show(done)
    assert len(capsys.readouterr().err.splitlines()) <= 1


def test_a_quiet_meter(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "_LINE_EVERY", 0.0)
    with console.meter("archive", quiet=True) as meter:
        meter.show(10)
    assert capsys.readouterr() == ("", "")


def test_a_meter_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr(console, "stderr", lambda: screen)
    with console.meter("archive", unit="rows") as meter:
        meter.show(50, 100, note="now")
    file = screen.file
    assert isinstance(file, io.StringIO)
    assert "50/100" in file.getvalue()
    assert re.search(r" rows [0-9,]+/s, now ", file.getvalue())


@pytest.mark.parametrize(("env", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_on_a_terminal(env: dict[str, str], coloured: bool) -> None:
    code = "from jetspark.cli import console; console.error('broken'); console.say('plain')"
    given = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    given |= {"FORCE_COLOR": "1", "TERM": "xterm", **env}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=given, capture_output=True, text=True, check=True)
    error, plain = done.stderr.splitlines()
    assert ("\x1b[1;31m" in error) is coloured
    assert plain == "plain"
