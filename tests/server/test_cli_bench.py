"""`jetspark bench` on a real server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

import jetspark.sync
from jetspark.server import NatsServer
from tests.support.servers import StartServer


def bench(server: NatsServer, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "jetspark.cli", "bench", "--server", server.url, *arguments]


def streams(server: NatsServer) -> list[str]:
    with jetspark.sync.connect(server.url) as nc:
        return list(nc.jetstream().stream_names())


def test_what_is_measured(start_server: StartServer) -> None:
    server = start_server()
    command = bench(server, "--messages", "500", "--size", "64", "--memory", "--json")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert (found["messages"], found["size"], found["memory"]) == (500, 64, True)
    results = {line["name"]: line for line in found["results"]}
    assert list(results) == ["publish", "consume", "fetch arrow", "request and reply"]
    for line in results.values():
        assert line["messages"] == 500
        assert line["rate"] > 0
        assert line["bytes_rate"] == pytest.approx(line["rate"] * 64)
    assert results["request and reply"]["median"] <= results["request and reply"]["high"]
    assert streams(server) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_behind_by_who_stops_it(
    start_server: StartServer, number: signal.Signals
) -> None:
    server = start_server()
    process = subprocess.Popen(
        bench(server, "--messages", "100000000"), stderr=subprocess.PIPE, text=True
    )
    try:
        end = time.monotonic() + 60
        while not streams(server):
            assert time.monotonic() < end
            time.sleep(0.05)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert said.splitlines()[-1] == "warning: interrupted"
    assert streams(server) == []
