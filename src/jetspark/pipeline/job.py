"""A pipeline from its file to its end: `load`, `check`, `run`. For commands and other programs."""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from jetspark.errors import PipelineBusyError

from .herald import Herald
from .parse import parse, read_file
from .plan import Flow, Planner
from .problems import Problems
from .progress import Progress
from .runner import Runner
from .server_checks import System, check_system, local_path
from .sinks import RowsPrinter
from .spec import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check", "load", "run"]


def load(path: Path, environment: Mapping[str, str] | None = None) -> Pipeline:
    """Read a file; raises `InvalidPipelineError` with all that is wrong."""
    problems = Problems(str(path))
    text = read_file(path, problems)
    pipeline = parse(text, problems, environment) if text is not None else None
    problems.raise_if_any()
    assert pipeline is not None
    return pipeline


def check(
    pipeline: Pipeline,
    system: System,
    spark: SparkSession | None = None,
    *,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Check a pipeline against the server, and its SQL with Spark; raises with all that is wrong.

    Nothing is created and nothing is started.
    """
    problems = Problems(pipeline.file)
    size = check_system(pipeline, system, problems, create=False)
    problems.raise_if_any()
    if spark is not None:
        _plan(pipeline, system, spark, problems, size, say)


def run(
    pipeline: Pipeline,
    system: System,
    spark: SparkSession,
    *,
    once: bool = False,
    stop: threading.Event | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    say: Callable[[str], None] = lambda text: None,
    show: RowsPrinter | None = None,
) -> Progress:
    """Run a pipeline until it is done or `stop` is set; returns how far it came.

    Raises `InvalidPipelineError` before anything is started, and `PipelineFailedError` when a query
    has failed and the others are stopped. `once` reads what is there, whatever the file says.
    `on_progress` is called about twice a second, `say` with what a person should know, and `show`
    with the rows of console sinks.
    """
    problems = Problems(pipeline.file)
    size = check_system(pipeline, system, problems, create=True)
    problems.raise_if_any()
    flows = _plan(pipeline, system, spark, problems, size, say)
    with _checkpoint(pipeline) as checkpoint, Herald(pipeline, system) as herald:
        runner = Runner(
            pipeline,
            flows,
            herald,
            checkpoint=checkpoint,
            trigger=None if once else pipeline.trigger,
            on_progress=on_progress,
            say=say,
            show=show,
        )
        return runner.run(stop if stop is not None else threading.Event())


def _plan(
    pipeline: Pipeline,
    system: System,
    spark: SparkSession,
    problems: Problems,
    max_payload: int,
    say: Callable[[str], None],
) -> list[Flow]:
    session = spark
    if hasattr(spark, "_jvm"):  # views of its own; with Spark Connect the session is ours already
        session = spark.newSession()
        for name, value in pipeline.spark.conf.items():
            if session.conf.isModifiable(name):
                session.conf.set(name, value)
    planner = Planner(pipeline, session, system, problems, max_payload=max_payload, say=say)
    flows = planner.plan()
    problems.raise_if_any()
    return flows


@contextmanager
def _checkpoint(pipeline: Pipeline) -> Iterator[str]:
    """The checkpoint directory, which no other process may use at the same time."""
    path = local_path(pipeline.checkpoint)
    if path is None:
        yield pipeline.checkpoint
        return
    path = path.absolute()
    path.mkdir(parents=True, exist_ok=True)
    with (path / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PipelineBusyError(
                f"pipeline {pipeline.name!r} runs already with checkpoint {path}; stop that one, "
                "or name another checkpoint in the file"
            ) from None
        yield str(path)
