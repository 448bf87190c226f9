"""`jetspark archive` and `jetspark replay` are killed, and so is the server: each message once."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import jetspark
from jetspark.pipeline.archive_directory import read_archive
from jetspark.pipeline.archive_verify import verify
from jetspark.server import NatsServer, run_server
from jetspark.spark.connection import close_connections
from tests.support.archives import access_to, archive_here, read_all
from tests.support.spark_job import Job

from .conftest import Streams

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
COUNT = 30_000

# Small ranges, so that there are many moments to be killed in.
COMMAND = """
import sys
from jetspark.pipeline import archive, replay, replay_read
archive.PART_SEQUENCES = 500
replay.NOTE_EVERY = 0.05
replay_read.ROWS = 500
from jetspark.cli.main import main
main()
"""


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with run_server() as server:
        yield server
        close_connections()


@contextmanager
def command(directory: Path, server: NatsServer, *arguments: str) -> Iterator[Job]:
    """A command in a process of its own; whatever is left of it in the end is killed."""
    log = directory / f"log-{time.monotonic_ns()}"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *arguments],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(ROOT), "NATS_URL": server.url},
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )
    job = Job(process, log)
    try:
        yield job
    finally:
        job.kill()


def until(happens: Callable[[], bool], job: Job, limit: float = 600) -> bool:
    """Wait for something, or for the end of the command; whether it happened before."""
    end = time.monotonic() + limit
    while not happens():
        if job.process.poll() is not None:
            return False
        assert time.monotonic() < end, job.log.read_text()[-3000:]
        time.sleep(0.01)
    return True


def filled(server: NatsServer) -> tuple[Streams, str]:
    streams = Streams(server)
    name = streams.new(allow_direct=True)
    streams.publish(name, COUNT)
    return streams, name


def archived(path: Path) -> int:
    """The last sequence that is archived."""
    try:
        return read_archive(path).manifest.next - 1
    except jetspark.errors.JetSparkError:
        return 0


def check_archive(path: Path, server: NatsServer, name: str) -> None:
    rows = read_all(path)
    assert [row["sequence"] for row in rows] == list(range(1, COUNT + 1))
    assert [int(row["data"]) for row in rows] == list(range(1, COUNT + 1))
    found = verify(path, access_to(server.url), name, lambda done, total: None)
    assert (found.rows, found.differences) == (COUNT, ())


def test_an_archive_is_killed(server: NatsServer, tmp_path: Path) -> None:
    _, name = filled(server)
    path = tmp_path / "a"
    rng = random.Random(time.time_ns())
    kills = 0
    for goal in (1, 6000, 15_000):
        with command(tmp_path, server, "archive", name, "a", "--tasks", "2") as job:
            if until(lambda: archived(path) >= goal, job):  # noqa: B023
                time.sleep(rng.random() * 0.3)
                job.kill()
                kills += archived(path) < COUNT
    assert kills >= 1
    with command(tmp_path, server, "archive", name, "a", "--json") as job:
        assert json.loads(job.wait())["last"] == COUNT
    check_archive(path, server, name)
    assert {entry.name for entry in path.iterdir() if entry.name[0] == "_"} == {
        "_lock",
        "_manifest.jsonl",
    }


def test_the_server_is_killed_under_an_archive(server: NatsServer, tmp_path: Path) -> None:
    _, name = filled(server)
    path = tmp_path / "a"
    with command(tmp_path, server, "archive", name, "a", "--json", "--tasks", "2") as job:
        for goal in (1, 10_000):
            if until(lambda: archived(path) >= goal, job):  # noqa: B023
                server.kill()
                server.start()
        job.wait()
    check_archive(path, server, name)


def test_an_archive_is_stopped(server: NatsServer, tmp_path: Path) -> None:
    _, name = filled(server)
    path = tmp_path / "a"
    arguments = ("archive", name, "a", "--continuous", "--interval", "100ms", "--json", "--quiet")
    with command(tmp_path, server, *arguments) as job:
        assert until(lambda: archived(path) > 0, job)
        job.process.terminate()
        *_, last = job.wait().splitlines()
    assert json.loads(last)["last"] == archived(path)
    assert not (path / "_tmp").exists()
    archive_here(access_to(server.url), name, path)
    check_archive(path, server, name)


def stored(streams: Streams, stream: str) -> list[int]:
    async def read(js: jetspark.JetStream) -> list[int]:
        source = (await js.get_stream(stream)).direct_get_batch(seq=1)
        return [int(message.data) async for message in source]

    found: list[int] = streams.edit(read)
    return found


def count(streams: Streams, stream: str) -> int:
    async def ask(js: jetspark.JetStream) -> int:
        return (await js.get_stream(stream)).cached_info.state.messages

    found: int = streams.edit(ask)
    return found


@pytest.mark.parametrize("window", [0.1, 120.0], ids=["after the window", "in the window"])
def test_a_replay_is_killed(server: NatsServer, tmp_path: Path, window: float) -> None:
    streams, name = filled(server)
    archive_here(access_to(server.url), name, tmp_path / "a")
    target = streams.new(allow_direct=True, duplicate_window=window)
    arguments = ("replay", "a", target, "--subject-prefix", target, "--json")
    rng = random.Random(time.time_ns())
    kills = 0
    for goal in range(1, COUNT, 6000):
        with command(tmp_path, server, *arguments) as job:
            if until(lambda: count(streams, target) >= goal, job):  # noqa: B023
                time.sleep(rng.random() * 0.1)
                job.kill()
                kills += count(streams, target) < COUNT
    assert kills >= 2
    with command(tmp_path, server, *arguments) as job:
        assert json.loads(job.wait())["through"] == COUNT
    assert stored(streams, target) == list(range(1, COUNT + 1))


def test_the_server_is_killed_under_a_replay(server: NatsServer, tmp_path: Path) -> None:
    streams, name = filled(server)
    archive_here(access_to(server.url), name, tmp_path / "a")
    target = streams.new(allow_direct=True)
    with command(tmp_path, server, "replay", "a", target, "--subject-prefix", target) as job:
        for goal in (1, 10_000, 20_000):
            if until(lambda: count(streams, target) >= goal, job):  # noqa: B023
                server.kill()
                server.start()
        job.wait()
    assert sorted(stored(streams, target)) == list(range(1, COUNT + 1))
