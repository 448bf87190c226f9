"""The program `jetspark`: its commands, and what becomes of their errors."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from jetspark.cli import failures
from jetspark.cli.help import HelpfulCommand, HelpfulGroup
from jetspark.cli.options import examples

__all__ = ["app", "main"]

app = typer.Typer(
    name="jetspark",
    help="NATS JetStream pipelines on Spark: from a stream to an answer in one command.",
    epilog=examples(
        """
        jetspark demo                   # all of it, in a few minutes
        jetspark init shop              # a pipeline of your own, to begin with
        jetspark sql "SELECT subject, count(*) FROM stream.ORDERS GROUP BY 1"
        jetspark top
        """
    ),
    no_args_is_help=True,
    cls=HelpfulGroup,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

_COMMANDS = ("demo", "run", "check", "init", "archive", "replay", "sql", "top", "server", "bench")
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


def _guarded(command: Callable[..., Any]) -> Callable[..., Any]:
    """Tell of errors here: typer has ideas of its own about Ctrl-C and broken pipes."""

    @functools.wraps(command)
    def run(*arguments: Any, **values: Any) -> None:
        try:
            command(*arguments, **values)
            sys.stdout.flush()
        except typer.Exit:
            raise
        except (Exception, KeyboardInterrupt) as error:
            sys.exit(failures.report(error, verbose="--verbose" in sys.argv))

    return run


for _name in _COMMANDS:
    importlib.import_module(f"jetspark.cli.{_name}").register(app)
for _command in app.registered_commands:
    _command.cls = HelpfulCommand
    if _command.callback is not None:
        _command.callback = _guarded(_command.callback)


def main() -> None:
    """Run the command line; the exit status tells how it went."""
    app()
