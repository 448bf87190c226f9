"""Rows that cannot be written go to a subject of their own, once, and the others are written."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import jetspark
from jetspark.server import NatsServer
from tests.spark.conftest import Read, Streams
from tests.support.clients import unique

HUGE = "x" * (2 << 20)  # more than a server takes


async def _letters(js: jetspark.JetStream, name: str) -> list[tuple[dict[str, str], bytes]]:
    stream = await js.get_stream(name)
    last = stream.cached_info.state.last_seq
    found = [await stream.get_message(sequence) for sequence in range(1, last + 1)]
    return [(dict(message.headers.items()), message.data) for message in found]


def letters(streams: Streams, stream: str) -> list[tuple[dict[str, str], bytes]]:
    """The headers and payloads of a stream."""
    found: list[tuple[dict[str, str], bytes]] = streams.edit(lambda js: _letters(js, stream))
    return found


def count(streams: Streams, stream: str) -> int:
    async def messages(js: jetspark.JetStream) -> int:
        return (await js.get_stream(stream)).cached_info.state.messages

    found: int = streams.edit(messages)
    return found


@pytest.fixture
def pair(streams: Streams) -> tuple[str, str]:
    """A stream that takes messages of up to 500 bytes, and one for the rest."""
    return streams.new(max_msg_size=500), streams.new()


def bad_and_good(spark: SparkSession, good: str) -> DataFrame:
    rows: list[tuple[Any, ...]] = [
        (f"{good}.1", "one", None, "SRC", 1),
        ("nobody.stores.this", "two", None, "SRC", 2),
        (None, "three", None, "SRC", 3),
        (f"{good}..4", "four", None, "SRC", 4),
        (f"{good}.5", "y" * 600, None, "SRC", 5),
        (f"{good}.6", HUGE, None, "SRC", 6),
        (f"{good}.7", "seven", {"bad name:": ["x"]}, None, None),
        (f"{good}.8", None, None, "SRC", 8),
    ]
    schema = (
        "subject string, data string, headers map<string,array<string>>, origin_stream string, "
        "origin_sequence bigint"
    )
    return spark.createDataFrame(rows, schema)


def test_streams(
    spark: SparkSession, nats: NatsServer, streams: Streams, pair: tuple[str, str]
) -> None:
    good, dead = pair
    writer = bad_and_good(spark, good).coalesce(1).write.format("jetstream").mode("append")
    writer = writer.options(
        servers=nats.url,
        deadLetterSubject=f"{dead}.rows",
        deadLetterLabel="a label",
        writeId=f"{uuid.uuid4().hex}-1",
    )
    for _ in range(2):  # the second time stores nothing
        writer.save()
        assert [data for _, data in letters(streams, good)] == [b"one", b""]
        found = letters(streams, dead)
        assert [headers.get("Jetspark-Sequence") for headers, _ in found] == [
            "2", "3", "4", "5", "6", None,
        ]  # fmt: skip
    reasons = [headers["Jetspark-Reason"] for headers, _ in found]
    for reason, text in zip(
        reasons,
        ["no stream stores", "no subject", "empty token", "exceed", "limit", "bad name:"],
        strict=True,
    ):
        assert text in reason
    assert [data for _, data in found] == [b"two", b"three", b"four", b"y" * 600, b"", b"seven"]
    assert {headers["Jetspark-Label"] for headers, _ in found} == {"a label"}
    assert found[4][0]["Jetspark-Size"] == str(len(HUGE))
    assert found[0][0]["Jetspark-Target"] == "nobody.stores.this"
    assert found[0][0]["Jetspark-Stream"] == "SRC"


def test_streams_after_the_duplicate_window(
    spark: SparkSession, nats: NatsServer, streams: Streams
) -> None:
    """The ledger knows what the server has forgotten."""
    good = streams.new(duplicate_window=0.1)
    dead = streams.new(duplicate_window=0.1)
    rows = [(f"{good}.a" if number % 2 else "nobody", str(number)) for number in range(20)]
    frame = spark.createDataFrame(rows, "subject string, data string").coalesce(2)
    name = unique("write").replace(".", "_")
    for attempt in ("1", "1", "2"):
        frame.write.format("jetstream").mode("append").options(
            servers=nats.url, deadLetterSubject=f"{dead}.rows", writeId=f"{name}-{attempt}"
        ).save()
        expected = 10 if attempt == "1" else 20
        assert count(streams, good) == expected
        assert count(streams, dead) == expected


def test_buckets(spark: SparkSession, nats: NatsServer, streams: Streams) -> None:
    bucket = unique("BUCKET").replace(".", "_")
    dead = streams.new()

    async def create(js: jetspark.JetStream) -> None:
        kv = await js.create_key_value(bucket=bucket, max_value_size=500)
        await kv.put("taken", b"1")

    streams.edit(create)
    rows: list[tuple[Any, ...]] = [
        ("a", "1", None, "SRC", 1),
        ("not a key", "2", None, "SRC", 2),
        ("b", None, None, "SRC", 3),
        ("c", "y" * 600, None, "SRC", 4),
        ("d", HUGE, None, "SRC", 5),
        ("taken", "6", 0, "SRC", 6),
        ("e", "7", None, "SRC", 7),
    ]
    schema = (
        "key string, value string, revision bigint, origin_stream string, origin_sequence bigint"
    )
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    writer = frame.write.format("jetstream-kv").mode("append").options(
        servers=nats.url, bucket=bucket, deadLetterSubject=f"{dead}.rows",
        writeId=f"{uuid.uuid4().hex}-7",
    )  # fmt: skip
    for _ in range(2):
        writer.save()
        found = letters(streams, dead)
        assert [headers["Jetspark-Sequence"] for headers, _ in found] == ["2", "3", "4", "5", "6"]
    assert found[0][0]["Jetspark-Target"] == f"{bucket}/not a key"
    assert "latest revision" in found[4][0]["Jetspark-Reason"]

    async def keys(js: jetspark.JetStream) -> list[str]:
        kv = await js.key_value(bucket)
        return sorted([key async for key in kv.keys()])  # noqa: SIM118

    assert streams.edit(keys) == ["a", "e", "taken"]


def test_a_streaming_query(
    spark: SparkSession, follow: Read, nats: NatsServer, streams: Streams, tmp_path: Path
) -> None:
    source, good, dead = streams.new(), streams.new(), streams.new()
    streams.publish(source, 100)
    rows = follow(stream=source, startingOffsets="earliest", maxOffsetsPerTrigger=40).selectExpr(
        f"IF(sequence % 10 = 0, 'no where', '{good}.a') AS subject",
        "data",
        "stream AS origin_stream",
        "sequence AS origin_sequence",
    )
    query = (
        rows.writeStream.format("jetstream")
        .options(servers=nats.url, deadLetterSubject=f"{dead}.a")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    found = letters(streams, dead)
    assert [headers["Jetspark-Sequence"] for headers, _ in found] == [
        str(number) for number in range(10, 101, 10)
    ]
    assert {headers["Jetspark-Stream"] for headers, _ in found} == {source}
    assert count(streams, good) == 90


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"deadLetterSubject": "nobody"}, "no stream stores subject 'nobody'"),
        ({"deadLetterLabel": "x"}, "needs 'deadLetterSubject'"),
        ({"deadLetterSubject": "a..b"}, "a..b"),
        ({"deadLetterSubject": "a", "atomic": "true"}, "exclude each other"),
        ({"writeId": "x"}, "a name and a number"),
    ],
)
def test_wrong_options(
    spark: SparkSession, nats: NatsServer, streams: Streams, options: dict[str, str], text: str
) -> None:
    good = streams.new()
    frame = spark.createDataFrame([(f"{good}.a", "1")], "subject string, data string")
    with pytest.raises(PySparkException, match=text):
        frame.write.format("jetstream").mode("append").options(servers=nats.url, **options).save()
    assert count(streams, good) == 0
