"""Errors of the pipeline tool: declared pipelines, queries, archives.

Import these from `jetspark.errors`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jetspark._errors_core import InvalidArgumentError, JetSparkError

__all__ = [
    "ArchiveError",
    "FailedQueryError",
    "InvalidPipelineError",
    "InvalidQueryError",
    "PipelineBusyError",
    "PipelineFailedError",
    "SparkJobError",
]


class InvalidPipelineError(InvalidArgumentError):
    """A pipeline file cannot be run: `problems` says why, line by line."""

    file: str = ""
    problems: Sequence[Any] = ()
    """What `jetspark.pipeline.problems` collects."""

    def lines(self) -> list[str]:
        """One line for each problem, with file, line and column."""
        return str(self).splitlines()

    @property
    def passing(self) -> bool:
        """Whether trying again later may help: nothing is wrong with the file itself."""
        return all(problem.passing for problem in self.problems)


class InvalidQueryError(InvalidArgumentError):
    """Spark does not accept a query; `place` shows where."""

    place: str = ""


class FailedQueryError(JetSparkError):
    """A query was begun and could not be finished."""


class PipelineBusyError(JetSparkError):
    """Another process runs the pipeline with the same checkpoint directory."""

    retryable = True


class PipelineFailedError(JetSparkError):
    """A query of a pipeline failed, and the others were stopped.

    `query` is its name, `retryable` says whether starting the pipeline again later may help.
    """

    query: str = ""


class ArchiveError(JetSparkError):
    """An archive cannot be used as it is asked for."""


class SparkJobError(ArchiveError):
    """Spark could not run the tasks of an archive."""
