"""`jetspark top` on a real server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

import jetspark
from jetspark import Client, JetStream
from jetspark.cli.target import Target
from jetspark.cli.top_collect import PIPELINES, Collector
from jetspark.cli.top_view import Moment, picture
from jetspark.connection.nuid import next_nuid
from jetspark.server import NatsServer
from tests.support.clients import Connect, eventually
from tests.support.servers import StartServer

PIPELINE = {
    "pipeline": "orders",
    "host": "h",
    "pid": 1,
    "updated": "2026-01-02T03:04:05+00:00",
    "queries": [{"name": "q", "rows": 5, "rate": 2.0, "lag": 1, "dead": 0, "state": "running"}],
}


def target(server: NatsServer) -> Target:
    return Target(server.url, {"servers": server.url}, {"servers": server.url})


async def test_what_is_collected(nats_server: NatsServer, nc: Client, js: JetStream) -> None:
    name = f"TOP_{next_nuid()}"
    stream = await js.create_stream(name=name, subjects=[f"{name}.>"])
    for _ in range(10):
        await js.publish(f"{name}.a", b"12345")
    consumer = await stream.create_consumer(durable_name="worker")
    assert isinstance(consumer, jetspark.PullConsumer)
    await consumer.fetch(4)
    collector = Collector(nc, target(nats_server), f"{name[:-1]}*")
    before = await collector.collect()
    for _ in range(6):
        await js.publish(f"{name}.a", b"12345")
    shown = picture(await collector.collect(), before)
    [found] = shown.streams
    assert (found.name, found.messages, found.consumers) == (name, 16, 1)
    assert found.rate is not None
    assert found.rate > 0
    [worker] = shown.consumers
    assert (worker.name, worker.pending, worker.ack_pending, worker.lag) == ("worker", 12, 4, 16)
    assert shown.moment.account.streams >= 1
    assert shown.moment.version == nats_server.version
    await js.delete_stream(name)


async def test_pipelines_that_report(start_server: StartServer, connect: Connect) -> None:
    server = start_server()
    nc = await connect(server.url)
    collector = Collector(nc, target(server))
    assert (await collector.collect()).pipelines == []  # there is no bucket yet
    bucket = await nc.jetstream().create_key_value(bucket=PIPELINES)
    await bucket.put("orders", json.dumps(PIPELINE).encode())
    await bucket.put("garbage", b"{")
    await bucket.put("others", b'["no", "object"]')
    await bucket.put("gone", b"{}")
    await bucket.delete("gone")
    [found] = (await collector.collect()).pipelines
    assert (found.pipeline, found.query, found.lag) == ("orders", "q", 1)


async def test_many_streams_cost_a_bounded_number_of_requests(
    start_server: StartServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jetspark.cli.top_collect._ASKED", 3)
    server = start_server()
    nc = await connect(server.url)
    js = nc.jetstream()
    for number in range(6):
        stream = await js.create_stream(name=f"S{number}", subjects=[f"s{number}"])
        await stream.create_consumer(durable_name="c")
    collector = Collector(nc, target(server))
    first = await collector.collect()
    assert (len(first.streams), len(first.consumers), first.unasked) == (6, 3, 3)
    await js.publish("s5", b"")
    second = await collector.collect()
    assert "S5" in {one.stream for one in second.consumers}


async def test_a_server_that_restarts(start_server: StartServer, connect: Connect) -> None:
    server = start_server()
    nc = await connect(server.url, max_reconnect_attempts=None)
    await nc.jetstream().create_stream(name="S", subjects=["s"])
    collector = Collector(nc, target(server))
    first = await collector.look(None)
    assert first.problem == ""
    server.stop()
    await eventually(lambda: not nc.connected)
    lost: list[Moment] = [await collector.look(first)]
    assert "disconnected" in lost[0].problem
    assert [stream.name for stream in lost[0].streams] == ["S"]
    server.start()

    async def is_back() -> bool:
        lost.append(await collector.look(lost[-1]))
        return lost[-1].problem == ""

    await eventually(is_back, timeout=60)
    assert [stream.name for stream in lost[-1].streams] == ["S"]


def run_top(server: NatsServer, *arguments: str) -> str:
    command = [sys.executable, "-m", "jetspark.cli", "top", "--server", server.url, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return done.stdout


def test_one_picture(nats_server: NatsServer) -> None:
    found = json.loads(run_top(nats_server, "--json", "--interval", "0.2"))
    assert found["version"] == nats_server.version
    assert "\x1b" not in run_top(nats_server, "--interval", "0.2", "--stream", "no-such-*")


def test_live_on_a_terminal_until_q(start_server: StartServer) -> None:
    server = start_server()
    pid, screen = os.forkpty()
    if pid == 0:  # pragma: no cover - the other process
        arguments = ["-m", "jetspark.cli", "top", "--server", server.url, "--interval", "0.2"]
        os.environ.update(TERM="xterm", COLUMNS="100", LINES="30")
        os.execv(sys.executable, [sys.executable, *arguments])
    seen = b""

    def read_until(condition: Callable[[], bool]) -> None:
        nonlocal seen
        end = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < end, seen
            seen += os.read(screen, 65536)

    try:
        read_until(lambda: b"there are no streams" in seen)
        os.write(screen, b"q")
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    finally:
        os.close(screen)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
