"""Payloads of every kind of garbage: a row is in the view, or it has a reason; never both."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from jetspark.pipeline.ddl import read_ddl
from jetspark.pipeline.payload import parsed_view, unparsable_rows
from jetspark.pipeline.problems import Mark
from jetspark.pipeline.spec import Kind, Payload, Source

SCHEMA = (
    "a STRING, n BIGINT, d DOUBLE, t TIMESTAMP, m DECIMAL(10,2), i TINYINT, b BOOLEAN, "
    "s STRUCT<x: INT, Y: STRING>, l ARRAY<INT>, dt DATE"
)
COLUMNS = tuple(read_ddl(SCHEMA))
NO_JSON, NO_OBJECT = "the payload is no JSON: ", "the payload is JSON, but no object: "
DEEP = b'{"a":"x","z":' + b"[" * 2000 + b"]" * 2000 + b"}"

GOOD: dict[bytes, dict[str, Any]] = {
    b'{"a":"x","n":1,"d":1.5,"b":true}': {"a": "x", "n": 1, "d": 1.5, "b": True},
    b' {"t":"2026-01-31T12:00:00Z"} ': {"t": datetime(2026, 1, 31, 12)},
    b'{"a":5}': {"a": "5"},
    b'{"a":{"b":[1]}}': {"a": '{"b":[1]}'},
    b'{"a":"x","a":"y"}': {"a": "y"},
    b"{}": {},
    b'{"a":null,"n":null}': {},
    b'{"unknown":[1,{"x":"]"}],"a":"]}"}': {"a": "]}"},
    b'{"n":9223372036854775807}': {"n": 9223372036854775807},
    b'{"s":{"x":1,"Y":"y"},"l":[]}': {"s": (1, "y"), "l": []},
    '{"a":"é€😀"}'.encode(): {"a": "é€😀"},
}
BAD = {
    b"": "the payload is empty",
    b" \n": "the payload is empty",
    b"null": NO_OBJECT + "null",
    b"[]": NO_OBJECT + "[]",
    b'[{"a":"x"}]': NO_OBJECT + '[{"a":"x"}]',
    b"5": NO_OBJECT + "5",
    b'"text"': NO_OBJECT + '"text"',
    b"NaN": NO_JSON + "NaN",
    b"rubbish": NO_JSON + "rubbish",
    b'{"d":NaN}': NO_JSON + '{"d":NaN}',
    b'{"d":"NaN"}': "column d: NaN is no DOUBLE",
    b'{"d":1e400}': 'column d: "Infinity" is no DOUBLE',
    b'{"n":1.5}': "column n: 1.5 is no BIGINT",
    b'{"n":"1"}': "column n: 1 is no BIGINT",
    b'{"n":9223372036854775808}': "column n: 9223372036854775808 is no BIGINT",
    b'{"m":123456789012}': "column m: 123456789012 is no DECIMAL(10,2)",
    b'{"i":300,"b":1}': "column i: 300 is no TINYINT; column b: 1 is no BOOLEAN",
    b'{"t":"soon"}': "column t: soon is no TIMESTAMP",
    b'{"dt":"2026-13-01"}': "column dt: 2026-13-01 is no DATE",
    b'{"l":[1,"x"]}': 'column l: [1,"x"] is no ARRAY<INT>',
    b'{"s":5}': "column s: 5 is no STRUCT<x:INT,Y:STRING>",
    b'{"a":"x"': NO_JSON + '{"a":"x"',
    b'{"a":"x",}': NO_JSON + '{"a":"x",}',
    b"{'a':'x'}": NO_JSON + "{'a':'x'}",
    b'{"a":"x"} and more': NO_JSON + '{"a":"x"} and more',
    b'{"a":"x"}{"a":"y"}': NO_JSON + '{"a":"x"}{"a":"y"}',
    b'{"a":"x"},{"a":"y"}': NO_JSON + '{"a":"x"},{"a":"y"}',
    b'{"a":"x"}],"b":[{}': NO_JSON + '{"a":"x"}],"b":[{}',
    b'{"a":"x"}]} {': NO_JSON + '{"a":"x"}]} {',
    b'{"a":"one\ntwo"}': NO_JSON + '{"a":"one two"}',
    b"\xef\xbb\xbf{}": NO_JSON + "\ufeff{}",
    b'{"a":"\xff"}': "the payload is not UTF-8",
    b"\x00\x01\xfe": "the payload is not UTF-8",
    DEEP: NO_JSON + DEEP[:60].decode(),
}


def rows_of(spark: SparkSession, payloads: list[bytes]) -> DataFrame:
    """Messages, as the source of streams gives them."""
    return spark.createDataFrame(
        [("S", "s.a", number, None, None, bytearray(one)) for number, one in enumerate(payloads)],
        "stream string, subject string, sequence bigint, timestamp timestamp, "
        "headers map<string,array<string>>, data binary",
    ).coalesce(1)


def source(**more: Any) -> Source:
    start = Mark(1, 1)
    given = {"name": "s", "kind": Kind.STREAM, "target": "S", **more}
    return Source(mark=start, target_mark=start, **given)


def test_json(spark: SparkSession) -> None:
    payloads = [*GOOD, *BAD]
    frame = rows_of(spark, payloads)
    found = {row["_sequence"]: row for row in parsed_view(frame, source(), COLUMNS).collect()}
    letters = unparsable_rows(frame, source(), COLUMNS, 1_000_000).collect()
    reasons = {
        payloads[int(row.headers["Jetspark-Sequence"])]: row.headers["Jetspark-Reason"]
        for row in letters
    }
    assert len(found) + len(letters) == len(payloads)
    for number, (payload, expected) in enumerate(GOOD.items()):
        assert payload not in reasons
        row = found[number].asDict()
        values = {name: row[name] for name, *_ in COLUMNS if row[name] is not None}
        assert values == expected
        assert (row["_stream"], row["_subject"]) == ("S", "s.a")
    assert reasons == BAD


def test_dead_letters_say_where_they_come_from(spark: SparkSession) -> None:
    (letter,) = unparsable_rows(rows_of(spark, [b"x" * 100]), source(), COLUMNS, 10).collect()
    assert bytes(letter.data) == b"x" * 10
    assert letter.headers == {
        "Jetspark-Reason": NO_JSON + "x" * 60,
        "Jetspark-Stream": "S",
        "Jetspark-Sequence": "0",
        "Jetspark-Subject": "s.a",
        "Jetspark-Label": "s",
        "Jetspark-Truncated": "100",
    }


def test_columns_that_must_be_there(spark: SparkSession) -> None:
    columns = tuple(read_ddl("`it's` STRING NOT NULL, n INT"))
    payloads = [json.dumps({"it's": "x"}).encode(), b'{"n":1}', b'{"it\'s":null}']
    letters = unparsable_rows(rows_of(spark, payloads), source(), columns, 100).collect()
    assert [row.headers["Jetspark-Reason"] for row in letters] == ["column it's is missing"] * 2


@pytest.mark.parametrize("payload", [Payload.TEXT, Payload.BINARY])
def test_text_and_binary(spark: SparkSession, payload: Payload) -> None:
    frame = rows_of(spark, ["é".encode(), b"\xff", b""])
    name, kind = ("text", "STRING") if payload is Payload.TEXT else ("data", "BINARY")
    columns = tuple(read_ddl(f"{name} {kind}"))
    rows = parsed_view(frame, source(payload=payload), columns).select(name).collect()
    if payload is Payload.BINARY:
        assert [bytes(row.data) for row in rows] == ["é".encode(), b"\xff", b""]
        return
    assert [row.text for row in rows] == ["é", ""]
    (letter,) = unparsable_rows(frame, source(payload=payload), columns, 100).collect()
    assert letter.headers["Jetspark-Reason"] == "the payload is not UTF-8"


def test_deletes_of_buckets_are_rows_without_a_payload(spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [("k", bytearray(b'{"n":1}'), 1, None, "PUT"), ("k", None, 2, None, "DEL")],
        "key string, value binary, revision bigint, timestamp timestamp, operation string",
    )
    bucket = source(kind=Kind.BUCKET)
    columns = tuple(read_ddl("n INT"))
    rows = parsed_view(frame, bucket, columns).select("n", "_key", "_operation").collect()
    assert sorted(map(tuple, rows), key=str) == [(1, "k", "PUT"), (None, "k", "DEL")]
    assert unparsable_rows(frame, bucket, columns, 100).count() == 0
