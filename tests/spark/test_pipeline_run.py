"""Pipelines on real streams: the books balance, restarts continue, failures are told."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import jetspark.sync
from jetspark.errors import (
    InvalidPipelineError,
    JetSparkError,
    KeyNotFoundError,
    PipelineFailedError,
)
from jetspark.pipeline import herald, job, runner
from jetspark.pipeline.progress import Progress
from jetspark.server import NatsServer
from tests.support.clients import unique
from tests.support.pipelines import (
    LocalSystem,
    bucket_of,
    dead_letters,
    messages_of,
    pipeline_file,
    publish_lines,
)

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(autouse=True)
def _restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine Spark's workers may take too long to start; that passes."""
    monkeypatch.setattr(runner, "RESTART_DELAY", 1.0)
    monkeypatch.setattr(runner, "RESTARTS", 20)


@pytest.fixture
def system(nats: NatsServer) -> LocalSystem:
    return LocalSystem(nats)


@pytest.fixture
def js(system: LocalSystem) -> Iterator[jetspark.sync.JetStream]:
    with system.jetstream() as js:
        yield js


@pytest.fixture
def name() -> str:
    """Of a pipeline, and the beginning of the names of its streams."""
    return unique("pipe").replace(".", "_")


def order(number: int, **more: Any) -> bytes:
    at = f"2026-01-31T12:{number // 60 % 60:02d}:{number % 60:02d}Z"
    return json.dumps({"id": number, "at": at, "amount": number, **more}).encode()


ORDERS = """
    name: {name}
    checkpoint: {path}/checkpoint
    trigger: available-now
    sources:
      orders:
        stream: {name}
        schema: id INT, country STRING, amount DOUBLE, at TIMESTAMP
        watermark: {{column: at, delay: 10 minutes}}
        options: {{maxOffsetsPerTrigger: 100}}
"""


def test_the_books_of_several_sinks_and_a_restart(
    spark: SparkSession, system: LocalSystem, js: jetspark.sync.JetStream, name: str, tmp_path: Path
) -> None:
    """Rows that cannot be parsed or written are dead letters; all others are there once."""
    js.create_stream(name=name, subjects=[f"{name}.>"])
    subjects = [f"out.{name}.{country}" for country in ("de", "fr")]
    js.create_stream(name=f"{name}_out", subjects=subjects, allow_direct=True)
    text = (
        ORDERS
        + """
    transforms:
      totals:
        sql: |
          SELECT country, count(*) AS orders, sum(amount) AS amount FROM orders GROUP BY country
    sinks:
      archive: {{from: orders, format: parquet, path: {path}/archive}}
      totals_kv: {{from: totals, bucket: {name}, key: "{{country}}", mode: update, create: true}}
      copies:
        from: orders
        stream: {name}_out
        subject: "out.{name}.{{country}}"
        headers: {{Order: "{{id}}"}}
    """
    )
    pipeline = pipeline_file(tmp_path, text.format(name=name, path=tmp_path))
    countries = ["de", "fr", "no stream", "it", None]
    good = [order(n, country=countries[n % 5]) for n in range(150)]
    bad = [b"rubbish", b"", b"\xff", b'{"id":"x"}', b"[]", b'{"id":1} {']
    publish_lines(js, f"{name}.a", [*good[:75], *bad, *good[75:]])
    shown: list[Progress] = []
    first = job.run(pipeline, system, spark, on_progress=shown.append)
    check_books(spark, js, name, tmp_path, orders=150, bad=range(76, 82))
    rows = {query.name: query for query in first.queries}
    assert {query.state for query in first.queries} == {"done"}
    assert rows["archive"].rows == 156
    assert (rows["orders"].dead, rows["copies"].dead, rows["totals_kv"].dead) == (6, 90, 4)
    assert first.as_json()["dead"] == first.dead
    assert shown[-1].seconds <= first.seconds

    # The schema has grown and shrunk meanwhile, which is no reason to stop.
    more = [order(n, country="de", new={"x": n}) for n in range(150, 160)] + [b'{"country":"fr"}']
    publish_lines(js, f"{name}.a", more)
    second = job.run(pipeline, system, spark)
    assert {query.rows for query in second.queries} == {11}
    check_books(spark, js, name, tmp_path, orders=161, bad=range(76, 82))
    assert json.loads(js.key_value(name).get("de").value)["orders"] == 40


