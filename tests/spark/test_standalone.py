"""Jobs on a standalone cluster, whose machines have no jetspark: it travels with the job.

These are the two ways of docs/spark.md, "On a cluster": what `pip install --target` would put into
a folder is put there by hand.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

import jetspark
from jetspark.server import NatsServer
from tests.support.spark_cluster import (
    SparkCluster,
    bare_python,
    run_spark,
    standalone_cluster,
)

from .conftest import Streams

pytestmark = pytest.mark.timeout(600)

SOURCES = Path(__file__).parents[2] / "src"
LIBRARIES = Path(sysconfig.get_path("purelib"))
ROWS = 1000

START = """
import json
import os
import shutil
import sys
import time

import pyarrow as pa
from pyspark.sql import SparkSession

servers, source, target, checkpoint, output = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
to_target = {"servers": servers, "expectedStream": target}
columns = [f"concat('{target}.', sequence % 3) AS subject", "data"]
"""

BATCH_JOB = f"""{START}

def located(batches):
    import jetspark

    place = os.path.abspath(jetspark.__file__)
    for batch in batches:
        places = pa.array([place] * batch.num_rows, pa.string())
        yield pa.RecordBatch.from_arrays([*batch.columns, places], ["sequence", "data", "place"])


read = spark.read.format("jetstream").options(servers=servers, stream=source, minPartitions="4")
frame = read.load()
texts = frame.selectExpr("sequence", "CAST(data AS STRING) AS data")
rows = texts.mapInArrow(located, "sequence bigint, data string, place string").collect()
with open(output, "w") as file:
    json.dump([list(row) for row in rows], file)
frame.selectExpr(*columns).write.format("jetstream").options(**to_target).mode("append").save()
"""

STREAMING_JOB = f"""{START}

def copy():
    read = spark.readStream.format("jetstream").options(servers=servers, stream=source)
    frame = read.options(startingOffsets="earliest", minPartitions="2").load()
    write = frame.selectExpr(*columns).writeStream.format("jetstream").options(**to_target)
    write = write.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    write.start().awaitTermination()


copy()
shutil.rmtree(f"{{checkpoint}}/commits")  # as if the driver had died before Spark's own commit
copy()
"""


STOPPING_JOB = f"""{START}

def stopping(batches):
    for number, batch in enumerate(batches):
        while number == 10 and not os.path.exists(output):
            time.sleep(0.1)
        yield batch


columns[1] = "CAST(lpad(CAST(data AS STRING), 4000) AS BINARY) AS data"  # too large for buffers
read = spark.read.format("jetstream").options(servers=servers, stream=source, minPartitions="2")
rows = read.load().selectExpr(*columns).mapInArrow(stopping, "subject string, data binary")
rows.write.format("jetstream").options(**to_target).mode("append").save()
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    """Two workers with a core each."""
    with standalone_cluster(workers=2) as cluster:
        yield cluster


