"""Unique names: their shape, how they go on, and that they do not repeat."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from itertools import pairwise

import pytest

from jetspark.connection.nuid import Nuid, next_nuid

SHAPE = re.compile(r"[0-9A-Za-z]{22}")
ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
END = 62**10


class Scripted(random.Random):
    """Randomness whose counter starts are given, to get near the end of the range."""

    def __init__(self, *starts: int) -> None:
        super().__init__(1)
        self._starts = list(starts)

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        if stop is None and start == END:
            return self._starts.pop(0)
        return super().randrange(start, stop, step)


def counter(name: str) -> int:
    value = 0
    for character in name[12:]:
        value = value * 62 + ALPHABET.index(character)
    return value


def test_shape() -> None:
    nuid = Nuid(random.Random(1))
    for _ in range(1000):
        assert SHAPE.fullmatch(nuid.next())


def test_the_same_randomness_makes_the_same_names() -> None:
    first, second, other = (Nuid(random.Random(seed)) for seed in (1, 1, 2))
    names = [first.next() for _ in range(10)]
    assert names == [second.next() for _ in range(10)]
    assert not set(names) & {other.next() for _ in range(10)}


@pytest.mark.parametrize("seed", range(20))
def test_the_prefix_stays_and_the_counter_steps(seed: int) -> None:
    nuid = Nuid(random.Random(seed))
    names = [nuid.next() for _ in range(100)]
    assert len({name[:12] for name in names}) == 1
    steps = {counter(b) - counter(a) for a, b in pairwise(names)}
    assert len(steps) == 1
    assert 33 <= steps.pop() <= 333


def test_leading_zeros_are_kept() -> None:
    name = Nuid(Scripted(0)).next()
    assert name[12:19] == "0000000"
    assert SHAPE.fullmatch(name)


def test_at_the_end_of_the_range_everything_is_new() -> None:
    nuid = Nuid(Scripted(END - 400, 5))
    names = [nuid.next() for _ in range(20)]
    prefixes = list(dict.fromkeys(name[:12] for name in names))
    assert len(prefixes) == 2
    assert all(SHAPE.fullmatch(name) for name in names)
    assert len(set(names)) == 20
    renewed = [counter(name) for name in names if name.startswith(prefixes[1])]
    assert renewed == sorted(renewed)
    assert renewed[0] < 5 + 333


def test_the_shared_names_do_not_repeat() -> None:
    names = [next_nuid() for _ in range(10_000)]
    assert len(set(names)) == len(names)
    assert all(SHAPE.fullmatch(name) for name in names)


def test_processes_have_their_own_prefix() -> None:
    code = "from jetspark.connection.nuid import next_nuid; print(next_nuid())"
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert SHAPE.fullmatch(other)
    assert other[:12] != next_nuid()[:12]


def test_a_forked_process_has_names_of_its_own() -> None:
    program = (
        "import os\n"
        "from jetspark.connection.nuid import next_nuid\n"
        "read, write = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.write(write, next_nuid().encode())\n"
        "    os._exit(0)\n"
        "print(next_nuid() != os.read(read, 100).decode())\n"
        "os.wait()\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    assert result.stdout == "True\n"
