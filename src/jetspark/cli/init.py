"""`jetspark init`: a pipeline to begin with, and data for it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from jetspark.cli import console
from jetspark.cli.failures import CommandError, Status
from jetspark.cli.options import NatsOptions, OutputOptions, examples, takes

__all__ = ["register"]

_EXAMPLES = """
    jetspark init orders                       # a directory with everything
    cd orders && jetspark run pipeline.yml     # and the result
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=examples(_EXAMPLES))(init)


@takes
def init(
    nats: NatsOptions,
    output: OutputOptions,
    directory: Annotated[Path, typer.Argument(help="Where to write; it is created.")],
) -> None:
    """Write a commented pipeline, and publish sample orders for it.

    The orders are in a file, too, and in a stream of the server of the new directory, or of the
    one that is named.
    """
    from jetspark.cli.target import nats_target
    from jetspark.pipeline import starter

    there = [name for name in starter.FILES if (directory / name).exists()]
    if there:
        raise CommandError(
            f"{directory / there[0]} exists already; name another directory", Status.USAGE
        )
    directory.mkdir(parents=True, exist_ok=True)
    starter.write_files(directory)
    before = Path.cwd()
    os.chdir(directory)  # the embedded server has its data there
    try:
        with nats_target(nats, quiet=True) as target, target.jetstream() as js:
            stored = starter.publish(js, Path("orders.jsonl"))
    finally:
        os.chdir(before)
    if output.json:
        console.print_json(
            {"directory": str(directory), "files": list(starter.FILES), "messages": stored}
        )
        return
    console.out().print(
        f"{directory} has pipeline.yml and orders.jsonl; stream {starter.STREAM} has "
        f"{stored:,} sample orders\n\n"
        f"  cd {shlex.quote(str(directory))}\n"
        "  jetspark run pipeline.yml       # then edit the file, and run it again\n"
        '  jetspark sql "SELECT * FROM kv.country_totals"',
        markup=False,
    )
