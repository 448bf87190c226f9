"""Calls that wait for what they have published, and were not permitted to: they fail at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from jetspark import Client, JetStreamMessage, OrderedConsumer, Stream
from jetspark.errors import OrderedConsumerResetError, PermissionsError
from jetspark.jetstream.consumer import PullConsumer
from jetspark.server import NatsServer
from tests.support.faults import connected
from tests.support.js import Warnings, make_consumer, make_stream
from tests.support.leaks import until
from tests.support.servers import StartServer

NEXT = "$JS.API.CONSUMER.MSG.NEXT"


def serve(start_server: StartServer, **permissions: Any) -> NatsServer:
    """A server with a user who may do anything, and one who may not."""
    return start_server(
        users=[
            {"user": "all", "password": "x"},
            {"user": "some", "password": "x", "permissions": permissions},
        ]
    )


@pytest.fixture
async def nc(start_server: StartServer, nothing_left: None) -> AsyncIterator[Client]:
    """A client that may not pull, nor publish to subjects that end with `secret`."""
    server = serve(start_server, publish={"deny": [f"{NEXT}.>", "*.secret"]})
    async with connected(server.url, user="some", password="x") as client:
        yield client


def ignore(message: JetStreamMessage) -> None:
    pass


async def consume(consumer: PullConsumer) -> None:
    await (await consumer.consume(ignore)).wait()


PULLS: dict[str, Callable[[PullConsumer], Awaitable[object]]] = {
    "fetch": lambda consumer: consumer.fetch(5),
    "fetch_no_wait": lambda consumer: consumer.fetch_no_wait(5),
    "next": lambda consumer: consumer.next(),
    "sequence": lambda consumer: anext(consumer.sequence(5)),
    "messages": lambda consumer: consumer.messages().next(),
    "consume": consume,
    "fetch_arrow": lambda consumer: consumer.fetch_arrow(5),
    "arrow_batches": lambda consumer: anext(consumer.arrow_batches()),
}


@pytest.mark.parametrize("pull", PULLS.values(), ids=PULLS.keys())
async def test_pulling(nc: Client, pull: Callable[[PullConsumer], Awaitable[object]]) -> None:
    consumer = await make_consumer(nc, await make_stream(nc, 1))
    async with asyncio.timeout(5):
        with pytest.raises(PermissionsError) as caught:
            await pull(consumer)
    assert caught.value.subject == f"{NEXT}.{consumer.stream_name}.c"
    await until(lambda: len(nc._routes) == 1)  # that of requests


@pytest.mark.parametrize("pull", PULLS.values(), ids=PULLS.keys())
async def test_an_ordered_consumer(
    nc: Client, pull: Callable[[PullConsumer], Awaitable[object]]
) -> None:
    stream = await nc.jetstream().get_stream(await make_stream(nc, 1))
    consumer = await stream.ordered_consumer()
    async with asyncio.timeout(5):
        with pytest.raises(PermissionsError) as caught:
            await pull(consumer)
    assert caught.value.subject == f"{NEXT}.{stream.name}.{consumer.name}"


@pytest.mark.parametrize("batch", [1, 5])
async def test_the_older_fetch(nc: Client, batch: int) -> None:
    stream = await make_stream(nc, 1)
    async with await nc.jetstream().pull_subscribe(f"{stream}.>", durable="d") as subscription:
        both = [asyncio.ensure_future(subscription.fetch(batch)) for _ in range(2)]
        async with asyncio.timeout(4):
            for fetch in both:
                with pytest.raises(PermissionsError, match=r"CONSUMER\.MSG\.NEXT"):
                    await fetch


async def test_another_consumer_is_not_concerned(start_server: StartServer) -> None:
    server = serve(start_server, publish={"deny": [f"{NEXT}.*.c"]})
    async with connected(server.url, user="some", password="x") as nc:
        stream = await make_stream(nc)
        mine = await make_consumer(nc, stream, durable_name="mine")
        theirs = await make_consumer(nc, stream)
        async with mine.messages() as messages:
            with pytest.raises(PermissionsError):
                await theirs.fetch(1)
            await nc.jetstream().publish(f"{stream}.a", b"")
            assert (await messages.next(timeout=5)).subject == f"{stream}.a"


async def test_permissions_that_are_taken_away(start_server: StartServer) -> None:
    """An ordered consumer that broke off and may not be created again."""
    server = serve(start_server, publish={"deny": ["$JS.API.CONSUMER.CREATE.*.locked_2"]})
    async with connected(server.url, user="some", password="x") as nc:
        stream = await nc.jetstream().get_stream(await make_stream(nc, 1))
        for push in (False, True):
            await fails_to_reset(stream, push)


async def fails_to_reset(stream: Stream, push: bool) -> None:
    options: dict[str, Any] = {"name_prefix": "locked", "push": push}
    consumer: OrderedConsumer = await stream.ordered_consumer(**options)
    async with consumer.messages(on_warning=Warnings()) as messages:
        await messages.next(timeout=5)
        await stream.api.client.force_reconnect()
        with pytest.raises(OrderedConsumerResetError) as caught:
            await messages.next(timeout=5)
    assert isinstance(caught.value.__cause__, PermissionsError)


# -- publishing


async def test_publishing(nc: Client) -> None:
    js, stream = nc.jetstream(), await make_stream(nc)
    good = [await js.publish_async(f"{stream}.a", b"") for _ in range(3)]
    bad = [await js.publish_async(f"{stream}.secret", b"") for _ in range(3)]
    async with asyncio.timeout(5):
        for future in good:
            assert (await future).stream == stream
        for future in bad:
            with pytest.raises(PermissionsError) as caught:
                await future
            assert caught.value.subject == f"{stream}.secret"
            assert not caught.value.may_have_taken_effect
        with pytest.raises(PermissionsError, match="secret"):
            await js.publish(f"{stream}.secret", b"")


async def test_fast_ingest(nc: Client) -> None:
    if nc.server_info.version_tuple < (2, 14):
        pytest.skip("the server has no fast ingest")
    js, stream = nc.jetstream(), await make_stream(nc, allow_batched=True)
    ingest = js.fast_ingest()
    async with asyncio.timeout(4):
        with pytest.raises(PermissionsError, match="secret"):
            await ingest.add(f"{stream}.secret", b"")
        assert ingest.closed
        # One that runs finds out about others by itself, and goes on if it may.
        async with js.fast_ingest(gap="ok") as other:
            for token in ("a", "secret", "b"):
                await other.add(f"{stream}.{token}", b"")
    assert other.ack is not None
    assert (other.ack.batch_size, other.lost) == (3, 1)
