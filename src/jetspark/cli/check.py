"""`jetspark check`: is a pipeline file good? Nothing is started."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jetspark.cli import console
from jetspark.cli.options import NatsOptions, OutputOptions, SparkOptions, examples, takes

__all__ = ["register"]

_EXAMPLES = """
    jetspark check pipeline.yml                # all of it, SQL included
    jetspark check pipeline.yml --no-spark     # faster, without the SQL
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=examples(_EXAMPLES))(check)


@takes
def check(
    nats: NatsOptions,
    spark: SparkOptions,
    output: OutputOptions,
    file: Annotated[Path, typer.Argument(help="The pipeline.")] = Path("pipeline.yml"),
    sql: Annotated[
        bool, typer.Option("--spark/--no-spark", help="Whether Spark checks the SQL, too.")
    ] = True,
) -> None:
    """Check a pipeline: the file, the server, its streams and buckets, and the SQL.

    Every problem is told with its line and column, all at once.
    """
    from jetspark.cli.pipelines import pipeline_errors, pipeline_target, spark_of
    from jetspark.cli.session import log_path, spark_session
    from jetspark.pipeline import job

    log = log_path("check")
    say = console.say if not output.quiet else lambda text: None
    with pipeline_errors(log):
        pipeline = job.load(file)
        with pipeline_target(pipeline, nats, quiet=output.quiet) as target:
            job.check(pipeline, target)
            if sql:
                options, conf = spark_of(pipeline, spark)
                with spark_session(options, log, name="check", conf=conf) as session:
                    job.check(pipeline, target, session, say=say)
    if output.json:
        console.print_json({"file": str(file), "pipeline": pipeline.name, "problems": []})
    else:
        left_out = "" if sql else " (SQL was not checked)"
        console.out().print(f"{file} is good{left_out}", markup=False)
