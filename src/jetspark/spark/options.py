"""The options of the data sources: each in one table, read in one place.

An option that is misspelt, missing or wrong is an error before any job starts, and the error says
what it takes. The tables are also what the reference in the documentation is made from. Spark does
not care about the case of option names, so neither do we.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

from jetspark.errors import InvalidOptionError

__all__ = ["Kind", "Option", "Options", "boolean", "choice", "count", "duration", "parse", "text"]

T = TypeVar("T")


@dataclass(frozen=True)
class Kind(Generic[T]):
    """What values an option takes, and how they are read."""

    takes: str
    """In words, for errors and the documentation: "a number of at least 1"."""
    read: Callable[[str], T]
    """Raises `ValueError` for anything else."""


@dataclass(frozen=True)
class Option(Generic[T]):
    """An option of a data source."""

    name: str
    kind: Kind[T]
    about: str
    default: T | None = None
    shown_default: str = ""
    required: bool = False
    secret: bool = False
    """Never shown in a plan, an error or a log."""


class Options(Mapping[str, Any]):
    """The options that were given or have a default, by their names; shows no secrets."""

    def __init__(self, values: Mapping[str, Any], given: Iterable[str], secret: Iterable[str]):
        self._values = dict(values)
        self._given = frozenset(given)
        self._secret = frozenset(secret)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Any:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def given(self, name: str) -> bool:
        """Whether the user named it."""
        return name in self._given

    def __repr__(self) -> str:
        shown = {
            name: "*****" if name in self._secret else self._values[name]
            for name in sorted(self._given)
        }
        return f"Options({shown})"


# Spark hands these on with the options of the source; they are its own.
_SPARKS_OWN = frozenset({"path", "checkpointlocation", "queryname", "__partition_columns"})


def parse(table: Iterable[Option[Any]], given: Mapping[str, str], source: str) -> Options:
    """Read the options that were given to a source by its table."""
    known = {option.name.lower(): option for option in table}
    values = {option.name: option.default for option in known.values()}
    named = set()
    for name, text_value in given.items():
        option = known.get(name.lower())
        if option is None:
            if name.lower() not in _SPARKS_OWN:
                raise _unknown(name, known, source)
            continue
        named.add(option.name)
        try:
            values[option.name] = option.kind.read(text_value.strip())
        except ValueError as error:
            shown = "*****" if option.secret else repr(text_value)
            detail = f": {error}" if str(error) and not option.secret else ""
            raise InvalidOptionError(
                f"{source}: option {option.name!r} takes {option.kind.takes}, not {shown}{detail}"
            ) from None
    for option in known.values():
        if option.required and option.name not in named:
            raise InvalidOptionError(
                f"{source}: option {option.name!r} is missing; it takes {option.kind.takes}"
            )
    return Options(values, named, [option.name for option in known.values() if option.secret])


def _unknown(name: str, known: Mapping[str, Option[Any]], source: str) -> InvalidOptionError:
    near = difflib.get_close_matches(name.lower(), known, n=1)
    advice = f"did you mean {known[near[0]].name!r}?" if near else "see the table of its options"
    return InvalidOptionError(f"{source}: there is no option {name!r}; {advice}")


# -- kinds ------------------------------------------------------------------------------------


def text() -> Kind[str]:
    """Any text that is not empty."""

    def read(value: str) -> str:
        if not value:
            raise ValueError("it is empty")
        return value

    return Kind("a text", read)


def names(what: str) -> Kind[tuple[str, ...]]:
    """Several names with commas between them."""

    def read(value: str) -> tuple[str, ...]:
        found = tuple(name.strip() for name in value.split(","))
        if not all(found):
            raise ValueError("one of them is empty")
        if len(set(found)) < len(found):
            raise ValueError("one of them is there twice")
        return found

    return Kind(f"{what}, or several with commas between them", read)


def boolean() -> Kind[bool]:
    """True or false."""

    def read(value: str) -> bool:
        try:
            return {"true": True, "false": False}[value.lower()]
        except KeyError:
            raise ValueError from None

    return Kind("true or false", read)


def count(least: int = 1) -> Kind[int]:
    """A whole number."""

    def read(value: str) -> int:
        if not re.fullmatch(r"\d{1,18}", value) or int(value) < least:
            raise ValueError
        return int(value)

    return Kind(f"a number of at least {least}", read)


def choice(*values: str) -> Kind[str]:
    """One of a few words."""

    def read(value: str) -> str:
        for known in values:
            if value.lower() == known.lower():
                return known
        raise ValueError

    return Kind(" or ".join(repr(value) for value in values), read)


_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)", re.IGNORECASE)


def duration() -> Kind[float]:
    """A time span, in seconds."""

    def read(value: str) -> float:
        found = _DURATION.fullmatch(value)
        if found is None or not float(found[1]):
            raise ValueError
        return float(found[1]) * _UNITS[found[2].lower()]

    return Kind("a time span like '500ms', '10s' or '15m'", read)


def timestamp() -> Kind[datetime]:
    """A moment: milliseconds since 1970 as Spark has them, or ISO 8601."""

    def read(value: str) -> datetime:
        if re.fullmatch(r"\d{1,15}", value):
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(value))
        moment = datetime.fromisoformat(value)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)

    return Kind("milliseconds since 1970, or a time like '2026-01-31T12:00:00Z'", read)


def offsets(word: str, *, least: int) -> Kind[str | int | dict[str, str | int]]:
    """Where to begin or to end: a word, a sequence, or one of these for each stream."""

    def one(value: Any) -> str | int:
        if isinstance(value, str) and value.lower() in words:
            return value.lower()
        if isinstance(value, int) and not isinstance(value, bool) and value >= least:
            return value
        raise ValueError(f"{value!r} is none of these")

    def read(value: str) -> str | int | dict[str, str | int]:
        if value.startswith("{"):
            try:
                found = json.loads(value)
            except json.JSONDecodeError as error:
                raise ValueError(f"it is no JSON: {error}") from None
            return {stream: one(offset) for stream, offset in found.items()}
        return one(int(value) if value.isdigit() else value)

    words = ("earliest", "latest") if word == "earliest" else ("latest",)
    listed = " or ".join(repr(word) for word in words)
    return Kind(f"{listed}, a sequence of at least {least}, or JSON of these by stream", read)
