"""What nats-py and natsrpy write, create and configure is read by ours, and the reverse."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import nats
import natsrpy
import pytest
from nats.js import api as nats_api
from natsrpy.js import PullConsumerConfig, RetentionPolicy
from natsrpy.js import StreamConfig as RustStreamConfig

import jetspark
from jetspark import ConsumerConfig, JetStream, StreamConfig
from jetspark.jetstream.consumer import PullConsumer
from jetspark.server import NatsServer
from tests.support.clients import Connect, unique


@pytest.fixture
async def ours(nats_server: NatsServer, connect: Connect) -> JetStream:
    client = await connect(nats_server.url)
    assert isinstance(client, jetspark.Client)
    return client.jetstream(strict=True)


@pytest.fixture
async def nats_py(nats_server: NatsServer) -> AsyncIterator[Any]:
    client = await nats.connect(nats_server.url)
    yield client.jetstream()
    await client.close()


@pytest.fixture
async def rust(nats_server: NatsServer) -> AsyncIterator[Any]:
    client = natsrpy.Nats(addrs=[nats_server.url])
    await client.startup()
    yield await client.jetstream()
    await client.shutdown()


async def pulled(js: JetStream, stream: str, name: str) -> PullConsumer:
    return await js.get_consumer(stream, name)


async def test_ours_reads_what_nats_py_made(ours: JetStream, nats_py: Any) -> None:
    name = unique("S").replace(".", "-")
    await nats_py.add_stream(
        name=name,
        subjects=[f"{name}.>"],
        max_age=3600,
        max_msgs_per_subject=5,
        description="from nats-py",
        duplicate_window=30,
    )
    await nats_py.add_consumer(
        name,
        nats_api.ConsumerConfig(
            durable_name="c", ack_wait=7, max_ack_pending=11, filter_subject=f"{name}.a"
        ),
    )
    ack = await nats_py.publish(f"{name}.a", b"hello", headers={"Trace": "1", "Nats-Msg-Id": "m"})
    stream = await ours.get_stream(name)
    assert stream.config.max_age == timedelta(hours=1)
    assert stream.config.max_msgs_per_subject == 5
    assert stream.config.duplicate_window == timedelta(seconds=30)
    assert stream.config.description == "from nats-py"
    consumer = await pulled(ours, name, "c")
    assert consumer.config.ack_wait == timedelta(seconds=7)
    assert consumer.config.max_ack_pending == 11
    message = await consumer.next(timeout=5)
    assert (message.subject, message.data) == (f"{name}.a", b"hello")
    assert message.headers["Trace"] == "1"
    assert message.metadata.stream_sequence == ack.seq
    await message.double_ack()
    assert (await consumer.info()).num_ack_pending == 0


async def test_nats_py_reads_what_ours_made(ours: JetStream, nats_py: Any) -> None:
    name = unique("S").replace(".", "-")
    config = StreamConfig(
        name=name, subjects=[f"{name}.>"], max_age=3600, max_bytes=10_000_000, storage="memory"
    )
    await ours.create_stream(config)
    await ours.create_consumer(name, ConsumerConfig(durable_name="c", ack_wait=7, max_deliver=3))
    ack = await ours.publish(f"{name}.a", b"hello", headers={"Trace": "1"}, msg_id="m")
    info = await nats_py.stream_info(name)
    assert info.config.max_age == 3600
    assert info.config.max_bytes == 10_000_000
    assert info.config.storage == nats_api.StorageType.MEMORY
    consumer_info = await nats_py.consumer_info(name, "c")
    assert (consumer_info.config.ack_wait, consumer_info.config.max_deliver) == (7, 3)
    subscription = await nats_py.pull_subscribe_bind("c", name)
    [message] = await subscription.fetch(1, timeout=5)
    assert message.data == b"hello"
    assert message.headers["Trace"] == "1"
    assert message.metadata.sequence.stream == ack.sequence
    await message.ack_sync()
    duplicate = await nats_py.publish(f"{name}.a", b"again", headers={"Nats-Msg-Id": "m"})
    assert duplicate.duplicate


async def test_ours_reads_what_natsrpy_made(ours: JetStream, rust: Any) -> None:
    name = unique("S").replace(".", "-")
    stream = await rust.streams.create(
        RustStreamConfig(
            name=name,
            subjects=[f"{name}.>"],
            retention=RetentionPolicy.WORKQUEUE,
            max_age=timedelta(minutes=5),
        )
    )
    await stream.consumers.create(
        PullConsumerConfig(durable_name="c", ack_wait=timedelta(seconds=9))
    )
    for number in range(5):
        await rust.publish(f"{name}.a", str(number), headers={"N": str(number)}, wait=True)
    found = await ours.get_stream(name)
    assert found.config.retention == "workqueue"
    assert found.config.max_age == timedelta(minutes=5)
    consumer = await pulled(ours, name, "c")
    assert consumer.config.ack_wait == timedelta(seconds=9)
    messages = await consumer.fetch(5, timeout=5)
    assert [(m.data, m.headers["N"]) for m in messages] == [
        (str(number).encode(), str(number)) for number in range(5)
    ]
    for message in messages:
        await message.double_ack()
    assert (await found.info()).state.messages == 0


async def test_natsrpy_reads_what_ours_made(ours: JetStream, rust: Any) -> None:
    name = unique("S").replace(".", "-")
    await ours.create_stream(name=name, subjects=[f"{name}.>"], allow_direct=True)
    await ours.create_consumer(name, durable_name="c", ack_wait=9)
    for number in range(5):
        await (await ours.publish_async(f"{name}.a", b"%d" % number, headers={"N": f"{number}"}))
    stream = await rust.streams.get(name)
    info = await stream.get_info()
    assert info.state.messages == 5
    consumer = await stream.consumers.get_pull("c")
    messages = await consumer.fetch(5, timeout=5)
    assert [bytes(message.payload) for message in messages] == [b"0", b"1", b"2", b"3", b"4"]
    assert [message.headers["N"] for message in messages] == ["0", "1", "2", "3", "4"]
    for message in messages:
        await message.ack(double=True)
    assert (await (await pulled(ours, name, "c")).info()).num_ack_pending == 0


async def test_three_clients_share_one_consumer(ours: JetStream, nats_py: Any, rust: Any) -> None:
    """Each message goes to one of them, and what one gives back another gets."""
    name = unique("S").replace(".", "-")
    await ours.create_stream(name=name, subjects=[f"{name}.>"])
    await ours.create_consumer(name, durable_name="c")
    for number in range(30):
        await ours.publish(f"{name}.a", b"%d" % number)
    mine = await (await pulled(ours, name, "c")).fetch(10, timeout=5)
    theirs = await (await nats_py.pull_subscribe_bind("c", name)).fetch(10, timeout=5)
    rusty = await (await (await rust.streams.get(name)).consumers.get_pull("c")).fetch(
        10, timeout=5
    )
    seen = [m.data for m in mine] + [m.data for m in theirs] + [bytes(m.payload) for m in rusty]
    assert sorted(map(int, seen)) == list(range(30))
    await rusty[0].nack()
    again = await (await pulled(ours, name, "c")).next(timeout=5)
    assert again.data == bytes(rusty[0].payload)
    assert again.metadata.num_delivered == 2
