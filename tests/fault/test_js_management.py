"""Streams and consumers in trouble: permissions, lost connections, leaders and majorities."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import pytest

from jetspark import JetStream, Stream, StreamInfo
from jetspark.errors import (
    ClusterError,
    ConnectionClosedError,
    ConsumerNotFoundError,
    DisconnectedError,
    JetSparkError,
    JetStreamError,
    OfflineError,
    PermissionsError,
    ServiceUnavailableError,
    StreamNameInUseError,
    TimeoutError,
)
from jetspark.server import NatsCluster, NatsServer
from tests.support.faults import connected
from tests.support.leaks import GUARD, until
from tests.support.proxy import Proxy
from tests.support.servers import StartCluster, StartServer
from tests.support.streams import new_name, step_down, store

# What a cluster without a leader answers, or does not answer.
LEADERLESS = (TimeoutError, ServiceUnavailableError, ClusterError)


# --- permissions


def calls(js: JetStream) -> list[Coroutine[Any, Any, object]]:
    """Calls of many kinds, not yet made."""
    info = js.api.decode(StreamInfo, {"config": {"name": "S"}, "state": {}})
    stream = Stream(js, info)
    return [
        js.account_info(),
        js.create_stream(name="NEW"),
        js.update_stream(name="S"),
        js.create_or_update_stream(name="S"),
        js.get_or_create_stream(name="S"),
        js.get_stream("S"),
        js.delete_stream("S"),
        js.purge_stream("S"),
        js.stream_name_by_subject("s"),
        first(js.streams()),
        first(js.stream_names()),
        js.create_consumer("S"),
        js.create_consumer("S", filter_subject="s.*"),
        js.get_consumer("S", "C"),
        js.delete_consumer("S", "C"),
        js.pause_consumer("S", "C", 5),
        js.reset_consumer("S", "C"),
        first(js.consumers("S")),
        stream.get_message(1),
        stream.delete_message(1),
        stream.direct_get(1),
        stream.direct_get_last("s"),
        first(stream.direct_get_batch()),
        first(stream.direct_get_last_many("s")),
    ]


async def first(items: AsyncIterator[object]) -> object:
    return await anext(items)


@pytest.mark.parametrize(
    "permissions",
    [
        {"publish": "other", "subscribe": "_INBOX.>"},
        {"publish": {"deny": "$JS.API.>"}},
        {"publish": "$JS.API.>", "subscribe": "other"},
    ],
    ids=["not allowed", "denied", "no answers"],
)
async def test_without_permission_every_call_says_so_at_once(
    start_server: StartServer, permissions: dict[str, Any]
) -> None:
    users: list[dict[str, Any]] = [
        {"user": "ann", "password": "p"},
        {"user": "bob", "password": "p", "permissions": permissions},
    ]
    server = start_server(users=users)
    async with connected(server.url, user="ann", password="p") as nc:
        await nc.jetstream().create_stream(name="S", allow_direct=True)
    async with connected(server.url, user="bob", password="p") as nc:
        for call in calls(nc.jetstream(timeout=10 * GUARD)):
            with pytest.raises(PermissionsError) as caught:
                await asyncio.wait_for(call, GUARD)
            assert caught.value.operation in ("publish", "subscribe")


# --- lost connections


async def test_calls_that_may_be_repeated_survive_a_lost_connection(
    nats_server: NatsServer,
) -> None:
    async with Proxy(nats_server.host, nats_server.port) as proxy, connected(proxy.url) as nc:
        js = nc.jetstream(strict=True)
        name = new_name()
        stream = await js.create_stream(name=name)

        async def list_names() -> list[str]:
            return [name async for name in js.stream_names()]

        async def list_streams() -> list[Stream]:
            return [stream async for stream in js.streams()]

        repeated: list[Callable[[], Awaitable[object]]] = [
            lambda: js.get_stream(name),
            lambda: js.create_stream(name=name),
            lambda: js.update_stream(name=name),
            lambda: stream.info(subjects_filter=">"),
            lambda: js.account_info(),
            lambda: stream.create_consumer(),
            list_names,
            list_streams,
        ]
        for number, call in enumerate(repeated, 1):
            await nc.flush()
            # The server gets the request, and its answer gets lost.
            proxy.truncate_after(5, "down")
            await asyncio.wait_for(call(), GUARD)
            assert nc.statistics.reconnects == number
        assert (await stream.info()).state.consumer_count == 1


async def test_calls_that_may_be_repeated_are_when_nobody_answers(nats_server: NatsServer) -> None:
    async with connected(nats_server.url) as nc:
        answer = await nc.request("$JS.API.INFO")
        prefix = new_name()
        api = await nc.subscribe(f"{prefix}.>")  # an API that does not answer by itself
        asking = asyncio.create_task(nc.jetstream(prefix=prefix, timeout=2).account_info())
        first, second = await api.next(GUARD), await api.next(GUARD)
        assert (first.subject, first.reply) == (second.subject, second.reply)
        assert second.reply is not None
        await nc.publish(second.reply, answer.data)
        assert (await asking).limits.max_streams == -1
        with pytest.raises(TimeoutError):
            await nc.jetstream(prefix=prefix, timeout=0.2).delete_stream("S")
        await nc.flush()
        assert api.pending_messages == 1, "what changes something is not repeated"


async def test_calls_that_may_not_be_repeated_say_that_they_may_have_happened(
    nats_server: NatsServer,
) -> None:
    async with Proxy(nats_server.host, nats_server.port) as proxy, connected(proxy.url) as nc:
        js = nc.jetstream(strict=True)
        stream = await js.create_stream(name=new_name())
        await store(nc, stream.name)
        for call in (stream.purge, stream.delete):
            await nc.flush()
            proxy.truncate_after(5, "down")
            with pytest.raises(DisconnectedError) as caught:
                await call()
            assert caught.value.may_have_taken_effect
            await nc.flush()


async def test_a_server_that_does_not_answer(start_server: StartServer) -> None:
    server = start_server()
    async with connected(server.url) as nc:
        js = nc.jetstream(strict=True, timeout=0.2)
        stream = await js.create_stream(name="S")
        server.pause()
        try:
            for call in (js.get_stream("S"), stream.info(), js.account_info()):
                with pytest.raises(TimeoutError, match=r"\$JS\.API\.") as caught:
                    await call
                assert caught.value.retryable
        finally:
            server.resume()
        await nc.flush()
        assert (await nc.jetstream().get_stream("S")).name == "S"


async def test_a_restart_is_waited_for(start_server: StartServer) -> None:
    server = start_server()
    async with connected(server.url) as nc:
        js = nc.jetstream(strict=True, timeout=GUARD)
        stream = await js.create_stream(name="S")
        await store(nc, "S", b"kept")
        await server.akill()
        call = asyncio.create_task(stream.info())
        await server.astart()
        assert (await call).state.messages == 1


async def test_a_closed_client(nats_server: NatsServer) -> None:
    async with connected(nats_server.url) as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name=new_name())
    for call in (js.account_info, stream.info, stream.purge, stream.create_consumer):
        with pytest.raises(ConnectionClosedError):
            await call()


# --- cancellation


async def test_calls_that_are_cancelled_leave_nothing_behind(nats_server: NatsServer) -> None:
    async with Proxy(nats_server.host, nats_server.port) as proxy, connected(proxy.url) as nc:
        js = nc.jetstream(strict=True)
        await js.create_stream(name=(name := new_name()))
        proxy.stall("down")
        tasks = [
            asyncio.create_task(call)
            for call in (
                js.get_stream(name),
                js.create_stream(name=name, max_msgs=5),
                first(js.streams()),
                js.create_consumer(name, durable_name="C"),
            )
        ]
        mux = nc._requests()
        await until(lambda: mux.pending == len(tasks))
        for task in tasks:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert mux.pending == 0
        proxy.unstall("down")
        # They had been sent all the same.
        with pytest.raises(StreamNameInUseError):
            await js.create_stream(name=name, max_msgs=6)
        assert (await js.get_consumer(name, "C")).name == "C"


# --- clusters


async def test_replicas_and_placement(nats_cluster: NatsCluster) -> None:
    async with connected(nats_cluster.urls) as nc:
        js = nc.jetstream(strict=True)
        stream = await js.create_stream(name=new_name(), num_replicas=3)
        cluster = (await stream.info()).cluster
        assert cluster is not None
        assert {cluster.leader, *(peer.name for peer in cluster.replicas)} == {
            server.name for server in nats_cluster
        }
        await stream.update(num_replicas=1)
        assert stream.config.num_replicas == 1
        with pytest.raises(JetStreamError, match=r"(?i)no suitable peers"):
            await js.create_stream(name=new_name(), placement={"cluster": "elsewhere"})
        with pytest.raises(JetStreamError, match=r"(?i)no suitable peers"):
            await js.create_stream(name=new_name(), num_replicas=5)


async def test_leaders_that_step_down_under_calls(nats_cluster: NatsCluster) -> None:
    async with connected(nats_cluster.urls) as nc:
        js = nc.jetstream(strict=True)
        name = new_name()
        await js.create_stream(name=name, num_replicas=3)
        # A request that comes in the wrong moment gets no answer; a list takes 4 seconds then.
        stream = await nc.jetstream(strict=True, timeout=1.5).get_stream(name)
        consumer = await stream.create_consumer(durable_name="C")
        done = False
        good: Counter[str] = Counter()
        failures: list[JetSparkError] = []

        async def again(what: str, call: Callable[[], Awaitable[object]]) -> None:
            while not done:
                try:
                    assert await call(), what
                    good[what] += 1
                except (*LEADERLESS, OfflineError) as error:
                    failures.append(error)

        async def streams() -> bool:
            return name in [stream.name async for stream in js.streams()]

        async def names() -> bool:
            return name in [found async for found in js.stream_names()]

        async def consumers() -> bool:
            return [consumer.name async for consumer in js.consumers(name)] == ["C"]

        async def update() -> bool:
            return (await stream.update(description="new")).config.description == "new"

        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "streams": streams,
            "names": names,
            "consumers": consumers,
            "update": update,
            "info": stream.info,
            "consumer info": consumer.info,
        }
        async with asyncio.TaskGroup() as group:
            for what, call in calls.items():
                group.create_task(again(what, call))
            for number in range(3):
                enough = 5 * (number + 1)
                await until(lambda enough=enough: all(good[what] >= enough for what in calls))  # type: ignore[misc]
                for target in (None, "C"):
                    try:
                        await step_down(js, name, target)
                    except (*LEADERLESS, ConsumerNotFoundError):
                        pass  # there is none now, and not yet one that knows the consumer
            done = True
        assert all(error.retryable for error in failures)
        await stream.delete()


async def test_without_a_majority_calls_fail_in_their_time(start_cluster: StartCluster) -> None:
    cluster = start_cluster(3)
    async with connected(cluster[2].url) as nc:
        js = nc.jetstream(strict=True, timeout=1)
        stream = await js.create_stream(name="S", num_replicas=3)
        await cluster.akill(0)
        await cluster.akill(1)
        # A server that has not noticed it yet goes on to answer questions, but changes nothing.
        attempts = (
            lambda: js.create_stream(name="NEW"),
            lambda: stream.update(max_msgs=5),
            lambda: stream.create_consumer(),
        )
        for call in attempts:
            with pytest.raises(LEADERLESS) as caught:
                await asyncio.wait_for(call(), GUARD)
            assert caught.value.retryable
        await cluster.astart()
        patient = nc.jetstream(strict=True, timeout=GUARD)
        assert (await patient.get_stream("S")).config.num_replicas == 3


async def test_streams_of_a_server_that_is_down(start_cluster: StartCluster) -> None:
    cluster = start_cluster(3)
    async with connected(cluster.urls) as nc:
        js = nc.jetstream(strict=True, timeout=10)
        everywhere = await js.create_stream(name="EVERYWHERE", num_replicas=3)
        lonely = await js.create_stream(name="LONELY")
        info = await lonely.info()
        assert info.cluster is not None
        await everywhere.create_consumer(durable_name="C")
        [victim] = [i for i, server in enumerate(cluster) if server.name == info.cluster.leader]
        await cluster.akill(victim)
        found: list[str] = []

        async def list_streams() -> OfflineError | None:
            found.clear()
            try:
                async for stream in js.streams():
                    found.append(stream.name)  # noqa: PERF401 - what comes before the error counts
            except OfflineError as error:
                return error
            return None

        async def listed() -> OfflineError | None:
            while True:  # the cluster may have lost its leader, too
                try:
                    if (error := await list_streams()) is None or "EVERYWHERE" not in str(error):
                        return error
                except (*LEADERLESS, DisconnectedError):
                    pass

        error = await asyncio.wait_for(listed(), 3 * GUARD)
        assert error is not None
        assert "LONELY" in str(error)
        assert error.retryable
        assert found == ["EVERYWHERE"]
        assert [name async for name in js.stream_names()] == ["EVERYWHERE", "LONELY"]
        assert [consumer.name async for consumer in everywhere.consumers()] == ["C"]
