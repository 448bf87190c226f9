"""What the Spark benchmarks share: a session for each turn, and one turn for several figures.

Starting Spark costs more than what is measured. So a contender that uses it takes all figures of a
turn at once: with the main one, and those of the variants wait in a file until they are asked for.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORES = 2
ROOT = Path(__file__).parents[1]


@contextmanager
def spark_session(**config: str) -> Iterator[SparkSession]:
    """Spark on two cores, whose Python workers find the peer."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("jetspark benchmarks")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "OFF",
    } | config
    for key, value in settings.items():
        builder = builder.config(key, value)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def figures_of_a_turn(
    job: Job, contender: str, variants: tuple[str, ...], measure: Callable[[], dict[str, float]]
) -> float | None:
    """The figure of the variant that is asked for; None if there is none.

    `measure` is called for the main figure, whose name is empty, and takes all of them. The harness
    asks for those of the variants right after it, in their order.
    """
    # The port of the server tells one run of the harness from another.
    kept = Path(tempfile.gettempdir()) / f"jetspark-benchmark-{job.port}-{contender}.json"
    if job.variant:
        figures: dict[str, float] = json.loads(kept.read_text())
    else:
        figures = measure()
        kept.write_text(json.dumps(figures))
    if job.variant == variants[-1]:
        kept.unlink()
    return figures.get(job.variant)


def spark_peaks() -> dict[str, int]:
    """The most memory that the JVM below this process has had, and its largest Python worker."""
    peaks = {"driver": 0, "worker": 0}
    for pid in _descendants(os.getpid()):
        with contextlib.suppress(OSError):  # it has ended
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            part = "worker" if b"pyspark.daemon" in command else "driver"
            peaks[part] = max(peaks[part], _peak_bytes(pid))
    return peaks


def _peak_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == "VmHWM":
            return int(value.split()[0]) * 1024
    return 0


def _descendants(ancestor: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found = [ancestor]
    for pid in found:
        found += children.get(pid, [])
    return found[1:]
