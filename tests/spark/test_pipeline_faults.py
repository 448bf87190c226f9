"""`jetspark run` is killed, stopped and loses its server: the books balance."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.dataset as ds
import pytest

import jetspark.sync
from jetspark.server import NatsServer, run_server
from tests.support.pipelines import LocalSystem, dead_letters, messages_of, publish_lines
from tests.support.spark_job import Job

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]

COUNT = 6000
PIPELINE = """
name: orders
trigger: {trigger}
sources:
  orders:
    stream: ORDERS
    schema: id INT, country STRING
    options: {{maxOffsetsPerTrigger: 400}}
transforms:
  totals: {{sql: "SELECT country, count(*) AS orders FROM orders GROUP BY country"}}
sinks:
  archive: {{from: orders, format: parquet, path: archive}}
  copies: {{from: orders, stream: COPIES, subject: "copies.{{country}}", headers: {{Id: "{{id}}"}}}}
  counts: {{from: totals, bucket: counts, key: "{{country}}", mode: update, create: true}}
"""


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with run_server() as server:
        yield server


@pytest.fixture
def system(server: NatsServer) -> LocalSystem:
    """A server with orders, of which one in a hundred is broken and one in ten has no country."""
    system = LocalSystem(server)
    with system.jetstream() as js:
        js.create_stream(name="ORDERS", subjects=["orders.>"])
        js.create_stream(name="COPIES", subjects=["copies.>"], allow_direct=True)
        publish_lines(js, "orders.a", [payload(number) for number in range(1, COUNT + 1)])
    return system


def payload(number: int) -> bytes:
    if number % 100 == 0:
        return b"rubbish %d" % number
    country = "a b" if number % 10 == 1 else "xyz"[number % 3]
    return json.dumps({"id": number, "country": country}).encode()


@contextmanager
def running(directory: Path, server: NatsServer, *options: str) -> Iterator[Job]:
    """`jetspark run`; whatever is left of it in the end is killed."""
    log = directory / f"run-{time.monotonic_ns()}.out"
    command = [sys.executable, "-m", "jetspark.cli", "run", "pipeline.yml", *options]
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, "--server", server.url],
            cwd=directory,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )
    job = Job(process, log)
    try:
        yield job
    finally:
        job.kill()


def until(happens: Callable[[], bool], job: Job, limit: float = 600) -> None:
    """Wait for something to happen while a job runs."""
    end = time.monotonic() + limit
    while not happens():
        assert job.process.poll() is None, job.log.read_text()[-3000:]
        assert time.monotonic() < end, job.log.read_text()[-3000:]
        time.sleep(0.1)


def copied(js: jetspark.sync.JetStream) -> int:
    return js.get_stream("COPIES").info().state.messages


def check_books(system: LocalSystem, directory: Path) -> None:
    """Every order once in each sink, or once in its dead letters."""
    broken = set(range(100, COUNT + 1, 100))
    good = set(range(1, COUNT + 1)) - broken
    unwritable = {number for number in good if number % 10 == 1}
    with system.jetstream() as js:
        assert set(dead_letters(js, "orders", "orders")) == broken
        assert set(dead_letters(js, "orders", "copies")) == unwritable
        copies = Counter(int(one.headers["Id"]) for one in messages_of(js, "COPIES"))
        bucket = js.key_value("counts")
        counts = {key: json.loads(bucket.get(key).value)["orders"] for key in "xyz"}
    assert copies == Counter(good - unwritable)
    table = archive(directory).to_table(columns=["id"])
    assert Counter(table.column("id").to_pylist()) == Counter(good)
    assert counts == Counter("xyz"[number % 3] for number in good - unwritable)


def archive(directory: Path) -> ds.Dataset:
    """The files that Spark has committed: those of its log of metadata."""
    folder = directory / "archive"
    files = set()
    for entry in (folder / "_spark_metadata").glob("[0-9]*"):
        if not entry.name.endswith((".crc", ".tmp")):
            lines = entry.read_text().splitlines()[1:]
            files |= {json.loads(line)["path"].removeprefix("file://") for line in lines}
    return ds.dataset(sorted(files), format="parquet")


def test_killed_at_random_times(server: NatsServer, system: LocalSystem, tmp_path: Path) -> None:
    (tmp_path / "pipeline.yml").write_text(PIPELINE.format(trigger="available-now"))
    chance = random.Random(os.getpid())
    with system.jetstream() as js:
        for _ in range(3):
            goal = copied(js) + chance.randrange(1, 1200)
            with running(tmp_path, server) as job:
                until(lambda goal=goal: copied(js) >= goal, job)  # type: ignore[misc]
                time.sleep(chance.random())
                job.kill()
        assert copied(js) < COUNT * 0.89
    with running(tmp_path, server, "--json") as job:
        result = json.loads(job.wait(900))
    assert {query["state"] for query in result["queries"]} == {"done"}
    check_books(system, tmp_path)


def test_the_server_restarts_and_sigterm_ends_it(
    server: NatsServer, system: LocalSystem, tmp_path: Path
) -> None:
    """Two restarts of the server on the way; then SIGTERM in the middle, which is no failure."""
    (tmp_path / "pipeline.yml").write_text(PIPELINE.format(trigger="200 ms"))
    with system.jetstream() as js:
        with running(tmp_path, server, "--json") as job:
            for goal in (500, 2000):
                until(lambda goal=goal: copied(js) >= goal, job)  # type: ignore[misc]
                server.kill()
                server.start()
            until(lambda: copied(js) >= 3000, job)
            os.kill(job.process.pid, signal.SIGTERM)
            result = json.loads(job.wait(600))
            assert {query["state"] for query in result["queries"]} <= {"stopped", "done"}
        with running(tmp_path, server, "--once", "--json") as job:
            job.wait(900)
    check_books(system, tmp_path)


def test_exit_statuses(server: NatsServer, system: LocalSystem, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yml"
    file.write_text("nam: x")
    with running(tmp_path, server) as job:
        assert job.process.wait(120) == 2
    assert "pipeline.yml:1:1: the pipeline: there is no key 'nam'" in job.log.read_text()
    file.write_text(PIPELINE.format(trigger="1 s").replace("stream: ORDERS", "stream: ORDRES"))
    with running(tmp_path, server) as job:
        assert job.process.wait(120) == 2
    assert "there is no stream 'ORDRES'; did you mean 'ORDERS'?" in job.log.read_text()
    file.write_text(PIPELINE.format(trigger="1 s"))
    server.stop()
    with running(tmp_path, server) as job:
        assert job.process.wait(120) == 3
    assert "cannot be used" in job.log.read_text()
