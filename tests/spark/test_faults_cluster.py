"""Reading from a replicated stream while its leader changes, or one of its replicas lags behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import jetspark
from jetspark.server import NatsCluster, run_cluster
from jetspark.spark.range_reader import RangeReader, ReadPlan
from jetspark.spark.ranges import Range
from tests.support.clients import unique
from tests.support.spark_query import Query
from tests.support.streams import leader_of, step_down

from .conftest import Streams

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

ASKING = pytest.mark.parametrize("asking", [False, True], ids=["consumer", "asking"])


@pytest.fixture
def cluster() -> Iterator[NatsCluster]:
    """A cluster to break."""
    with run_cluster(3) as cluster:
        yield cluster


@asynccontextmanager
async def replicated(servers: list[str]) -> AsyncIterator[tuple[jetspark.JetStream, Any]]:
    """A stream on all nodes, over a connection to some of them."""
    async with await jetspark.connect(servers, ignore_discovered_servers=True) as nc:
        js = nc.jetstream(timeout=3.0)
        name = unique("R").replace(".", "_")
        stream = await js.create_stream(
            name=name, subjects=[f"{name}.>"], num_replicas=3, allow_direct=True
        )
        yield js, stream


async def fill(js: jetspark.JetStream, stream: str, numbers: range, size: int = 0) -> None:
    for number in numbers:
        data = (b"%d" % number).ljust(size)
        await js.publish_async(f"{stream}.a", data, msg_id=str(number))
    await js.publish_async_complete(timeout=60)


async def read(stream: jetspark.Stream, last: int, asking: bool) -> list[int]:
    """Everything up to a sequence."""
    plan = ReadPlan(rows=200, asking=asking)
    return [
        int(data)
        async for batch in RangeReader(stream, Range(stream.name, 1, last), plan).batches()
        for data in batch.column("data").to_pylist()
    ]


@ASKING
async def test_the_leader_moves_and_dies_in_the_middle_of_a_range(
    cluster: NatsCluster, asking: bool
) -> None:
    async with replicated(cluster.urls) as (js, stream):
        await fill(js, stream.name, range(1, 4001))
        plan = ReadPlan(rows=100, asking=asking)
        batches = RangeReader(stream, Range(stream.name, 1, 4000), plan).batches()
        numbers: list[int] = []
        count = 0
        async for batch in batches:
            numbers += [int(data) for data in batch.column("data").to_pylist()]
            count += 1
            if count == 2:
                await step_down(js, stream.name)
            if count == 4:
                leader = cluster[await leader_of(js, stream.name, cluster)]
                leader.kill()
        assert numbers == list(range(1, 4001))


@ASKING
async def test_a_replica_that_lags_behind(cluster: NatsCluster, asking: bool) -> None:
    async with replicated(cluster.urls) as (js, stream):
        leader = cluster[await leader_of(js, stream.name, cluster)]
        lagging = next(server for server in cluster if server is not leader)
        await fill(js, stream.name, range(1, 101))
        lagging_url, leader_url = lagging.url, leader.url
        async with (
            await jetspark.connect(leader_url, ignore_discovered_servers=True) as near,
            await jetspark.connect(lagging_url, ignore_discovered_servers=True) as far,
        ):
            there = await near.jetstream(timeout=3.0).get_stream(stream.name)
            here = await far.jetstream(timeout=3.0).get_stream(stream.name)
            for last in range(5100, 20101, 5000):
                lagging.pause()
                try:
                    writer = near.jetstream(timeout=10.0)
                    await fill(writer, stream.name, range(last - 4999, last + 1))
                    assert await read(there, last, asking) == list(range(1, last + 1))
                finally:
                    lagging.resume()
                # Now it answers, with what it has.
                assert await read(here, last, asking) == list(range(1, last + 1))


@ASKING
async def test_only_a_replica_that_lags_behind_answers(cluster: NatsCluster, asking: bool) -> None:
    """It has nothing more, and the leader cannot be asked: that is not the end of the range."""
    last = 3000
    async with replicated(cluster.urls) as (js, stream):
        leader = cluster[await leader_of(js, stream.name, cluster)]
        lagging, other = (server for server in cluster if server is not leader)
        await fill(js, stream.name, range(1, 101))
        async with (
            await jetspark.connect(leader.url, ignore_discovered_servers=True) as near,
            await jetspark.connect(lagging.url, ignore_discovered_servers=True) as far,
        ):
            here = await far.jetstream(timeout=1.0).get_stream(stream.name)
            plan = ReadPlan(rows=100, asking=asking)
            batches = RangeReader(here, Range(stream.name, 1, last), plan).batches()
            numbers = [int(data) for data in (await anext(batches)).column("data").to_pylist()]
            lagging.pause()
            # More than what the kernel keeps for a process that does not read.
            await fill(near.jetstream(), stream.name, range(101, last + 1), size=20_000)
            leader.pause()
            other.pause()
            lagging.resume()

            async def wake() -> None:
                await asyncio.sleep(2.5)
                leader.resume()
                other.resume()

            waking = asyncio.create_task(wake())
            async for batch in batches:
                numbers += [int(data) for data in batch.column("data").to_pylist()]
            await waking
            assert numbers == list(range(1, last + 1))


def test_the_leader_dies_under_a_query(cluster: NatsCluster) -> None:
    streams = Streams(cluster[0])
    stream = streams.new(num_replicas=3)
    query = Query(servers=cluster.url, stream=stream, startingOffsets="earliest", minPartitions=2)

    async def leader(js: jetspark.JetStream) -> int:
        return await leader_of(js, stream, cluster)

    try:
        for first in range(1, 601, 200):
            streams.publish(stream, 200, first=first, retries=-1)
            query.wait_and_plan()
            number = streams.edit(leader)
            cluster.kill(number)
            assert query.run() == list(range(1, first + 200))
            cluster.restart(number)
    finally:
        query.die()


def test_the_leader_dies_under_a_queue(cluster: NatsCluster) -> None:
    streams = Streams(cluster[0])
    stream = streams.new(num_replicas=3, retention="workqueue", allow_direct=True)
    query = Query(servers=cluster.url, stream=stream, consumer="spark", minPartitions=2)

    async def leader(js: jetspark.JetStream) -> int:
        return await leader_of(js, stream, cluster)

    async def left(js: jetspark.JetStream) -> tuple[int, int]:
        found = await js.get_stream(stream)
        info = (await found.get_consumer("spark")).cached_info
        return found.cached_info.state.messages, info.num_pending + info.num_ack_pending

    try:
        query.plan()
        for first in range(1, 601, 200):
            streams.publish(stream, 200, first=first, retries=-1)
            query.wait_and_plan()
            number = streams.edit(leader)
            cluster.kill(number)
            assert query.run() == list(range(1, first + 200))
            cluster.restart(number)
        while streams.edit(left) != (0, 0):  # acks that got lost come back
            query.plan()
            asyncio.run(asyncio.sleep(0.5))
    finally:
        query.die()
