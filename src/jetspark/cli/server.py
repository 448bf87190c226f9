"""`jetspark server`: a nats-server for development, with its data in a directory."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from jetspark.cli import console
from jetspark.cli.failures import CommandError
from jetspark.cli.options import OutputOptions, examples, takes

__all__ = ["register"]

_EXAMPLES = examples(
    """
    jetspark server                            # port 4222, data in .jetspark/nats
    jetspark server --store data --port 5222
    jetspark server --port 0 --json            # a free port; the URL is in the JSON
    NATS_URL=nats://127.0.0.1:4222 jetspark top
    """
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=_EXAMPLES)(server)


@takes
def server(
    output: OutputOptions,
    store: Annotated[
        Path | None, typer.Option(help="Where the data are; .jetspark/nats if it is not given.")
    ] = None,
    port: Annotated[int, typer.Option(help="For clients; 0 takes a free one.")] = 4222,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
) -> None:
    """Run a nats-server with JetStream until Ctrl-C.

    For development. Other commands find it by `--server`, or by NATS_URL.
    """
    from jetspark.cli.target import PROJECT
    from jetspark.server import ServerOptions, run_server

    folder = store if store is not None else PROJECT / "nats"
    folder.mkdir(parents=True, exist_ok=True)
    options: ServerOptions = {"store_dir": folder, "host": host}
    if port:
        options["port"] = port
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with run_server(**options) as running:
        if output.json:
            console.print_json(
                {
                    "url": running.url,
                    "monitor": running.monitor_url,
                    "version": running.version,
                    "store": str(folder.absolute()),
                    "pid": running.pid,
                }
            )
        else:
            console.say(
                f"nats-server {running.version} on {running.url}, data in {folder}\n"
                f"use it: export NATS_URL={running.url}\nCtrl-C stops it"
            )
        while not ended.wait(0.5):
            if not running.running:
                raise CommandError(f"nats-server ended by itself:\n{running.log()[-2000:]}")