@pytest.fixture
def package() -> Iterator[Path]:
    """What `pip install --no-deps --target package jetspark` gives, in a folder that goes."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "package"
        for source in SOURCES.iterdir():
            if source.name.startswith(("jetspark", "pyspark_")):
                shutil.copytree(source, package / source.name)
        yield package


class Jobs:
    """Runs jobs on the cluster that read from a stream of numbers and copy it to another one."""

    def __init__(self, cluster: SparkCluster, streams: Streams, folder: Path) -> None:
        self._cluster = cluster
        self._streams = streams
        self._folder = folder
        self._source = streams.new()
        # The server forgets ids at once: only the ledger tells what was written before.
        self._target = streams.new(allow_direct=True, duplicate_window=0.1)
        self.output = folder / "rows.json"
        self.log = folder / "job.log"

    def run(self, job: str, python: Path, *options: str, **variables: str) -> None:
        """Run a job, with options and environment variables for spark-submit."""
        self._streams.publish(self._source, ROWS)
        script = self._folder / "job.py"
        script.write_text(job)
        settings = {
            "spark.executor.memory": "512m",
            # Both executors are there when the first task starts.
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "240s",
            "spark.ui.enabled": "false",
        }
        command = ["spark-submit", "--master", self._cluster.master_url]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        command += [*options, str(script), self._streams.server.url, self._source, self._target]
        command += [str(self._folder / "checkpoint"), str(self.output)]
        run_spark(command, self.log, timeout=540, PYSPARK_PYTHON=str(python), **variables)
        assert sorted(self.stored()) == sorted(
            (f"{self._target}.{number % 3}", number) for number in range(1, ROWS + 1)
        )

    def stored(self) -> list[tuple[str, int]]:
        """What is in the target, in its order."""

        async def read(js: jetspark.JetStream) -> list[tuple[str, int]]:
            found = await js.get_stream(self._target)
            messages = found.direct_get_batch(seq=1, batch=10 * ROWS)
            return [(message.subject, int(message.data)) async for message in messages]

        stored: list[tuple[str, int]] = self._streams.edit(read)
        return stored


@pytest.fixture
def jobs(cluster: SparkCluster, nats: NatsServer, tmp_path: Path) -> Jobs:
    """Runs jobs."""
    return Jobs(cluster, Streams(nats), tmp_path)


@pytest.mark.faults
def test_a_batch_job_with_the_package_as_a_zip(
    jobs: Jobs, cluster: SparkCluster, package: Path, tmp_path: Path
) -> None:
    archive = shutil.make_archive(str(package.with_name("jetspark")), "zip", package)
    python = bare_python(tmp_path / "python", LIBRARIES)
    jobs.run(BATCH_JOB, python, "--py-files", archive, PYTHONPATH=archive)
    rows = json.loads(jobs.output.read_text())
    assert sorted((sequence, int(data)) for sequence, data, _ in rows) == [
        (number, number) for number in range(1, ROWS + 1)
    ]
    # work/app-…/0/jetspark.zip/… and work/app-…/1/jetspark.zip/…
    places = [Path(place).relative_to(cluster.directory / "work") for _, _, place in rows]
    assert {place.parts[1:3] for place in places} == {("0", "jetspark.zip"), ("1", "jetspark.zip")}


@pytest.mark.faults
def test_a_streaming_job_with_the_package_as_a_zip(
    jobs: Jobs, package: Path, tmp_path: Path
) -> None:
    archive = shutil.make_archive(str(package.with_name("jetspark")), "zip", package)
    python = bare_python(tmp_path / "python", LIBRARIES)
    jobs.run(STREAMING_JOB, python, "--py-files", archive, PYTHONPATH=archive)


@pytest.mark.faults
def test_a_streaming_job_with_an_archive_of_all_that_it_needs(
    jobs: Jobs, package: Path, tmp_path: Path
) -> None:
    for folder in ("msgspec", "pyarrow"):
        shutil.copytree(LIBRARIES / folder, package / folder)
    archive = package.with_suffix(".tar.gz")
    subprocess.run(["tar", "-czf", archive, "-C", package, "."], check=True)
    options = ["--archives", f"{archive}#package"]
    options += ["--conf", "spark.executorEnv.PYTHONPATH=package"]
    python = bare_python(tmp_path / "python")
    jobs.run(STREAMING_JOB, python, *options, PYTHONPATH=str(package))


def executors(cluster: SparkCluster) -> list[int]:
    """The processes of the executors, which run in the folders of the workers."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_executor = b"CoarseGrainedExecutorBackend" in (process / "cmdline").read_bytes()
            if is_executor and (process / "cwd").readlink().is_relative_to(cluster.directory):
                found.append(int(process.name))
    return found


@pytest.mark.faults
def test_an_executor_is_killed_while_it_writes(jobs: Jobs, cluster: SparkCluster) -> None:
    options = ["--conf", "spark.sql.execution.arrow.maxRecordsPerBatch=20"]
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(jobs.run, STOPPING_JOB, Path(sys.executable), *options)
        try:
            while len(jobs.stored()) < 50:
                if job.done():
                    job.result()
                time.sleep(0.1)
            os.kill(executors(cluster)[0], signal.SIGKILL)
            assert len(jobs.stored()) < ROWS
        finally:
            jobs.output.touch()  # both tasks go on
        job.result()
    assert "Lost executor" in jobs.log.read_text()
