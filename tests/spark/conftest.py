"""One Spark session for all tests of this folder, and streams to read from."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import jetspark
from jetspark.cli.spark_home import use_spark_home
from jetspark.server import NatsServer, run_server
from jetspark.spark.connection import close_connections
from tests.support.clients import unique
from tests.support.streams import version_of

Edit = Callable[[jetspark.JetStream], Coroutine[Any, Any, Any]]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Local Spark, as the command line starts it."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    use_spark_home(tmp_path_factory.mktemp("spark"))
    session = (
        SparkSession.builder.master("local[2]")
        .appName("jetspark tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        # For a few minutes of small queries: less compiling, fewer threads.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def nats() -> Iterator[NatsServer]:
    """A server for all tests of this folder."""
    with run_server() as server:
        yield server


def needs_version(server: NatsServer, *version: int) -> None:
    """Skip a test of something that the server does not have yet."""
    if version_of(server) < version:
        pytest.skip(f"came with {'.'.join(map(str, version))}")


@pytest.fixture(scope="module", autouse=True)
def _no_connections() -> Iterator[None]:
    """Leave no connection behind in this process, as a worker would."""
    yield
    close_connections()


class Streams:
    """Makes and fills streams, in a loop of its own."""

    def __init__(self, server: NatsServer) -> None:
        self.server = server

    def edit(self, work: Edit) -> Any:
        """Do something with JetStream."""

        async def run() -> Any:
            async with await jetspark.connect(self.server.url) as nc:
                return await work(nc.jetstream())

        return asyncio.run(run())

    def new(self, **config: Any) -> str:
        """A stream of its own, and its name; its subjects begin with the name."""
        name = unique("STREAM").replace(".", "_")

        async def create(js: jetspark.JetStream) -> None:
            await js.create_stream(name=name, subjects=[f"{name}.>"], **config)

        self.edit(create)
        return name

    def publish(
        self, stream: str, count: int, *, subject: str = "a", first: int = 1, **options: Any
    ) -> None:
        """Publish numbers."""

        async def publish(js: jetspark.JetStream) -> None:
            for number in range(first, first + count):
                await js.publish_async(f"{stream}.{subject}", b"%d" % number, **options)
            await js.publish_async_complete(timeout=30)

        self.edit(publish)


@pytest.fixture(scope="session")
def streams(nats: NatsServer) -> Streams:
    """What makes streams."""
    return Streams(nats)


Read = Callable[..., DataFrame]


@pytest.fixture
def read(spark: SparkSession, nats: NatsServer) -> Read:
    """Reads in batch, with options."""

    def read(**options: Any) -> DataFrame:
        texts = {name: str(value) for name, value in options.items()}
        return spark.read.format("jetstream").options(servers=nats.url, **texts).load()

    return read


@pytest.fixture
def follow(spark: SparkSession, nats: NatsServer) -> Read:
    """Reads in streaming queries, with options."""

    def follow(**options: Any) -> DataFrame:
        texts = {name: str(value) for name, value in options.items()}
        return spark.readStream.format("jetstream").options(servers=nats.url, **texts).load()

    return follow