def check_books(
    spark: SparkSession,
    js: jetspark.sync.JetStream,
    name: str,
    path: Path,
    *,
    orders: int,
    bad: range,
) -> None:
    """Published = in the view + dead letters of the source; the same for each sink."""
    stored = js.get_stream(name).cached_info.state.messages
    archive = spark.read.parquet(str(path / "archive")).collect()
    sequences = Counter(row["_sequence"] for row in archive)
    assert set(sequences.values()) == {1}
    lost = dead_letters(js, name, "orders")
    assert set(lost) == set(bad)
    assert sequences.keys() | lost.keys() == set(range(1, stored + 1))
    assert len(archive) == orders == stored - len(bad)
    copies = messages_of(js, f"{name}_out")
    ids = Counter(message.headers.get("Order") for message in copies)
    assert set(ids.values()) == {1}
    assert all(
        json.loads(message.data).keys() <= {"id", "country", "amount", "at"} for message in copies
    )
    unwritten = dead_letters(js, name, "copies")
    assert len(copies) + len(unwritten) == orders
    by_country = Counter(row["country"] for row in archive)
    assert len(unwritten) == sum(by_country[one] for one in ("no stream", "it", None))
    found = bucket_of(js, name)
    assert {key: json.loads(value)["orders"] for key, value in found.items()} == {
        country: count for country, count in by_country.items() if country in ("de", "fr", "it")
    }


def test_joins_texts_objects_and_a_good_end(
    spark: SparkSession, system: LocalSystem, js: jetspark.sync.JetStream, name: str, tmp_path: Path
) -> None:
    """A query that goes on is shown in the bucket of pipelines, and stops after its batch."""
    js.create_stream(name=name, subjects=[f"{name}.>"])
    js.create_key_value(bucket=f"{name}_names").put("de", b'{"long": "Germany"}')
    js.key_value(f"{name}_names").put("xx", b"rubbish")
    text = (
        ORDERS.replace("available-now", "200 ms")
        + """
      names: {{bucket: {name}_names, schema: long STRING, static: true}}
    transforms:
      named:
        sql: >
          SELECT o.id, n.long, o._stream, o._sequence,
                 if(o.id = 3, '', concat(o.id, '.txt')) AS file
          FROM orders AS o LEFT JOIN names AS n ON n._key = o.country
    sinks:
      files: {{from: named, objects: {name}, name: "{{file}}", content: long, create: true}}
      screen: {{from: named, console: true}}
    """
    )
    pipeline = pipeline_file(tmp_path, text.format(name=name, path=tmp_path))
    publish_lines(js, f"{name}.a", [order(n, country=("de", "fr")[n == 2]) for n in range(1, 5)])
    stop = threading.Event()
    shown: list[list[str]] = []
    told: dict[str, Any] = {}

    def watch(progress: Progress) -> None:
        try:
            told.update(json.loads(js.key_value(herald.BUCKET).get(name).value))
        except JetSparkError:
            return
        if shown and told and all(query.rows >= 4 for query in progress.queries):
            stop.set()

    def show(sink: str, batch: int, columns: list[str], rows: list[list[str]], total: int) -> None:
        assert (sink, columns[:2]) == ("screen", ["id", "long"])
        shown.extend(rows)

    result = job.run(pipeline, system, spark, stop=stop, on_progress=watch, show=show)
    assert {query.state for query in result.queries} == {"stopped"}
    assert {row[0] for row in shown} == {"1", "2", "3", "4"}
    assert told["pipeline"] == name
    assert {query["name"] for query in told["queries"]} == {"orders", "files", "screen"}
    store = js.object_store(name)
    assert sorted(info.name for info in store.list()) == ["1.txt", "4.txt"]
    assert store.get("1.txt").read() == b"Germany"
    reasons = dead_letters(js, name, "files")
    assert reasons == {
        2: "the content of the object is null",
        3: "the name of the object is empty or null",
    }
    with pytest.raises(KeyNotFoundError):
        js.key_value(herald.BUCKET).get(name)


def test_the_last_row_of_a_key_wins_and_late_rows_are_counted(
    spark: SparkSession, system: LocalSystem, js: jetspark.sync.JetStream, name: str, tmp_path: Path
) -> None:
    js.create_stream(name=name, subjects=[f"{name}.>"])
    text = (
        ORDERS
        + """
    transforms:
      minutes:
        sql: >
          SELECT window.start AS minute, count(*) AS orders
          FROM orders GROUP BY window(at, '1 minute')
    sinks:
      latest: {{from: orders, bucket: {name}, key: "{{country}}", value: id, create: true}}
      minutes_out: {{from: minutes, stream: {name}_m, subject: "m.{name}", create: true}}
    """
    )
    text = text.replace("maxOffsetsPerTrigger: 100", "maxOffsetsPerTrigger: 200, minPartitions: 4")
    pipeline = pipeline_file(tmp_path, text.format(name=name, path=tmp_path))
    lines = [order(n, country="abc"[n % 3]) for n in range(1200)]
    late = order(0, country="late")
    publish_lines(js, f"{name}.a", [*lines, late])
    result = job.run(pipeline, system, spark)
    latest = {key: int(value) for key, value in bucket_of(js, name).items()}
    assert latest == {"a": 1197, "b": 1198, "c": 1199, "late": 0}
    minutes = Counter(json.loads(one.data)["minute"] for one in messages_of(js, f"{name}_m"))
    assert set(minutes.values()) == {1}
    assert len(minutes) == 9  # those that end ten minutes before the last order
    assert {query.name: query.late for query in result.queries}["minutes_out"] == 1


