"""Writers in trouble and in each other's way: nothing that was acknowledged is lost or undone."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator

import pytest

from jetspark import KeyValue
from jetspark.errors import (
    JetSparkError,
    KeyExistsError,
    KeyNotFoundError,
    MessageTooLargeError,
    RevisionMismatchError,
    StoreFailedError,
)
from jetspark.server import NatsCluster, NatsServer
from tests.support.conformance import conformance
from tests.support.kv import bucket_on, connected, listed, new_bucket, stream_name
from tests.support.leaks import GUARD, no_leaks, until
from tests.support.proxy import Proxy
from tests.support.servers import StartServer
from tests.support.streams import caught_up, step_down


@pytest.fixture(autouse=True)
async def nothing_left() -> AsyncIterator[None]:
    async with no_leaks():
        yield


class Books:
    """Puts numbers under keys of their own, and keeps account of what became of each."""

    def __init__(self, bucket: KeyValue[bytes]) -> None:
        self.bucket = bucket
        self.put: dict[int, int] = {}  # its revision
        self.failed: dict[int, JetSparkError] = {}
        self.tried = 0

    async def work(self, stop: asyncio.Event, workers: int = 8) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._put(stop))

    async def _put(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            number = self.tried
            self.tried += 1
            try:
                self.put[number] = await self.bucket.put(f"k.{number}", b"%d" % number)
            except JetSparkError as error:
                self.failed[number] = error
                await asyncio.sleep(0.02)

    async def check(self, bucket: KeyValue[bytes]) -> None:
        """What was acknowledged is there as it was put, and what was refused is not."""
        assert len(self.put) + len(self.failed) == self.tried
        assert len(set(self.put.values())) == len(self.put)
        for number, revision in self.put.items():
            entry = await bucket.get(f"k.{number}")
            assert int(entry.value) == number
            assert entry.revision >= revision  # more, if it was sent a second time
        for number, error in self.failed.items():
            try:
                await bucket.get(f"k.{number}")
            except KeyNotFoundError:
                continue
            assert error.may_have_taken_effect, f"{number} is there in spite of {error!r}"


# -- puts while things break --------------------------------------------------------------------


@conformance("KV", "5. Writes", "puts over a restart and a kill of the server add up")
async def test_the_server_is_restarted(start_server: StartServer) -> None:
    server = start_server()
    async with connected(server.url) as nc:
        bucket = await new_bucket(nc, storage="file")
        books, stop = Books(bucket), asyncio.Event()
        putting = asyncio.create_task(books.work(stop))
        await until(lambda: len(books.put) > 100)
        await server.arestart()
        there = len(books.put)
        await until(lambda: len(books.put) > there + 100)
        await server.akill()
        await server.astart()
        there = len(books.put)
        await until(lambda: len(books.put) > there + 100)
        stop.set()
        await putting
        await books.check(bucket)


@conformance("KV", "5. Writes", "puts over changes of the leader add up")
async def test_the_leader_steps_down(nats_cluster: NatsCluster) -> None:
    async with connected(nats_cluster.urls) as nc:
        bucket = await new_bucket(nc, replicas=3)
        books, stop = Books(bucket), asyncio.Event()
        putting = asyncio.create_task(books.work(stop))
        for _ in range(3):
            there = len(books.put)
            await until(lambda there=there: len(books.put) > there + 100)  # type: ignore[misc]
            await step_down(nc.jetstream(), stream_name(bucket))
        there = len(books.put)
        await until(lambda: len(books.put) > there + 50)
        stop.set()
        await putting
        await caught_up(nats_cluster, stream_name(bucket))
        await books.check(bucket)


async def test_cuts(nats_server: NatsServer) -> None:
    async with (
        Proxy(nats_server.host, nats_server.port) as proxy,
        connected(nats_server.url) as near,
        connected(proxy.url) as far,
    ):
        bucket = await new_bucket(near)
        books, stop = Books(await bucket_on(far, bucket)), asyncio.Event()
        putting = asyncio.create_task(books.work(stop))
        for _ in range(4):
            there = len(books.put)
            await until(lambda there=there: len(books.put) > there + 100)  # type: ignore[misc]
            await proxy.cut()
        stop.set()
        await putting
        await books.check(bucket)


# -- gets while things break --------------------------------------------------------------------


async def read(bucket: KeyValue[bytes], stop: asyncio.Event, seen: list[int]) -> None:
    """Get a number that never falls, until told to stop."""
    while not stop.is_set():
        try:
            seen.append(int((await bucket.get("n")).value))
            found = await bucket.get_many(["n", "fixed"])
            assert found["fixed"].value == b"here"
        except KeyNotFoundError:
            raise
        except JetSparkError:
            await asyncio.sleep(0.02)


@conformance("KV", "4. Reads", "gets over a restart and cuts give the value or an error")
async def test_gets_while_the_server_is_restarted(start_server: StartServer) -> None:
    server = start_server()
    async with (
        Proxy(server.host, server.port) as proxy,
        connected(server.url) as near,
        connected(proxy.url) as far,
    ):
        bucket = await new_bucket(near, storage="file")
        await bucket.put("fixed", b"here")
        await bucket.put("n", b"0")
        seen: list[int] = []
        stop = asyncio.Event()
        reading = asyncio.create_task(read(await bucket_on(far, bucket), stop, seen))
        for number in range(1, 5):
            await bucket.put("n", b"%d" % number)
            await until(lambda number=number: seen and seen[-1] == number)  # type: ignore[misc]
            if number % 2:
                await proxy.cut()
            else:
                await server.arestart()
                await until(lambda: near.connected)
        stop.set()
        await reading
        assert seen == sorted(seen)


@conformance("KV", "4. Reads", "gets over changes of the leader find what is there")
async def test_gets_while_the_leader_changes(nats_cluster: NatsCluster) -> None:
    """Any replica may answer, so a value may be old, but the key is always there."""
    async with connected(nats_cluster.urls) as nc:
        bucket = await new_bucket(nc, replicas=3)
        await bucket.put("fixed", b"here")
        await bucket.put("n", b"0")
        seen: list[int] = []
        stop = asyncio.Event()
        await caught_up(nats_cluster, stream_name(bucket))
        reading = asyncio.create_task(read(bucket, stop, seen))
        for _ in range(3):
            count = len(seen)
            await step_down(nc.jetstream(), stream_name(bucket))
            await until(lambda count=count: len(seen) > count + 50)  # type: ignore[misc]
        stop.set()
        await reading
        assert set(seen) == {0}


# -- compare and set ----------------------------------------------------------------------------


async def count_up(bucket: KeyValue[bytes], writer: str, times: int) -> int:
    """Add to a shared counter so many times; returns how often another one was faster.

    The value has the share of each writer, so that one whose answer got lost can see whether
    it has counted.
    """
    conflicts = 0
    for done in range(times):
        while True:
            try:
                entry = await bucket.get("counter")
                shares = json.loads(entry.value)
                if shares.get(writer, 0) > done:
                    break  # that was the one whose answer got lost
                shares[writer] = done + 1
                await bucket.update("counter", json.dumps(shares).encode(), entry.revision)
                break
            except RevisionMismatchError:
                conflicts += 1
            except JetSparkError as error:
                if not (error.retryable or error.may_have_taken_effect):
                    raise
                await asyncio.sleep(0.05)
    return conflicts


async def counters(buckets: list[KeyValue[bytes]], writers: int, times: int) -> int:
    """Have several count up at once; returns how often they were in each other's way."""
    async with asyncio.timeout(GUARD * 3), asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(count_up(bucket, f"w{n}", times))
            for n, bucket in zip(range(writers), itertools.cycle(buckets), strict=False)
        ]
    return sum(task.result() for task in tasks)


