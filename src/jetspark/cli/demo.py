"""`jetspark demo`: an order flow through a pipeline, and the proof that nothing got lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jetspark.cli import console
from jetspark.cli.failures import CommandError, Status
from jetspark.cli.options import NatsOptions, OutputOptions, SparkOptions, examples, takes

if TYPE_CHECKING:
    import jetspark
    from jetspark.cli.target import Target
    from jetspark.pipeline.demo.places import Places
    from jetspark.pipeline.demo.run import Demo, Plan
    from jetspark.sync import JetStream

__all__ = ["register"]

_QUICK_ORDERS, _QUICK_LIVE = 20_000, 5.0
_EXAMPLES = """
    jetspark demo                              # 200,000 orders, and 20 s live
    jetspark demo --quick                      # a small one
    jetspark demo --orders 1000000 --live 60   # a large one
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=examples(_EXAMPLES))(demo)


@takes
def demo(
    nats: NatsOptions,
    spark: SparkOptions,
    output: OutputOptions,
    orders: Annotated[int, typer.Option(min=0, help="Orders in the backlog.")] = 200_000,
    live: Annotated[float, typer.Option(min=0, help="Seconds of the live part.")] = 20.0,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small one: --orders 20000 --live 5.")
    ] = False,
    directory: Annotated[
        Path, typer.Option("--dir", help="Where the archive and the report go.")
    ] = Path(".jetspark/demo"),
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh/--keep", help="Remove what an earlier demo left, or stop if there is any."
        ),
    ] = True,
    seed: Annotated[int, typer.Option(help="Another seed gives other orders.")] = 1,
    report: Annotated[bool, typer.Option(help="Write report.html and report.svg.")] = True,
) -> None:
    """Show it all: orders through a pipeline, live, and the books proven.

    Publishes a backlog of orders and a live part with late, duplicate and malformed events. A
    pipeline archives them to Parquet, keeps the revenue per minute and country in a bucket, raises
    alerts into a stream and dead-letters what is malformed. In the end the books must balance: the
    exit status is 4 if they do not.
    """
    from jetspark.cli.demo_output import print_result
    from jetspark.cli.target import nats_target
    from jetspark.pipeline.demo.places import Places
    from jetspark.pipeline.demo.report import as_html, as_svg
    from jetspark.pipeline.demo.run import Demo, Plan

    if quick:
        orders, live = _QUICK_ORDERS, _QUICK_LIVE
    plan = Plan(orders=orders, live=live, seed=seed)
    places = Places(directory)
    with nats_target(nats, quiet=output.quiet) as target, target.jetstream() as js:
        _make_room(js, places, fresh=fresh, quiet=output.quiet)
        demo = Demo(js, lambda: _publisher(target), places, plan)
        _publish_backlog(demo, plan, quiet=output.quiet)
        _run_pipeline(demo, target, spark, places, quiet=output.quiet)
        result = demo.result(target.servers)
    if report:
        places.report.write_text(as_html(result, made=datetime.now(UTC)), encoding="utf-8")
        places.picture.write_text(as_svg(result), encoding="utf-8")
    if output.json:
        console.print_json(result.as_json())
    else:
        print_result(result, options=_options(nats), report=report)
    if not result.balanced:
        raise CommandError("the books do not balance", Status.UNBALANCED)


def _make_room(js: JetStream, places: Places, *, fresh: bool, quiet: bool) -> None:
    from jetspark.pipeline.demo.places import create, left_over, remove

    found = left_over(js, places)
    if found and not fresh:
        raise CommandError(
            f"an earlier demo left {', '.join(found)}; --fresh removes that", Status.USAGE
        )
    if found and not quiet:
        console.say(f"removed what an earlier demo left: {', '.join(found)}")
    remove(js, places, found)
    create(js, places)


def _publish_backlog(demo: Demo, plan: Plan, *, quiet: bool) -> None:
    with console.meter("publishing the backlog", "orders", quiet=quiet) as meter:
        demo.publish_backlog(lambda: meter.show(demo.sent.messages, plan.orders))
    seconds = demo.steps["publish the backlog"]
    if not quiet:
        rate = plan.orders / max(seconds, 1e-9)
        console.say(f"published {plan.orders:,} orders in {seconds:.1f} s, {rate:,.0f}/s")


def _run_pipeline(
    demo: Demo, target: Target, spark: SparkOptions, places: Places, *, quiet: bool
) -> None:
    from jetspark.cli.pipelines import pipeline_errors, spark_of
    from jetspark.cli.progress import pipeline_shown
    from jetspark.cli.session import log_path, spark_session
    from jetspark.cli.stopping import Stop
    from jetspark.pipeline import job

    log = log_path("demo")
    stop = Stop("the batches that are under way")
    with pipeline_errors(log):
        options, conf = spark_of(job.load(places.pipeline), spark)
        if not quiet:
            console.say(f"starting Spark and {places.pipeline}; Spark's log is {log}")
        with ExitStack() as stack:
            with demo.step("start Spark"):
                session = spark_session(options, log, name="demo", conf=conf)
                started = stack.enter_context(session)
            shown = stack.enter_context(pipeline_shown(quiet=quiet))
            stop.listen()
            done = demo.run_pipeline(
                target, started, stop=stop.asked, tell=shown.tell, say=shown.say
            )
    if not done:
        raise KeyboardInterrupt


@asynccontextmanager
async def _publisher(target: Target) -> AsyncIterator[jetspark.JetStream]:
    import jetspark

    async with await jetspark.connect(**target.connect_options) as client:
        yield client.jetstream(domain=target.domain, prefix=target.prefix)


def _options(nats: NatsOptions) -> str:
    """What other commands need to find the same server."""
    named = {"--server": nats.server, "--context": nats.context}
    return "".join(f" {name} {value}" for name, value in named.items() if value is not None)
