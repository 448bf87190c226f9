"""The demo on a real server and on Spark: its parts, all of it in small, and tampered books."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import jetspark
import jetspark.sync
from jetspark.errors import InvalidArgumentError
from jetspark.pipeline.demo import places
from jetspark.pipeline.demo.flow import Sent, publish_live
from jetspark.pipeline.demo.orders import COUNTRIES, KINDS, Orders
from jetspark.pipeline.demo.places import ALERTS, BUCKET, DEAD, ORDERS, Places
from jetspark.pipeline.demo.report import as_html
from jetspark.pipeline.demo.result import Result
from jetspark.pipeline.demo.run import Demo, Plan
from jetspark.server import NatsServer, run_server


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    """One of our own, because the names of the demo are fixed."""
    with run_server() as server:
        yield server


@pytest.fixture
def js(server: NatsServer) -> Iterator[jetspark.sync.JetStream]:
    with jetspark.sync.connect(server.url) as client:
        context = client.jetstream()
        yield context
        for name in list(context.stream_names()):
            context.delete_stream(name)


@pytest.fixture
def room(js: jetspark.sync.JetStream, tmp_path: Path) -> Places:
    """The streams, the bucket and the directory of a demo."""
    room = Places(tmp_path / "demo")
    places.create(js, room)
    return room


# -- what it makes and removes ------------------------------------------------------------------


def test_what_a_demo_made_is_found_and_removed(js: jetspark.sync.JetStream, room: Places) -> None:
    found = places.left_over(js, room)
    assert found == [ORDERS, ALERTS, DEAD, f"KV_{BUCKET}", str(room.root)]
    places.remove(js, room, found)
    assert places.left_over(js, room) == []
    assert not room.root.exists()
    places.create(js, room)  # a second demo


def test_a_stream_of_somebody_else_stays(js: jetspark.sync.JetStream, tmp_path: Path) -> None:
    js.create_stream(name=ORDERS, subjects=["mine"])
    with pytest.raises(InvalidArgumentError, match="DEMO_ORDERS exists and was not made by a demo"):
        places.left_over(js, Places(tmp_path / "demo"))


def test_a_directory_of_somebody_else_stays(js: jetspark.sync.JetStream, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(InvalidArgumentError, match="not of an earlier demo; name another"):
        places.left_over(js, Places(tmp_path))
    assert places.left_over(js, Places(tmp_path / "new")) == []


# -- what it publishes --------------------------------------------------------------------------


def test_the_publisher_knows_what_the_stream_has(
    js: jetspark.sync.JetStream, room: Places, server: NatsServer
) -> None:
    sent = Sent()

    async def publish() -> None:
        async with await jetspark.connect(server.url) as client:
            events = Orders(5).live(3000, rate=1000)
            await publish_live(client.jetstream(), events, sent, rate=1e6)

    asyncio.run(publish())
    state = js.get_stream(ORDERS).info().state
    assert sent.messages == 3000
    assert sent.refused == sent.kinds["duplicate"] > 10
    assert state.messages == sent.orders + sent.kinds["malformed"] == sent.last_sequence


def test_the_live_part_can_be_stopped(room: Places, server: NatsServer) -> None:
    sent = Sent()

    async def publish() -> None:
        async with await jetspark.connect(server.url) as client:
            await publish_live(
                client.jetstream(),
                Orders(5).live(10_000_000, rate=1000),
                sent,
                rate=1000,
                stopped=lambda: sent.messages > 10,
            )

    asyncio.run(publish())
    assert 10 < sent.messages < 10_000_000


# -- all of it ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _System:
    """Where NATS is, for the pipeline."""

    servers: str

    @property
    def spark_options(self) -> dict[str, str]:
        return {"servers": self.servers}

    @contextmanager
    def jetstream(self) -> Iterator[jetspark.sync.JetStream]:
        with jetspark.sync.connect(self.servers) as client:
            yield client.jetstream()


def _demo(js: jetspark.sync.JetStream, server: NatsServer, room: Places, plan: Plan) -> Demo:
    @asynccontextmanager
    async def connect() -> AsyncIterator[jetspark.JetStream]:
        async with await jetspark.connect(server.url) as client:
            yield client.jetstream()

    return Demo(js, connect, room, plan)


def _failed(result: Result) -> set[str]:
    return {proof.equation for proof in result.proofs if not proof.holds}


@pytest.mark.timeout(600)  # it has four queries, which a busy machine takes long to start
def test_a_small_demo_balances_until_somebody_tampers(
    spark: SparkSession, js: jetspark.sync.JetStream, server: NatsServer, room: Places
) -> None:
    demo = _demo(js, server, room, Plan(orders=2000, live=1.0, rate=2000, seed=11))
    demo.publish_backlog()
    assert demo.run_pipeline(_System(server.url), spark, stop=threading.Event())
    result = demo.result(server.url)
    assert _failed(result) == set()
    assert result.balanced
    kinds = result.sent.kinds
    assert min(kinds[kind] for kind in KINDS) > 0
    assert len(result.found.archive) == result.sent.orders
    assert len(result.found.dead) == kinds["malformed"]
    assert result.found.alerts
    reasons = {
        letter.headers["Jetspark-Reason"]
        for letter in js.get_stream(DEAD).direct_get_batch(subject="dead.demo.orders")
    }
    assert len(reasons) >= 5  # each kind of malformed event has its own
    assert as_html(result, made=datetime.now(UTC)).count("FAILED") == 0

    # Each place that the books look at, changed behind their back.
    bucket = js.key_value(BUCKET)
    key = min(result.found.bucket)
    kept = bucket.get(key).value
    bucket.put(key, kept.replace(b'"orders":', b'"orders":1'))
    assert _failed(demo.result(server.url)) == {"bucket entries = equal to the archive"}
    bucket.put(key, kept)

    js.publish(f"demo.alerts.{COUNTRIES[0]}", b'{"id": "o-nobody"}')
    assert _failed(demo.result(server.url)) == {"large orders = large orders with one alert"}
    alerts = js.get_stream(ALERTS)
    alerts.delete_message(alerts.info().state.last_seq)
    assert demo.result(server.url).balanced

    file = next(room.archive.rglob("*.parquet"))
    file.rename(file.with_suffix(".lost"))
    assert _failed(demo.result(server.url)) >= {
        "stored = archived + dead-lettered",
        "sequences = in one place, once",
        "EUR sent = EUR archived",
        "EUR in the bucket = EUR recomputed",
    }
    file.with_suffix(".lost").rename(file)
    shutil.copy(file, file.with_name("again.parquet"))
    assert _failed(demo.result(server.url)) == {
        "stored = archived + dead-lettered",
        "sequences = in one place, once",
        "EUR sent = EUR archived",
    }
    file.with_name("again.parquet").unlink()

    js.get_stream(DEAD).purge(keep=1)
    assert _failed(demo.result(server.url)) == {
        "stored = archived + dead-lettered",
        "sequences = in one place, once",
        "malformed = dead-lettered",
    }
    js.publish("demo.orders.de", b"{}")
    assert "sent = stored + refused as duplicates" in _failed(demo.result(server.url))


@pytest.mark.timeout(600)
def test_a_demo_can_be_stopped(
    spark: SparkSession, js: jetspark.sync.JetStream, server: NatsServer, room: Places
) -> None:
    demo = _demo(js, server, room, Plan(orders=10, live=600.0, rate=10))
    demo.publish_backlog()
    stop = threading.Event()
    done = demo.run_pipeline(
        _System(server.url), spark, stop=stop, tell=lambda progress: stop.set()
    )
    assert not done
    assert "jetspark demo" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_the_command(tmp_path: Path) -> None:
    """All of it at once, twice, as a user would; then what it says to try next."""
    command = [sys.executable, "-m", "jetspark.cli"]

    def run(*arguments: str) -> str:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("NATS_")}
        environment["XDG_CONFIG_HOME"] = str(tmp_path)  # no selected context
        done = subprocess.run(
            [*command, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    first = json.loads(run("demo", "--json"))
    assert first["balanced"] is True
    assert first["sent"]["kinds"]["order"] > 200_000
    assert (tmp_path / ".jetspark/demo/report.html").stat().st_size > 10_000

    text = run("demo", "--quick", "--seed", "5")
    assert "the books balance" in text
    commands = re.findall(r"^  jetspark (.+)$", text, re.MULTILINE)
    assert [words.split()[0] for words in commands] == ["sql", "top", "archive"]
    for words in commands:
        assert run(*shlex.split(words))
