"""The life of a server process: start, stop, restart, crash, pause, reload, and no orphans."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jetspark.errors import InvalidOptionError, ServerProcessError
from jetspark.server import NatsServer, run_server
from jetspark.server.ports import ReservedPort
from tests.support.servers import StartServer


@contextmanager
def connected(server: NatsServer, login: str = "") -> Iterator[socket.socket]:
    """A raw client that has sent CONNECT and PING; what comes first is INFO."""
    with socket.create_connection((server.host, server.port), 5) as client:
        client.sendall(f'CONNECT {{"verbose":false{login}}}\r\nPING\r\n'.encode())
        yield client


def read_until(client: socket.socket, *marks: bytes) -> bytes:
    """Read until one of the marks is there, or to the end."""
    data = b""
    while not any(mark in data for mark in marks) and (chunk := client.recv(65536)):
        data += chunk
    return data


def answers(server: NatsServer, login: str = "") -> bool:
    with connected(server, login) as client:
        return b"PONG" in read_until(client, b"PONG\r\n", b"-ERR")


def exists(pid: int) -> bool:
    """Whether a process runs. An orphan that ended is a zombie until init looks after it."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def wait_gone(*pids: int) -> None:
    deadline = time.monotonic() + 10
    while any(map(exists, pids)):
        assert time.monotonic() < deadline, f"still there: {[p for p in pids if exists(p)]}"
        time.sleep(0.01)


def test_a_server_runs_inside_a_with_block() -> None:
    server = run_server(name="alone")
    assert not server.running
    with server:
        pid, store, log_path = server.pid, server.store_dir, server.log_path
        assert pid is not None
        assert server.url == f"nats://127.0.0.1:{server.port}"
        assert server.name == "alone"
        assert "Server is ready" in server.log()
        assert f"Version:  {server.version}" in server.log()
        assert answers(server)
        assert (store / "jetstream").is_dir()
    assert server.pid is None
    wait_gone(pid)
    assert not store.exists()
    assert not log_path.exists()


async def test_a_server_runs_inside_an_async_with_block() -> None:
    async with run_server() as server:
        port, pid = server.port, server.pid
        assert pid is not None
        await server.arestart()
        assert server.port == port
        assert server.pid != pid
        await server.areload(max_payload=512)
        await server.akill()
        assert not server.running
        await server.astart()
        assert answers(server)
        await server.astop()
        assert not server.running