async def check_counter(bucket: KeyValue[bytes], writers: int, times: int) -> None:
    """Each of them has counted as often as it should, in a revision of its own."""
    entry = await bucket.get("counter")
    assert json.loads(entry.value) == {f"w{n}": times for n in range(writers)}
    assert entry.revision == 1 + writers * times


@conformance("KV", "5. Writes", "writers with compare-and-set add up under contention")
@pytest.mark.parametrize("writers", [2, 8])
async def test_writers_add_up(nats_server: NatsServer, writers: int) -> None:
    async with connected(nats_server.url) as nc:
        bucket = await new_bucket(nc)
        await bucket.create("counter", b"{}")
        assert await counters([bucket], writers, 25) > 0
        await check_counter(bucket, writers, 25)


@conformance("KV", "5. Writes", "10071 and 10164 both mean that the revision is another")
async def test_writers_on_several_nodes_add_up(nats_cluster: NatsCluster) -> None:
    async with (
        connected(nats_cluster.urls[:1], ignore_discovered_servers=True) as first,
        connected(nats_cluster.urls[1:2], ignore_discovered_servers=True) as second,
        connected(nats_cluster.urls[2:], ignore_discovered_servers=True) as third,
    ):
        bucket = await new_bucket(first, replicas=3)
        await bucket.create("counter", b"{}")
        buckets = [bucket, await bucket_on(second, bucket), await bucket_on(third, bucket)]
        await caught_up(nats_cluster, stream_name(bucket))
        assert await counters(buckets, 6, 15) > 0
        await caught_up(nats_cluster, stream_name(bucket))
        await check_counter(bucket, 6, 15)


