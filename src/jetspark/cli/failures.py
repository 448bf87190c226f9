"""Errors for people: one line with cause and remedy, and an exit status for schedulers.

=======  ==================================================================================
status   meaning
=======  ==================================================================================
0        done, or stopped in good order
1        failed: something is wrong that trying again does not mend
2        wrong usage: an option, a pipeline file, a name; nothing was started
3        NATS or Spark cannot be reached; trying again later may help
4        the books do not balance: `--verify` or a proof found a difference
130      interrupted by Ctrl-C before it could end in good order
=======  ==================================================================================
"""

from __future__ import annotations

import os
import traceback
from enum import IntEnum

from jetspark.cli import console

__all__ = ["CommandError", "Status", "report", "status_of"]


class Status(IntEnum):
    """The exit status of the program."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    UNAVAILABLE = 3
    UNBALANCED = 4
    INTERRUPTED = 130


class CommandError(Exception):
    """What a command says when it cannot go on: one line with cause and remedy.

    `details` are further lines that are worth reading, `log` a file that has more.
    """

    def __init__(
        self,
        message: str,
        status: Status = Status.FAILED,
        *,
        details: str = "",
        log: object = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.details = details
        self.log = log


def status_of(error: BaseException) -> Status:
    """The exit status that an error means."""
    if isinstance(error, CommandError):
        return error.status
    if isinstance(error, KeyboardInterrupt):
        return Status.INTERRUPTED
    # Not at the top: help does without the errors of the client.
    from jetspark.errors import (
        ConnectionError,
        InvalidArgumentError,
        JetSparkError,
        MissingExtraError,
        NoRespondersError,
        TimeoutError,
    )

    if isinstance(error, InvalidArgumentError | MissingExtraError):
        return Status.USAGE
    if isinstance(error, ConnectionError | TimeoutError | NoRespondersError):
        return Status.UNAVAILABLE
    if isinstance(error, JetSparkError) and error.retryable:
        return Status.UNAVAILABLE
    return Status.FAILED


def report(error: BaseException, *, verbose: bool) -> Status:
    """Tell of an error on stderr, and give the exit status."""
    if isinstance(error, BrokenPipeError):
        # The reader of our output had enough: `jetspark ... | head`. What is left goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return Status.DONE
    if isinstance(error, KeyboardInterrupt):
        console.warn("interrupted")
        return Status.INTERRUPTED
    from jetspark.errors import JetSparkError

    known = isinstance(error, CommandError | JetSparkError | OSError)
    text = str(error) if known else f"{type(error).__name__}: {error}"
    console.error(text.strip() or type(error).__name__)
    if isinstance(error, CommandError):
        if error.details:
            console.say(error.details)
        if error.log is not None:
            console.say(f"more in {error.log}")
    if verbose:
        console.say("".join(traceback.format_exception(error)).rstrip())
    elif not known:
        console.say("--verbose shows where it came from")
    return status_of(error)
