"""`jetspark top`: streams, consumers and pipelines, live."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from jetspark.cli import console
from jetspark.cli.options import NatsOptions, OutputOptions, examples, takes

__all__ = ["register"]

_EXAMPLES = examples(
    """
    jetspark top                        # live, until q or Ctrl-C
    jetspark top --stream 'ORDERS*'     # only these streams
    jetspark top --once                 # one picture
    jetspark top --json                 # one picture, for scripts
    """
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=_EXAMPLES)(top)


@takes
def top(
    nats: NatsOptions,
    output: OutputOptions,
    stream: Annotated[
        str | None, typer.Option(help="Only streams whose names match; * stands for anything.")
    ] = None,
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=0.2, help="Seconds between two looks.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Show one picture as text.")] = False,
) -> None:
    """Watch streams, consumers and running pipelines.

    Rates are of the time between two looks; the busiest come first.
    """
    import asyncio

    from jetspark.cli.target import nats_target
    from jetspark.cli.top_live import look, watch
    from jetspark.cli.top_view import as_json, render

    live = console.out().is_terminal and sys.stdin.isatty() and not (once or output.json)
    with nats_target(nats, quiet=output.quiet) as target:
        if live:
            asyncio.run(watch(target, stream, interval))
            return
        shown = asyncio.run(look(target, stream, interval))
        if output.json:
            console.print_json(as_json(shown))
        else:
            console.out().print(render(shown), soft_wrap=False)
