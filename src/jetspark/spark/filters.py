"""Which messages can satisfy the filters of a batch query. Pure: no I/O, no clock.

Spark applies its filters to the rows in any case. So what is read may be too much, but never too
little: a filter that is not understood narrows nothing, and one on timestamps leaves room for
servers whose clocks differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from jetspark.errors import InvalidSubjectError
from jetspark.protocol import check_subject

from .ranges import Range

__all__ = ["CLOCKS", "Narrowing", "intersection", "narrow"]

CLOCKS = timedelta(minutes=1)
"""Timestamps are in the order of the sequences only as far as the clocks of the servers agree that
have led the stream. They may differ by less than this."""

MOST_SUBJECTS = 16  # for one read: whether it is complete is asked for each of them
_ALL = ">"
# Of times beyond these the server has no notion: it counts nanoseconds in 64 bits.
_FIRST_TIME = datetime(1970, 1, 2, tzinfo=UTC)
_LAST_TIME = datetime(2260, 1, 1, tzinfo=UTC)
_REPLACEMENT = "\ufffd"  # stands in a row for bytes of the subject that are no UTF-8


@dataclass(frozen=True)
class Narrowing:
    """What can satisfy filters; by default, everything."""

    streams: frozenset[str] | None = None
    """None: all."""
    subjects: tuple[str, ...] = (_ALL,)
    """Patterns that do not overlap; without any, no message can."""
    first: int = 1
    last: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    """What was stored then or later cannot."""

    def has_stream(self, name: str) -> bool:
        """Whether a stream need be looked at."""
        return bool(self.subjects) and (self.streams is None or name in self.streams)

    @property
    def filter_subjects(self) -> tuple[str, ...]:
        """The subjects as a consumer takes them: none for all."""
        return () if self.subjects == (_ALL,) else self.subjects

    def sequences(self, part: Range) -> Range:
        """What is left of a range of sequences, which may be nothing."""
        last = part.last if self.last is None else min(part.last, self.last)
        return part._replace(first=max(part.first, self.first), last=last)


def narrow(filters: Iterable[Filter], subjects: Iterable[str] = ()) -> Narrowing:
    """What satisfies all of the filters, among messages of the subjects; none: all subjects."""
    found = Narrowing(subjects=tuple(subjects) or (_ALL,))
    for each in filters:
        column = getattr(each, "attribute", ())
        if column in _COLUMNS:
            found = _COLUMNS[column](found, each)
    return found


def intersection(first: str, second: str) -> str | None:
    """The pattern of the subjects that two patterns match; None: there are no such subjects."""
    left, right = first.split("."), second.split(".")
    tokens: list[str] = []
    for number in range(max(len(left), len(right))):
        if number >= len(left) or number >= len(right):
            return None  # the other one is longer
        if left[number] == _ALL:
            return ".".join(tokens + right[number:])
        if right[number] == _ALL:
            return ".".join(tokens + left[number:])
        if left[number] == "*":
            tokens.append(right[number])
        elif right[number] in ("*", left[number]):
            tokens.append(left[number])
        else:
            return None
    return ".".join(tokens)


def _values(each: Filter, kind: type) -> list[Any] | None:
    """The values of which the column must have one; None: the filter does not say."""
    if isinstance(each, (EqualTo, EqualNullSafe)):
        values = [each.value]
    elif isinstance(each, In):
        values = [value for value in each.value if value is not None]  # which equals nothing
    else:
        return None
    return values if all(type(value) is kind for value in values) else None


def _by_stream(found: Narrowing, each: Filter) -> Narrowing:
    names = _values(each, str)
    if names is None:
        return found
    wanted = frozenset(names)
    return replace(found, streams=wanted if found.streams is None else found.streams & wanted)


def _by_subject(found: Narrowing, each: Filter) -> Narrowing:
    patterns = _patterns(each)
    if patterns is None:
        return found
    both = [intersection(one, other) for one in found.subjects for other in patterns]
    subjects = tuple(pattern for pattern in both if pattern is not None)
    if len(subjects) > max(MOST_SUBJECTS, len(found.subjects)):
        return found
    return replace(found, subjects=subjects)


def _patterns(each: Filter) -> list[str] | None:
    """Patterns that match every subject which satisfies a filter; None: it cannot be told."""
    if isinstance(each, StringStartsWith):
        whole, dot, _ = each.value.rpartition(".")
        return [f"{whole}.{_ALL}"] if dot and _is_subject(whole) else None
    subjects = _values(each, str)
    if subjects is None or not all(_is_subject(subject) for subject in subjects):
        return None
    return sorted(set(subjects))


def _is_subject(text: str) -> bool:
    """Whether a row that has this text has it from a subject of the same bytes."""
    try:
        check_subject(text)
    except InvalidSubjectError:
        return False
    return _REPLACEMENT not in text


def _by_sequence(found: Narrowing, each: Filter) -> Narrowing:
    first, last = _bounds(each, int)
    if isinstance(each, GreaterThan) and first is not None:
        first += 1
    if isinstance(each, LessThan) and last is not None:
        last -= 1
    if first is not None:
        found = replace(found, first=max(found.first, first))
    if last is not None:
        found = replace(found, last=last if found.last is None else min(found.last, last))
    return found


def _by_timestamp(found: Narrowing, each: Filter) -> Narrowing:
    since, until = _bounds(each, datetime)
    if since is not None and since.tzinfo is not None and since > _FIRST_TIME:
        since = min(since, _LAST_TIME) - CLOCKS
        found = replace(found, since=since if found.since is None else max(found.since, since))
    if until is not None and until.tzinfo is not None and until < _LAST_TIME:
        until = max(until, _FIRST_TIME) + CLOCKS
        found = replace(found, until=until if found.until is None else min(found.until, until))
    return found


def _bounds(each: Filter, kind: type) -> tuple[Any, Any]:
    """The least and the greatest value that the filter names; None: it names none."""
    if isinstance(each, (GreaterThan, GreaterThanOrEqual)) and type(each.value) is kind:
        return each.value, None
    if isinstance(each, (LessThan, LessThanOrEqual)) and type(each.value) is kind:
        return None, each.value
    values = _values(each, kind)
    return (min(values), max(values)) if values else (None, None)


_COLUMNS = {
    ("stream",): _by_stream,
    ("subject",): _by_subject,
    ("sequence",): _by_sequence,
    ("timestamp",): _by_timestamp,
}
