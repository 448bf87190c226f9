"""How sequences are divided among tasks and batches."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from jetspark.spark.ranges import PER_PARTITION, Range, divide, limit_offsets

SIZES = st.integers(0, 3 * PER_PARTITION)
RANGES = st.lists(st.tuples(st.integers(1, 10**9), SIZES), max_size=4).map(
    lambda pairs: [
        Range(f"S{number}", first, first + size - 1) for number, (first, size) in enumerate(pairs)
    ]
)


@given(RANGES, st.none() | st.integers(1, 50), st.none() | st.integers(1000, 10**6))
def test_the_parts_are_the_whole(
    ranges: list[Range], min_partitions: int | None, max_records: int | None
) -> None:
    parts = divide(ranges, min_partitions=min_partitions, max_records=max_records)
    assert parts == divide(ranges, min_partitions=min_partitions, max_records=max_records)
    assert all(part.size > 0 for part in parts)
    for whole in ranges:
        own = [part for part in parts if part.stream == whole.stream]
        assert sum(part.size for part in own) == whole.size
        if own:
            assert (own[0].first, own[-1].last) == (whole.first, whole.last)
            assert all(a.last + 1 == b.first for a, b in pairwise(own))
    if max_records is not None:
        assert all(part.size <= max_records for part in parts)
    total = sum(whole.size for whole in ranges)
    if min_partitions is not None and total >= min_partitions * len(ranges):
        assert len(parts) >= min(min_partitions, total)


def test_a_small_batch_is_one_task() -> None:
    assert divide([Range("S", 1, 1000)]) == [Range("S", 1, 1000)]
    assert len(divide([Range("S", 1, 4 * PER_PARTITION)])) == 4
    assert divide([]) == divide([Range("S", 5, 4)]) == []


@given(
    st.dictionaries(st.sampled_from("ABCD"), st.tuples(st.integers(0, 1000), st.integers(0, 1000))),
    st.integers(1, 2000),
)
def test_a_batch_goes_so_far(streams: dict[str, tuple[int, int]], most: int) -> None:
    start = {name: offset for name, (offset, _) in streams.items()}
    latest = {name: offset + more for name, (offset, more) in streams.items()}
    end = limit_offsets(start, latest, most)
    assert end.keys() == latest.keys()
    assert all(start[name] <= end[name] <= latest[name] for name in end)
    busy = [name for name in latest if latest[name] > start[name]]
    assert all(end[name] > start[name] for name in busy)
    assert sum(end[name] - start[name] for name in end) <= max(most, len(busy))
    if sum(latest[name] - start[name] for name in end) <= most:
        assert end == latest
