"""What the commands around a pipeline file share: its server, its Spark, and its errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from jetspark.cli.failures import CommandError, Status
from jetspark.cli.options import NatsOptions, SparkOptions

if TYPE_CHECKING:
    from jetspark.cli.target import Target
    from jetspark.pipeline.spec import Pipeline

__all__ = ["pipeline_errors", "pipeline_target", "spark_of"]

_SHUFFLE_PARTITIONS = "8"  # of local Spark; its own default is meant for clusters


@contextmanager
def pipeline_errors(log: Path | None) -> Iterator[None]:
    """Tell what is wrong with a file line by line, and of a failed query where the log is."""
    from jetspark.errors import InvalidPipelineError, PipelineFailedError

    try:
        yield
    except InvalidPipelineError as error:
        count = len(error.problems)
        what = "1 problem" if count == 1 else f"{count} problems"
        raise CommandError(
            f"{error.file} has {what}; nothing was started",
            Status.UNAVAILABLE if error.passing else Status.USAGE,
            details="\n".join(error.lines()),
        ) from None
    except PipelineFailedError as error:
        status = Status.UNAVAILABLE if error.retryable else Status.FAILED
        raise CommandError(str(error), status, log=log) from error


@contextmanager
def pipeline_target(pipeline: Pipeline, options: NatsOptions, *, quiet: bool) -> Iterator[Target]:
    """The NATS system of a pipeline: that of the command line, else that of the file."""
    from jetspark.cli.target import nats_target

    if options.server is None and options.context is None:
        options = dataclasses.replace(options, server=pipeline.server, context=pipeline.context)
    with nats_target(options, quiet=quiet) as target:
        yield target


def spark_of(pipeline: Pipeline, options: SparkOptions) -> tuple[SparkOptions, dict[str, str]]:
    """The Spark of a pipeline: that of the command line, else that of the file."""
    if options.master is None and options.remote is None:
        settings = pipeline.spark
        options = dataclasses.replace(options, master=settings.master, remote=settings.remote)
    conf = dict(pipeline.spark.conf)
    local = options.remote is None and (options.master or "local").startswith("local")
    if local:
        conf.setdefault("spark.sql.shuffle.partitions", _SHUFFLE_PARTITIONS)
    return options, conf
