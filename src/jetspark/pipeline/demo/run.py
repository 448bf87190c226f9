"""The course of the demo: prepare, publish the backlog, run the pipeline, stop it, prove the books.

`Demo` has one method for each step; whoever calls them shows what is going on.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jetspark
from jetspark.errors import TimeoutError
from jetspark.pipeline import job
from jetspark.pipeline.progress import Progress
from jetspark.pipeline.server_checks import System
from jetspark.sync import JetStream

from . import evidence
from .books import prove
from .flow import Sent, publish, publish_live
from .orders import Orders
from .places import ORDERS, Places
from .result import Result
from .watch import Watch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Connect", "Demo", "Plan"]

_PATIENCE = 300.0  # seconds in which some query must get on


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How large a demo is."""

    orders: int = 200_000
    """In the backlog."""
    live: float = 20.0
    """Seconds of the live part."""
    rate: float = 1000.0
    """Live events a second."""
    seed: int = 1


Connect = Callable[[], AbstractAsyncContextManager[jetspark.JetStream]]
"""Opens a connection for the publisher, in whichever event loop it is called."""


class Demo:
    """One demo, step by step."""

    def __init__(self, js: JetStream, connect: Connect, places: Places, plan: Plan) -> None:
        self.sent = Sent()
        self.steps: dict[str, float] = {}
        self.watch = Watch(ORDERS)
        self._js = js
        self._connect = connect
        self._places = places
        self._plan = plan
        self._orders = Orders(plan.seed)
        self._late = 0
        self._live_from = self._live_until = 0.0

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Note how long a step takes."""
        begin = time.monotonic()
        yield
        self.steps[name] = time.monotonic() - begin

    def publish_backlog(self, told: Callable[[], None] = lambda: None) -> None:
        """Publish the orders of the morning."""

        async def all_of_it() -> None:
            async with self._connect() as js:
                await publish(js, self._orders.backlog(self._plan.orders), self.sent, told)

        with self.step("publish the backlog"):
            asyncio.run(all_of_it())

    def run_pipeline(
        self,
        system: System,
        spark: SparkSession,
        *,
        stop: threading.Event,
        tell: Callable[[Progress], None] = lambda progress: None,
        say: Callable[[str], None] = lambda text: None,
    ) -> bool:
        """Run the pipeline; publish the live part when it is at work; end when it has caught up.

        Returns False if `stop` was set before that.
        """
        pipeline = job.load(self._places.pipeline)
        done = False
        with self.step("run the pipeline"), self._live() as live:

            def look(progress: Progress) -> None:
                nonlocal done
                tell(progress)
                if not stop.is_set() and self._caught_up(progress, live):
                    done = True
                    stop.set()

            progress = job.run(pipeline, system, spark, stop=stop, on_progress=look, say=say)
        self._late = progress.late
        return done

    def _caught_up(self, progress: Progress, live: _LiveFlow) -> bool:
        """Whether everything is published and read."""
        ended = live.ended  # first: then the number of messages is the last one
        sample = self.watch.take(self.sent.last_sequence, progress)
        if not live.started and (any(sample.rows.values()) or not self._plan.orders):
            live.start()
            self._live_from = sample.seconds
        if not ended:
            self._live_until = sample.seconds
        self._expect_progress()
        return ended and sample.caught_up

    def result(self, server: str) -> Result:
        """Read what came of it, and prove the books."""
        with self.step("prove the books"):
            found = evidence.collect(self._js, self._places.archive, dropped_late=self._late)
            proofs = prove(self.sent, found)
        return Result(
            sent=self.sent,
            found=found,
            proofs=proofs,
            samples=self.watch.samples,
            steps=self.steps,
            live=(self._live_from, self._live_until),
            server=server,
            places=self._places,
        )

    @contextmanager
    def _live(self) -> Iterator[_LiveFlow]:
        flow = _LiveFlow(self._connect, self._orders, self.sent, self._plan)
        try:
            yield flow
        finally:
            flow.stop()

    def _expect_progress(self) -> None:
        """An error if no query got on for long: the demo would wait for ever."""
        last = self.watch.samples[-1]
        for sample in reversed(self.watch.samples):
            if sample.rows != last.rows or sample.published != last.published:
                return
            if last.seconds - sample.seconds > _PATIENCE:
                behind = [query for query in last.rows if last.lag(query)]
                raise TimeoutError(
                    f"the pipeline does not get on: {', '.join(behind)} did nothing for "
                    f"{_PATIENCE:.0f} s"
                )


class _LiveFlow:
    """Publishes the live part in a thread of its own."""

    def __init__(self, connect: Connect, orders: Orders, sent: Sent, plan: Plan) -> None:
        self._connect = connect
        self._events = orders.live(int(plan.live * plan.rate), rate=plan.rate)
        self._sent = sent
        self._rate = plan.rate
        self._stopped = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="jetspark demo")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def started(self) -> bool:
        """Whether it has begun."""
        return self._thread.ident is not None

    @property
    def ended(self) -> bool:
        """Whether everything is published; raises what went wrong."""
        if not self.started or self._thread.is_alive():
            return False
        if self._error is not None:
            raise self._error
        return True

    def stop(self) -> None:
        """End early, if it has not ended."""
        self._stopped.set()
        if self.started:
            self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._publish())
        except BaseException as error:
            self._error = error

    async def _publish(self) -> None:
        async with self._connect() as js:
            await publish_live(
                js, self._events, self._sent, rate=self._rate, stopped=self._stopped.is_set
            )
