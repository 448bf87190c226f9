"""The sink when tasks are tried again, run twice at a time, or go wrong: every row once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import jetspark
from jetspark.errors import JetSparkError, MaxPayloadError, NoMatchingStreamError
from jetspark.server import NatsServer, run_cluster
from jetspark.spark.connection import persist, run
from jetspark.spark.stream_routes import Routes
from jetspark.spark.stream_sink import Task, WriteSettings
from tests.support.clients import unique
from tests.support.servers import StartServer

from .conftest import needs_version

WINDOW = 0.3  # seconds in which the server knows ids


@pytest.fixture
async def js(nats: NatsServer) -> AsyncIterator[jetspark.JetStream]:
    """To look at what is stored."""
    async with await jetspark.connect(nats.url) as nc:
        yield nc.jetstream()


async def target(js: jetspark.JetStream, **config: Any) -> jetspark.Stream:
    """A stream to write to."""
    name = unique("SINK").replace(".", "_")
    fields = {"duplicate_window": WINDOW, **config}
    return await js.create_stream(name=name, subjects=[f"{name}.>"], allow_direct=True, **fields)


class Attempt:
    """One attempt to write the rows of a task, which can be stopped on the way."""

    def __init__(self, server: NatsServer, stream: str, **options: str) -> None:
        schema = StructType().add("subject", "string").add("data", "binary")
        if options.pop("ids", ""):
            schema = schema.add("msg_id", "string")
        given = {"servers": server.url, "ackTimeout": "10s", **options}
        settings = WriteSettings.read(given, schema)
        self.columns = settings.columns
        self.stream = stream
        self._task = Task(settings, f"query.1.{stream}")

    async def open(self) -> None:
        """Connect."""
        await asyncio.to_thread(run, self._task.open())

    async def finish(self) -> None:
        """Wait until everything is stored."""
        await asyncio.to_thread(run, self._task.finish())

    async def write(self, numbers: range, ids: str = "") -> None:
        """Write rows."""
        rows: dict[str, Any] = {
            "subject": [f"{self.stream}.a"] * len(numbers),
            "data": [b"%d" % number for number in numbers],
        }
        if "msg_id" in self.columns:
            rows["msg_id"] = [f"{ids}{number}" for number in numbers]
        await self.write_rows(rows)

    async def write_rows(self, rows: dict[str, Any]) -> None:
        """Write columns."""
        await asyncio.to_thread(run, self._task.write(pa.RecordBatch.from_pydict(rows)))

    async def all(self, numbers: range) -> None:
        """Write everything."""
        await self.open()
        await self.write(numbers)
        await self.finish()


async def stored(stream: jetspark.Stream) -> list[int]:
    """The numbers in a stream, each as often as it is there."""
    return [int(message.data) async for message in stream.direct_get_batch(seq=1)]


async def check(stream: jetspark.Stream, numbers: range) -> None:
    """Each number is there once."""
    assert Counter(await stored(stream)) == Counter(numbers)


@pytest.mark.parametrize("wait", [0.0, 2 * WINDOW], ids=["in the window", "after it"])
@pytest.mark.parametrize("retention", ["limits", "workqueue"])
async def test_an_attempt_that_dies_on_the_way(
    nats: NatsServer, js: jetspark.JetStream, wait: float, retention: str
) -> None:
    stream = await target(js, retention=retention)
    first = Attempt(nats, stream.name)
    await first.open()
    await first.write(range(50))
    await first.finish()
    await asyncio.sleep(wait)
    await Attempt(nats, stream.name).all(range(100))
    await check(stream, range(100))


async def test_two_attempts_at_once(nats: NatsServer, js: jetspark.JetStream) -> None:
    """Speculation: the slow one must not store again what the fast one stored long ago."""
    stream = await target(js)
    slow, fast = Attempt(nats, stream.name), Attempt(nats, stream.name)
    await slow.open()
    await slow.write(range(10))
    await slow.finish()
    await fast.open()
    await fast.write(range(60))
    await slow.write(range(10, 40))
    await fast.write(range(60, 100))
    await fast.finish()
    await asyncio.sleep(2 * WINDOW)
    await slow.write(range(40, 70))
    await asyncio.sleep(2 * WINDOW)
    await slow.write(range(70, 100))
    await slow.finish()
    await check(stream, range(100))


async def test_a_second_stream_on_the_way(nats: NatsServer, js: jetspark.JetStream) -> None:
    one, two = await target(js), await target(js)
    for _ in range(2):
        attempt = Attempt(nats, one.name)
        await attempt.open()
        await attempt.write(range(10))
        attempt.stream = two.name
        await attempt.write(range(10, 20))
        await attempt.finish()
        await asyncio.sleep(2 * WINDOW)
    await check(one, range(10))
    await check(two, range(10, 20))


async def test_all_together_twice_at_once(nats: NatsServer, js: jetspark.JetStream) -> None:
    needs_version(nats, 2, 12)
    stream = await target(js, allow_atomic=True, duplicate_window=60.0)
    attempts = [Attempt(nats, stream.name, atomic="true") for _ in range(2)]
    for attempt in attempts:
        await attempt.open()
        await attempt.write(range(100))
    for attempt in attempts:
        await attempt.finish()
    await check(stream, range(100))


async def test_all_together_after_the_window(nats: NatsServer, js: jetspark.JetStream) -> None:
    needs_version(nats, 2, 12)
    stream = await target(js, allow_atomic=True)
    for _ in range(2):
        await Attempt(nats, stream.name, atomic="true").all(range(100))
        await asyncio.sleep(2 * WINDOW)
    await check(stream, range(100))


async def test_all_together_where_a_part_is_there_from_elsewhere(
    nats: NatsServer, js: jetspark.JetStream
) -> None:
    """With the user's own ids, not everything that is found was written by this task."""
    needs_version(nats, 2, 12)
    stream = await target(js, allow_atomic=True)
    first = Attempt(nats, stream.name, atomic="true", ids="yes")
    await first.open()
    await first.write(range(10))  # and dies before it commits
    await js.publish(f"{stream.name}.a", b"3", msg_id="3")
    await asyncio.sleep(2 * WINDOW)
    await Attempt(nats, stream.name, atomic="true", ids="yes").all(range(10))
    await check(stream, range(10))


