"""The ways into JetStream, and what it hands out."""

from __future__ import annotations

import pytest

import jetspark
from jetspark import PullConsumer, PushConsumer
from jetspark.errors import (
    InvalidOptionError,
    NotPullConsumerError,
    NotPushConsumerError,
    StreamNotFoundError,
)
from jetspark.server import NatsServer
from tests.support.clients import Connect, unique
from tests.support.conformance import conformance


@pytest.fixture
async def nc(nats_server: NatsServer, connect: Connect) -> jetspark.Client:
    client = await connect(nats_server.url)
    assert isinstance(client, jetspark.Client)
    return client


@conformance("RUST", "Context creation", "the default prefix is $JS.API")
async def test_default_prefix(nc: jetspark.Client) -> None:
    js = nc.jetstream()
    assert js.api.subjects.prefix == "$JS.API"
    assert (await js.account_info()).streams >= 0


@conformance("RUST", "Context creation", "a custom prefix stands in front of all requests")
async def test_custom_prefix(nc: jetspark.Client) -> None:
    js = nc.jetstream(prefix="$JS.API.")
    assert js.api.subjects.prefix == "$JS.API"
    assert (await js.account_info()).streams >= 0
    assert nc.jetstream(prefix="JS.acc@hub.API").api.subjects.prefix == "JS.acc@hub.API"
    with pytest.raises(InvalidOptionError, match="exclude each other"):
        nc.jetstream(prefix="a", domain="b")


@conformance("RUST", "Stream operations", "info() of a stream: STREAM.INFO.<name>")
@conformance("RUST", "Stream operations", "delete() of a stream: STREAM.DELETE.<name>")
async def test_info_and_delete_of_a_stream(nc: jetspark.Client) -> None:
    js = nc.jetstream(strict=True)
    stream = await js.create_stream(name=unique("S").replace(".", "-"))
    await js.publish(stream.name, b"one")
    assert stream.cached_info.state.messages == 0
    assert (await stream.info()).state.messages == 1
    assert stream.cached_info.state.messages == 1
    await stream.delete()
    with pytest.raises(StreamNotFoundError):
        await stream.info()


@conformance("RUST", "Consumer Types", "PullConsumer")
@conformance("RUST", "Consumer Types", "PushConsumer")
async def test_kinds_of_consumers(nc: jetspark.Client) -> None:
    js = nc.jetstream(strict=True)
    stream = await js.create_stream(name=unique("S").replace(".", "-"))
    pull = await stream.create_consumer(durable_name="pull")
    push = await stream.create_consumer(durable_name="push", deliver_subject=nc.new_inbox())
    assert type(pull) is PullConsumer
    assert type(push) is PushConsumer
    assert type(await stream.get_consumer("pull")) is PullConsumer
    assert type(await js.get_consumer(stream.name, "push", push=True)) is PushConsumer
    by_object = await stream.create_consumer(push.config)
    assert type(by_object) is PushConsumer


async def test_a_consumer_of_the_other_kind_is_refused(nc: jetspark.Client) -> None:
    js = nc.jetstream()
    stream = await js.create_stream(name=unique("S").replace(".", "-"))
    await stream.create_consumer(durable_name="pull")
    await stream.create_consumer(durable_name="push", deliver_subject="d")
    with pytest.raises(NotPullConsumerError, match=r"'push' of stream .* push=True"):
        await stream.get_consumer("push")
    with pytest.raises(NotPushConsumerError, match="'pull' of stream"):
        await js.get_consumer(stream.name, "pull", push=True)
    with pytest.raises(NotPullConsumerError):
        await stream.get_or_create_consumer(durable_name="push")
    with pytest.raises(NotPushConsumerError):
        await js.get_or_create_consumer(stream.name, durable_name="pull", deliver_subject="d")
