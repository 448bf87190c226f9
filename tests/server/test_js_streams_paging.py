"""Answers that come in pages: more streams, consumers and subjects than one answer holds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from jetspark import Client, Message
from jetspark.server import NatsServer
from tests.support.clients import Connect
from tests.support.conformance import conformance
from tests.support.servers import StartServer
from tests.support.streams import new_name, store

LIST_PAGE, SUBJECTS_PAGE = 256, 100_000
MANY = 1030  # five pages of a list, two of names


class Requests:
    """Counts the requests to a subject of the API, through a subscription beside them."""

    def __init__(self, client: Client, subject: str) -> None:
        self.client = client
        self.subject = subject
        self.seen: list[Message] = []

    async def __aenter__(self) -> list[Message]:
        self._spy = await self.client.subscribe(self.subject, callback=self.seen.append)
        return self.seen

    async def __aexit__(self, *exc_info: object) -> None:
        await self._spy.drain()


async def in_portions(
    make: Callable[[int], Awaitable[object]], count: int, portion: int = 64
) -> None:
    for start in range(0, count, portion):
        numbers = range(start, min(start + portion, count))
        await asyncio.gather(*(make(number) for number in numbers))


@conformance("RUST", "Paged list operations", "offsets from 0 until there are no more results")
async def test_many_streams(start_server: StartServer, connect: Connect) -> None:
    nc = await connect(start_server().url)
    js = nc.jetstream(strict=True)
    await in_portions(
        lambda n: js.create_stream(name=f"S{n:04}", storage="memory", max_msgs=n + 1), MANY
    )
    expected = [f"S{n:04}" for n in range(MANY)]
    async with Requests(nc, "$JS.API.STREAM.NAMES") as requests:
        assert [name async for name in js.stream_names()] == expected
    assert [message.data for message in requests] == [b'{"offset":0}', b'{"offset":1023}']
    async with Requests(nc, "$JS.API.STREAM.LIST") as requests:
        assert [(s.name, s.config.max_msgs) async for s in js.streams()] == [
            (name, n + 1) for n, name in enumerate(expected)
        ]
    assert len(requests) == MANY // LIST_PAGE + 1
    info = await js.account_info()
    assert info.streams == MANY


async def test_pages_that_nobody_wants_are_not_asked_for(
    start_server: StartServer, connect: Connect
) -> None:
    nc = await connect(start_server().url)
    js = nc.jetstream(strict=True)
    await in_portions(lambda n: js.create_stream(name=f"S{n:04}", storage="memory"), LIST_PAGE + 5)
    async with Requests(nc, "$JS.API.STREAM.LIST") as requests:
        streams = js.streams()
        assert (await anext(streams)).name == "S0000"
        await js.delete_stream("S0001")  # has come already
        await js.delete_stream("S0260")  # shall not come
        rest = [stream.name async for stream in streams]
    assert len(requests) == 3  # the second time it was the last of the first page that had moved
    assert rest == [f"S{n:04}" for n in range(1, LIST_PAGE + 4)]


@pytest.mark.parametrize("listed", ["streams", "stream_names"])
async def test_all_are_listed_while_they_are_deleted(
    start_server: StartServer, connect: Connect, listed: str
) -> None:
    nc = await connect(start_server().url)
    js = nc.jetstream(strict=True)
    await in_portions(lambda n: js.create_stream(name=f"S{n:04}", storage="memory"), MANY)
    async for found in getattr(js, listed)():
        await js.delete_stream(found if isinstance(found, str) else found.name)
    assert [name async for name in js.stream_names()] == []


async def test_all_are_listed_while_others_are_created(
    start_server: StartServer, connect: Connect
) -> None:
    nc = await connect(start_server().url)
    js = nc.jetstream(strict=True)
    await in_portions(lambda n: js.create_stream(name=f"S{n:04}", storage="memory"), MANY)
    names: list[str] = []
    async for name in js.stream_names():
        if not names:
            await in_portions(lambda n: js.create_stream(name=f"A{n}", storage="memory"), 5)
        names.append(name)
    assert names == [f"S{n:04}" for n in range(MANY)]


async def test_many_consumers(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    js = nc.jetstream(strict=True)
    # A server of 2.15 takes no more than 1000 where a stream does not say otherwise.
    stream = await js.create_stream(name=new_name(), storage="memory", max_consumers=MANY)
    await in_portions(
        lambda n: stream.create_consumer(durable_name=f"C{n:04}", mem_storage=True), MANY
    )
    expected = [f"C{n:04}" for n in range(MANY)]
    assert [name async for name in stream.consumer_names()] == expected
    assert [name async for name in js.consumer_names(stream.name)] == expected
    assert [consumer.name async for consumer in stream.consumers()] == expected
    assert (await stream.info()).state.consumer_count == MANY
    await stream.delete()


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_few_of_everything(nats_server: NatsServer, connect: Connect, count: int) -> None:
    nc = await connect(nats_server.url)
    js = nc.jetstream(strict=True)
    name = new_name()
    stream = await js.create_stream(name=name, subjects=[f"{name}.*"], storage="memory")
    for n in range(count):
        await stream.create_consumer(durable_name=f"C{n}")
        await store(nc, f"{name}.{n}")
    assert len([name async for name in stream.consumer_names()]) == count
    assert len([consumer async for consumer in stream.consumers()]) == count
    info = await stream.info(subjects_filter=">")
    assert info.state.subjects == {f"{name}.{n}": 1 for n in range(count)}
    assert (await stream.info(subjects_filter=f"{name}.x")).state.subjects == {}
    assert (await stream.info()).state.subjects == {}  # not asked for


async def test_more_subjects_than_one_answer_holds(
    nats_server: NatsServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    nc = await connect(nats_server.url)
    js = nc.jetstream(strict=True, timeout=30)
    name = new_name()
    stream = await js.create_stream(name=name, subjects=[f"{name}.*"], storage="memory")
    count = SUBJECTS_PAGE + 10
    for n in range(count - 1):
        await nc.publish(f"{name}.{n}")
    await store(nc, f"{name}.last")
    async with Requests(nc, f"$JS.API.STREAM.INFO.{name}") as requests:
        info = await stream.info(subjects_filter=f"{name}.*")
    assert [b'"offset":99999' in message.data for message in requests] == [False, True]
    assert len(info.state.subjects) == count
    assert set(info.state.subjects.values()) == {1}
    assert f"{name}.last" in info.state.subjects
    assert stream.cached_info is info

    # Those that go between two pages make others move to places that have been looked at.
    ask = js.api.request
    gone = sorted(info.state.subjects)[:300]

    async def ask_before_some_go(*args: Any, **options: Any) -> dict[str, Any]:
        response = await ask(*args, **options)
        monkeypatch.undo()
        while gone:
            await stream.purge(subject=gone.pop())
        return response

    monkeypatch.setattr(js.api, "request", ask_before_some_go)
    last = set(sorted(info.state.subjects)[300:])
    assert set((await stream.info(subjects_filter=f"{name}.*")).state.subjects) >= last
    assert not gone
    await stream.delete()


async def test_deleted_sequences(nats_server: NatsServer, connect: Connect) -> None:
    nc = await connect(nats_server.url)
    js = nc.jetstream(strict=True)
    stream = await js.create_stream(name=new_name())
    for _ in range(6):
        await store(nc, stream.name)
    for sequence in (2, 4):
        await stream.delete_message(sequence)
    state = (await stream.info()).state
    assert (state.deleted, state.num_deleted) == ([], 2)
    assert (await stream.info(deleted_details=True)).state.deleted == [2, 4]


# --- other ways to the API


@conformance("RUST", "Context creation", "with a domain the prefix is $JS.<domain>.API")
async def test_a_domain_and_a_prefix_lead_to_the_same_streams(
    start_server: StartServer, connect: Connect
) -> None:
    nc = await connect(start_server(domain="hub").url)
    for js in (
        nc.jetstream(strict=True),
        nc.jetstream(domain="hub", strict=True),
        nc.jetstream(prefix="$JS.hub.API.", strict=True),
    ):
        stream = await js.create_or_update_stream(name="S", subjects=["s.*"], allow_direct=True)
        await store(nc, "s.a", b"1")
        consumer = await stream.create_or_update_consumer(durable_name="C", filter_subject="s.*")
        assert (await consumer.info()).config.filter_subject == "s.*"
        assert (await js.account_info()).domain == "hub"
        assert (await stream.get_last_message("s.*")).data == b"1"
        assert (await stream.direct_get_last("s.a")).data == b"1"
        assert [name async for name in js.stream_names()] == ["S"]


async def test_a_prefix_into_another_account(start_server: StartServer, connect: Connect) -> None:
    accounts = {
        "OWNER": {
            "jetstream": "enabled",
            "users": [{"user": "owner", "password": "p"}],
            "exports": [{"service": "$JS.API.>", "response_type": "stream"}],
        },
        "GUEST": {
            "users": [{"user": "guest", "password": "p"}],
            "imports": [
                {"service": {"account": "OWNER", "subject": "$JS.API.>"}, "to": "JS.owner.>"}
            ],
        },
    }
    server = start_server(accounts=accounts)
    owner = await connect(server.url, user="owner", password="p")
    stream = await owner.jetstream(strict=True).create_stream(
        name="S", subjects=["s.*"], allow_direct=True
    )
    for n in range(5):
        await store(owner, f"s.{n}", b"%d" % n)
    guest = (await connect(server.url, user="guest", password="p")).jetstream(
        prefix="JS.owner", strict=True
    )
    found = await guest.get_stream("S")
    assert found.config == stream.config
    assert (await found.get_message(2)).data == b"1"
    assert (await found.direct_get_last("s.3")).subject == "s.3"
    assert [m.data async for m in found.direct_get_batch(batch=3)] == [b"0", b"1", b"2"]
