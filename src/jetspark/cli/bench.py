"""`jetspark bench`: how fast a NATS system is from here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from jetspark.cli import console
from jetspark.cli.options import NatsOptions, OutputOptions, examples, takes

if TYPE_CHECKING:
    from jetspark.cli.bench_jobs import Measured

__all__ = ["register"]

_EXAMPLES = examples(
    """
    jetspark bench                                    # the embedded server
    jetspark bench --server nats://a:4222,b:4222 --replicas 3
    jetspark bench --messages 20000 --size 1024 --json
    """
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=_EXAMPLES)(bench)


@takes
def bench(
    nats: NatsOptions,
    output: OutputOptions,
    messages: Annotated[
        int, typer.Option("--messages", "-m", min=1, help="How many to send and to read.")
    ] = 100_000,
    size: Annotated[int, typer.Option(min=0, help="Bytes of a payload.")] = 128,
    replicas: Annotated[int, typer.Option(min=1, max=5, help="Of the stream.")] = 1,
    memory: Annotated[
        bool, typer.Option("--memory", help="Keep the stream in memory, not in files.")
    ] = False,
) -> None:
    """Measure publishing, consuming, and the round trip of requests.

    It works on a stream of its own, which is removed at the end.
    """
    import asyncio

    from jetspark.cli.bench_jobs import Plan, measure
    from jetspark.cli.target import nats_target

    plan = Plan(messages=messages, size=size, replicas=replicas, memory=memory)
    with nats_target(nats, quiet=output.quiet) as target:
        result = asyncio.run(measure(target, plan, quiet=output.quiet or output.json))
    if output.json:
        console.print_json(result.as_json())
    else:
        _show(result)


def _show(result: Measured) -> None:
    from rich import box
    from rich.table import Table

    plan = result.plan
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold cyan")
    table.add_column("test")
    for name in ("messages", "seconds", "msgs/s", "MiB/s", "median ms", "99% ms"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in result.lines:
        table.add_row(
            line.name,
            f"{line.messages:,}",
            f"{line.seconds:.2f}",
            f"{line.rate:,.0f}",
            f"{line.rate * plan.size / 2**20:,.1f}",
            "" if line.median is None else f"{line.median * 1000:.2f}",
            "" if line.high is None else f"{line.high * 1000:.2f}",
        )
    out = console.out()
    kind = "memory" if plan.memory else "files"
    out.print(
        f"{result.servers}, nats-server {result.version}: {plan.size} bytes a message, "
        f"stream in {kind}, {plan.replicas} replica{'' if plan.replicas == 1 else 's'}",
        markup=False,
    )
    out.print(table, soft_wrap=False)
