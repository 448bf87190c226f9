"""What is read for the filters of a query: never too little."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import accumulate, combinations, pairwise, product
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from jetspark.protocol import subject_matches, subjects_collide
from jetspark.spark.filters import CLOCKS, MOST_SUBJECTS, Narrowing, intersection, narrow
from jetspark.spark.ranges import Range

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
LATEST = CLOCKS - timedelta(microseconds=1)  # that a clock may be
SUBJECT, SEQUENCE, TIME, STREAM = ("subject",), ("sequence",), ("timestamp",), ("stream",)


class Row(NamedTuple):
    """A message."""

    stream: str
    subject: str
    sequence: int
    timestamp: datetime


def satisfies(row: Row, each: Filter) -> bool:
    """What Spark would say."""
    if isinstance(each, Not):
        return not satisfies(row, each.child)
    value: Any = getattr(row, vars(each)["attribute"][0])
    match each:
        case IsNull():
            return False
        case IsNotNull():
            return True
        case EqualTo(_, wanted) | EqualNullSafe(_, wanted):
            return bool(value == wanted)
        case In(_, wanted):
            return value in wanted
        case GreaterThan(_, wanted):
            return bool(value > wanted)
        case GreaterThanOrEqual(_, wanted):
            return bool(value >= wanted)
        case LessThan(_, wanted):
            return bool(value < wanted)
        case LessThanOrEqual(_, wanted):
            return bool(value <= wanted)
        case StringStartsWith(_, wanted):
            return str(value).startswith(wanted)
        case StringEndsWith(_, wanted):
            return str(value).endswith(wanted)
        case StringContains(_, wanted):
            return wanted in value
    raise AssertionError(each)


def sequences_by_time(rows: list[Row], moment: datetime) -> int:
    """The last sequence before a moment, as a server finds it: by halving what is left."""
    low, high = 0, len(rows)
    while low < high:
        middle = (low + high) // 2
        if rows[middle].timestamp < moment:
            low = middle + 1
        else:
            high = middle
    return low


def what_is_read(rows: list[Row], found: Narrowing) -> set[int]:
    part = found.sequences(Range("A", 1, len(rows)))
    first, last = part.first, part.last
    if found.since is not None:
        first = max(first, sequences_by_time(rows, found.since) + 1)
    if found.until is not None:
        last = min(last, sequences_by_time(rows, found.until))
    return {
        row.sequence
        for row in rows
        if found.has_stream(row.stream)
        and first <= row.sequence <= last
        and any(subject_matches(pattern, row.subject) for pattern in found.subjects)
    }


# -- any messages, any filters ------------------------------------------------------------------

TOKENS = st.sampled_from(["a", "b", "ab", "é", "*x"])
SUBJECTS = st.lists(TOKENS, min_size=1, max_size=4).map(".".join)
PATTERNS = st.lists(TOKENS | st.just("*"), min_size=1, max_size=4).flatmap(
    lambda tokens: st.sampled_from([".".join(tokens), ".".join([*tokens, ">"]), ">"])
)
# The clocks of two servers that lead the stream in turn, of which one is late.
TIMES = st.tuples(
    st.lists(st.tuples(st.integers(0, 120), st.booleans()), min_size=1, max_size=12),
    st.sampled_from([0.0, 0.5, 1.0]),
)
VALUES: dict[tuple[str, ...], st.SearchStrategy[Any]] = {
    SUBJECT: SUBJECTS
    | st.sampled_from(["a.", "a.b.", "", ".", "a..b", "a.*", "a.>", "x y", "a.b"]),
    SEQUENCE: st.integers(-2, 15),
    TIME: st.integers(-100, 500).map(lambda seconds: BEGIN + timedelta(seconds=seconds))
    | st.sampled_from([datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]),
    STREAM: st.sampled_from(["A", "B", ""]),
}
COMPARISONS = st.sampled_from(
    [EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]
)


def filters_of(column: tuple[str, ...]) -> st.SearchStrategy[Filter]:
    values = VALUES[column]
    simple = st.builds(lambda kind, value: kind(column, value), COMPARISONS, values)
    found: st.SearchStrategy[Filter] = simple | st.builds(
        In, st.just(column), st.lists(st.none() | values, max_size=4).map(tuple)
    )
    found |= st.sampled_from([IsNull(column), IsNotNull(column), EqualNullSafe(column, None)])
    if column in (SUBJECT, STREAM):
        texts = st.sampled_from([StringStartsWith, StringEndsWith, StringContains])
        found |= st.builds(lambda kind, value: kind(column, value), texts, values)
    return found | found.map(Not)


def lists_of(columns: Iterable[tuple[str, ...]]) -> st.SearchStrategy[list[Filter]]:
    each = st.one_of([filters_of(column) for column in columns])
    return st.lists(each, min_size=1, max_size=3)


# Of one column, so that each of them has its share, and of all.
FILTERS = st.one_of([lists_of([column]) for column in VALUES] + [lists_of(VALUES)])


@st.composite
def messages(draw: st.DrawFn) -> list[Row]:
    steps, late = draw(TIMES)
    rows = []
    passed = 0
    for sequence, (step, other) in enumerate(steps, 1):
        passed += step
        moment = BEGIN + timedelta(seconds=passed) - other * late * LATEST
        rows.append(Row("A", draw(SUBJECTS), sequence, moment))
    return rows


@given(messages(), FILTERS, st.lists(PATTERNS, max_size=2))
@example([Row("A", "a.b", 1, BEGIN)], [EqualTo(TIME, BEGIN)], [])
@example([Row("A", "a.b", 1, BEGIN)], [LessThanOrEqual(TIME, BEGIN)], ["a.*"])
def test_no_row_that_satisfies_the_filters_is_left_out(
    rows: list[Row], filters: list[Filter], subjects: list[str]
) -> None:
    if len(subjects) == 2 and subjects_collide(*subjects):
        subjects = subjects[:1]
    found = narrow(filters, subjects)
    wanted = {
        row.sequence
        for row in rows
        if all(satisfies(row, each) for each in filters)
        and (not subjects or any(subject_matches(each, row.subject) for each in subjects))
    }
    assert wanted <= what_is_read(rows, found)
    # A consumer takes only filters that do not overlap.
    patterns = found.subjects
    for number, pattern in enumerate(patterns):
        assert not any(subjects_collide(pattern, other) for other in patterns[number + 1 :])


# -- few messages, all filters ------------------------------------------------------------------


def check_all(rows: list[Row], filters: Iterable[list[Filter]], subjects: list[str]) -> None:
    for each in filters:
        wanted = {row.sequence for row in rows if all(satisfies(row, one) for one in each)}
        if subjects:
            wanted &= {
                row.sequence
                for row in rows
                if any(subject_matches(pattern, row.subject) for pattern in subjects)
            }
        assert wanted <= what_is_read(rows, narrow(each, subjects)), (rows, each, subjects)


def comparisons(column: tuple[str, ...], values: Iterable[Any]) -> list[Filter]:
    kinds = (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
    return [kind(column, value) for kind in kinds for value in values]


def test_all_pairs_of_filters_on_sequences() -> None:
    rows = [Row("A", "a", sequence, BEGIN) for sequence in range(1, 6)]
    filters = comparisons(SEQUENCE, range(7))
    filters += [In(SEQUENCE, pair) for pair in product(range(7), repeat=2)]
    check_all(rows, map(list, combinations(filters, 2)), [])
    check_all(rows, ([each] for each in filters), [])


def test_all_filters_on_subjects() -> None:
    texts = [".".join(tokens) for size in (1, 2, 3) for tokens in product("ab", repeat=size)]
    rows = [Row("A", text, number, BEGIN) for number, text in enumerate(texts, 1)]
    prefixes = sorted({text[:size] for text in [*texts, "a.b.a.b"] for size in range(8)})
    filters: list[Filter] = [EqualTo(SUBJECT, text) for text in texts]
    filters += [In(SUBJECT, pair) for pair in pairwise(texts)]
    filters += [StringStartsWith(SUBJECT, prefix) for prefix in prefixes]
    patterns = [[], ["a.*"], ["*.b"], ["*.*.a"], ["a.>"], ["*.>"], ["a", "b.>"], ["a.a", "*.b.*"]]
    for subjects in patterns:
        check_all(rows, ([each] for each in filters), subjects)
    check_all(rows, map(list, combinations(filters, 2)), ["*.>"])


def test_all_filters_on_timestamps() -> None:
    """With clocks that differ by as much as is allowed for."""
    minutes = timedelta(minutes=1)
    filters = comparisons(TIME, [BEGIN + each / 2 * minutes for each in range(-3, 8)])
    for steps in product((0, 1), repeat=4):
        for clocks in product((0, 1), repeat=4):
            moments = [
                BEGIN + passed * minutes - late * LATEST
                for passed, late in zip(accumulate(steps), clocks, strict=True)
            ]
            rows = [Row("A", "a", number, moment) for number, moment in enumerate(moments, 1)]
            check_all(rows, ([each] for each in filters), [])


@given(PATTERNS, PATTERNS, SUBJECTS)
def test_an_intersection_matches_what_both_match(first: str, second: str, subject: str) -> None:
    both = intersection(first, second)
    matched = subject_matches(first, subject) and subject_matches(second, subject)
    assert (both is not None and subject_matches(both, subject)) == matched
    assert (both is not None) == subjects_collide(first, second)
    assert intersection(second, first) == both


# -- and not more than needed -------------------------------------------------------------------

HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], Narrowing()),
        ([EqualTo(SEQUENCE, 5)], Narrowing(first=5, last=5)),
        ([GreaterThan(SEQUENCE, 5), LessThan(SEQUENCE, 9)], Narrowing(first=6, last=8)),
        (
            [GreaterThanOrEqual(SEQUENCE, 5), LessThanOrEqual(SEQUENCE, 9)],
            Narrowing(first=5, last=9),
        ),
        ([In(SEQUENCE, (7, None, 3))], Narrowing(first=3, last=7)),
        ([GreaterThan(SEQUENCE, 5), GreaterThan(SEQUENCE, 3)], Narrowing(first=6)),
        ([EqualTo(SEQUENCE, True)], Narrowing()),
        ([Not(EqualTo(SEQUENCE, 5)), IsNotNull(SEQUENCE)], Narrowing()),
        ([EqualTo(("headers", "sequence"), 5)], Narrowing()),
        ([EqualTo(STREAM, "A")], Narrowing(streams=frozenset("A"))),
        ([EqualTo(STREAM, "A"), In(STREAM, ("B",))], Narrowing(streams=frozenset())),
        ([EqualTo(SUBJECT, "a.b")], Narrowing(subjects=("a.b",))),
        ([In(SUBJECT, ("b", "a", "b"))], Narrowing(subjects=("a", "b"))),
        ([In(SUBJECT, ("b", "a")), EqualTo(SUBJECT, "c")], Narrowing(subjects=())),
        ([StringStartsWith(SUBJECT, "a.b.")], Narrowing(subjects=("a.b.>",))),
        ([StringStartsWith(SUBJECT, "a.b")], Narrowing(subjects=("a.>",))),
        ([StringStartsWith(SUBJECT, "a")], Narrowing()),
        ([StringStartsWith(SUBJECT, "a.*.b")], Narrowing()),
        ([EqualTo(SUBJECT, "a.*")], Narrowing()),
        ([EqualTo(SUBJECT, "bad \ufffd"), EqualTo(SUBJECT, "bad\ufffd")], Narrowing()),
        ([In(SUBJECT, tuple(map(str, range(MOST_SUBJECTS + 1))))], Narrowing()),
        ([GreaterThan(TIME, BEGIN)], Narrowing(since=BEGIN - CLOCKS)),
        (
            [GreaterThanOrEqual(TIME, BEGIN), LessThan(TIME, BEGIN + HOUR)],
            Narrowing(since=BEGIN - CLOCKS, until=BEGIN + HOUR + CLOCKS),
        ),
        ([EqualTo(TIME, BEGIN)], Narrowing(since=BEGIN - CLOCKS, until=BEGIN + CLOCKS)),
        ([GreaterThan(TIME, BEGIN.replace(tzinfo=None))], Narrowing()),
    ],
)
def test_narrowing(filters: list[Filter], expected: Narrowing) -> None:
    assert narrow(filters) == expected


@pytest.mark.parametrize(
    ("filters", "subjects", "expected"),
    [
        ([], ("a.*", "b.>"), ("a.*", "b.>")),
        ([EqualTo(SUBJECT, "a.x")], ("a.*", "b.>"), ("a.x",)),
        ([EqualTo(SUBJECT, "c.x")], ("a.*", "b.>"), ()),
        ([StringStartsWith(SUBJECT, "b.x.")], ("*.*.y", "a.>"), ("b.x.y",)),
        ([StringStartsWith(SUBJECT, "b.")], (">",), ("b.>",)),
    ],
)
def test_within_the_subjects_of_the_option(
    filters: list[Filter], subjects: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    found = narrow(filters, subjects)
    assert found.subjects == expected
    assert found.has_stream("A") == bool(expected)


def test_all_subjects_need_no_filter() -> None:
    assert narrow([]).filter_subjects == ()
    assert narrow([], [">"]).filter_subjects == ()
    assert narrow([], ["a"]).filter_subjects == ("a",)
