"""How old a message is when it is a row in a sink, at 100 messages a second.

Everything is a rate, of which more is better, a thousand divided by seconds: the main figures are
those of the median, p99 is that of the 99th percentile, and empty_trigger that of a trigger which
finds nothing to read. The limit is Spark's own: a source that makes its rows from the
clock, see `spark_clock`, with the same sink. So vs_limit of 0.77 means 1.3 times its latency.
The extra figures `microseconds` are those of ours once more, as times.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import harness
from benchmarks.harness import Benchmark, Job
from benchmarks.js_common import STREAM, SUBJECT, new_stream
from benchmarks.spark_clock import stamped
from benchmarks.spark_common import figures_of_a_turn, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

UNIT = 1000
"""Latencies of a second have few digits as a rate per second."""
RATE = 100
WARM_UP = 1_500
"""Messages of a first query: the first batches of a session take seconds, and it takes dozens of
them until Java has compiled what they need."""
UNCOUNTED = 200
"""Messages at the start of the second query, whose latency does not count."""
DELAY = 2.0
"""Seconds after which messages begin to come: so long takes the start of a query."""
POLLING = 0.002
"""Seconds between two empty triggers. Without any, there would be too many events to count."""
SETTLING = 2.0
"""Seconds without rows before empty triggers are counted."""
IDLE = 3.0
"""Seconds in which empty triggers are counted."""
PATIENCE = 60.0
VARIANTS = ("p99", "empty_trigger")


def ours(job: Job) -> float | None:
    return figures_of_a_turn(job, "ours", VARIANTS, lambda: measure(job, our_rows))


def limit(job: Job) -> float | None:
    return figures_of_a_turn(job, "limit", VARIANTS, lambda: measure(job, clock_rows))


def microseconds(job: Job) -> dict[str, int]:
    figures = harness.in_fresh_process(measure, job, our_rows)
    names = {"": "p50", "p99": "p99", "empty_trigger": "empty_trigger"}
    return {names[key]: round(1e6 * UNIT / value) for key, value in figures.items()}


Rows = Callable[["SparkSession", Job, int], "DataFrame"]


def measure(job: Job, rows: Rows) -> dict[str, float]:
    """All figures of a source."""
    from benchmarks.spark_clock import ClockSource

    with (
        tempfile.TemporaryDirectory() as directory,
        spark_session(**{"spark.sql.streaming.noDataProgressEventInterval": "0"}) as spark,
    ):
        spark.dataSource.register(ClockSource)
        ages = Path(directory) / "ages"
        for count in (WARM_UP, UNCOUNTED + job.messages):
            ages.write_text("")
            with running(rows(spark, job, count), ages):
                wait_for(lambda: ages.read_text().count("\n") >= count)  # noqa: B023
        found = sorted(float(line) for line in ages.read_text().split()[UNCOUNTED:])
        return {
            "": UNIT / found[len(found) // 2],
            "p99": UNIT / found[len(found) * 99 // 100],
            "empty_trigger": idle_triggers(spark, rows(spark, job, 0), ages),
        }


def our_rows(spark: SparkSession, job: Job, count: int) -> DataFrame:
    """The messages that a thread publishes meanwhile."""
    new_stream(job)
    if count:
        threading.Thread(target=asyncio.run, args=[publish(job, count)], daemon=True).start()
    options = {"servers": job.url, "stream": STREAM, "startingOffsets": "earliest"}
    return spark.readStream.format("jetstream").options(**options).load().select("data")


async def publish(job: Job, count: int) -> None:
    import jetspark

    async with await jetspark.connect(job.url) as nc:
        js = nc.jetstream()
        begin = time.time() + DELAY
        for number in range(count):
            await asyncio.sleep(max(begin + number / RATE - time.time(), 0))
            await js.publish_async(SUBJECT, stamped(time.time(), job.size))
        await js.publish_async_complete()


def clock_rows(spark: SparkSession, job: Job, count: int) -> DataFrame:
    options = {"begin": time.time() + DELAY, "rate": RATE, "rows": count, "size": job.size}
    texts = {name: str(value) for name, value in options.items()}
    return spark.readStream.format("clock").options(**texts).load()


@contextmanager
def running(frame: DataFrame, ages: Path) -> Iterator[StreamingQuery]:
    """A query that runs as fast as it can."""
    with tempfile.TemporaryDirectory(dir=ages.parent) as checkpoint:
        writer = frame.writeStream.format("clock").option("ages", str(ages))
        query = writer.option("checkpointLocation", checkpoint).start()
        try:
            yield query
            query.processAllAvailable()  # a batch that is under way may end
        finally:
            query.stop()


def idle_triggers(spark: SparkSession, frame: DataFrame, ages: Path) -> float:
    """The rate of triggers that find nothing."""
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryListener,
    )

    class Counter(StreamingQueryListener):
        count = 0

        def onQueryStarted(self, event: QueryStartedEvent) -> None:
            pass

        def onQueryProgress(self, event: QueryProgressEvent) -> None:
            pass

        def onQueryIdle(self, event: QueryIdleEvent) -> None:
            self.count += 1

        def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
            pass

    spark.conf.set("spark.sql.streaming.pollingDelay", f"{round(POLLING * 1000)}ms")
    counter = Counter()
    spark.streams.addListener(counter)
    with running(frame, ages):
        wait_for(lambda: counter.count > 20)
        time.sleep(SETTLING)
        begin, before = time.perf_counter(), counter.count
        time.sleep(IDLE)
        interval = (time.perf_counter() - begin) / (counter.count - before)
    spark.streams.removeListener(counter)
    return UNIT / (interval - POLLING)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"the query is not there after {PATIENCE:g} s")
        time.sleep(0.1)


BENCHMARK = Benchmark(
    title="from publishing a message to its row in a sink, at 100 messages a second",
    unit="1000/s",
    messages=600,
    size=128,
    contenders={"ours": ours, "limit": limit},
    variants=VARIANTS,
    extras={"microseconds": microseconds},
)
