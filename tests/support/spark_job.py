"""A Spark driver in a process of its own, to be killed, and ways to find its Python workers.

`python -m tests.support.spark_job '{"kind": "copy", ...}'` runs one of the jobs below.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetspark.server import NatsServer
from tests.support.servers import monitor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Job", "connected_workers", "start_job"]

ROOT = Path(__file__).parents[2]


class Job:
    """A running driver."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self.log = log

    def wait(self, timeout: float = 300) -> str:
        """Wait for its end, which must be a good one; returns what it printed last."""
        code = self.process.wait(timeout)
        lines = self.log.read_text().splitlines()
        assert code == 0, "\n".join(lines[-40:])
        return lines[-1] if lines else ""

    def kill(self) -> None:
        """Kill the driver and everything that it has started, at once."""
        pids = [self.process.pid, *_descendants(self.process.pid)]
        for pid in pids:
            _kill(pid)
        self.process.wait()


@contextmanager
def start_job(directory: Path, **job: Any) -> Iterator[Job]:
    """Run a job; whatever is left of it in the end is killed."""
    log = directory / f"job-{time.monotonic_ns()}.log"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.spark_job", json.dumps(job)],
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )
    running = Job(process, log)
    try:
        yield running
    finally:
        running.kill()


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found = list(parents.get(pid, ()))
    for child in found:
        found += parents.get(child, ())
    return found


def connected_workers(job: Job, server: NatsServer) -> dict[int, tuple[int, int]]:
    """The processes of a job that are connected: messages that they have sent and received."""
    connections = monitor(server, "/connz").get("connections") or []
    by_port = {each["port"]: (each["in_msgs"], each["out_msgs"]) for each in connections}
    ports = _ports_of(_descendants(job.process.pid))
    return {pid: by_port[port] for pid, port in ports if port in by_port}


def _ports_of(pids: list[int]) -> list[tuple[int, int]]:
    """The local ports of the sockets of processes."""
    inodes = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        inodes[fields[9]] = int(fields[1].rpartition(":")[2], 16)
    found = []
    for pid in pids:
        try:
            links = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue
        sockets = [link[8:-1] for link in links if link.startswith("socket:[")]
        found += [(pid, inodes[inode]) for inode in sockets if inode in inodes]
    return found


# -- what runs in the process -------------------------------------------------------------------


def _session(job: dict[str, Any]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(job.get("master", "local[2,4]"))
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "200",
        **job.get("conf", {}),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def _slowly(seconds: float) -> Any:
    """Hold up each batch of rows, so that those behind it wait in the source."""

    def pass_on(batches: Any) -> Any:
        for batch in batches:
            time.sleep(seconds)
            yield batch

    return pass_on


def copy(spark: SparkSession, job: dict[str, Any]) -> None:
    """Copy a stream to another one in a streaming query, up to its end."""
    frame = spark.readStream.format("jetstream").options(**job["source"]).load()
    rows = frame.select("data")
    rows = rows.mapInArrow(_slowly(job["pause"]), rows.schema)
    writer = rows.writeStream.format("jetstream").options(**job["sink"])
    writer = writer.option("checkpointLocation", job["checkpoint"])
    writer.trigger(availableNow=True).start().awaitTermination()


def read(spark: SparkSession, job: dict[str, Any]) -> None:
    """Read in batch, and write the rows to files."""
    frame = spark.read.format("jetstream").options(**job["source"]).load()
    frame = frame.selectExpr("sequence", "CAST(data AS STRING) AS data")
    slow = frame.mapInArrow(_slowly(job["pause"]), frame.schema)
    slow.write.json(job["output"])


def write(spark: SparkSession, job: dict[str, Any]) -> None:
    """Write numbers in batch."""
    frame = spark.range(0, job["rows"], 1, 2).selectExpr("CAST(id AS STRING) AS data")
    frame = frame.mapInArrow(_slowly(job["pause"]), frame.schema)
    frame.write.format("jetstream").options(**job["sink"]).mode("append").save()


def main() -> None:
    """Run the job that the argument describes."""
    job = json.loads(sys.argv[1])
    session = _session(job)
    {"copy": copy, "read": read, "write": write}[job["kind"]](session, job)
    session.stop()
    print("done")


if __name__ == "__main__":
    main()