def test_a_query_that_fails_stops_the_others(
    spark: SparkSession, system: LocalSystem, js: jetspark.sync.JetStream, name: str, tmp_path: Path
) -> None:
    js.create_stream(name=name, subjects=[f"{name}.>"])
    text = (
        ORDERS.replace("available-now", "200 ms")
        + """
    transforms:
      halves: {{sql: "SELECT CAST(country AS INT) AS n FROM orders"}}
    sinks:
      copy: {{from: orders, format: parquet, path: {path}/copy}}
      broken: {{from: halves, format: parquet, path: {path}/halves}}
    """
    )
    pipeline = pipeline_file(tmp_path, text.format(name=name, path=tmp_path))
    publish_lines(js, f"{name}.a", [order(1, country="12 monkeys")])
    with pytest.raises(PipelineFailedError) as failure:
        job.run(pipeline, system, spark)
    assert failure.value.query == "broken"
    assert not failure.value.retryable
    message = str(failure.value)
    assert message.startswith(f"pipeline {name!r}, sink 'broken': ")
    assert "12 monkeys" in message
    assert "\n" not in message


CHECKS: dict[str, tuple[str, str, str]] = {
    "syntax": ("SELECT id\n          FROM orders\n          WHERE = 3", "", ":14:"),
    "column": ("SELECT id,\n          idd FROM orders", "`idd` cannot be resolved", ":13:"),
    "table": ("SELECT 1\n          FROM nowhere", "`nowhere` cannot be found", ":13:"),
    "type": ("SELECT id + at AS x FROM orders", "DATATYPE_MISMATCH", ":12:"),
    "template": ("SELECT id AS k FROM orders", "there is no column 'country'; there are: k", ""),
    "mode": (
        "SELECT country, count(*) AS n FROM orders GROUP BY country",
        "output mode is not supported",
        "",
    ),
    "static": ("SELECT 'x' AS country", "is static", ""),
}


def test_spark_checks_the_sql(
    spark: SparkSession, system: LocalSystem, js: jetspark.sync.JetStream, name: str, tmp_path: Path
) -> None:
    """Each mistake with its line of the file; nothing is started, and nothing created."""
    js.create_stream(name=name, subjects=[f"{name}.>"])
    unwatched = ORDERS.replace("        watermark: {{column: at, delay: 10 minutes}}\n", "\n")
    for case, (sql, message, place) in CHECKS.items():
        text = (
            unwatched
            + """
    transforms:
      t:
        sql: |
          {sql}
    sinks:
      k: {{from: t, stream: {name}_k, subject: "k.{{country}}", create: true}}
    """
        )
        text = text.replace("\n\n", "\n").lstrip("\n")
        pipeline = pipeline_file(tmp_path, text.format(name=name, path=tmp_path, sql=sql))
        with pytest.raises(InvalidPipelineError) as failure:
            job.check(pipeline, system, spark)
        (line,) = failure.value.lines()
        assert message in line, case
        assert place in line, (case, line)
    assert f"{name}_k" not in list(js.stream_names())
    assert not (tmp_path / "checkpoint").exists()


def test_the_schema_is_inferred_and_shown(
    spark: SparkSession, system: LocalSystem, js: jetspark.sync.JetStream, name: str, tmp_path: Path
) -> None:
    js.create_stream(name=name, subjects=[f"{name}.>"])
    text = """
    name: {name}
    sources: {{s: {{stream: {name}, schema: infer}}}}
    sinks: {{k: {{from: s, stream: {name}_k, subject: "k.{{a}}", create: true}}}}
    """
    pipeline = pipeline_file(tmp_path, text.format(name=name))
    with pytest.raises(InvalidPipelineError, match="to infer a schema from; write it"):
        job.check(pipeline, system, spark)
    publish_lines(js, f"{name}.a", [b'{"a":1}', b"rubbish", b'{"a":1.5,"b":["it\'s"]}'])
    said: list[str] = []
    job.check(pipeline, system, spark, say=said.append)
    assert said[0].endswith('schema: "a DOUBLE, b ARRAY<STRING>"')
