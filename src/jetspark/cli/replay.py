"""`jetspark replay`: an archive back into a stream."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Annotated

import typer

from jetspark.cli import console
from jetspark.cli.failures import CommandError, Status
from jetspark.cli.options import NatsOptions, OutputOptions, examples, takes

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            """
            jetspark replay data/orders ORDERS                  # again: nothing is stored twice
            jetspark replay data/orders ORDERS_COPY --create --subject-prefix copy
            jetspark replay data/orders TEST --subjects 'orders.eu.>' --speed 10x
            """
        )
    )(replay)


@takes
def replay(
    nats: NatsOptions,
    output: OutputOptions,
    directory: Annotated[Path, typer.Argument(help="The archive.", metavar="DIR")],
    stream: Annotated[str, typer.Argument(help="The stream to fill.", metavar="STREAM")],
    subjects: Annotated[
        str | None, typer.Option(help="Only these, with commas between; wildcards are allowed.")
    ] = None,
    from_: Annotated[
        str | None, typer.Option("--from", help="Only messages stored at or after this time.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="Only messages stored before this time.")
    ] = None,
    subject_prefix: Annotated[
        str, typer.Option(help="Put this in front of the subjects: copy makes copy.orders.new.")
    ] = "",
    speed: Annotated[
        str, typer.Option(help="full, original (with the gaps there were), or faster: 10x.")
    ] = "full",
    create: Annotated[
        bool, typer.Option("--create", help="Create the stream if there is none.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only tell what there is to do.")
    ] = False,
) -> None:
    """Publish an archive to a stream: the same subjects, headers, ids and order.

    Run it again after a crash, or when the archive has grown: nothing is stored twice.
    """
    from jetspark.cli.places import moment
    from jetspark.cli.places import subjects as read_subjects
    from jetspark.cli.stopping import Stop
    from jetspark.cli.target import closing_connections, nats_target
    from jetspark.pipeline.replay import ReplayOptions
    from jetspark.pipeline.replay import replay as run
    from jetspark.pipeline.replay_read import Selection
    from jetspark.protocol import check_subject
    from jetspark.spark.connection import CONNECTION_OPTIONS, Access
    from jetspark.spark.options import parse

    selection = Selection(
        read_subjects(subjects), moment("--from", from_), moment("--until", until)
    )
    factor = _factor(speed)
    if subject_prefix:
        check_subject(subject_prefix, "--subject-prefix")
    stop = Stop("what is under way is stored first")
    stop.listen()
    begun = time.monotonic()
    with nats_target(nats, quiet=output.quiet) as target, closing_connections():
        options = ReplayOptions(
            access=Access.of(parse(CONNECTION_OPTIONS, target.spark_options, "replay")),
            directory=directory,
            stream=stream,
            selection=selection,
            prefix=subject_prefix,
            speed=factor,
            create=create,
            dry_run=dry_run,
            stop=stop.asked,
        )
        with console.meter(f"replay to {stream}", quiet=output.quiet) as meter:
            for done in run(options):
                meter.show(done.published, done.total)
    seconds = time.monotonic() - begun
    if output.json:
        document = {**dataclasses.asdict(done), "seconds": round(seconds, 3)}
        console.print_json({"directory": str(directory), "stream": stream, **document})
        return
    before = f"; {done.found:,} were there from an earlier run" if done.found else ""
    again = (
        f"; {done.renamed:,} had an id that was used before, and got another one"
        if done.renamed
        else ""
    )
    if dry_run:
        text = f"{done.total:,} messages of {done.subjects:,} subjects would be stored in {stream}"
    else:
        text = f"{done.published:,} messages stored in {stream} in {seconds:.1f} s"
    console.out().print(f"{text}{before}{again}", markup=False)


def _factor(speed: str) -> float | None:
    """How many times as fast as at first; None: as fast as can be."""
    if speed == "full":
        return None
    try:
        factor = 1.0 if speed == "original" else float(speed.removesuffix("x"))
        if factor > 0 and (speed == "original" or speed.endswith("x")):
            return factor
    except ValueError:
        pass
    raise CommandError(
        f"--speed {speed!r} must be full, original, or a factor like 10x", Status.USAGE
    )
