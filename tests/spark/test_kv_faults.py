"""Reading and writing buckets while consumers and servers are lost; in this process, without Spark.

What Spark calls in its workers is called here, in the same way.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

import jetspark
from jetspark.errors import RevisionMismatchError
from jetspark.jetstream.consumer.arrow import ArrowStream
from jetspark.server import NatsServer, run_cluster, run_server
from jetspark.spark import connection
from jetspark.spark.connection import close_connections
from jetspark.spark.kv_entries import KV_SCHEMA
from jetspark.spark.kv_options import KvReadSettings
from jetspark.spark.kv_sink import KvWriteSettings, Task
from jetspark.spark.kv_snapshot import KvBatchReader, Present

KEYS = 8000
VALUE = b"x" * 4000  # so many bytes that not all are under way at a time


@pytest.fixture
def server() -> Iterator[NatsServer]:
    """A server to restart."""
    with run_server() as server:
        yield server
        close_connections()


WRITTEN = StructType([StructField(name, StringType()) for name in ("key", "value")])


def rows(begin: str, value: str) -> pa.RecordBatch:
    """Rows to write."""
    keys = [f"{begin}.{number}" for number in range(2000)]
    return pa.RecordBatch.from_pydict({"key": keys, "value": [value] * len(keys)})


def edit(server: NatsServer, work: Callable[[jetspark.JetStream], Any]) -> None:
    async def run() -> None:
        async with await jetspark.connect(server.url) as nc:
            await work(nc.jetstream())

    asyncio.run(run())


async def fill(js: jetspark.JetStream) -> None:
    """Every key has an old value and then a new one, and then comes the next key."""
    await js.create_key_value(bucket="b", history=3)
    for number in range(KEYS):
        await js.publish_async(f"$KV.b.k{number}", b"old" + VALUE)
        await js.publish_async(f"$KV.b.k{number}", b"new" + VALUE)
    await js.publish_async_complete(timeout=60)


async def lose_consumers(js: jetspark.JetStream) -> None:
    stream = await js.get_stream("KV_b")
    for name in [name async for name in stream.consumer_names()]:
        await stream.delete_consumer(name)


def lose(server: NatsServer) -> None:
    edit(server, lose_consumers)


@pytest.mark.parametrize("disturb", [lose, NatsServer.restart], ids=["consumer", "server"])
def test_each_key_once_when_something_is_lost(
    server: NatsServer, disturb: Callable[[NatsServer], None]
) -> None:
    edit(server, fill)
    given = {"servers": server.url, "bucket": "b", "rowsPerBatch": "100"}
    reader = KvBatchReader(KvReadSettings.batch(given), KV_SCHEMA)
    keys: list[str] = []
    batches = reader.read(InputPartition("b"))
    for number, batch in enumerate(batches):
        keys += batch.column("key").to_pylist()
        assert {value[:3] for value in batch.column("value").to_pylist()} == {b"new"}
        if number == 2:
            disturb(server)
    assert len(keys) == KEYS
    assert set(keys) == {f"k{number}" for number in range(KEYS)}


def test_a_server_that_says_too_early_that_nothing_is_pending(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While an entry is replaced, servers leave out both the old one and the new one."""
    consumer = Present._consumer

    async def replace_a(js: jetspark.JetStream) -> None:
        await js.publish("$KV.b.a", b"2")

    async def consumer_after_a_replacement(self: Present) -> jetspark.OrderedConsumer:
        await asyncio.to_thread(edit, server, replace_a)
        return await consumer(self)

    async def create(js: jetspark.JetStream) -> None:
        bucket = await js.create_key_value(bucket="b")
        await bucket.put("a", b"1")
        await bucket.put("b", b"1")

    edit(server, create)
    monkeypatch.setattr(Present, "_consumer", consumer_after_a_replacement)
    pending = property(
        lambda self: max(vars(self)["pending"] - 1, 0),
        lambda self, count: vars(self).update(pending=count),
    )
    monkeypatch.setattr(ArrowStream, "pending", pending, raising=False)
    given = {"servers": server.url, "bucket": "b", "rowsPerBatch": "1"}
    reader = KvBatchReader(KvReadSettings.batch(given), KV_SCHEMA)
    found = [row for batch in reader.read(InputPartition("b")) for row in batch.to_pylist()]
    assert [(row["key"], row["value"]) for row in found] == [("b", b"1"), ("a", b"2")]


