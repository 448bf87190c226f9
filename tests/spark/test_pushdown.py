"""Filters of batch queries that reach the server, and what of it a user sees: nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import jetspark.sync
from jetspark.server import NatsServer

from .conftest import Read, Streams

SETTING = "spark.sql.python.filterPushdown.enabled"
SUBJECTS = ["eu.de", "eu.fr", "us.ny", "eu"]


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[None]:
    """Filters are pushed."""
    spark.conf.set(SETTING, "true")
    yield
    spark.conf.unset(SETTING)


class Deliveries:
    """Sees the messages that the server sends to consumers."""

    def __init__(self, nc: jetspark.sync.Client) -> None:
        self._nc = nc
        self._subscription = nc.subscribe("_INBOX.>")
        self._messages: list[jetspark.sync.Message] = []
        nc.flush()

    def of(self, stream: str) -> int:
        """How many were of a stream until now."""
        return len(self._of(stream))

    def size_of(self, stream: str) -> int:
        """The bytes of their payloads."""
        return sum(len(message.data) for message in self._of(stream))

    def _of(self, stream: str) -> list[jetspark.sync.Message]:
        self._nc.publish("_INBOX.until.now")
        while (message := self._subscription.next(timeout=30)).subject != "_INBOX.until.now":
            self._messages.append(message)
        begin = f"$JS.ACK.{stream}."
        return [message for message in self._messages if (message.reply or "").startswith(begin)]


@pytest.fixture
def deliveries(nats: NatsServer) -> Iterator[Deliveries]:
    """What counts messages."""
    with jetspark.sync.connect(nats.url) as nc:
        yield Deliveries(nc)


@pytest.fixture(scope="module")
def stream(streams: Streams) -> str:
    """Four hundred numbers of four subjects, which begin with "pushed"."""

    async def fill(js: jetspark.JetStream) -> None:
        await js.create_stream(name="PUSHDOWN", subjects=["pushed.>"])
        for number in range(400):
            subject = f"pushed.{SUBJECTS[number // 100]}"
            await js.publish_async(subject, b"%d" % (number + 1))
        await js.publish_async_complete(timeout=30)

    streams.edit(fill)
    return "PUSHDOWN"


def sequences(frame: DataFrame) -> list[int]:
    rows = frame.select("sequence", "data").collect()  # Spark would read twice to sort them
    assert all(int(row.data) == row.sequence for row in rows)
    return sorted(row.sequence for row in rows)


@pytest.mark.usefixtures("pushing")
@pytest.mark.parametrize(
    ("condition", "expected", "delivered"),
    [
        ("true", range(1, 401), 400),
        ("sequence = 150", range(150, 151), 1),
        ("sequence > 150 AND sequence <= 170", range(151, 171), 20),
        ("sequence BETWEEN 390 AND 1000", range(390, 401), 11),
        ("sequence IN (7, 8, 12)", [7, 8, 12], 6),
        ("sequence > 400", [], 0),
        ("sequence > 10 AND sequence < 5", [], 0),
        ("subject = 'pushed.us.ny'", range(201, 301), 100),
        (
            "subject IN ('pushed.us.ny', 'pushed.eu.de')",
            [*range(1, 101), *range(201, 301)],
            200,
        ),
        ("subject LIKE 'pushed.eu.%'", range(1, 201), 200),
        ("subject LIKE 'pushed.eu.d%'", range(1, 101), 200),
        ("subject LIKE 'pushed.e%' AND sequence <= 310", [*range(1, 201), *range(301, 311)], 310),
        ("subject LIKE '%.us.ny'", range(201, 301), 400),
        ("subject = 'pushed.us.ny' AND sequence > 290", range(291, 301), 10),
        ("subject = 'nowhere'", [], 0),
        ("stream = 'PUSHDOWN'", range(1, 401), 400),
        ("stream = 'OTHER'", [], 0),
        ("sequence < 3 OR subject = 'pushed.us.ny'", [1, 2, *range(201, 301)], 400),
        ("NOT sequence = 150 AND sequence < 152", [*range(1, 150), 151], 151),
        ("timestamp > '{before}' AND timestamp < '{after}'", range(1, 401), 400),
        ("timestamp <= '{before}'", [], 0),
        ("timestamp >= '{after}'", [], 0),
        ("timestamp > '{after}' OR sequence = 1", [1], 400),
        ("sequence <=> 5 AND headers IS NULL", [5], 1),
    ],
)
def test_only_what_may_be_wanted_is_read(
    read: Read,
    stream: str,
    deliveries: Deliveries,
    condition: str,
    expected: list[int],
    delivered: int,
) -> None:
    now, hours = datetime.now(UTC), timedelta(hours=2)
    where = condition.format(before=(now - hours).isoformat(), after=(now + hours).isoformat())
    assert sequences(read(stream=stream).where(where)) == list(expected)
    assert deliveries.of(stream) == delivered


def test_without_the_setting_spark_filters(
    spark: SparkSession, read: Read, stream: str, deliveries: Deliveries
) -> None:
    frame = read(stream=stream).where("sequence > 150 AND sequence <= 170")
    assert sequences(frame) == list(range(151, 171))
    assert deliveries.of(stream) == 400
    spark.conf.set(SETTING, "true")
    try:  # and back again, in the same session
        assert sequences(frame.where("sequence = 160")) == [160]
    finally:
        spark.conf.unset(SETTING)
    frame = read(stream=stream).where("subject LIKE 'pushed.eu.%'")
    assert sequences(frame) == list(range(1, 201))


@pytest.mark.usefixtures("pushing")
def test_within_the_options(
    read: Read, streams: Streams, stream: str, deliveries: Deliveries
) -> None:
    options = {"stream": stream, "startingOffsets": 50, "endingOffsets": 250}
    frame = read(**options, subjects="pushed.*.*").where("subject LIKE 'pushed.eu.%'")
    assert sequences(frame) == list(range(50, 201))
    assert deliveries.of(stream) == 151
    frame = read(**options, subjects="pushed.us.>").where("subject = 'pushed.eu.de'")
    assert sequences(frame) == []
    assert sequences(read(**options).where("sequence >= 240 AND sequence <= 260")) == list(
        range(240, 251)
    )
    divided = read(stream=stream, maxRecordsPerPartition=10).where("sequence <= 30")
    assert divided.rdd.getNumPartitions() == 3
    assert sequences(divided) == list(range(1, 31))


@pytest.mark.usefixtures("pushing")
def test_of_several_streams(
    read: Read, streams: Streams, stream: str, deliveries: Deliveries
) -> None:
    other = streams.new()
    streams.publish(other, 10)
    frame = read(stream=f"{stream},{other}").where(f"stream = '{other}' AND sequence > 5")
    assert sequences(frame) == list(range(6, 11))
    assert deliveries.of(stream) == 0
    assert deliveries.of(other) == 5


@pytest.mark.usefixtures("pushing")
def test_a_queue(read: Read, streams: Streams) -> None:
    queue = streams.new(retention="workqueue", allow_direct=True)
    streams.publish(queue, 20)
    streams.publish(queue, 20, subject="b", first=21)
    where = f"subject IN ('{queue}.a', '{queue}.c') AND sequence > 10"
    assert sequences(read(stream=queue).where(where)) == list(range(11, 21))


# -- columns ------------------------------------------------------------------------------------


def test_columns_that_are_chosen(
    spark: SparkSession, nats: NatsServer, stream: str, deliveries: Deliveries
) -> None:
    """Without payloads, if `data` is not among them."""
    reader = spark.read.format("jetstream").options(servers=nats.url, stream=stream)
    frame = reader.schema("sequence BIGINT, subject STRING").load()
    assert frame.columns == ["sequence", "subject"]
    assert sorted(tuple(row) for row in frame.collect()) == [
        (number, f"pushed.{SUBJECTS[(number - 1) // 100]}") for number in range(1, 401)
    ]
    assert deliveries.of(stream) == 400
    assert deliveries.size_of(stream) == 0


def test_columns_that_are_not_there(spark: SparkSession, nats: NatsServer, stream: str) -> None:
    reader = spark.read.format("jetstream").options(servers=nats.url, stream=stream)
    with pytest.raises(PySparkException, match="column 'data' is binary, not string"):
        reader.schema("sequence BIGINT, data STRING").load().collect()
