"""What happens to the source when something happens to the stream, the server or the way there."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import jetspark
from jetspark.errors import (
    CheckpointError,
    ConnectError,
    DataLossError,
    JetSparkError,
    PermissionsError,
    StreamNotFoundError,
)
from jetspark.server import NatsServer
from jetspark.spark import positions, stream_reader
from jetspark.spark.range_reader import RangeReader, ReadPlan
from jetspark.spark.ranges import Range
from jetspark.spark.schema import stream_schema
from jetspark.spark.sources import JetStreamSource
from tests.support.servers import StartServer
from tests.support.spark_query import Query, read_all

from .conftest import Streams

ASKING = pytest.mark.parametrize("asking", [False, True], ids=["consumer", "asking"])


@pytest.fixture
def queries() -> Iterator[list[Query]]:
    """Queries to end with the test."""
    found: list[Query] = []
    yield found
    for query in found:
        query.die()


async def fill(js: jetspark.JetStream, stream: str, numbers: range, blanks: int = 0) -> None:
    """Publish numbers."""
    for number in numbers:
        await js.publish_async(f"{stream}.a", b"%d" % number + b" " * blanks)
    await js.publish_async_complete(timeout=30)


def numbers_of(batch: Any) -> list[int]:
    return [int(data) for data in batch.column("data").to_pylist()]


# -- in the middle of a range -------------------------------------------------------------------


@ASKING
async def test_purged_in_the_middle_of_a_range(nats: NatsServer, asking: bool) -> None:
    async with await jetspark.connect(nats.url) as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name=f"PURGED{asking}", subjects=[f"PURGED{asking}.>"])
        # So large that they cannot all be under way before the purge.
        await fill(js, stream.name, range(1, 2001), blanks=30_000)
        plan = ReadPlan(rows=100, asking=asking)
        reader = RangeReader(stream, Range(stream.name, 1, 2000), plan)
        batches = reader.batches()
        read = numbers_of(await anext(batches))
        await stream.purge()
        with pytest.raises(DataLossError, match="were removed before they were read") as caught:
            async for batch in batches:
                read += numbers_of(batch)
        # What had arrived is read; the rest is what the error counts.
        assert read == list(range(1, len(read) + 1))
        assert f"up to {2000 - len(read)} messages" in str(caught.value)
        await stream.delete()


@ASKING
async def test_created_again_in_the_middle_of_a_range(nats: NatsServer, asking: bool) -> None:
    async with await jetspark.connect(nats.url) as nc:
        js = nc.jetstream()
        name = f"AGAIN{asking}"
        stream = await js.create_stream(name=name, subjects=[f"{name}.>"], allow_direct=True)
        await fill(js, name, range(1, 2001))
        plan = ReadPlan(rows=10, asking=asking)
        created = stream.cached_info.created
        batches = RangeReader(stream, Range(name, 1, 2000), plan, created=created).batches()
        await anext(batches)
        await stream.delete()
        await js.create_stream(name=name, subjects=[f"{name}.>"], allow_direct=True)
        await fill(js, name, range(1, 3001))
        with pytest.raises(CheckpointError, match="deleted and created again"):
            async for _ in batches:
                pass
        await js.delete_stream(name)


@ASKING
async def test_deleted_in_the_middle_of_a_range(nats: NatsServer, asking: bool) -> None:
    async with await jetspark.connect(nats.url) as nc:
        js = nc.jetstream()
        name = f"GONE{asking}"
        stream = await js.create_stream(name=name, subjects=[f"{name}.>"])
        await fill(js, name, range(1, 2001))
        batches = RangeReader(stream, Range(name, 1, 2000), ReadPlan(rows=10, asking=asking))
        iterator = batches.batches()
        await anext(iterator)
        await stream.delete()
        with pytest.raises(StreamNotFoundError):
            async for _ in iterator:
                pass


@ASKING
async def test_the_server_restarts_in_the_middle_of_a_range(
    start_server: StartServer, asking: bool
) -> None:
    server = start_server()
    async with await jetspark.connect(server.url) as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name="S", subjects=["S.>"], allow_direct=True)
        await fill(js, "S", range(1, 5001))
        reader = RangeReader(stream, Range("S", 1, 5000), ReadPlan(rows=500, asking=asking))
        batches = reader.batches()
        read = numbers_of(await anext(batches))
        server.kill()
        restart = asyncio.create_task(server.astart())
        async for batch in batches:
            read += numbers_of(batch)
        await restart
        assert read == list(range(1, 5001))


# -- under a running query ----------------------------------------------------------------------


def test_the_server_restarts_under_a_query(start_server: StartServer, queries: list[Query]) -> None:
    server = start_server()
    streams = Streams(server)
    stream = streams.new()
    query = Query(servers=server.url, stream=stream, startingOffsets="earliest", minPartitions=2)
    queries.append(query)
    for first in range(1, 401, 100):
        streams.publish(stream, 100, first=first)
        query.wait_and_plan()
        server.kill()
        server.start()
        assert query.run() == list(range(1, first + 100))


def test_a_stream_that_joins_late(nats: NatsServer, streams: Streams, queries: list[Query]) -> None:
    """What retention took from it before it came is not lost."""
    first, second = sorted([streams.new(), streams.new(max_msgs=10)])
    names = f"{first},{second}"
    streams.publish(first, 30)
    query = Query(servers=nats.url, stream=first, startingOffsets="earliest")
    later = Query(servers=nats.url, stream=names, startingOffsets="earliest")
    queries += [query, later]
    read = query.run()
    streams.publish(second, 30, first=31)
    later.committed = query.committed
    read += later.run()
    limited = [*range(21, 31), *range(31, 61)], [*range(1, 31), *range(51, 61)]
    assert sorted(read) in limited


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"maxBytesPerTrigger": "2000"}, lambda sizes: len(sizes) > 2),
        ({"maxOffsetsPerTrigger": "30"}, lambda sizes: sizes == [30, 30, 30, 10]),
        ({"minOffsetsPerTrigger": "101"}, lambda sizes: sizes == []),
        ({"minOffsetsPerTrigger": "101", "maxTriggerDelay": "1ms"}, lambda sizes: sizes == [100]),
    ],
)
def test_limits_one_by_one(
    nats: NatsServer, streams: Streams, queries: list[Query], options: dict[str, str], sizes: Any
) -> None:
    stream = streams.new()
    streams.publish(stream, 100)
    query = Query(servers=nats.url, stream=stream, startingOffsets="earliest", **options)
    queries.append(query)
    query.run()
    time.sleep(0.01)
    numbers = query.run()
    found = [len(batch) for batch in query.rows]
    assert sizes(found), found
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("matching", [True, False], ids=["no traffic", "other subjects"])
def test_waiting_costs_little(
    nats: NatsServer, streams: Streams, queries: list[Query], matching: bool
) -> None:
    stream = streams.new()
    streams.publish(stream, 5)
    query = Query(
        servers=nats.url, stream=stream, subjects=f"{stream}.a", startingOffsets="earliest"
    )
    queries.append(query)
    query.run()
    query.run()
    before = api_requests(streams)
    for number in range(100):
        if not matching and number % 10 == 0:
            streams.publish(stream, 1, subject="other")
        assert not query.plan()
    assert api_requests(streams) - before < 10
    streams.publish(stream, 1, first=6)
    query.wait_and_plan()
    assert query.run() == list(range(1, 7))


def test_waiting_long_costs_nothing(
    nats: NatsServer, streams: Streams, queries: list[Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_reader, "SETTLED", 0.05)
    stream = streams.new()
    streams.publish(stream, 5)
    query = Query(servers=nats.url, stream=stream, startingOffsets="earliest")
    queries.append(query)
    query.run()
    assert not query.plan()
    time.sleep(0.06)
    with monkeypatch.context() as patch:
        patch.setattr(stream_reader, "run", None)  # how the reader would ask the server
        assert not query.plan()
    streams.publish(stream, 1, first=6)
    query.wait_and_plan()
    assert query.run() == list(range(1, 7))


def api_requests(streams: Streams) -> int:
    async def count(js: jetspark.JetStream) -> int:
        return (await js.account_info()).api.total

    found: int = streams.edit(count)
    return found


# -- places in time -----------------------------------------------------------------------------


async def test_old_servers_find_a_time_with_a_consumer(nats: NatsServer) -> None:
    async with await jetspark.connect(nats.url) as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name="TIMES", subjects=["TIMES.>"])
        for _ in range(3):  # one after the other, so that their times differ
            await js.publish("TIMES.a")
        times = [(await stream.get_message(number)).timestamp for number in (1, 2, 3)]
        await stream.info()
        expected = {times[0]: 0, times[1]: 1, times[2]: 2, times[2] + timedelta(hours=1): 3}
        for moment, last in expected.items():
            assert await positions._last_before_by_consumer(stream, moment) == last
        assert [name async for name in stream.consumer_names()] == []
        await stream.delete()


# -- batch reads --------------------------------------------------------------------------------


def read_batch(server: NatsServer, **options: Any) -> list[int]:
    """A batch read, without Spark."""
    texts = {name: str(value) for name, value in options.items()}
    source = JetStreamSource({"servers": server.url, **texts})
    reader: Any = source.reader(stream_schema(headers=True))
    return read_all(reader, reader.partitions())


@pytest.mark.parametrize("direct", [True, False], ids=["direct get", "the leader"])
@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_a_look_into_a_queue(
    nats: NatsServer, streams: Streams, retention: str, direct: bool
) -> None:
    stream = streams.new(retention=retention, allow_direct=direct)

    async def create(js: jetspark.JetStream) -> None:
        await (await js.get_stream(stream)).create_consumer(
            durable_name="worker", ack_policy="explicit"
        )

    async def work(js: jetspark.JetStream) -> tuple[int, int]:
        found = await js.get_stream(stream)
        info = (await found.get_consumer("worker")).cached_info
        return found.cached_info.state.messages, info.num_pending

    streams.edit(create)
    streams.publish(stream, 150)
    streams.publish(stream, 3, subject="b", first=151)
    assert read_batch(nats, stream=stream, minPartitions=2) == list(range(1, 154))
    assert read_batch(nats, stream=stream, subjects=f"{stream}.b") == [151, 152, 153]
    assert streams.edit(work) == (153, 153)


def test_big_messages(start_server: StartServer) -> None:
    """Those of the size that a server takes come through either way."""
    server = start_server()
    streams = Streams(server)
    stream = streams.new(allow_direct=True)
    queue = streams.new(retention="workqueue", allow_direct=True)

    async def publish(js: jetspark.JetStream) -> None:
        for name in (stream, queue):
            for number in range(1, 41):
                await js.publish(f"{name}.a", b"%d" % number + b" " * 1_000_000)

    streams.edit(publish)
    assert read_batch(server, stream=stream) == list(range(1, 41))
    assert read_batch(server, stream=queue) == list(range(1, 41))


def test_a_context(nats: NatsServer, streams: Streams, tmp_path: Path) -> None:
    stream = streams.new()
    streams.publish(stream, 3)
    path = tmp_path / "context.json"
    path.write_text(json.dumps({"url": nats.url}))
    source = JetStreamSource({"context": str(path), "stream": stream})
    reader: Any = source.reader(stream_schema(headers=True))
    path.unlink()  # the executors need not have it
    assert read_all(reader, reader.partitions()) == [1, 2, 3]


# -- errors that a person can read --------------------------------------------------------------


def test_an_unreachable_server() -> None:
    source = JetStreamSource(
        {"servers": "nats://me:secret@127.0.0.1:1", "stream": "A", "connectTimeout": "1s"}
    )
    reader: Any = source.reader(stream_schema(headers=True))
    with pytest.raises(ConnectError, match=r"127\.0\.0\.1:1.*is NATS running there") as caught:
        reader.partitions()
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_missing_permission(start_server: StartServer) -> None:
    users = [
        {"user": "all", "password": "a"},
        {
            "user": "few",
            "password": "b",
            "permissions": {"publish": ["$JS.API.INFO"], "subscribe": ["_INBOX.>"]},
        },
    ]
    server = start_server(config={"authorization": {"users": users}})
    source = JetStreamSource(
        {
            "servers": f"nats://127.0.0.1:{server.port}",
            "user": "few",
            "password": "b",
            "stream": "ORDERS",
        }
    )
    reader: Any = source.reader(stream_schema(headers=True))
    with pytest.raises((PermissionsError, JetSparkError), match="ORDERS") as caught:
        reader.partitions()
    assert "ermission" in str(caught.value)
    assert "\n" not in str(caught.value)
