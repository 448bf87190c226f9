"""The waits between attempts."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspark.connection.backoff import Backoff
from jetspark.errors import InvalidOptionError


def test_the_first_attempt_is_immediate() -> None:
    assert Backoff().delay(0, 0.0) == 0.0
    assert Backoff().delay(0, 1.0) == 0.0
    assert Backoff().delay(-1, 0.5) == 0.0


def test_waits_double_up_to_the_maximum() -> None:
    waits = [Backoff(jitter=0.0).delay(attempt, 0.7) for attempt in range(1, 10)]
    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 8.0, 8.0])


def test_jitter_only_shortens() -> None:
    backoff = Backoff(initial=1.0, jitter=0.5)
    assert backoff.delay(1, 0.0) == 1.0
    assert backoff.delay(1, 1.0) == 0.5
    assert backoff.delay(100, 0.0) == 8.0


@pytest.mark.parametrize("attempt", [1024, 10**6])
def test_no_number_of_attempts_is_too_large(attempt: int) -> None:
    assert Backoff(jitter=0.0).delay(attempt, 0.0) == 8.0
    assert Backoff(factor=1.0, jitter=0.0).delay(attempt, 0.0) == 0.1
    assert Backoff(initial=0.0).delay(attempt, 0.0) == 0.0


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"initial": -0.1}, "initial"),
        ({"initial": math.nan}, "initial"),
        ({"initial": math.inf}, "initial"),
        ({"initial": 2.0, "maximum": 1.0}, "maximum"),
        ({"maximum": math.inf}, "maximum"),
        ({"factor": 0.5}, "factor"),
        ({"factor": math.nan}, "factor"),
        ({"jitter": -0.1}, "jitter"),
        ({"jitter": 1.1}, "jitter"),
        ({"jitter": math.nan}, "jitter"),
    ],
)
def test_refuses(options: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidOptionError, match=f"backoff {name} must be"):
        Backoff(**options)


@given(
    initial=st.floats(0.0, 10.0),
    span=st.floats(0.0, 100.0),
    factor=st.floats(1.0, 100.0),
    jitter=st.floats(0.0, 1.0),
    attempt=st.integers(0, 10_000),
    random=st.floats(0.0, 1.0),
)
def test_bounds(
    initial: float, span: float, factor: float, jitter: float, attempt: int, random: float
) -> None:
    backoff = Backoff(initial, initial + span, factor, jitter)
    delay = backoff.delay(attempt, random)
    assert 0.0 <= delay <= backoff.maximum
    full = Backoff(initial, initial + span, factor, 0.0)
    assert full.delay(attempt, random) <= full.delay(attempt + 1, random) or attempt == 0
    assert delay <= full.delay(attempt, random)
