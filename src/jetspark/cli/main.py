"""The program `jetspark`: its commands, and what becomes of their errors."""

from __future__ import annotations

import importlib
import sys
from typing import Annotated

import typer

from jetspark.cli import failures

__all__ = ["app", "main"]

app = typer.Typer(
    name="jetspark",
    help="NATS JetStream pipelines on Spark: from a stream to an answer in one command.",
    epilog="Begin with: jetspark demo",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)

_COMMANDS = ("server",)
"""The files of this package that register a command, in the order of the help."""


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"jetspark {version('jetspark')}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    pass


for _name in _COMMANDS:
    importlib.import_module(f"jetspark.cli.{_name}").register(app)


def main() -> None:
    """Run the command line; the exit status tells how it went."""
    try:
        app()
    except BaseException as error:  # SystemExit is how typer ends
        if isinstance(error, SystemExit):
            raise
        sys.exit(failures.report(error, verbose="--verbose" in sys.argv))
