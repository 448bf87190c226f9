"""SQL over streams, buckets and object stores, in a real Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

import jetspark.sync
from jetspark.errors import FailedQueryError, InvalidArgumentError, InvalidQueryError
from jetspark.pipeline.query import Answer, Queries, distinct, is_interrupt
from jetspark.pipeline.sql_text import Table
from jetspark.pipeline.tables import Tables
from jetspark.server import NatsServer, run_server


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    """A server with a stream, a bucket, an object store and a work queue."""
    with run_server() as server:
        with jetspark.sync.connect(server.url) as nc:
            js = nc.jetstream()
            js.create_stream(name="ORDERS", subjects=["orders.>"])
            for number in range(1, 11):
                order = {"id": number, "country": ("NO", "DE")[number % 2], "amount": number / 2}
                js.publish(f"orders.{order['country']}", json.dumps(order).encode())
            js.publish("orders.bad", b"\xff\xfe")
            js.create_stream(name="EMPTY", subjects=["empty"])
            js.create_stream(
                name="jobs-2", subjects=["jobs"], retention=jetspark.RetentionPolicy.WORKQUEUE
            )
            js.publish("jobs", b'[{"job": 1}]')
            rates = js.create_key_value(bucket="my-rates")
            rates.put("NO", b'{"rate": 0.1}')
            rates.put("DE", b"2")
            js.create_object_store(bucket="files").put("a.txt", b"hello")
        yield server


@pytest.fixture(scope="module")
def tables(server: NatsServer) -> Iterator[Tables]:
    with jetspark.sync.connect(server.url) as nc:
        yield Tables(nc.jetstream(), {"servers": server.url})


@pytest.fixture(scope="module")
def queries(spark: SparkSession, tables: Tables) -> Queries:
    return Queries(spark, tables)


def rows(answer: Answer) -> list[dict[str, Any]]:
    return [row for batch in answer.batches for row in batch.to_pylist()]


def test_the_first_query(queries: Queries) -> None:
    sql = """
        SELECT json.country, count(*) AS n, sum(json.amount) AS total -- the money
        FROM stream.ORDERS WHERE json.id IS NOT NULL GROUP BY 1 ORDER BY 1
    """
    assert rows(queries.run(sql)) == [
        {"country": "DE", "n": 5, "total": 12.5},
        {"country": "NO", "n": 5, "total": 15.0},
    ]


def test_kinds_together_and_at_most_so_many_rows(queries: Queries) -> None:
    sql = """
        SELECT stream.ORDERS.subject, r.text, timestamp(ORDERS.timestamp) AS timestamp, r.*
        FROM stream.ORDERS JOIN kv.`my-rates` r ON ORDERS.json.country = r.key
        ORDER BY stream.ORDERS.sequence
    """
    answer = queries.run(sql, limit=2)
    found = rows(answer)
    assert [row["subject"] for row in found] == ["orders.DE", "orders.NO"]
    assert [row["text"] for row in found] == ["2", '{"rate": 0.1}']
    assert found[0]["timestamp"].tzinfo is not None
    assert answer.schema.names[:5] == ["subject", "text", "timestamp", "key", "value"]
    assert {"text_2", "timestamp_2"} <= set(answer.schema.names)


def test_what_is_not_asked_for_is_not_read(queries: Queries, spark: SparkSession) -> None:
    sql = (
        "SELECT subject, count(*) AS n FROM stream.ORDERS WHERE sequence > 1 GROUP BY 1 ORDER BY 1"
    )
    assert rows(queries.run(sql, limit=9)) == [
        {"subject": "orders.DE", "n": 4},
        {"subject": "orders.NO", "n": 5},
        {"subject": "orders.bad", "n": 1},
    ]
    narrow = [view for view in spark.catalog.listTables() if view.name.endswith("_places")]
    assert [spark.table(view.name).columns for view in narrow] == [
        ["stream", "subject", "sequence", "timestamp"]
    ]


def test_a_queue_and_objects(queries: Queries) -> None:
    sql = "SELECT (SELECT max(json[0].job) FROM stream.`jobs-2`) AS job, * FROM objects.files"
    [row] = rows(queries.run(sql, limit=10))
    assert (row["job"], row["name"], row["size"]) == (1, "a.txt", 5)
    assert "content" not in row


def test_what_describe_tells(queries: Queries) -> None:
    found = {
        row["column"]: row["type"] for row in rows(queries.describe(Table("stream", "ORDERS")))
    }
    assert found["data"] == "binary"
    assert found["text"] == "string"
    assert found["json"] == "struct"
    assert (found["json.id"], found["json.amount"]) == ("bigint", "double")
    kv = {row["column"]: row["type"] for row in rows(queries.describe(Table("kv", "my-rates")))}
    assert (kv["key"], kv["json.rate"]) == ("string", "double")
    empty = {row["column"] for row in rows(queries.describe(Table("stream", "EMPTY")))}
    assert "text" in empty
    assert "json" not in empty


def test_views_that_statements_make(queries: Queries, spark: SparkSession) -> None:
    made = queries.run(
        "CREATE TEMPORARY VIEW large AS SELECT * FROM stream.ORDERS WHERE json.id > 8"
    )
    assert made.schema.names == []
    try:
        assert rows(queries.run("SELECT count(*) AS n FROM large", limit=1)) == [{"n": 2}]
        assert queries.views() == ["large"]
    finally:
        spark.catalog.dropTempView("large")


def test_types_that_arrow_does_not_know(queries: Queries) -> None:
    sql = "SELECT parse_json('{\"a\":1}') AS v, INTERVAL 1 MONTH AS m, NULL AS n, 1 AS a, 2 AS A"
    [row] = rows(queries.run(sql, limit=1))
    assert (row["v"], row["n"], row["a"], row["A_2"]) == ('{"a":1}', None, 1, 2)
    assert "MONTH" in row["m"]


@pytest.mark.parametrize(
    ("sql", "message", "place"),
    [
        ("SELECT nope,\n 1 FROM stream.ORDERS", "line 1, column 8: there is no column `nope`", 7),
        ("SELECT 1\nFROM stream.ORDERS WHERE x.y = 2", "line 2, column 26: there is no column", 25),
        ("SELECT json.nope FROM stream.ORDERS", "there is no field `nope`; there are `id`", 7),
        ("SELECT json.id FROM stream.EMPTY", "JSON objects, else use text", 7),
        (
            "SELECT 1 FROM stream.ORDERS WHER x",
            "line 1, column 34: Syntax error at or near 'x'",
            33,
        ),
        ("SELECT 1 FROM nope", "there is no table `nope`; tables are stream.NAME", 14),
        ("SELECT nope(1)", "there is no function `nope`", 7),
        (
            "SELECT subject FROM stream.ORDERS GROUP BY sequence",
            "Add the columns or the expr",
            None,
        ),
        ("INSERT INTO stream.ORDERS VALUES (1)", "for reading", None),
    ],
)
def test_what_spark_does_not_accept(
    queries: Queries, sql: str, message: str, place: int | None
) -> None:
    with pytest.raises(InvalidQueryError) as caught:
        queries.run(sql, limit=1)
    text = str(caught.value)
    assert message in text
    assert "\n" not in text
    assert "SQLSTATE" not in text
    assert "jetspark_table" not in text
    if place is not None:
        line, mark = caught.value.place.split("\n")
        assert line in sql
        assert mark == " " * place + "^"


def test_what_fails_on_the_way(queries: Queries) -> None:
    with pytest.raises(
        FailedQueryError, match=r"^line 1, column 8: Division by zero\. Use"
    ) as caught:
        queries.run("SELECT 1 / (sequence - 1) FROM stream.ORDERS", limit=20)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT * FROM stream.ORDRS", "there is no stream 'ORDRS'; did you mean stream.ORDERS?"),
        ("SELECT * FROM stream.orders", "there is no stream 'orders'; did you mean stream.ORDERS?"),
        ("SELECT * FROM kv.my-rates", "there is no bucket 'my'; did you mean kv.`my-rates`?"),
        ("SELECT * FROM objects.x", "there is no object store 'x'; there are objects.files"),
        ("SELECT * FROM stream.`a b`", "stream.`a b`: "),
    ],
)
def test_tables_that_are_not_there(queries: Queries, sql: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        queries.run(sql)
    assert message in str(caught.value)


def test_the_list_of_tables(tables: Tables) -> None:
    found = {str(item.table): item for item in tables.all()}
    assert list(found) == [
        "stream.EMPTY",
        "stream.ORDERS",
        "stream.`jobs-2`",
        "kv.`my-rates`",
        "objects.files",
    ]
    orders = found["stream.ORDERS"]
    assert orders.messages == 11
    assert orders.last is not None
    assert orders.last <= datetime.now(UTC)
    assert found["stream.EMPTY"].last is None


def test_an_interrupt_is_seen_behind_what_spark_says_of_it() -> None:
    with pytest.raises(ValueError, match="cancelled") as caught:
        try:
            raise KeyboardInterrupt
        finally:
            raise ValueError("the job was cancelled")  # as Spark does
    assert is_interrupt(caught.value)
    assert not is_interrupt(ValueError())


def test_names_are_made_distinct() -> None:
    assert distinct(["a", "A", "a_2", "b"]) == ["a", "A_2", "a_2_2", "b"]


@pytest.mark.timeout(400)  # a Spark of its own
def test_the_command(server: NatsServer, tmp_path: Path) -> None:
    (tmp_path / "report.sql").write_text(
        """
        -- the large ones, by country
        CREATE TEMPORARY VIEW large AS SELECT json.* FROM stream.ORDERS WHERE json.amount > 2;
        SELECT country, count(*) AS n, max(amount) AS most FROM large GROUP BY country ORDER BY 1;
        """
    )
    command = [sys.executable, "-m", "jetspark.cli", "sql", "--server", server.url]
    done = subprocess.run(
        [*command, "--file", "report.sql", "--output", "report.parquet", "--master", "local[2]"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=380,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    started, written = done.stderr.splitlines()
    assert started.startswith("starting Spark, its log is .jetspark/logs/")
    assert written == "2 rows in report.parquet"
    assert pyarrow.parquet.read_table(tmp_path / "report.parquet").to_pylist() == [
        {"country": "DE", "n": 3, "most": 4.5},
        {"country": "NO", "n": 3, "most": 5.0},
    ]
