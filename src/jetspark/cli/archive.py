"""`jetspark archive`: a stream to Parquet files, once or as it grows, and the proof of it."""

from __future__ import annotations

import dataclasses
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jetspark.cli import console
from jetspark.cli.failures import CommandError, Status, status_of
from jetspark.cli.options import NatsOptions, OutputOptions, SparkOptions, examples, takes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jetspark.cli.stopping import Stop
    from jetspark.pipeline.archive import ArchiveOptions
    from jetspark.spark.connection import Access

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            """
            jetspark archive ORDERS data/orders                 # what is there; again for more
            jetspark archive ORDERS data/orders --continuous --interval 5m
            jetspark archive ORDERS data/orders --verify        # is all of it there?
            """
        )
    )(archive)


@takes
def archive(
    nats: NatsOptions,
    spark: SparkOptions,
    output: OutputOptions,
    stream: Annotated[str, typer.Argument(help="The stream.", metavar="STREAM")],
    directory: Annotated[
        Path, typer.Argument(help="Where the files go; it is created.", metavar="DIR")
    ],
    subjects: Annotated[
        str | None, typer.Option(help="Only these, with commas between; wildcards are allowed.")
    ] = None,
    by_token: Annotated[
        int | None,
        typer.Option(
            min=0, help="Divide the files by this token of the subject, besides by day; 0: not."
        ),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", help="Where a new archive begins: a sequence, or a time."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(help="The last sequence, or the time before which to end."),
    ] = None,
    continuous: Annotated[
        bool, typer.Option("--continuous", help="Go on as the stream grows, until Ctrl-C.")
    ] = False,
    interval: Annotated[
        str, typer.Option(help="With --continuous: how often, such as 30s or 5m.")
    ] = "1m",
    allow_loss: Annotated[
        bool,
        typer.Option(
            "--allow-loss", help="Go on without messages that were removed, and note how many."
        ),
    ] = False,
    tasks: Annotated[int, typer.Option(min=1, help="How many tasks read at a time.")] = 4,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Only compare the files with the manifest and the stream."),
    ] = False,
) -> None:
    """Write a stream to Parquet files, by day and subject, each message once.

    Any tool can read the directory, at any time. Run it again to add what is new: it goes on where
    it ended, also after a crash. What the files hold is in `_manifest.jsonl` in the directory.
    """
    from jetspark.cli.places import place
    from jetspark.cli.places import subjects as read_subjects
    from jetspark.cli.stopping import Stop
    from jetspark.cli.target import closing_connections, nats_target
    from jetspark.pipeline.archive import ArchiveOptions
    from jetspark.pipeline.durations import milliseconds
    from jetspark.spark.connection import CONNECTION_OPTIONS, Access
    from jetspark.spark.options import parse

    if continuous and until is not None:
        raise CommandError("--continuous and --until exclude each other", Status.USAGE)
    try:
        seconds = milliseconds(interval) / 1000
    except ValueError as error:
        raise CommandError(f"--interval: {error}", Status.USAGE) from None
    wanted = read_subjects(subjects)
    start, end = place("--from", from_), place("--until", until)
    stop = Stop("the running range is finished first")
    with nats_target(nats, quiet=output.quiet) as target, closing_connections():
        access = Access.of(parse(CONNECTION_OPTIONS, target.spark_options, "archive"))
        if verify:
            _verify(directory, access, stream, output)
        else:
            options = ArchiveOptions(
                access=access,
                stream=stream,
                directory=directory,
                subjects=wanted,
                by_token=by_token,
                start=start,
                until=end,
                allow_loss=allow_loss,
                tasks=tasks,
                interval=seconds if continuous else None,
                stop=stop.asked,
            )
            _archive(options, spark, output, stop)


def _archive(
    options: ArchiveOptions, spark: SparkOptions, output: OutputOptions, stop: Stop
) -> None:
    from jetspark.cli.session import log_path, spark_session
    from jetspark.errors import SparkJobError
    from jetspark.pipeline.archive import archive

    with ExitStack() as stack:
        started: list[SparkSession] = []
        log: Path | None = None

        def session() -> SparkSession:
            nonlocal log
            if not started:
                log = log_path("archive")
                started.append(stack.enter_context(spark_session(spark, log, name="archive")))
                stop.listen()
            return started[0]

        stop.listen()
        begun = time.monotonic()
        with console.meter(f"archive {options.stream}", quiet=output.quiet) as meter:
            try:
                for done in archive(options, session):
                    meter.show(done.rows, done.rows + done.lag, f"lag {done.lag:,}")
            except SparkJobError as error:
                raise CommandError(str(error), status_of(error), log=log) from error
        seconds = time.monotonic() - begun
    if output.json:
        document = {**dataclasses.asdict(done), "seconds": round(seconds, 3)}
        console.print_json(
            {"stream": options.stream, "directory": str(options.directory)} | document
        )
        return
    lost = f"; up to {done.lost:,} messages were lost" if done.lost else ""
    if done.files or done.lost:
        console.out().print(
            f"{done.rows:,} messages in {_files(done.files)} ({done.bytes:,} bytes), sequences "
            f"{done.first:,} to {done.last:,}, in {seconds:.1f} s, in {options.directory}{lost}",
            markup=False,
        )
    else:
        console.out().print(
            f"nothing new; {options.directory} has the stream up to sequence {done.last:,}",
            markup=False,
        )


def _verify(directory: Path, access: Access, stream: str, output: OutputOptions) -> None:
    from jetspark.pipeline.archive_verify import verify

    with console.meter(f"verify {stream}", quiet=output.quiet) as meter:
        found = verify(directory, access, stream, lambda done, total: meter.show(done, total))
    if output.json:
        console.print_json(dataclasses.asdict(found))
    else:
        for difference in found.differences:
            console.out().print(difference, markup=False)
    if found.differences:
        count = len(found.differences)
        raise CommandError(
            f"the archive in {directory} is not what it should be: {count} "
            f"difference{'s' if count > 1 else ''}",
            Status.UNBALANCED,
        )
    if not output.json:
        lost = f"; up to {found.lost:,} were lost before" if found.lost else ""
        console.out().print(
            f"{found.rows:,} messages in {_files(found.files)} are as they were archived, each "
            f"once; {found.compared:,} of them are in the stream, too{lost}",
            markup=False,
        )


def _files(count: int) -> str:
    return f"{count:,} file{'s' if count != 1 else ''}"