async def test_async_methods_leave_the_loop_free(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    start = NatsServer.start

    def spy(self: NatsServer, *, wait: bool = True) -> None:
        threads.append(threading.current_thread())
        start(self, wait=wait)

    monkeypatch.setattr(NatsServer, "start", spy)
    async with run_server():
        pass
    assert threads
    assert threading.main_thread() not in threads


async def test_cancelling_the_start_leaves_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, go_on = threading.Event(), threading.Event()
    wait_ready = NatsServer.wait_ready

    def slow(self: NatsServer, timeout: float | None = None, *, assets: bool = True) -> None:
        inside.set()
        go_on.wait(10)
        wait_ready(self, timeout, assets=assets)

    monkeypatch.setattr(NatsServer, "wait_ready", slow)
    server = run_server()

    async def use() -> None:
        async with server:
            pytest.fail("entered")

    task = asyncio.create_task(use())
    await asyncio.to_thread(inside.wait, 10)
    pid = server.pid
    assert pid is not None
    task.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not server.running
    wait_gone(pid)


def test_stop_and_start_keep_port_and_data(start_server: StartServer) -> None:
    server = start_server()
    port, pid, marker = server.port, server.pid, server.store_dir / "marker"
    marker.touch()

    server.stop()
    assert not server.running
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((server.host, port), 5)
    server.stop()
    server.start()

    assert server.port == port
    assert server.pid != pid
    assert marker.exists()
    assert server.log().count("Server is ready") == 2
    server.start()
    assert server.log().count("Server is ready") == 2


def test_a_given_store_directory_is_kept(tmp_path: Path, start_server: StartServer) -> None:
    server = start_server(store_dir=tmp_path / "data")
    assert server.store_dir == tmp_path / "data"
    server.close()
    assert (tmp_path / "data" / "jetstream").is_dir()


def test_a_killed_server_comes_back(start_server: StartServer) -> None:
    server = start_server()
    port = server.port
    server.kill()
    assert not server.running
    assert "Server Exiting" not in server.log()
    server.restart()
    assert server.port == port
    assert answers(server)


def test_a_closed_server_can_start_anew(start_server: StartServer) -> None:
    server = start_server()
    server.close()
    server.close()
    with pytest.raises(ServerProcessError, match="was not started"):
        _ = server.url
    server.start()
    assert answers(server)


def test_a_paused_server_is_silent_until_it_resumes(start_server: StartServer) -> None:
    server = start_server()
    with connected(server) as client:
        read_until(client, b"PONG\r\n")
        server.pause()
        assert server.running
        client.sendall(b"PING\r\n")
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(100)
        client.settimeout(5)
        server.resume()
        assert b"PONG" in read_until(client, b"PONG\r\n")


def test_a_paused_server_can_be_stopped(start_server: StartServer) -> None:
    server = start_server()
    server.pause()
    server.stop()
    assert not server.running
    assert "Server Exiting" in server.log()


def test_a_server_that_ignores_the_request_to_stop_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "nats-server"
    program.write_text("#!/bin/sh\ntrap '' INT\necho trapped\nwhile :; do sleep 1; done\n")
    program.chmod(0o755)
    server = NatsServer(binary=program, stop_timeout=0.1)
    server.start(wait=False)
    while "trapped" not in server.log():
        time.sleep(0.01)
    server.stop()
    assert not server.running
    server.close()


def test_signals_need_a_running_server() -> None:
    server = run_server()
    with pytest.raises(ServerProcessError, match="was not started"):
        server.pause()
    with server:
        server.stop()
        with pytest.raises(ServerProcessError, match="does not run"):
            server.lame_duck()


def test_lame_duck_mode_tells_the_clients(start_server: StartServer) -> None:
    server = start_server(lame_duck_duration=30, lame_duck_grace_period=20)
    with socket.create_connection((server.host, server.port), 5) as client:
        client.sendall(b'CONNECT {"verbose":false,"protocol":1}\r\nPING\r\n')
        read_until(client, b"PONG\r\n")
        server.lame_duck()
        assert b'"ldm":true' in read_until(client, b'"ldm":true')
        server.stop()
        assert not server.running
        assert "Server Exiting" in server.log()


def test_reload_changes_and_revokes(start_server: StartServer) -> None:
    server = start_server(token="old")
    old, new = ',"auth_token":"old"', ',"auth_token":"new"'
    with connected(server, old) as client:
        assert b"PONG" in read_until(client, b"PONG\r\n")
        server.reload(token="new")
        assert b"-ERR" in read_until(client)
    assert not answers(server, old)
    assert answers(server, new)
    server.restart()
    assert answers(server, new)
    server.reload(token=None)
    assert answers(server)


def test_a_refused_reload_changes_nothing(start_server: StartServer) -> None:
    server = start_server(max_payload=1000)
    with pytest.raises(ServerProcessError, match="refused to reload"):
        server.reload(max_payload=2000, lame_duck_duration=1)
    with pytest.raises(InvalidOptionError, match="`port` cannot change"):
        server.reload(port=1)
    server.restart()
    with connected(server) as client:
        assert b'"max_payload":1000,' in read_until(client, b"PONG\r\n")


def test_a_server_that_exits_during_start_shows_its_log() -> None:
    server = run_server(lame_duck_duration=1)
    with pytest.raises(ServerProcessError, match="minimum is 30 seconds") as caught:
        server.start()
    assert server.name in str(caught.value)
    assert not server.running
    server.close()


def test_a_server_that_never_becomes_ready_is_stopped(tmp_path: Path) -> None:
    program = tmp_path / "nats-server"
    program.write_text("#!/bin/sh\necho busy\nexec sleep 60\n")
    program.chmod(0o755)
    server = NatsServer(binary=program, start_timeout=0.2)
    with pytest.raises(ServerProcessError, match=r"not ready after 0\.2 s: (?s:.*)busy"):
        server.start()
    assert not server.running
    server.close()


def test_a_port_in_use_is_named(start_server: StartServer) -> None:
    first = start_server()
    with pytest.raises(ServerProcessError, match=f"port {first.port} on 127.0.0.1 is already in"):
        start_server(port=first.port)


def test_a_fixed_port_is_used(start_server: StartServer) -> None:
    reserved = ReservedPort("127.0.0.1")
    reserved.close()
    server = start_server(port=reserved.number)
    assert server.port == reserved.number
    assert answers(server)


def test_a_dropped_server_is_stopped() -> None:
    server = run_server()
    server.start()
    pid, log_path = server.pid, server.log_path
    assert pid is not None
    del server
    gc.collect()
    wait_gone(pid)
    assert not log_path.exists()


# Prints the pids of its children: the server and the watchdog beside it.
OWNER = """
import os, sys
from jetspark.server import run_server
server = run_server()
server.start()
with open(f"/proc/self/task/{os.getpid()}/children") as children:
    print(children.read(), flush=True)
"""


@contextmanager
def owner(then: str, directory: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A Python process that starts a server, and the pids of its children.

    What it cannot clean up when it is killed stays in `directory`.
    """
    with subprocess.Popen(
        [sys.executable, "-c", OWNER + then],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(directory)},
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            pids = [int(pid) for pid in process.stdout.readline().split()]
            assert len(pids) == 2
            yield process, pids
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_orphans_when_the_owner_is_killed(number: signal.Signals, tmp_path: Path) -> None:
    with owner("sys.stdin.read()", tmp_path) as (process, pids):
        assert all(map(exists, pids))
        process.send_signal(number)
        process.wait(10)
        wait_gone(*pids)


def test_no_orphans_when_the_owner_is_killed_and_the_server_is_paused(tmp_path: Path) -> None:
    then = "server.pause()\nprint('paused', flush=True)\nsys.stdin.read()"
    with owner(then, tmp_path) as (process, pids):
        assert process.stdout is not None
        assert process.stdout.readline() == "paused\n"
        process.kill()
        process.wait(10)
        wait_gone(*pids)


def test_the_end_of_the_interpreter_stops_the_server(tmp_path: Path) -> None:
    with owner("print(server.log_path.parent)", tmp_path) as (process, pids):
        assert process.stdout is not None
        directory = Path(process.stdout.readline().strip())
        assert process.wait(10) == 0
        wait_gone(*pids)
        assert directory.parent == tmp_path
        assert not directory.exists()


def test_a_forked_child_does_not_stop_the_server_of_its_parent(tmp_path: Path) -> None:
    then = """
if os.fork() == 0:
    sys.exit()
os.wait()
print(server.running, server.log_path.exists(), flush=True)
"""
    with owner(then, tmp_path) as (process, _):
        assert process.stdout is not None
        assert process.stdout.readline() == "True True\n"
        assert process.wait(10) == 0


def test_the_watchdog_leaves_with_a_server_that_dies_by_itself(tmp_path: Path) -> None:
    then = """
os.kill(server.pid, 9)
while server.running:
    pass
print("dead", flush=True)
sys.stdin.read()
"""
    with owner(then, tmp_path) as (process, pids):
        assert process.stdout is not None
        assert process.stdout.readline() == "dead\n"
        wait_gone(*pids)
        assert process.poll() is None
