"""When the event loop stays awake for more acknowledgements, and when it does not any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import cast

import pytest

from jetspark.connection.lookout import LONGEST_PAUSE, MANY, Lookout

MOMENT = 5


class Clock:
    """The part of an event loop that is needed; each turn takes a second."""

    def __init__(self) -> None:
        self.now = 0
        self.due: list[Callable[[], object]] = []

    def time(self) -> int:
        return self.now

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.due.append(callback)

    def turn(self) -> None:
        self.now += 1
        due, self.due = self.due, []
        for callback in due:
            callback()

    def turns(self) -> int:
        """Run until the loop would sleep, and return how many turns it took."""
        before = self.now
        while self.due:
            self.turn()
        return self.now - before


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lookout(clock: Clock) -> Lookout:
    return Lookout(cast(asyncio.AbstractEventLoop, clock), MOMENT)


def test_few_acknowledgements_are_nothing_to_wait_for(clock: Clock, lookout: Lookout) -> None:
    lookout.acknowledged(MANY - 1)
    assert not clock.due


def test_a_moment_of_nothing_never_waits(clock: Clock) -> None:
    Lookout(cast(asyncio.AbstractEventLoop, clock), 0).acknowledged(1000)
    assert not clock.due


def test_it_stays_awake_for_a_moment(clock: Clock, lookout: Lookout) -> None:
    lookout.acknowledged(MANY)
    assert clock.turns() == MOMENT


def test_the_moment_begins_anew_with_what_is_found(clock: Clock, lookout: Lookout) -> None:
    lookout.acknowledged(MANY)
    for _ in range(4):
        clock.turn()
    lookout.acknowledged(MANY)
    assert len(clock.due) == 1  # it does not look twice
    assert clock.turns() == MOMENT


def test_in_vain_it_waits_less_and_less_often(clock: Clock, lookout: Lookout) -> None:
    tries = []
    for read in range(4000):
        lookout.acknowledged(MANY)
        if clock.turns():
            tries.append(read)
    gaps = [later - earlier - 1 for earlier, later in pairwise(tries)]
    assert gaps == [0, 1, 3, 7, 15, 31, 63, 127, 255, 511, LONGEST_PAUSE, LONGEST_PAUSE]


def test_what_is_found_makes_up_for_it(clock: Clock, lookout: Lookout) -> None:
    for _ in range(1000):
        lookout.acknowledged(MANY)
        clock.turns()
    while not clock.due:
        lookout.acknowledged(MANY)
    lookout.acknowledged(MANY)
    assert clock.turns() == MOMENT
    lookout.acknowledged(MANY)
    assert clock.turns() == MOMENT
