"""`jetspark run`: a declared pipeline, until it is done or stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jetspark.cli import console
from jetspark.cli.options import NatsOptions, OutputOptions, SparkOptions, examples, takes

__all__ = ["register"]

_EXAMPLES = """
    jetspark init orders && cd orders          # a pipeline to begin with
    jetspark run pipeline.yml --once           # what is there, and the end
    jetspark run pipeline.yml                  # go on until Ctrl-C
    jetspark run pipeline.yml --server nats://a,nats://b --master spark://host:7077
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=examples(_EXAMPLES))(run)


@takes
def run(
    nats: NatsOptions,
    spark: SparkOptions,
    output: OutputOptions,
    file: Annotated[Path, typer.Argument(help="The pipeline.", show_default=True)] = Path(
        "pipeline.yml"
    ),
    once: Annotated[
        bool, typer.Option("--once", help="Read what is there and end, whatever the file says.")
    ] = False,
) -> None:
    """Run a pipeline: from streams, through SQL, into streams, buckets and files.

    The file is checked as a whole first. A restart continues where each sink stopped. Rows that
    cannot be parsed or written go to a stream for dead letters, with the reason. Ctrl-C finishes
    the running batches and ends.
    """
    from jetspark.cli.pipelines import pipeline_errors, pipeline_target, spark_of
    from jetspark.cli.progress import pipeline_shown, summary
    from jetspark.cli.session import log_path, spark_session
    from jetspark.cli.stopping import Stop
    from jetspark.pipeline import job

    log = log_path("run")
    with pipeline_errors(log):
        pipeline = job.load(file)
        options, conf = spark_of(pipeline, spark)
        stop = Stop("the running batches are finished first")
        stop.listen()
        with pipeline_target(pipeline, nats, quiet=output.quiet) as target:
            job.check(pipeline, target)  # before Spark, which takes its time
            if not output.quiet:
                console.say(f"starting pipeline {pipeline.name}; Spark's log is {log}")
            with (
                spark_session(options, log, name=pipeline.name, conf=conf) as session,
                pipeline_shown(quiet=output.quiet) as shown,
            ):
                stop.listen()
                result = job.run(
                    pipeline,
                    target,
                    session,
                    once=once,
                    stop=stop.asked,
                    on_progress=shown.tell,
                    say=shown.say,
                    show=shown.show if not output.json else None,
                )
    if output.json:
        console.print_json(result.as_json())
    elif not output.quiet:
        for line in summary(result, pipeline.dead_letters.stream):
            console.say(line)
