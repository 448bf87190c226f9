"""Errors for people, and exit statuses for schedulers."""

from __future__ import annotations

import pytest

from jetspark import errors
from jetspark.cli import console
from jetspark.cli.failures import CommandError, Status, report, status_of


@pytest.fixture(autouse=True)
def _own_consoles() -> None:
    console.stderr.cache_clear()


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (CommandError("no"), 1),
        (CommandError("no", Status.USAGE), 2),
        (CommandError("no", Status.UNBALANCED), 4),
        (errors.InvalidOptionError("no"), 2),
        (errors.MissingExtraError("no"), 2),
        (errors.ConnectError("no"), 3),
        (errors.TimeoutError("no"), 3),
        (errors.NoRespondersError("no"), 3),
        (errors.JetSparkError("no", retryable=True), 3),
        (errors.JetSparkError("no"), 1),
        (OSError(28, "No space left on device"), 1),
        (ValueError("no"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_statuses(error: BaseException, status: int) -> None:
    assert status_of(error) == status
    assert report(error, verbose=False) == status


def test_an_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    report(CommandError("there is no stream 'X'; create it"), verbose=False)
    assert capsys.readouterr().err == "error: there is no stream 'X'; create it\n"


def test_details_and_the_log_follow(capsys: pytest.CaptureFixture[str]) -> None:
    report(CommandError("wrong", details="SELECT\n  ^", log="logs/x.log"), verbose=False)
    assert capsys.readouterr().err == "error: wrong\nSELECT\n  ^\nmore in logs/x.log\n"


def test_verbose_shows_where_it_came_from(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise CommandError("wrong") from ValueError("the cause")
    except CommandError as error:
        report(error, verbose=True)
    text = capsys.readouterr().err
    assert text.startswith("error: wrong\nValueError: the cause\n")
    assert "Traceback" in text


def test_what_nobody_expected(capsys: pytest.CaptureFixture[str]) -> None:
    report(ZeroDivisionError("division by zero"), verbose=False)
    assert capsys.readouterr().err.splitlines() == [
        "error: ZeroDivisionError: division by zero",
        "--verbose shows where it came from",
    ]


def test_an_error_without_text_has_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    report(CommandError(""), verbose=False)
    assert capsys.readouterr().err == "error: CommandError\n"
