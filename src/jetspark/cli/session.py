"""The Spark session of a command: local unless a master or a Spark Connect server is named.

What Spark prints goes into a log file in `.jetspark/logs`, which errors point to.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from jetspark.cli.failures import CommandError, Status
from jetspark.cli.options import SparkOptions
from jetspark.cli.spark_home import use_spark_home
from jetspark.cli.target import PROJECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["log_path", "spark_session"]

_LOGS_KEPT = 10
_REACH_TIMEOUT = 5.0  # seconds
_DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.unix.domain.socket.enabled": "true",
}
_LOCAL = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def log_path(command: str) -> Path:
    """A new log file for a run of a command; older ones are removed."""
    folder = PROJECT / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    for old in sorted(folder.glob("*.log"))[: 1 - _LOGS_KEPT]:
        old.unlink(missing_ok=True)
    return folder / f"{time.strftime('%Y%m%dT%H%M%S')}-{command}-{os.getpid()}.log"


@contextmanager
def spark_session(
    options: SparkOptions, log: Path, *, name: str, conf: dict[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session, as long as the context lasts; `conf` is what the command itself wants."""
    if options.master is not None and options.remote is not None:
        raise CommandError("--master and --remote exclude each other", Status.USAGE)
    settings = {**(conf or {}), **_parse(options.conf or [])}
    with _output_to(log):
        try:
            spark = _start(options, settings, name)
        except CommandError:
            raise
        except Exception as error:
            where = options.remote or options.master or "local Spark"
            raise CommandError(
                f"Spark does not start ({where}): {_first_line(error)}",
                Status.UNAVAILABLE,
                log=log,
            ) from error
    try:
        yield spark
    finally:
        with _output_to(log):
            spark.stop()


def _start(options: SparkOptions, settings: dict[str, str], name: str) -> SparkSession:
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    from jetspark.spark import register

    # It prints each error of a query on stderr, as JSON, before it is raised.
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    builder = SparkSession.builder.appName(f"jetspark {name}")
    if options.remote is not None:
        _check_reachable(options.remote, "sc://", "--remote")
        if options.remote.startswith("local"):  # a server of our own
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = builder.remote(options.remote)
        for key, value in settings.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        spark.addArtifacts(str(_package()), pyfile=True)
        register(spark)  # it does not look for formats in what was added
        return spark
    master = options.master or settings.get("spark.master") or "local[*]"
    _check_java()
    _check_reachable(master, "spark://", "--master")
    local = master.startswith("local") and not master.startswith("local-cluster")
    if local:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        use_spark_home(PROJECT)
    for key, value in {**_DEFAULTS, **(_LOCAL if local else {}), **settings}.items():
        builder = builder.config(key, value)
    spark = builder.master(master).getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    if not local:
        spark.sparkContext.addPyFile(str(_package()))
    return spark


def _check_java() -> None:
    """Spark itself would only say that something exited."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if java is None:
        where = f"in JAVA_HOME ({home})" if home else "on the PATH, and JAVA_HOME is not set"
        raise CommandError(
            f"Spark needs Java 17 or newer, and there is no java {where}; install it, or use "
            "--remote with a Spark Connect server",
            Status.UNAVAILABLE,
        )


def _check_reachable(url: str, scheme: str, option: str) -> None:
    """Spark itself would try for minutes before it says so."""
    if not url.startswith(scheme):
        return
    for address in url.removeprefix(scheme).partition("/")[0].split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            host, port = address, "15002" if scheme == "sc://" else "7077"
        try:
            socket.create_connection((host.strip("[]"), int(port)), _REACH_TIMEOUT).close()
        except (OSError, OverflowError):
            continue
        return
    raise CommandError(
        f"nobody answers at {url}; is Spark running there, and is {option} right?",
        Status.UNAVAILABLE,
    )


def _package() -> Path:
    """A zip of this package, for executors that do not have it."""
    import jetspark

    folder = Path(jetspark.__file__).parent
    path = PROJECT / "jetspark.zip"
    new = path.with_suffix(f".{os.getpid()}")  # another command may be at it, too
    with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as archive:
        for source in [folder, *folder.parent.glob("pyspark_jetstream*")]:
            for file in source.rglob("*.py"):
                archive.write(file, file.relative_to(folder.parent))
    return new.replace(path)


@contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Let what is started meanwhile write to the log; Java keeps the streams it is born with."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, descriptor in enumerate(kept, 1):
            os.dup2(descriptor, number)
            os.close(descriptor)


def _parse(conf: list[str]) -> dict[str, str]:
    settings = {}
    for item in conf:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise CommandError(
                f"--conf {item!r} must be key=value, such as spark.sql.shuffle.partitions=8",
                Status.USAGE,
            )
        settings[key] = value
    return settings


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
