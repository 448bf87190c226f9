"""The rows of a bucket: what messages become, and what becomes messages."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from jetspark.errors import InvalidKeyError, InvalidOptionError
from jetspark.jetstream.consumer.arrow import SCHEMA
from jetspark.spark.kv_entries import KV_SCHEMA, entries
from jetspark.spark.kv_options import KV_BATCH_OPTIONS, KV_READ_OPTIONS, KV_STREAM_READ_OPTIONS
from jetspark.spark.kv_sink import KV_WRITE_OPTIONS, last_rows
from jetspark.spark.objects_options import OBJECT_READ_OPTIONS, OBJECT_WRITE_OPTIONS
from jetspark.spark.options import Option

Headers = dict[str, list[str]] | None


def messages(*rows: tuple[str, Headers, bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {
                "stream": "KV_b",
                "subject": f"$KV.b.{key}",
                "sequence": number,
                "timestamp": 1_000_000,
                "headers": None if headers is None else list(headers.items()),
                "data": data,
            }
            for number, (key, headers, data) in enumerate(rows, 1)
        ],
        SCHEMA,
    )


def test_plain_entries() -> None:
    found = entries(messages(("a", None, b"1"), ("a.b", None, b"")), "$KV.b.")
    assert found.schema.names == KV_SCHEMA.fieldNames()
    assert found.column("key").to_pylist() == ["a", "a.b"]
    assert found.column("value").to_pylist() == [b"1", b""]
    assert found.column("revision").to_pylist() == [1, 2]
    assert found.column("operation").to_pylist() == ["PUT", "PUT"]


@pytest.mark.parametrize(
    ("headers", "operation"),
    [
        ({"Other": ["x"]}, "PUT"),
        ({"KV-Operation": ["DEL"]}, "DEL"),
        ({"KV-Operation": ["PURGE"], "Nats-Rollup": ["sub"]}, "PURGE"),
        ({"Nats-Marker-Reason": ["MaxAge"]}, "PURGE"),
        ({"Nats-Marker-Reason": ["Remove"]}, "DEL"),
        ({"KV-Operation": ["UNHEARD-OF"]}, "DEL"),
    ],
)
def test_operations(headers: Headers, operation: str) -> None:
    found = entries(messages(("a", None, b"1"), ("b", headers, b"x")), "$KV.b.")
    assert found.column("operation").to_pylist() == ["PUT", operation]
    assert found.column("value").to_pylist() == [b"1", b"x" if operation == "PUT" else None]


def rows(*given: dict[str, Any]) -> pa.RecordBatch:
    schema = {"key": pa.string(), "value": pa.binary()}
    more = {"operation": pa.string(), "revision": pa.int64()}
    return pa.RecordBatch.from_pylist(list(given), pa.schema(schema | more))


def test_the_last_row_of_each_key() -> None:
    found, bad = last_rows(
        rows(
            {"key": "a", "value": b"1"},
            {"key": "b", "value": b"1", "revision": 4},
            {"key": "a", "operation": "del"},
        ),
        "bucket",
    )
    assert [row[1:] for row in found] == [("b", b"1", "PUT", 4), ("a", b"", "DEL", None)]
    assert [row.number for row in found] == [1, 2]
    assert bad == []


@pytest.mark.parametrize(
    ("row", "error", "message"),
    [
        ({"key": "a b", "value": b""}, InvalidKeyError, "key 'a b'"),
        ({"key": None, "value": b""}, InvalidKeyError, "key None"),
        ({"key": "a"}, InvalidOptionError, "key 'a' has no value"),
        ({"key": "a", "operation": "SET"}, InvalidOptionError, "takes PUT, DEL, PURGE"),
        ({"key": "a", "value": b"", "revision": -1}, InvalidOptionError, r"not -1 \(key 'a'\)"),
    ],
)
def test_rows_that_cannot_be(row: dict[str, Any], error: type[Exception], message: str) -> None:
    found, (bad,) = last_rows(rows({"key": "good", "value": b"1"}, row), "bucket")
    assert [good.key for good in found] == ["good"]
    assert (bad.number, bad.key) == (1, row["key"])
    with pytest.raises(error, match=message):
        raise bad.error


@pytest.mark.parametrize(
    "table",
    [
        (*KV_READ_OPTIONS, *KV_BATCH_OPTIONS, *KV_STREAM_READ_OPTIONS),
        KV_WRITE_OPTIONS,
        OBJECT_READ_OPTIONS,
        OBJECT_WRITE_OPTIONS,
    ],
)
def test_options_have_different_names(table: tuple[Option[Any], ...]) -> None:
    found = [option.name.lower() for option in table]
    assert len(set(found)) == len(found)
