"""What is wrong with a pipeline file: every problem with its place, and all of them at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import NamedTuple

from jetspark.errors import InvalidArgumentError

__all__ = ["InvalidPipelineError", "Mark", "Problem", "Problems", "did_you_mean"]


class Mark(NamedTuple):
    """A place in the file; both numbers begin with 1."""

    line: int
    column: int


class Problem(NamedTuple):
    """Something that must be corrected before the pipeline can run."""

    mark: Mark
    message: str
    passing: bool = False
    """Whether it may be over later without a change of the file: a server that is away."""


class InvalidPipelineError(InvalidArgumentError):
    """A pipeline file cannot be run: `problems` says why, line by line."""

    def __init__(self, file: str, problems: Iterable[Problem]) -> None:
        self.file = file
        self.problems = sorted(problems)
        super().__init__("\n".join(self.lines()))

    def lines(self) -> list[str]:
        """One line for each problem, with file, line and column."""
        return [
            f"{self.file}:{mark.line}:{mark.column}: {message}"
            for mark, message, _ in self.problems
        ]

    @property
    def passing(self) -> bool:
        """Whether trying again later may help: nothing is wrong with the file itself."""
        return all(problem.passing for problem in self.problems)

    def __reduce__(self) -> tuple[type, tuple[str, list[Problem]]]:
        return type(self), (self.file, self.problems)


class Problems:
    """Collects what is wrong with one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: list[Problem] = []

    def add(self, mark: Mark, message: str, *, passing: bool = False) -> None:
        """Note a problem; the same one is noted once."""
        problem = Problem(mark, message, passing)
        if problem not in self.found:
            self.found.append(problem)

    def raise_if_any(self) -> None:
        """Raise all of them in one error, if there are any."""
        if self.found:
            raise InvalidPipelineError(self.file, self.found)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The advice for a name that is not known: the nearest one, or all."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"there are: {', '.join(names)}" if names else "there are none"
