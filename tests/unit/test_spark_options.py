"""How the options of the Spark sources are read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from jetspark.errors import InvalidOptionError
from jetspark.spark.options import (
    Kind,
    Option,
    boolean,
    choice,
    count,
    duration,
    names,
    offsets,
    parse,
    text,
    timestamp,
)


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (text(), "abc", "abc"),
        (names("a name"), "a, b ,c", ("a", "b", "c")),
        (boolean(), "TRUE", True),
        (boolean(), "false", False),
        (count(), "17", 17),
        (count(least=0), "0", 0),
        (choice("fail", "ignore"), "Ignore", "ignore"),
        (duration(), "500ms", 0.5),
        (duration(), "1.5 h", 5400.0),
        (duration(), "2D", 172800.0),
        (timestamp(), "1700000000123", datetime(2023, 11, 14, 22, 13, 20, 123000, UTC)),
        (timestamp(), "2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        (timestamp(), "2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        (offsets("earliest", least=1), "Earliest", "earliest"),
        (offsets("earliest", least=1), "12", 12),
        (offsets("earliest", least=1), '{"A": 3, "B": "latest"}', {"A": 3, "B": "latest"}),
        (offsets("latest", least=0), "0", 0),
    ],
)
def test_values(kind: Kind[Any], given: str, expected: object) -> None:
    assert kind.read(given) == expected


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (text(), ""),
        (names("a name"), "a,,b"),
        (names("a name"), "a,a"),
        (boolean(), "yes"),
        (count(), "0"),
        (count(), "-1"),
        (count(), "1.5"),
        (count(), "9" * 19),
        (choice("fail", "ignore"), "explode"),
        (duration(), "5"),
        (duration(), "0s"),
        (duration(), "5 weeks"),
        (timestamp(), "yesterday"),
        (offsets("earliest", least=1), "0"),
        (offsets("earliest", least=1), "soon"),
        (offsets("earliest", least=1), '{"A": true}'),
        (offsets("earliest", least=1), '{"A": '),
        (offsets("latest", least=0), "earliest"),
    ],
)
def test_what_is_refused(kind: Kind[Any], given: str) -> None:
    with pytest.raises(ValueError):
        kind.read(given)


TABLE: tuple[Option[Any], ...] = (
    Option("startHere", text(), "Where.", required=True),
    Option("mostRows", count(), "How many.", 5, "5"),
    Option("secretWord", boolean(), "A secret.", secret=True),
)


def test_names_in_any_case_and_defaults() -> None:
    options = parse(TABLE, {"STARTHERE": " x ", "path": "ignored"}, "source")
    assert dict(options) == {"startHere": "x", "mostRows": 5, "secretWord": None}
    assert options.given("startHere")
    assert not options.given("mostRows")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "source: option 'startHere' is missing; it takes a text"),
        ({"startHere": "x", "mostRows": "0"}, "option 'mostRows' takes a number of at least 1"),
        ({"startHere": "x", "mostrow": "1"}, "no option 'mostrow'; did you mean 'mostRows'"),
        ({"startHere": "x", "zzz": "1"}, "no option 'zzz'; see the table"),
    ],
)
def test_errors_name_the_option(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        parse(TABLE, given, "source")


def test_secrets_are_never_shown() -> None:
    with pytest.raises(InvalidOptionError) as caught:
        parse(TABLE, {"startHere": "x", "secretWord": "hunter2"}, "source")
    assert "hunter2" not in str(caught.value)
    options = parse(TABLE, {"startHere": "x", "secretWord": "true"}, "source")
    assert "True" not in repr(options)
