"""Which objects a Spark task reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspark.objects import ObjectInfo
from jetspark.spark.objects_plan import OPEN_COST, divide_objects, is_hidden, is_wanted


def infos(*sizes: int) -> list[ObjectInfo]:
    return [ObjectInfo(name=f"o{number}", size=size) for number, size in enumerate(sizes)]


def names(groups: list[list[ObjectInfo]]) -> list[list[str]]:
    return [[info.name for info in group] for group in groups]


def test_the_largest_come_first() -> None:
    most = 4 * OPEN_COST
    groups = divide_objects(infos(1, 10 * most, OPEN_COST, OPEN_COST, 2), most)
    assert names(groups) == [["o1"], ["o2", "o3"], ["o4", "o0"]]


def test_nothing_to_divide() -> None:
    assert divide_objects([], 1000) == []


def test_small_objects_are_not_free() -> None:
    assert len(divide_objects(infos(*[0] * 100), 10 * OPEN_COST)) == 10


@given(st.lists(st.integers(0, 10**8), max_size=50), st.integers(1, 10**8))
def test_each_object_once_and_no_group_too_large(sizes: list[int], most: int) -> None:
    objects = infos(*sizes)
    groups = divide_objects(objects, most)
    assert sorted(info.name for group in groups for info in group) == sorted(
        info.name for info in objects
    )
    for group in groups:
        assert len(group) == 1 or sum(info.size + OPEN_COST for info in group) <= most
    assert groups == divide_objects(reversed(objects), most)


@pytest.mark.parametrize(
    ("name", "patterns", "prefix", "wanted"),
    [
        ("a", (), None, True),
        ("a/b.csv", ("*.csv",), None, True),
        ("a/b.CSV", ("*.csv",), None, False),
        ("b", ("a", "b"), None, True),
        ("ab", (), "a", False),
        ("a/b", (), "a", True),
        ("a/b", ("*c",), "a", False),
    ],
)
def test_which_are_wanted(
    name: str, patterns: tuple[str, ...], prefix: str | None, wanted: bool
) -> None:
    assert is_wanted(name, patterns, prefix) is wanted


def test_what_is_hidden() -> None:
    assert is_hidden("a/.b")
    assert is_hidden("_SUCCESS")
    assert not is_hidden(".a/b")
