"""How a running pipeline is shown: a live table on a terminal, a line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jetspark.cli import console

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from jetspark.pipeline.progress import Progress, QueryProgress

__all__ = ["Shown", "pipeline_shown", "summary"]

_LINE_EVERY = 5.0  # seconds, in a log


class Shown:
    """Takes the progress of a pipeline, and what is to be said meanwhile."""

    def __init__(self, live: Live | None, *, quiet: bool) -> None:
        self._live = live
        self._quiet = quiet
        self._told = time.monotonic()
        self._line = ""

    def tell(self, progress: Progress) -> None:
        """Show it."""
        if self._live is not None:
            self._live.update(_table(progress), refresh=True)
        elif not self._quiet and time.monotonic() - self._told >= _LINE_EVERY:
            self._told = time.monotonic()
            line = "; ".join(_short(query) for query in progress.queries)
            if line != self._line:  # nothing new is no news
                self._line = line
                console.say(f"{progress.seconds:.0f} s: {line}")

    def say(self, text: str) -> None:
        """A line above the table."""
        if not self._quiet:
            console.say(text)

    def show(
        self, name: str, batch: int, columns: list[str], rows: list[list[str]], total: int
    ) -> None:
        """The rows of a console sink, on stdout."""
        # On a terminal both are the same screen: only the console of the table knows where it is.
        above = self._live is not None and console.out().is_terminal
        target = console.stderr() if above else console.out()
        target.print(_rows(name, batch, columns, rows, total))


@contextmanager
def pipeline_shown(*, quiet: bool) -> Iterator[Shown]:
    """Show a pipeline while the context lasts."""
    if quiet or not console.stderr().is_terminal:
        yield Shown(None, quiet=quiet)
        return
    from rich.live import Live

    with Live(console=console.stderr(), transient=True, auto_refresh=False) as live:
        yield Shown(live, quiet=False)


def _short(query: QueryProgress) -> str:
    if query.what == "source":
        return f"{query.name} (dead letters) {query.dead:,}"
    lag = "" if query.lag is None else f", lag {query.lag:,}"
    dead = f", {query.dead:,} dead" if query.dead else ""
    late = f", {query.late:,} late" if query.late else ""
    state = "" if query.state in ("running", "done") else f", {query.state}"
    return f"{query.name} {query.rows:,} rows ({query.rate:,.0f}/s{lag}{dead}{late}{state})"


def _table(progress: Progress) -> Table:
    from rich.table import Table

    title = f"pipeline {progress.pipeline}, {progress.seconds:.0f} s"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("query")
    for name in ("rows", "rows/s", "lag", "dead", "late"):
        table.add_column(name, justify="right", min_width=8)
    table.add_column("state")
    for query in progress.queries:
        name = query.name if query.what == "sink" else f"{query.name} [dim](dead letters)[/]"
        lag = (
            "" if query.lag is None else f"[yellow]{query.lag:,}[/]" if query.lag else "[green]0[/]"
        )
        dead = f"[yellow]{query.dead:,}[/]" if query.dead else "0"
        late = f"[yellow]{query.late:,}[/]" if query.late else "0"
        table.add_row(name, f"{query.rows:,}", f"{query.rate:,.0f}", lag, dead, late, query.state)
    return table


def summary(progress: Progress, dead_stream: str) -> list[str]:
    """The lines at the end of a run."""
    lines = [f"pipeline {progress.pipeline}: {progress.seconds:.1f} s"]
    for query in progress.queries:
        if query.what == "sink":
            lag = f", {query.lag:,} still to read" if query.lag else ""
            late = f", {query.late:,} too late for their window" if query.late else ""
            dead = f", {query.dead:,} that could not be written" if query.dead else ""
            lines.append(f"  {query.name}: {query.rows:,} rows{dead}{late}{lag}")
        elif query.dead:
            lines.append(f"  {query.name}: {query.dead:,} rows that could not be parsed")
    if progress.dead:
        lines.append(f"  {progress.dead:,} dead letters are in stream {dead_stream}, with reasons")
    return lines


def _rows(name: str, batch: int, columns: list[str], rows: list[list[str]], total: int) -> Table:
    from rich.markup import escape
    from rich.table import Table

    more = f", the first {len(rows)} of {total:,} rows" if total > len(rows) else ""
    table = Table(title=f"{name}, batch {batch}{more}", title_justify="left")
    for column in columns:
        table.add_column(escape(column))
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    return table
