"""Publishing to a replicated stream while its leader changes, and while nodes die."""

from __future__ import annotations

import asyncio

import pytest

from jetspark import Client, Stream
from jetspark.errors import JetSparkError, NoStreamResponseError, TimeoutError
from jetspark.server import NatsCluster
from tests.support.faults import connected
from tests.support.ledger import Ledger
from tests.support.servers import StartCluster
from tests.support.streams import leader_of, step_down

PATIENCE = 60.0
"""Seconds for an election; none takes that long."""


@pytest.fixture
def cluster(start_cluster: StartCluster) -> NatsCluster:
    return start_cluster(3)


async def replicated(client: Client) -> Stream:
    js = client.jetstream(timeout=1.0)  # a stream without a leader does not answer at all
    return await js.create_stream(name="S", subjects=["s.>"], num_replicas=3)


@pytest.mark.parametrize("ids", [True, False])
async def test_a_leader_that_steps_down(cluster: NatsCluster, ids: bool) -> None:
    async with connected(cluster.url) as nc:
        stream = await replicated(nc)
        js = nc.jetstream(max_ack_pending=500)
        # What cannot be repeated may remain without an acknowledgement: that is not waited for.
        ledger = Ledger(js, "s.a", ids=ids, retries=-1, timeout=PATIENCE if ids else 5.0)
        stop = asyncio.Event()
        load = asyncio.create_task(ledger.load(stop, pause=0.02))
        leaders = {await leader_of(js, "S", cluster)}
        for _ in range(3):
            await asyncio.sleep(0.1)
            try:
                await step_down(js, "S")
            except JetSparkError:
                continue  # the last change is not over yet
            leaders.add(await leader_of(js, "S", cluster))
        stop.set()
        await load
        await ledger.settle()
        stored = await ledger.check(stream)
        assert len(leaders) > 1
        if ids:
            assert not ledger.failed
            assert sorted(stored) == list(range(ledger.published))
        else:
            assert {type(error) for error in ledger.failed.values()} <= {TimeoutError}


async def test_the_leader_dies(cluster: NatsCluster) -> None:
    async with connected(cluster.url) as nc:
        stream = await replicated(nc)
        js = nc.jetstream(max_ack_pending=500)
        ledger = Ledger(js, "s.a", ids=True, retries=-1, timeout=PATIENCE)
        stop = asyncio.Event()
        load = asyncio.create_task(ledger.load(stop, pause=0.02))
        await asyncio.sleep(0.1)
        leader = await leader_of(js, "S", cluster)
        await cluster.akill(leader)
        assert await leader_of(js, "S", cluster) != leader
        await asyncio.sleep(0.1)
        stop.set()
        await load
        await ledger.settle()
        assert not ledger.failed
        stored = await ledger.check(stream)
        assert sorted(stored) == list(range(ledger.published))


async def test_without_a_majority_publishes_fail_and_are_not_stored_twice(
    cluster: NatsCluster,
) -> None:
    async with connected(cluster.url) as nc:
        stream = await replicated(nc)
        js = nc.jetstream(max_ack_pending=200)
        ledger = Ledger(js, "s.a", ids=True, timeout=1.0)
        for _ in range(100):
            await ledger.publish()
        await ledger.settle()
        assert not ledger.failed
        here = next(index for index, server in enumerate(cluster) if server.url == nc.server)
        others = [index for index in range(3) if index != here]
        for index in others:
            await cluster.akill(index)
        for _ in range(100):
            await ledger.publish()
        await ledger.settle()
        assert len(ledger.failed) == 100
        kinds = {type(error) for error in ledger.failed.values()}
        assert kinds <= {NoStreamResponseError, TimeoutError}
        await cluster.arestart(others[0])
        await cluster.arestart(others[1])
        await leader_of(js, "S", cluster)
        # Once more with the same ids: whatever was stored is not stored again.
        again = Ledger(js, "s.a", ids=True, retries=-1, timeout=PATIENCE)
        for _ in range(200):
            await again.publish()
        await again.settle()
        assert not again.failed
        assert sum(ack.duplicate for ack in again.acked.values()) >= 100
        stored = await again.check(stream)
        assert sorted(stored) == list(range(200))