def test_every_row_is_stored_when_the_server_restarts(server: NatsServer) -> None:
    async def create(js: jetspark.JetStream) -> None:
        await js.create_key_value(bucket="b", history=3)

    edit(server, create)
    settings = KvWriteSettings.read({"servers": server.url, "bucket": "b"}, WRITTEN)
    task = Task(settings, "job.0")
    connection.run(task.open())
    started, restarted = threading.Event(), threading.Event()

    def restart() -> None:
        started.wait()
        server.restart()
        restarted.set()

    helper = threading.Thread(target=restart)
    helper.start()
    written = 0
    try:
        while not restarted.is_set() or written < 3:
            connection.run(task.write(rows(f"k{written}", "x")))
            started.set()
            written += 1
    finally:
        started.set()
        helper.join()

    async def check(js: jetspark.JetStream) -> None:
        bucket = await js.key_value("b")
        keys = {key async for key in bucket.keys()}  # noqa: SIM118
        assert keys == {f"k{batch}.{number}" for batch in range(written) for number in range(2000)}

    edit(server, check)


@pytest.mark.parametrize("window", [120.0, 0.1], ids=["in the duplicate window", "after it"])
def test_compare_and_set_by_a_task_that_is_retried(server: NatsServer, window: float) -> None:
    async def create(js: jetspark.JetStream) -> None:
        bucket = await js.create_key_value(bucket="b", history=3)
        config = (await js.get_stream("KV_b")).config
        await js.update_stream(config.replace(duplicate_window=window))
        for key in ("changed", "deleted"):
            await bucket.put(key, b"1")
        await bucket.delete("deleted")

    edit(server, create)
    schema = StructType([*WRITTEN.fields, StructField("revision", LongType())])
    settings = KvWriteSettings.read({"servers": server.url, "bucket": "b"}, schema)
    batch = pa.RecordBatch.from_pydict(
        {"key": ["changed", "deleted", "new"], "value": ["2"] * 3, "revision": [1, 0, 0]}
    )
    for _ in range(2):
        task = Task(settings, "query.0.0")
        connection.run(task.open())
        connection.run(task.write(batch))
        connection.run(asyncio.sleep(2 * window if window < 1 else 0))
    another = Task(settings, "query.1.0")
    connection.run(another.open())
    with pytest.raises(RevisionMismatchError, match="key 'changed' is 4, not 1"):
        connection.run(another.write(batch))

    async def check(js: jetspark.JetStream) -> None:
        assert (await js.get_stream("KV_b")).cached_info.state.last_seq == 6

    edit(server, check)


def test_a_read_sees_what_was_written_before() -> None:
    """Although the other replicas may not have it yet."""

    async def create(js: jetspark.JetStream) -> None:
        await js.create_key_value(bucket="b", replicas=3)

    with run_cluster(3) as cluster:
        server = cluster.servers[0]
        edit(server, create)
        given = {"servers": server.url, "bucket": "b"}
        task = Task(KvWriteSettings.read(given, WRITTEN), "job.0")
        reader = KvBatchReader(KvReadSettings.batch(given), KV_SCHEMA)
        connection.run(task.open())
        for value in range(10):
            connection.run(task.write(rows("k", str(value))))
            found = [row for batch in reader.read(InputPartition("b")) for row in batch.to_pylist()]
            assert len(found) == 2000
            assert {row["value"] for row in found} == {b"%d" % value}
        close_connections()