async def test_writers_add_up_while_the_leader_changes(nats_cluster: NatsCluster) -> None:
    async with connected(nats_cluster.urls) as nc:
        bucket = await new_bucket(nc, replicas=3)
        await bucket.create("counter", b"{}")
        await caught_up(nats_cluster, stream_name(bucket))
        counting = asyncio.create_task(counters([bucket], 4, 40))
        for _ in range(3):
            await asyncio.sleep(0.2)
            await step_down(nc.jetstream(), stream_name(bucket))
        await counting
        await caught_up(nats_cluster, stream_name(bucket))
        await check_counter(bucket, 4, 40)


@conformance("KV", "5. Writes", "of several creates one wins, also after a delete and a purge")
@pytest.mark.parametrize("replicas", [1, 3])
async def test_one_creator_wins(nats_cluster: NatsCluster, replicas: int) -> None:
    async def create(name: str) -> str | None:
        try:
            await bucket.create("lock", name.encode())
        except KeyExistsError:
            return None
        return name

    async with connected(nats_cluster.urls) as nc:
        bucket = await new_bucket(nc, replicas=replicas, history=3)
        for turn in range(10):
            names = await asyncio.gather(*(create(f"{turn}.{n}") for n in range(10)))
            winners = [name for name in names if name]
            assert len(winners) == 1
            if replicas > 1:
                await caught_up(nats_cluster, stream_name(bucket))
            assert (await bucket.get("lock")).value == winners[0].encode()
            if turn % 2:
                await bucket.delete("lock")
            else:
                await bucket.purge("lock")


@conformance("KV", "5. Writes", "a delete and a purge with a revision are refused if it is another")
async def test_deletes_of_another_revision(nats_server: NatsServer) -> None:
    async with connected(nats_server.url) as nc:
        bucket = await new_bucket(nc)
        first = await bucket.put("a", b"1")
        second = await bucket.put("a", b"2")
        with pytest.raises(RevisionMismatchError):
            await bucket.delete("a", revision=first)
        with pytest.raises(RevisionMismatchError):
            await bucket.purge("a", revision=first)
        with pytest.raises(RevisionMismatchError):
            await bucket.update("a", b"3", first)
        assert (await bucket.get("a")).value == b"2"
        await bucket.delete("a", revision=second)
        with pytest.raises(KeyNotFoundError):
            await bucket.get("a")


# -- limits -------------------------------------------------------------------------------------


@conformance("KV", "5. Writes", "10077, maximum bytes exceeded: the bucket is full, not the server")
async def test_a_full_bucket(nats_server: NatsServer) -> None:
    async with connected(nats_server.url) as nc:
        bucket = await new_bucket(nc, max_bytes=10_000)
        number = 0
        with pytest.raises(StoreFailedError, match="maximum bytes") as caught:
            for number in range(100):
                await bucket.put(f"k.{number}", b"x" * 1000)
        assert 5 <= number < 10
        assert not caught.value.may_have_taken_effect
        with pytest.raises(KeyNotFoundError):
            await bucket.get(f"k.{number}")
        keys = await listed(bucket.keys())
        assert keys == [f"k.{n}" for n in range(number)]
        # There is room again when something has been purged.
        await bucket.purge("k.0")
        await bucket.purge("k.1")
        await bucket.put("k.0", b"x" * 1000)
        assert len((await bucket.get("k.0")).value) == 1000


@conformance("KV", "2. Bucket -> stream config", "max_value_size counts headers and payload")
async def test_a_value_that_is_too_large(nats_server: NatsServer) -> None:
    async with connected(nats_server.url) as nc:
        bucket = await new_bucket(nc, max_value_size=100)
        await bucket.put("a", b"x" * 100)
        with pytest.raises(MessageTooLargeError):
            await bucket.put("a", b"y" * 101)
        with pytest.raises(MessageTooLargeError):  # the header is part of it
            await bucket.create("b", b"y" * 100)
        assert (await bucket.get("a")).value == b"x" * 100
        with pytest.raises(KeyNotFoundError):
            await bucket.get("b")