async def test_a_message_that_is_too_big(nats: NatsServer, js: jetspark.JetStream) -> None:
    stream = await target(js)
    attempt = Attempt(nats, stream.name)
    await attempt.open()
    rows = {"subject": [f"{stream.name}.a"], "data": [b"x" * (2 * 1024 * 1024)]}
    with pytest.raises(MaxPayloadError, match="1048576"):
        await attempt.write_rows(rows)
        await attempt.finish()


async def test_a_stream_that_is_full(nats: NatsServer, js: jetspark.JetStream) -> None:
    """Many rows fail for one reason, which is said once."""
    stream = await target(js, max_msgs=10, discard="new")
    with pytest.raises(JetSparkError, match="maximum messages exceeded") as caught:
        await Attempt(nats, stream.name).all(range(100))
    assert "\n" not in str(caught.value)


async def test_the_server_restarts_under_a_task(start_server: StartServer) -> None:
    server = start_server()
    async with await jetspark.connect(server.url) as nc:
        stream = await target(nc.jetstream(), duplicate_window=60.0)
        attempt = Attempt(server, stream.name)
        await attempt.open()
        for first in range(0, 3000, 1000):
            await attempt.write(range(first, first + 1000))
            server.kill()
            await server.astart()
        await attempt.finish()
        await check(stream, range(3000))


async def test_streams_of_a_server_that_is_down() -> None:
    """Who writes to one stream does not wait for another."""
    with run_cluster(3) as cluster:
        async with await jetspark.connect([server.url for server in cluster]) as nc:
            js = nc.jetstream(timeout=10)
            await js.create_stream(name="UP", subjects=["up.*"], num_replicas=3)
            down = await js.create_stream(name="DOWN", subjects=["down.*"])
            info = await down.info()
            assert info.cluster is not None
            [victim] = [n for n, server in enumerate(cluster) if server.name == info.cluster.leader]
            await cluster.akill(victim)
            routes = Routes(nc.jetstream(), None)
            assert (await persist(30, routes.of, "up.a")).name == "UP"
            with pytest.raises(NoMatchingStreamError, match=r"no stream stores subject 'other\.a'"):
                await persist(30, routes.of, "other.a")
            with pytest.raises(JetSparkError, match="DOWN") as caught:
                await routes.of("down.a")
            assert caught.value.retryable
            await cluster.astart()
            assert (await persist(30, routes.of, "down.a")).name == "DOWN"
