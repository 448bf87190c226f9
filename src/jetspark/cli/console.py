"""What the commands print: results on stdout, what they do and errors on stderr.

On a terminal there are colours and progress bars; in a log there are plain lines.
"""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

__all__ = ["Meter", "error", "meter", "out", "print_json", "say", "stderr", "warn"]

_LINE_EVERY = 5.0  # seconds, in a log


@functools.cache
def out() -> Console:
    """For results."""
    return _console(stderr=False)


@functools.cache
def stderr() -> Console:
    """For everything else."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise  # what becomes of it is decided in failures.py, as for all errors

    return Plain(stderr=stderr, highlight=False, soft_wrap=True, emoji=False)


def say(text: str) -> None:
    """A line about what is going on."""
    stderr().print(text, markup=False)


def warn(text: str) -> None:
    """A line that should be seen."""
    stderr().print(f"warning: {text}", style="yellow", markup=False)


def error(text: str) -> None:
    """What went wrong."""
    stderr().print(f"error: {text}", style="bold red", markup=False)


def print_json(value: Any) -> None:
    """A result for scripts: one JSON document on one line."""
    sys.stdout.write(json.dumps(value, default=str) + "\n")
    sys.stdout.flush()


class Meter:
    """Shows how far a job is: a bar on a terminal, a line now and then in a log."""

    def __init__(self, what: str, unit: str, progress: Progress | None) -> None:
        self._what = what
        self._unit = unit
        self._progress = progress
        self._task = progress.add_task(what, total=None, note="") if progress is not None else None
        self._start = self._told = time.monotonic()

    def show(self, done: int, total: int | None = None, note: str = "") -> None:
        """Tell where the job is."""
        now = time.monotonic()
        rate = done / max(now - self._start, 1e-9)
        note = f"{rate:,.0f}/s{note and f', {note}'}"
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done, total=total, note=note)
        elif now - self._told >= _LINE_EVERY:
            self._told = now
            of = f" of {total:,}" if total is not None else ""
            say(f"{self._what}: {done:,}{of} {self._unit}, {note}")


class _Silent(Meter):
    def __init__(self) -> None:
        super().__init__("", "", None)

    def show(self, done: int, total: int | None = None, note: str = "") -> None:
        pass


@contextmanager
def meter(what: str, unit: str = "messages", *, quiet: bool = False) -> Iterator[Meter]:
    """Show the progress of a job while the context lasts."""
    if quiet:
        yield _Silent()
        return
    if not stderr().is_terminal:
        yield Meter(what, unit, None)
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit + " {task.fields[note]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=stderr(), transient=True) as progress:
        yield Meter(what, unit, progress)
