"""What is wrong with a pipeline file: every problem with its place, and all of them at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import NamedTuple

from jetspark.errors import InvalidPipelineError

__all__ = ["Mark", "Problem", "Problems", "did_you_mean", "pipeline_error"]


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
            raise pipeline_error(self.file, self.found)


def pipeline_error(file: str, problems: Iterable[Problem]) -> InvalidPipelineError:
    """The error for problems of a file: a line for each, with file, line and column."""
    found = sorted(problems)
    lines = (f"{file}:{mark.line}:{mark.column}: {text}" for mark, text, _ in found)
    return InvalidPipelineError("\n".join(lines), file=file, problems=found)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The advice for a name that is not known: the nearest one, or all."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"there are: {', '.join(names)}" if names else "there are none"
