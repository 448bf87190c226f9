"""Runs the flows of a pipeline: one streaming query each, until they are done or told to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jetspark.errors import PipelineFailedError

from .failure import cause_of
from .herald import Herald
from .plan import Flow
from .progress import Meter, Progress, QueryProgress
from .sinks import RowsPrinter
from .spec import Pipeline

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["RESTARTS", "RESTART_DELAY", "Runner"]

RESTARTS = 5
"""How often in a row a query is restarted that failed for a reason that passes."""
RESTART_DELAY = 10.0  # seconds
_LOOK_EVERY = 0.5  # seconds
_SOURCES_LIMIT = 60.0  # seconds that the sources of a query are waited for
_BATCH_LIMIT = 300.0  # seconds that a running batch is waited for when we are told to stop


@dataclass
class _Running:
    """A flow and its query."""

    flow: Flow
    query: StreamingQuery | None = None
    meter: Meter = field(default_factory=Meter)
    state: str = "running"
    restarts: int = 0
    rows_at_restart: int = -1
    again_at: float = 0.0


class Runner:
    """Starts the queries and looks after them."""

    def __init__(
        self,
        pipeline: Pipeline,
        flows: list[Flow],
        herald: Herald,
        *,
        checkpoint: str,
        trigger: int | None,
        on_progress: Callable[[Progress], None],
        say: Callable[[str], None],
        show: RowsPrinter | None,
    ) -> None:
        self._pipeline = pipeline
        self._herald = herald
        self._checkpoint = checkpoint
        self._trigger = trigger
        self._on_progress = on_progress
        self._say = say
        self._show = show
        self._runs = [_Running(flow) for flow in flows]
        self._started = time.monotonic()

    def run(self, stop: threading.Event) -> Progress:
        """Until all are done, `stop` is set, or one has failed; the others are stopped then."""
        try:
            for run in self._runs:
                if not stop.is_set():
                    self._start(run)
                    self._tell()
            while self._look() and not stop.wait(_LOOK_EVERY):
                pass
            self._finish()
        except BaseException:
            self._finish(limit=0 if stop.is_set() else _BATCH_LIMIT)
            raise
        return self._tell(final=True)

    def _start(self, run: _Running) -> None:
        flow = run.flow
        try:
            run.query = flow.output.start(
                flow.frame,
                flow.name,
                f"{self._checkpoint.rstrip('/')}/{flow.name}",
                self._trigger,
                self._show,
            )
        except Exception as error:
            run.state = "failed"
            raise self._failed(run, str(error)) from error
        run.state = "running"
        _wait_for_sources(run.query)

    def _look(self) -> bool:
        """Look at all queries once, and tell; False when there is nothing left to do."""
        for run in self._runs:
            if run.state == "waiting":
                if time.monotonic() >= run.again_at:
                    self._start(run)
            elif run.state == "running" and run.query is not None and not run.query.isActive:
                self._ended(run, run.query)
        self._tell()
        return any(run.state in ("running", "waiting") for run in self._runs)

    def _ended(self, run: _Running, query: StreamingQuery) -> None:
        error = query.exception()
        run.meter.absorb(query)
        if error is None:
            run.state = "done"
            return
        cause, passing = cause_of(str(error))
        if run.meter.rows > run.rows_at_restart:
            run.restarts = 0  # it got on since
        if not passing or run.restarts >= RESTARTS:
            run.state = "failed"
            raise self._failed(run, str(error)) from error
        run.restarts += 1
        run.rows_at_restart = run.meter.rows
        run.again_at = time.monotonic() + RESTART_DELAY
        run.state = "waiting"
        self._say(
            f"{run.flow.what} {run.flow.name}: {cause}; it is restarted in {RESTART_DELAY:.0f} s "
            f"({run.restarts} of {RESTARTS})"
        )

    def _failed(self, run: _Running, text: str) -> PipelineFailedError:
        cause, passing = cause_of(text)
        return PipelineFailedError(
            f"pipeline {self._pipeline.name!r}, {run.flow.what} {run.flow.name!r}: {cause}",
            query=run.flow.name,
            retryable=passing,
        )

    def _finish(self, limit: float = _BATCH_LIMIT) -> None:
        """Let each query finish the batch that it is at, and stop it.

        Spark stops a query in the middle of a batch. So we wait for the moment when there is none,
        or when the next one has just begun: that is repeated after a restart, with no effect.
        """
        end = time.monotonic() + limit
        active = [
            (run, run.query, _batches(run.query))
            for run in self._runs
            if run.query is not None and run.state == "running" and run.query.isActive
        ]
        while active:
            still = []
            for run, query, before in active:
                idle = not query.isActive or not query.status["isTriggerActive"]
                if idle or _batches(query) != before or time.monotonic() >= end:
                    with suppress(Exception):  # it is ending anyway
                        query.stop()
                    run.meter.absorb(query)
                    run.state = "stopped"
                else:
                    still.append((run, query, before))
            active = still
            if active:
                self._tell()
                time.sleep(0.05)
        for run in self._runs:
            if run.state == "waiting":
                run.state = "stopped"

    def _tell(self, *, final: bool = False) -> Progress:
        now = time.monotonic()
        if final:
            self._herald.count()
        queries = []
        for run in self._runs:
            if run.query is not None and run.state == "running":
                run.meter.absorb(run.query)
            queries.append(
                QueryProgress(
                    name=run.flow.name,
                    what=run.flow.what,
                    state=run.state,
                    rows=run.meter.rows,
                    rate=run.meter.rate(now),
                    lag=run.meter.lag,
                    dead=self._herald.dead(run.flow.name),
                    late=run.meter.late,
                    batches=run.meter.batches,
                    report=run.meter.report,
                )
            )
        progress = Progress(self._pipeline.name, now - self._started, tuple(queries))
        self._herald.tell(progress)
        self._on_progress(progress)
        return progress


def _wait_for_sources(query: StreamingQuery) -> None:
    """Wait until a query has its first offsets.

    Each source has a process of Python, which must answer Spark within 10 seconds of its birth: so
    queries are started one after the other.
    """
    end = time.monotonic() + _SOURCES_LIMIT
    while query.isActive and time.monotonic() < end:
        status = query.status
        if status["isDataAvailable"] or status["message"].startswith(("Waiting", "Processing")):
            return
        time.sleep(0.05)


def _batches(query: StreamingQuery) -> tuple[str, int] | None:
    """The last batch that was finished."""
    last = query.lastProgress
    return None if last is None else (str(last.timestamp), int(last.batchId))
