"""A standalone Spark cluster on this machine, and programs of Spark in processes of their own.

```python
with standalone_cluster(workers=2) as cluster:
    run_spark(["spark-submit", "--master", cluster.master_url, "job.py"], log)
```

Whatever is started here ends with the block or the call, and with this process at the latest.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark

__all__ = ["SparkCluster", "bare_python", "connect_server", "run_spark", "standalone_cluster"]

SPARK_HOME = Path(pyspark.__file__).parent
START_TIMEOUT = 240.0  # seconds; six JVMs may start at the same time
STOP_TIMEOUT = 20.0

_HOST = "127.0.0.1"
_SPARK_CLASS = str(SPARK_HOME / "bin" / "spark-class")
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
# For programs that run for a minute and are many: less compiling, fewer threads.
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_NOT_INHERITED = {
    "NATS_URL",
    "PYSPARK_DRIVER_PYTHON",
    "PYSPARK_PYTHON",
    "PYTHONPATH",
    "SPARK_CONF_DIR",
    "SPARK_REMOTE",
}


@dataclass(frozen=True)
class SparkCluster:
    """A running cluster."""

    master_url: str
    directory: Path
    """Where executors have their files and logs."""


@contextmanager
def standalone_cluster(
    workers: int = 2, *, cores: int = 1, memory: str = "1g"
) -> Iterator[SparkCluster]:
    """A master and workers with so much for executors each; all of them are registered."""
    with ExitStack() as stack:
        path = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="jetspark-spark-", ignore_cleanup_errors=True)
        )
        directory = Path(path)
        variables = {
            "SPARK_CONF_DIR": str(directory),  # no file there changes what is logged
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(directory / "local"),
        }
        ports = ["--host", _HOST, "--port", "0", "--webui-port", "0"]
        master_log = directory / "master.log"
        master = stack.enter_context(
            _running([_SPARK_CLASS, _MASTER, *ports], master_log, variables)
        )
        url = _logged(r"Starting Spark master at (spark://\S+)", master, master_log)[0]
        limits = ["--cores", str(cores), "--memory", memory, "--work-dir", str(directory / "work")]
        for number in range(workers):
            worker = [_SPARK_CLASS, _WORKER, *ports, *limits, url]
            stack.enter_context(_running(worker, directory / f"worker-{number}.log", variables))
        _logged("Registering worker", master, master_log, times=workers)
        yield SparkCluster(url, directory)


@contextmanager
def connect_server(log: Path, **variables: str) -> Iterator[str]:
    """A server of Spark Connect; gives its URL."""
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", "local[2]"]
    command += ["--conf", "spark.ui.enabled=false"]
    command += ["--conf", f"spark.connect.grpc.binding.address={_HOST}"]
    command += ["--conf", "spark.connect.grpc.binding.port=0"]
    command += ["--class", _CONNECT_SERVER, "spark-internal"]
    with _running(command, log, {"PYSPARK_PYTHON": sys.executable, **variables}) as server:
        port = _logged(r"Spark Connect server started at: \S+:(\d+)", server, log)[0]
        yield f"sc://{_HOST}:{port}"


def run_spark(command: Sequence[str], log: Path, *, timeout: float = 300, **variables: str) -> None:
    """Run a program of Spark, or one with a path, to its end, which must be a good one.

    Its output goes to a file, in whose folder it runs. It gets the environment of this process
    without what is about Spark and NATS in it.
    """
    program = [str(SPARK_HOME / "bin" / command[0]), *command[1:]]
    with _running(program, log, {"PYSPARK_PYTHON": sys.executable, **variables}) as process:
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it runs for {timeout:g} s already:\n{_tail(log)}") from None
        assert code == 0, _tail(log)


def bare_python(folder: Path, *libraries: Path) -> Path:
    """A Python without jetspark, and with nothing else than these libraries."""
    venv.create(folder, symlinks=True, with_pip=False)
    python = folder / "bin" / "python"
    (site,) = folder.glob("lib/python*/site-packages")
    # Folders that are named in a .pth file have no .pth files of their own: an editable install
    # is not seen.
    (site / "libraries.pth").write_text("\n".join(map(str, libraries)))
    missing = [str(python), "-c", "import jetspark"]
    assert b"No module named 'jetspark'" in subprocess.run(missing, capture_output=True).stderr
    return python


@contextmanager
def _running(
    command: Sequence[str], log: Path, variables: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    inherited = {name: os.environ[name] for name in os.environ.keys() - _NOT_INHERITED}
    settings = {
        "JAVA_TOOL_OPTIONS": _JAVA_OPTIONS,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": _HOST,
        **variables,
    }
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            cwd=log.parent,
            env={**inherited, **settings},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    # Its pipe ends with this process, in whatever way; then it kills what the program has started.
    watchdog = subprocess.Popen(
        ["/bin/sh", "-c", 'read -r never; kill -9 "-$0"', str(process.pid)],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        watchdog.kill()
        watchdog.communicate()


def _logged(pattern: str, process: subprocess.Popen[bytes], log: Path, times: int = 1) -> list[str]:
    """Wait until something is so many times in a log; returns what was found."""
    end = time.monotonic() + START_TIMEOUT
    while len(found := re.findall(pattern, log.read_text())) < times:
        assert process.poll() is None, _tail(log)
        assert time.monotonic() < end, f"no {pattern!r} in {START_TIMEOUT:g} s:\n{_tail(log)}"
        time.sleep(0.1)
    return found


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-60:])
