"""Workers, drivers and servers are killed in the middle of real queries: every row once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import jetspark
from jetspark.errors import JetSparkError
from jetspark.server import NatsServer, run_cluster, run_server
from tests.support.spark_job import Job, connected_workers, start_job
from tests.support.streams import caught_up, leader_of

from .conftest import Streams

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]


@pytest.fixture
def server() -> Iterator[NatsServer]:
    """A server of its own for each test, which may be killed, too."""
    with run_server() as server:
        yield server


def until(happens: Callable[[], Any], job: Job, timeout: float = 240) -> Any:
    """Wait for something to happen while a job runs; returns what it was."""
    end = time.monotonic() + timeout
    while not (found := happens()):
        assert job.process.poll() is None, job.log.read_text()[-3000:]
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)
    return found


def messages(streams: Streams, stream: str) -> list[int]:
    """The numbers in a stream."""

    async def read(js: jetspark.JetStream) -> list[int]:
        found = await js.get_stream(stream)
        return [int(message.data) async for message in found.direct_get_batch(seq=1)]

    found: list[int] = streams.edit(read)
    return found


def count(streams: Streams, stream: str) -> int:
    """How many messages are in a stream."""

    async def read(js: jetspark.JetStream) -> int:
        return (await js.get_stream(stream)).cached_info.state.messages

    found: int = streams.edit(read)
    return found


def more_than(some: int, streams: Streams, stream: str) -> Callable[[], bool]:
    """Asks whether there are more messages in a stream than that."""

    def asked() -> bool:
        with contextlib.suppress(JetSparkError):  # without a leader there is no answer
            return count(streams, stream) > some
        return False

    return asked


def busy(job: Job, server: NatsServer, *, sent: int = 0, received: int = 0) -> int | None:
    """A worker that has sent or received so much."""
    for pid, (ingoing, outgoing) in connected_workers(job, server).items():
        if ingoing >= sent and outgoing >= received:
            return pid
    return None


def test_a_worker_is_killed_while_it_reads(server: NatsServer, tmp_path: Path) -> None:
    streams = Streams(server)
    stream = streams.new()
    streams.publish(stream, 20_000)
    source = {
        "servers": server.url,
        "stream": stream,
        "minPartitions": "2",
        "rowsPerBatch": "500",
    }
    output = tmp_path / "rows"
    with start_job(
        tmp_path,
        kind="read",
        source=source,
        output=str(output),
        pause=0.05,
    ) as job:
        pid = until(lambda: busy(job, server, received=2000), job)
        os.kill(pid, signal.SIGKILL)
        assert job.wait() == "done"
    lines = [line for path in output.glob("part-*") for line in path.read_text().splitlines()]
    rows = Counter(int(json.loads(line)["data"]) for line in lines)
    assert rows == Counter(range(1, 20_001))


@pytest.mark.parametrize("window", [120.0, 1.0], ids=["in the window", "after it"])
def test_a_worker_is_killed_while_it_writes(
    server: NatsServer, tmp_path: Path, window: float
) -> None:
    streams = Streams(server)
    stream = streams.new(allow_direct=True, duplicate_window=window)
    sink = {"servers": server.url, "subject": f"{stream}.a", "maxPending": "100"}
    with start_job(
        tmp_path,
        kind="write",
        sink=sink,
        rows=10_000,
        pause=0.1,
    ) as job:
        pid = until(lambda: busy(job, server, sent=800), job)
        os.kill(pid, signal.SIGKILL)
        assert job.wait() == "done"
    assert Counter(messages(streams, stream)) == Counter(range(10_000))


def copying(server: NatsServer, streams: Streams, path: Path, **more: Any) -> dict[str, Any]:
    """A query from one stream to another, in batches of several partitions."""
    origin = streams.new()
    target = streams.new(allow_direct=True, **more)
    streams.publish(origin, 12_000)
    return {
        "kind": "copy",
        "source": {
            "servers": server.url,
            "stream": origin,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "4000",
            "minPartitions": "2",
        },
        "sink": {"servers": server.url, "subject": f"{target}.a", "maxPending": "20"},
        "checkpoint": str(path / "checkpoint"),
        "pause": 0.2,
    }


def target_of(job: dict[str, Any]) -> str:
    subject: str = job["sink"]["subject"]
    return subject.removesuffix(".a")


@pytest.mark.parametrize("window", [120.0, 0.5], ids=["in the window", "after it"])
def test_the_driver_is_killed_in_the_middle_of_batches(
    server: NatsServer, tmp_path: Path, window: float
) -> None:
    streams = Streams(server)
    job = copying(server, streams, tmp_path, duplicate_window=window)
    target = target_of(job)
    for some in (1000, 6000):
        with start_job(tmp_path, **job) as running:
            until(more_than(some, streams, target), running)
            running.kill()
        assert count(streams, target) < 12_000
        # A driver takes longer to start than the short window is.
    with start_job(tmp_path, **job) as running:
        assert running.wait() == "done"
    assert Counter(messages(streams, target)) == Counter(range(1, 12_001))


def test_speculation(server: NatsServer, tmp_path: Path) -> None:
    """A task that seems slow is run a second time, at the same time."""
    streams = Streams(server)
    stream = streams.new(allow_direct=True, duplicate_window=0.5)
    sink = {"servers": server.url, "subject": f"{stream}.a", "maxPending": "10"}
    conf = {
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.multiplier": "1",
        "spark.speculation.quantile": "0.01",
        "spark.speculation.minTaskRuntime": "50ms",
        "spark.speculation.task.duration.threshold": "1s",
    }
    with start_job(
        tmp_path,
        kind="write",
        sink=sink,
        rows=6000,
        pause=0.5,
        conf=conf,
        master="local[4,4]",
    ) as job:
        workers = until(lambda: len(connected_workers(job, server)) > 2, job)
        assert workers  # more than there are partitions
        assert job.wait() == "done"
    assert Counter(messages(streams, stream)) == Counter(range(6000))


def test_the_server_is_killed_under_a_query(server: NatsServer, tmp_path: Path) -> None:
    streams = Streams(server)
    job = copying(server, streams, tmp_path)
    target = target_of(job)
    with start_job(tmp_path, **job) as running:
        for some in (1000, 5000, 9000):
            until(more_than(some, streams, target), running)
            server.kill()
            server.start()
        assert running.wait() == "done"
    assert Counter(messages(streams, target)) == Counter(range(1, 12_001))


def test_the_leader_is_killed_under_a_query(tmp_path: Path) -> None:
    with run_cluster(3) as cluster:
        streams = Streams(cluster[0])
        origin, target = (streams.new(num_replicas=3, allow_direct=True) for _ in range(2))
        streams.publish(origin, 10_000)
        job = {
            "kind": "copy",
            "source": {
                "servers": cluster.url,
                "stream": origin,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": "4000",
            },
            "sink": {"servers": cluster.url, "subject": f"{target}.a", "maxPending": "20"},
            "checkpoint": str(tmp_path / "checkpoint"),
            "pause": 0.1,
        }

        def leader(name: str) -> int:
            async def find(js: jetspark.JetStream) -> int:
                return await leader_of(js, name, cluster)

            found: int = streams.edit(find)
            return found

        with start_job(tmp_path, **job) as running:
            for some, name in ((1000, origin), (5000, target)):
                until(more_than(some, streams, target), running)
                number = leader(name)
                cluster.kill(number)
                time.sleep(1)
                cluster.restart(number)
            assert running.wait() == "done"
        asyncio.run(caught_up(cluster, target))
        assert Counter(messages(streams, target)) == Counter(range(1, 10_001))
