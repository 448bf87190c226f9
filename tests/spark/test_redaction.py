"""Secrets are shown nowhere: neither in plans, errors, progress nor in the log of Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import jetspark.sync
from jetspark.server import NatsServer, run_server
from tests.support.jwt import Key, Operator, user_key

PASSWORD, TOKEN = "pass-SECRET-word", "to-SECRET-ken"


@pytest.fixture(scope="module")
def key() -> Key:
    """Of a user."""
    return user_key()


@pytest.fixture(scope="module")
def server(key: Key) -> Iterator[NatsServer]:
    """One that wants to know who it is."""
    users = [{"user": "ann", "password": PASSWORD}, {"nkey": key.public}]
    with run_server(users=users) as server:
        yield server


@pytest.fixture(scope="module")
def in_url(server: NatsServer) -> str:
    """A URL with a password."""
    return f"nats://ann:{PASSWORD}@127.0.0.1:{server.port}"


@pytest.fixture(scope="module")
def stream(in_url: str) -> str:
    """A stream that has a message."""
    with jetspark.sync.connect(in_url) as nc:
        js = nc.jetstream()
        js.create_stream(name="SECURED", subjects=["secured.>"])
        js.publish("secured.a", b"1")
    return "SECURED"


@pytest.fixture
def log(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[[], str]]:
    """What Spark logs from now on, of everything that is of some interest."""
    context = spark.sparkContext
    assert context._jvm is not None
    log4j = context._jvm.org.apache.logging.log4j
    path = tmp_path / "spark.log"
    layout = log4j.core.layout.PatternLayout.createDefaultLayout()
    builder = log4j.core.appender.FileAppender.newBuilder()
    builder.withFileName(str(path)).setName("test").setLayout(layout)
    appender = builder.build()
    appender.start()
    root = log4j.LogManager.getRootLogger()
    root.addAppender(appender)
    context.setLogLevel("INFO")
    yield path.read_text
    context.setLogLevel("OFF")
    root.removeAppender(appender)
    appender.stop()


def check(text: str, *more: str) -> None:
    """Fail if there is a secret in a text."""
    for secret in ("SECRET", *more):
        found = re.search(f".{{0,80}}{re.escape(secret)}", text)
        assert found is None, found


def plans(frame: DataFrame, capsys: pytest.CaptureFixture[str]) -> str:
    frame.explain(True)
    frame.explain("formatted")
    text = capsys.readouterr().out
    assert "jetstream" in text
    return text


def test_where_all_is_well(
    spark: SparkSession,
    log: Callable[[], str],
    server: NatsServer,
    in_url: str,
    stream: str,
    key: Key,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for options in (
        {"servers": in_url},
        {"servers": server.url, "user": "ann", "password": PASSWORD},
        {"servers": server.url, "nkeySeed": key.seed},
    ):
        frame = spark.read.format("jetstream").options(stream=stream, **options).load()
        assert [bytes(row.data) for row in frame.collect()] == [b"1"]
        check(plans(frame, capsys), key.seed)
    rows = (
        spark.readStream.format("jetstream")
        .options(servers=in_url, stream=stream, startingOffsets="earliest")
        .load()
        .select("data")
    )
    query = (
        rows.writeStream.format("jetstream")
        .options(servers=server.url, user="ann", password=PASSWORD, subject="secured.b")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    query.explain(True)
    progress = json.dumps([json.loads(each.json) for each in query.recentProgress])
    assert stream in progress
    check(progress + capsys.readouterr().out)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW secured USING jetstream "
        f"OPTIONS (servers '{in_url}', stream '{stream}')"
    )
    check(plans(spark.table("secured"), capsys))
    for path in tmp_path.rglob("checkpoint/*/*"):  # offsets, commits
        if path.is_file():
            check(path.read_text("utf-8", "replace"))
    logged = log()
    assert "Streaming query made progress" in logged
    check(logged, key.seed)


def test_where_something_is_wrong(
    spark: SparkSession,
    log: Callable[[], str],
    server: NatsServer,
    in_url: str,
    stream: str,
    tmp_path: Path,
) -> None:
    user = Operator().user()
    creds = user.write_creds(tmp_path / "user.creds")
    damaged = user.key.seed[:-1]
    host = f"127.0.0.1:{server.port}"
    cases: list[tuple[dict[str, str], str]] = [
        ({"servers": f"nats://ann:SECRET@{host}"}, "Authorization Violation"),
        ({"user": "ann", "password": "SECRET"}, "Authorization Violation"),
        ({"token": TOKEN}, "Authorization Violation"),
        ({"nkeySeed": user.key.seed}, "Authorization Violation"),
        ({"nkeySeed": damaged}, "seed"),
        ({"creds": str(creds)}, "Authorization Violation"),
        ({"creds": user.creds}, "Authorization Violation"),
        ({"servers": in_url, "stream": "NOT_THERE"}, "there is no stream 'NOT_THERE'"),
        ({"servers": "nats://ann:SECRET@127.0.0.1:1"}, "cannot connect to nats://127.0.0.1:1"),
        ({"servers": "nats://ann:SECRET@127.0.0.1:port"}, "the port is not a number"),
        ({"servers": in_url, "password": PASSWORD, "nope": "1"}, "there is no option 'nope'"),
        ({"servers": in_url, "token": TOKEN, "nkeySeed": user.key.seed}, "exclude each other"),
    ]
    for options, message in cases:
        given = {"servers": server.url, "stream": stream, "connectTimeout": "5s", **options}
        reader = spark.read.format("jetstream").options(**given)
        with pytest.raises(PySparkException, match=re.escape(message)) as caught:
            reader.load().collect()
        check(str(caught.value), damaged, user.jwt)
    with pytest.raises(PySparkException, match="nowhere") as caught:
        spark.createDataFrame([(b"1",)], "data BINARY").write.format("jetstream").options(
            servers=in_url, subject="nowhere"
        ).mode("append").save()
    check(str(caught.value))
    check(log(), damaged, user.jwt)
