"""Queue mode: acknowledged when it is committed, and read again the same as long as it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jetspark
from jetspark import ConsumerInfo
from jetspark.errors import (
    CheckpointError,
    ConsumerMismatchError,
    DataLossError,
    InvalidOptionError,
)
from jetspark.server import NatsServer
from jetspark.spark import stream_reader
from jetspark.spark.schema import stream_schema
from jetspark.spark.sources import JetStreamSource
from tests.support.spark_query import Query

from .conftest import Streams

Start = Callable[..., Query]


@pytest.fixture
def start(nats: NatsServer) -> Iterator[Start]:
    """Starts queries that read a queue."""
    queries: list[Query] = []

    def start(**options: Any) -> Query:
        queries.append(Query(servers=nats.url, **{"consumer": "spark", **options}))
        return queries[-1]

    yield start
    for query in queries:
        query.die()


def figures(streams: Streams, stream: str, consumer: str = "spark") -> ConsumerInfo:
    """What any tool shows of a consumer."""

    async def info(js: jetspark.JetStream) -> ConsumerInfo:
        return await (await (await js.get_stream(stream)).get_consumer(consumer)).info()

    found: ConsumerInfo = streams.edit(info)
    return found


def left(streams: Streams, stream: str) -> int:
    """How many messages a stream has."""

    async def count(js: jetspark.JetStream) -> int:
        return (await js.get_stream(stream)).cached_info.state.messages

    found: int = streams.edit(count)
    return found


@pytest.mark.parametrize("direct", [True, False], ids=["direct get", "the leader"])
@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_acknowledged_when_committed(
    start: Start, streams: Streams, retention: str, direct: bool
) -> None:
    stream = streams.new(retention=retention, allow_direct=direct)
    query = start(stream=stream, maxOffsetsPerTrigger=40, minPartitions=3, rowsPerBatch=7)
    assert not query.plan()  # which creates the consumer
    streams.publish(stream, 100)
    query.wait_and_plan()
    assert query.read() == list(range(1, 41))
    info = figures(streams, stream)
    assert (info.num_pending, info.num_ack_pending, info.ack_floor.stream_seq) == (100, 0, 0)
    query.commit()
    assert query.plan()  # whereby the batch before is known to be committed
    info = figures(streams, stream)
    assert (info.num_pending, info.num_ack_pending, info.ack_floor.stream_seq) == (60, 0, 40)
    assert info.num_redelivered == 0
    assert left(streams, stream) == 60
    assert query.run() == list(range(1, 101))
    info = figures(streams, stream)
    assert (info.num_pending, info.num_ack_pending, info.ack_floor.stream_seq) == (0, 0, 100)
    assert left(streams, stream) == 0


def test_acknowledged_while_nothing_is_added(
    start: Start, streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_reader, "SETTLED", 0.0)
    stream = streams.new()
    query = start(stream=stream, maxOffsetsPerTrigger=40)
    assert not query.plan()
    streams.publish(stream, 200)
    for done in (40, 80, 120, 160, 200):
        query.wait_and_plan()
        query.commit()
        query.plan()
        assert figures(streams, stream).ack_floor.stream_seq == done
    assert query.run() == list(range(1, 201))


def test_a_batch_that_is_run_again_has_the_same_rows(start: Start, streams: Streams) -> None:
    stream = streams.new(retention="workqueue", allow_direct=True)
    streams.publish(stream, 50)
    query = start(stream=stream)
    query.plan()
    first = query.read()
    query.die()
    streams.publish(stream, 50, first=51)
    assert query.read() == first
    assert query.run() == list(range(1, 101))
    assert left(streams, stream) == 0


def test_a_driver_that_dies_before_it_acknowledges(start: Start, streams: Streams) -> None:
    stream = streams.new(retention="workqueue")
    streams.publish(stream, 30)
    query = start(stream=stream)
    query.plan()
    query.commit()
    query.die()
    assert left(streams, stream) == 30
    assert not query.plan()  # nothing is read twice
    assert left(streams, stream) == 0


def test_what_a_driver_took_and_did_not_acknowledge(start: Start, streams: Streams) -> None:
    stream = streams.new(retention="workqueue")

    async def create(js: jetspark.JetStream) -> None:
        await (await js.get_stream(stream)).create_consumer(
            durable_name="spark", ack_policy="explicit", ack_wait=1.0
        )

    async def take(js: jetspark.JetStream) -> None:
        consumer = await (await js.get_stream(stream)).get_consumer("spark")
        assert len(await consumer.fetch(max_messages=10, timeout=2)) == 10

    streams.edit(create)
    streams.publish(stream, 30)
    query = start(stream=stream)
    query.plan()
    query.commit()
    query.die()
    streams.edit(take)  # the driver was about to acknowledge
    assert not query.plan()
    assert figures(streams, stream).num_ack_pending == 10
    while figures(streams, stream).num_ack_pending:
        assert not query.plan()
        asyncio.run(asyncio.sleep(0.2))
    info = figures(streams, stream)
    assert (info.num_pending, info.ack_floor.stream_seq) == (0, 30)
    assert left(streams, stream) == 0


def test_more_than_may_be_unacknowledged(start: Start, streams: Streams) -> None:
    stream = streams.new(retention="workqueue", allow_direct=True)

    async def create(js: jetspark.JetStream) -> None:
        await (await js.get_stream(stream)).create_consumer(
            durable_name="spark", ack_policy="explicit", max_ack_pending=7
        )

    streams.edit(create)
    streams.publish(stream, 100)
    assert start(stream=stream).run() == list(range(1, 101))
    assert left(streams, stream) == 0


def test_only_what_is_for_the_consumer(start: Start, streams: Streams) -> None:
    stream = streams.new(retention="workqueue", allow_direct=True)
    for first in range(1, 60, 3):
        streams.publish(stream, 1, subject="a", first=first)
        streams.publish(stream, 1, subject="b", first=first + 1)
        streams.publish(stream, 1, subject="c.x", first=first + 2)
    both = start(stream=stream, subjects=f"{stream}.a,{stream}.c.*", maxOffsetsPerTrigger=7)
    other = start(stream=stream, subjects=f"{stream}.b", consumer="other")
    assert other.run() == list(range(2, 61, 3))
    assert both.run() == [number for number in range(1, 61) if number % 3 != 2]
    assert left(streams, stream) == 0
    info = figures(streams, stream)
    assert (info.num_pending, info.num_ack_pending) == (0, 0)


def test_a_consumer_that_has_done_something_already(start: Start, streams: Streams) -> None:
    stream = streams.new(retention="interest", allow_direct=True)

    async def work(js: jetspark.JetStream) -> None:
        found = await js.get_stream(stream)
        consumer = await found.create_consumer(durable_name="spark", ack_policy="explicit")
        await found.create_consumer(durable_name="other", ack_policy="explicit")
        for number in range(1, 11):
            await js.publish(f"{stream}.a", b"%d" % number)
        for message in await consumer.fetch(max_messages=4, timeout=2):
            await message.double_ack()

    streams.edit(work)
    query = start(stream=stream)
    assert query.run() == list(range(5, 11))
    assert figures(streams, stream).ack_floor.stream_seq == 10
    assert left(streams, stream) == 10  # the other one has done nothing yet
    query.die()
    assert query.run() == list(range(5, 11))


def test_deleted_messages_leave_gaps(start: Start, streams: Streams) -> None:
    stream = streams.new(retention="workqueue")
    query = start(stream=stream)
    assert not query.plan()
    streams.publish(stream, 40)

    async def delete(js: jetspark.JetStream) -> None:
        found = await js.get_stream(stream)
        for sequence in range(10, 31):
            await found.delete_message(sequence)

    streams.edit(delete)
    assert query.run() == [*range(1, 10), *range(31, 41)]
    info = figures(streams, stream)
    assert (info.num_pending, info.num_ack_pending, info.ack_floor.stream_seq) == (0, 0, 40)


def test_a_purge_is_a_loss(start: Start, streams: Streams) -> None:
    stream = streams.new(retention="workqueue")
    query = start(stream=stream)
    tolerant = start(stream=stream, failOnDataLoss="false")
    assert not query.plan()
    tolerant.committed = query.committed
    streams.publish(stream, 20)

    async def purge(js: jetspark.JetStream) -> None:
        await js.purge_stream(stream, sequence=11)

    streams.edit(purge)
    with pytest.raises(DataLossError, match="up to 10 messages between sequences 1 and 10"):
        query.run()
    query.die()
    assert tolerant.run() == list(range(11, 21))
    assert left(streams, stream) == 0


@pytest.mark.parametrize("more", [5, 50], ids=["shorter", "longer"])
def test_a_stream_created_again(start: Start, streams: Streams, more: int) -> None:
    """Nothing of it is acknowledged by a query that has read another one."""
    stream = streams.new(retention="workqueue")
    query = start(stream=stream)
    streams.publish(stream, 20)
    query.run()
    query.die()

    async def create_again(js: jetspark.JetStream) -> None:
        await js.delete_stream(stream)
        await js.create_stream(name=stream, subjects=[f"{stream}.>"], retention="workqueue")

    streams.edit(create_again)
    streams.publish(stream, more)
    for first in (more, more + 30):  # also when somebody starts it again later
        with pytest.raises(CheckpointError, match="new checkpoint"):
            query.run()
        query.die()
        streams.publish(stream, 30, first=first + 1)
    assert left(streams, stream) == more + 60


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"ack_policy": "none"}, "takes no acknowledgements"),
        ({"ack_policy": "explicit", "max_deliver": 5}, "gives up after 5 deliveries"),
        ({"ack_policy": "explicit", "filter_subject": "a"}, "has other filters than option"),
    ],
)
def test_a_consumer_that_is_not_fit(
    start: Start, streams: Streams, config: dict[str, Any], message: str
) -> None:
    stream = streams.new(retention="interest")
    fields = dict(config)
    if "filter_subject" in fields:
        fields["filter_subject"] = f"{stream}.a"

    async def create(js: jetspark.JetStream) -> None:
        await (await js.get_stream(stream)).create_consumer(durable_name="spark", **fields)

    streams.edit(create)
    with pytest.raises(ConsumerMismatchError, match=message):
        start(stream=stream, subjects=f"{stream}.b").plan()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "1"}, "'consumer' and 'startingOffsets' exclude each other"),
        ({"startingTimestamp": "1"}, "'consumer' and 'startingTimestamp' exclude each other"),
        ({"consumer": "a b"}, "option 'consumer': 'a b'"),
    ],
)
def test_bad_options(start: Start, options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        start(stream="A", **options).plan()


def test_batch_reads_have_no_consumer() -> None:
    source = JetStreamSource({"stream": "A", "consumer": "spark"})
    with pytest.raises(InvalidOptionError, match="'consumer' is not for batch reads"):
        source.reader(stream_schema(headers=True))


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_without_a_consumer(nats: NatsServer, streams: Streams, retention: str) -> None:
    stream = streams.new(retention=retention)
    with pytest.raises(InvalidOptionError, match=f"has retention {retention}.*option 'consumer'"):
        Query(servers=nats.url, stream=stream).plan()
