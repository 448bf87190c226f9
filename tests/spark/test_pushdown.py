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


@pytest.fixture(params=["on", "off"])
def pushing(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[bool]:
    """With and without filters that are pushed."""
    spark.conf.set(SETTING, str(request.param == "on").lower())
    yield request.param == "on"
    spark.conf.unset(SETTING)


class Deliveries:
    """Counts the messages that the server sends to consumers."""

    def __init__(self, nc: jetspark.sync.Client) -> None:
        self._nc = nc
        self._replies: list[str] = []
        nc.subscribe("_INBOX.>", callback=self._take)
        nc.flush()

    def _take(self, message: jetspark.Message) -> None:
        self._replies.append(message.reply or "")

    def of(self, stream: str) -> int:
        """Those of a stream until now."""
        self._nc.flush()  # what the server sent before has come
        return sum(reply.startswith(f"$JS.ACK.{stream}.") for reply in self._replies)


@pytest.fixture
def deliveries(nats: NatsServer) -> Iterator[Deliveries]:
    """What counts messages."""
    with jetspark.sync.connect(nats.url) as nc:
        yield Deliveries(nc)


@pytest.fixture(scope="module")
def stream(streams: Streams) -> str:
    """Four hundred numbers of four subjects."""
    name = streams.new()
    for number, subject in enumerate(["eu.de", "eu.fr", "us.ny", "eu"]):
        streams.publish(name, 100, subject=subject, first=1 + 100 * number)
    return name


def sequences(frame: DataFrame) -> list[int]:
    rows = frame.select("sequence", "data").orderBy("sequence").collect()
    assert all(int(row.data) == row.sequence for row in rows)
    return [row.sequence for row in rows]


@pytest.mark.parametrize(
    ("condition", "expected", "most"),
    [
        ("true", range(1, 401), 400),
        ("sequence = 150", range(150, 151), 1),
        ("sequence > 150 AND sequence <= 170", range(151, 171), 20),
        ("sequence BETWEEN 390 AND 1000", range(390, 401), 11),
        ("sequence IN (7, 8, 12)", [7, 8, 12], 6),
        ("sequence > 400", [], 0),
        ("sequence > 10 AND sequence < 5", [], 0),
        ("subject = '{stream}.us.ny'", range(201, 301), 100),
        ("subject IN ('{stream}.us.ny', '{stream}.eu.de')", [*range(1, 101), *range(201, 301)], 200),
        ("subject LIKE '{stream}.eu.%'", range(1, 201), 200),
        ("subject LIKE '{stream}.eu.d%'", range(1, 101), 200),
        ("subject LIKE '{stream}.e%' AND sequence <= 310", [*range(1, 201), *range(301, 311)], 310),
        ("subject LIKE '%.us.ny'", range(201, 301), 400),
        ("subject = '{stream}.us.ny' AND sequence > 290", range(291, 301), 10),
        ("subject = 'nowhere'", [], 0),
        ("stream = '{stream}'", range(1, 401), 400),
        ("stream = 'OTHER'", [], 0),
        ("sequence < 3 OR subject = '{stream}.us.ny'", [1, 2, *range(201, 301)], 400),
        ("NOT sequence = 150 AND sequence < 152", [*range(1, 150), 151], 151),
        ("timestamp > '{before}' AND timestamp < '{after}'", range(1, 401), 400),
        ("timestamp <= '{before}'", [], 0),
        ("timestamp >= '{after}'", [], 0),
        ("timestamp > '{after}' OR sequence = 1", [1], 400),
        ("sequence <=> 5 AND headers IS NULL", [5], 1),
    ],
)
def test_the_rows_are_the_same_and_less_is_read(
    read: Read,
    stream: str,
    deliveries: Deliveries,
    pushing: bool,
    condition: str,
    expected: list[int],
    most: int,
) -> None:
    now, hours = datetime.now(UTC), timedelta(hours=2)
    where = condition.format(
        stream=stream, before=(now - hours).isoformat(), after=(now + hours).isoformat()
    )
    assert sequences(read(stream=stream).where(where)) == list(expected)
    # The server knows nothing of the end of a range: it may send on what it was asked for in one.
    spare = 0 if most in (0, 400) else 400
    assert deliveries.of(stream) <= (most + spare if pushing else 400)
