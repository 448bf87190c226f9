"""Where Spark calls us: errors become one readable line.

Spark shows the whole traceback of what a data source raises, with the message below it. So what we
raise ourselves comes without the calls inside the package, and without its causes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from jetspark.errors import JetSparkError

__all__ = ["plain_errors", "plain_errors_in"]

P = ParamSpec("P")
T = TypeVar("T")


def plain_errors(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function raise our errors without their history."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except JetSparkError as error:
            failure = error
        raise _plain(failure)

    return call


def plain_errors_in(iterator: Iterator[T]) -> Iterator[T]:
    """The same for what is raised while iterating."""
    try:
        yield from iterator
        return
    except JetSparkError as error:
        failure = error
    raise _plain(failure)


def _plain(error: JetSparkError) -> JetSparkError:
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
