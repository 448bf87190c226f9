"""Consumers on a cluster of three: leaders change, nodes die, the quorum is lost and comes back."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from jetspark import Client, connect
from jetspark.errors import (
    DisconnectedError,
    JetSparkError,
    LeadershipChangedError,
    MissingHeartbeatError,
    NoStreamResponseError,
    ServerShutdownError,
    TimeoutError,
)
from jetspark.jetstream.consumer import PullConsumer
from jetspark.jetstream.message import JetStreamMessage
from jetspark.server import NatsCluster
from tests.support.clients import eventually
from tests.support.conformance import conformance
from tests.support.faults import FAST, connected
from tests.support.js import (
    Warnings,
    all_acked,
    fill,
    make_consumer,
    make_stream,
    served,
)
from tests.support.leaks import until
from tests.support.servers import StartCluster
from tests.support.streams import step_down

PATIENCE = 40.0  # seconds for an election, when nodes have died
EXPECTED = {
    LeadershipChangedError,
    MissingHeartbeatError,
    NoStreamResponseError,
    ServerShutdownError,
}
"""What a consumer may be warned of when its leader changes."""


class Ledger:
    """All messages that an application got, acknowledged one by one."""

    def __init__(self) -> None:
        self.deliveries: Counter[tuple[int, int]] = Counter()
        self.warnings = Warnings()

    async def take(self, message: JetStreamMessage) -> None:
        await message.ack()
        metadata = message.metadata
        self.deliveries[metadata.stream_sequence, metadata.num_delivered] += 1

    @property
    def seen(self) -> set[int]:
        return {sequence for sequence, _ in self.deliveries}

    def check(self, count: int) -> None:
        assert self.seen == set(range(1, count + 1))
        assert set(self.deliveries.values()) == {1}, "the same delivery twice"
        assert set(self.warnings.kinds) <= EXPECTED


async def run_messages(consumer: PullConsumer, ledger: Ledger, done: asyncio.Event) -> None:
    options: dict[str, Any] = {"expires": 1, "on_warning": ledger.warnings}
    async with consumer.messages(50, **options) as messages:
        while not done.is_set():
            with suppress(TimeoutError):
                await ledger.take(await messages.next(timeout=0.1))


async def run_consume(consumer: PullConsumer, ledger: Ledger, done: asyncio.Event) -> None:
    options: dict[str, Any] = {"expires": 1, "on_warning": ledger.warnings}
    async with await consumer.consume(ledger.take, max_messages=50, **options):
        await done.wait()


async def run_fetch(consumer: PullConsumer, ledger: Ledger, done: asyncio.Event) -> None:
    while not done.is_set():
        try:
            messages = await consumer.fetch(20, timeout=0.5, heartbeat=0.25)
            if messages.error is not None:
                ledger.warnings(messages.error)
        except DisconnectedError:
            continue
        except JetSparkError as error:
            ledger.warnings(error)
            await asyncio.sleep(0.05)
            continue
        for message in messages:
            await ledger.take(message)


RUNS = {"messages": run_messages, "consume": run_consume, "fetch": run_fetch}


async def leader(consumer: PullConsumer) -> str | None:
    """The name of the server that leads a consumer, if there is one."""
    cluster = (await consumer.info()).cluster
    assert cluster is not None
    return cluster.leader


async def replicated(
    cluster: NatsCluster, client: Client, **config: Any
) -> tuple[str, PullConsumer]:
    """A stream and a consumer on all nodes."""
    stream = await make_stream(client, num_replicas=len(cluster), storage="file")
    consumer = await make_consumer(client, stream, **{"ack_wait": 1.5, **config})
    return stream, consumer


# A leader that is busy delivering may not tell that it leads no more: heartbeats find that out.
@conformance("ADR-37", "Consume: status handling", "409 Leadership Change is survived")
@conformance("ADR-37", "Consume: heartbeats", "they find what no status tells of")
@pytest.mark.parametrize("how", RUNS)
async def test_leader_changes(nats_cluster: NatsCluster, how: str) -> None:
    async with connected(nats_cluster.urls) as nc:
        stream, consumer = await replicated(nats_cluster, nc)
        ledger, done = Ledger(), asyncio.Event()
        running = asyncio.create_task(RUNS[how](consumer, ledger, done))
        for round_ in range(3):
            await fill(nc, stream, 200, start=200 * round_)
            await step_down(nc.jetstream(), stream, consumer.name)
            await until(lambda: len(ledger.seen) >= 200 * (round_ + 1) or running.done())  # noqa: B023
        await all_acked(consumer, 600)
        done.set()
        await running
        ledger.check(600)
        await served(consumer, 0)
        await nc.jetstream().delete_stream(stream)


async def test_leader_changes_without_acks(nats_cluster: NatsCluster) -> None:
    """A new leader may deliver again what the old one did not tell of; nothing is left out."""
    async with connected(nats_cluster.urls) as nc:
        stream, consumer = await replicated(nats_cluster, nc, ack_policy="none", ack_wait=0)
        ledger, done = Ledger(), asyncio.Event()
        running = asyncio.create_task(run_consume(consumer, ledger, done))
        for round_ in range(2):
            await fill(nc, stream, 200, start=200 * round_)
            await step_down(nc.jetstream(), stream, consumer.name)
            await until(lambda: len(ledger.seen) >= 200 * (round_ + 1))  # noqa: B023
        done.set()
        await running
        assert ledger.seen == set(range(1, 401))
        assert set(ledger.warnings.kinds) <= EXPECTED
        await nc.jetstream().delete_stream(stream)


async def test_clients_learn_of_a_new_leader(nats_cluster: NatsCluster) -> None:
    async with connected(nats_cluster.urls) as nc:
        stream, consumer = await replicated(nats_cluster, nc)
        name = await leader(consumer)
        at_leader = next(server for server in nats_cluster if server.name == name)
        elsewhere = next(server for server in nats_cluster if server.name != name)
        ledgers, tasks, done = [], [], asyncio.Event()
        clients = [
            await connect(server.url, ignore_discovered_servers=True, **FAST)
            for server in (at_leader, elsewhere)
        ]
        for client in clients:
            same = await client.jetstream().get_consumer(stream, consumer.name)
            ledgers.append(Ledger())
            tasks.append(asyncio.create_task(run_consume(same, ledgers[-1], done)))
        fetching = asyncio.create_task(consumer.next(timeout=20))
        await served(consumer, 3)
        await step_down(nc.jetstream(), stream, consumer.name)
        for ledger in ledgers:
            await ledger.warnings.wait(LeadershipChangedError)
        with pytest.raises(LeadershipChangedError) as caught:
            await fetching
        assert caught.value.retryable
        await served(consumer, 2)  # those that go on ask the new one
        await fill(nc, stream, 200)
        await all_acked(consumer, 200)
        done.set()
        await asyncio.gather(*tasks)
        for client in clients:
            await client.close()
        assert ledgers[0].seen | ledgers[1].seen == set(range(1, 201))
        await nc.jetstream().delete_stream(stream)


async def test_nodes_die_and_come_back(start_cluster: StartCluster) -> None:
    cluster = start_cluster(3)
    async with connected(cluster[0].url) as nc:
        stream, consumer = await replicated(cluster, nc)
        ledger, done = Ledger(), asyncio.Event()
        consuming = asyncio.create_task(run_consume(consumer, ledger, done))
        await fill(nc, stream, 200)
        await until(lambda: len(ledger.seen) >= 50)

        await cluster.akill(0)  # where the client is connected
        await eventually(lambda: nc.statistics.reconnects == 1, PATIENCE)
        await fill_patiently(nc, stream, 100)
        await eventually(lambda: len(ledger.seen) >= 300, PATIENCE)

        lost = next(i for i in (1, 2) if cluster[i].url != nc.server)
        await cluster.akill(lost)  # one of three is left, and no quorum
        # If it leads the consumer it sends heartbeats, for quite some time; else nobody answers.
        with pytest.raises(JetSparkError) as caught:
            await consumer.next(timeout=0.5)
        assert caught.value.retryable

        for index in (lost, 0):
            await asyncio.to_thread(cluster[index].start, wait=False)
        await fill_patiently(nc, stream, 100)
        stored = (await (await nc.jetstream().get_stream(stream)).info()).state.last_seq
        await eventually(lambda: ledger.seen == set(range(1, stored + 1)), PATIENCE)
        await all_acked(consumer, stored)
        done.set()
        await consuming
        assert set(ledger.warnings.kinds) <= EXPECTED
        await served(consumer, 0)


async def fill_patiently(client: Client, stream: str, count: int) -> None:
    """Like `fill`, while the stream may have no leader yet; it may store more than that."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await fill(client, stream, count, timeout=1)
            except (AssertionError, JetSparkError):
                await asyncio.sleep(0.1)
