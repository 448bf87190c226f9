"""Reading and writing objects while the server restarts; in this process, without Spark."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

import jetspark
from jetspark.server import NatsServer, run_server
from jetspark.spark import connection
from jetspark.spark.connection import close_connections
from jetspark.spark.objects_options import ObjectReadSettings, ObjectWriteSettings
from jetspark.spark.objects_sink import write_rows
from jetspark.spark.objects_source import OBJECT_SCHEMA, ObjectReader

SIZE = 4_000_000
ROWS = 16


@pytest.fixture
def server() -> Iterator[NatsServer]:
    """A server with a store; the connection of this process to it ends with the test."""

    async def create(url: str) -> None:
        async with await jetspark.connect(url) as nc:
            await nc.jetstream().create_object_store(bucket="b")

    with run_server() as server:
        asyncio.run(create(server.url))
        yield server
        close_connections()


def write(server: NatsServer, batch: int) -> None:
    schema = StructType([StructField("name", StringType()), StructField("content", BinaryType())])
    settings = ObjectWriteSettings.read({"servers": server.url, "bucket": "b"}, schema)
    rows = {
        "name": [f"o{batch}.{number}" for number in range(ROWS)],
        "content": [bytes([number]) * SIZE for number in range(ROWS)],
    }
    connection.run(write_rows(settings, pa.RecordBatch.from_pydict(rows)))


def read(server: NatsServer, disturb: bool = False) -> dict[str, bytes]:
    settings = ObjectReadSettings.read({"servers": server.url, "bucket": "b"})
    reader = ObjectReader(settings, OBJECT_SCHEMA)
    found: dict[str, bytes] = {}
    for partition in reader.partitions():
        for batch in reader.read(partition):
            found |= dict(
                zip(
                    batch.column("name").to_pylist(),
                    batch.column("content").to_pylist(),
                    strict=True,
                )
            )
            if disturb:
                disturb = False
                server.restart()
    return found


async def wait_for_chunks(url: str, count: int) -> None:
    async with await jetspark.connect(url) as nc:
        stream = await nc.jetstream().get_stream("OBJ_b")
        while (await stream.info()).state.messages < count:
            pass


def test_all_is_written_and_read(server: NatsServer) -> None:
    def restart() -> None:
        asyncio.run(wait_for_chunks(server.url, 10))
        server.restart()

    helper = threading.Thread(target=restart)
    helper.start()
    try:
        write(server, 0)
    finally:
        helper.join()
    write(server, 1)
    found = read(server, disturb=True)
    assert found == {
        f"o{batch}.{number}": bytes([number]) * SIZE for batch in range(2) for number in range(ROWS)
    }
