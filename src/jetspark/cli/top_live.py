"""The loop of `jetspark top`: one look after the other, on a screen that keys and signals end."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.live import Live

import jetspark
from jetspark.cli import console
from jetspark.cli.top_collect import Collector
from jetspark.cli.top_view import Picture, picture, render

if TYPE_CHECKING:
    from jetspark.cli.target import Target

__all__ = ["look", "watch"]


async def look(target: Target, stream: str | None, interval: float) -> Picture:
    """One picture, with the rates of an interval."""
    async with await jetspark.connect(**target.connect_options) as client:
        collector = Collector(client, target, stream)
        before = await collector.collect()
        await asyncio.sleep(interval)
        return picture(await collector.collect(), before)


async def watch(target: Target, stream: str | None, interval: float) -> None:
    """Show one picture after the other, until the user leaves."""
    options = {**target.connect_options, "max_reconnect_attempts": None}
    leave = asyncio.Event()
    async with await jetspark.connect(**options) as client:
        collector = Collector(client, target, stream)
        screen = console.out()
        shown = picture(await collector.look(None))
        hint = f"every {interval:g} s, q leaves"
        with (
            Live(console=screen, screen=True, auto_refresh=False) as view,
            _keys({"q": leave.set, "Q": leave.set}),
            _signals(leave.set),
        ):
            while not leave.is_set():
                view.update(render(shown, height=screen.height, hint=hint), refresh=True)
                try:
                    await asyncio.wait_for(leave.wait(), interval)
                except TimeoutError:
                    before = shown.moment
                    shown = picture(await collector.look(before), before)


@contextmanager
def _keys(actions: dict[str, Callable[[], None]]) -> Iterator[None]:
    """Call a function when its key is pressed."""
    import termios
    import tty

    loop, number = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(number)
    tty.setcbreak(number)

    def pressed() -> None:
        for key in sys.stdin.read(1):
            actions.get(key, lambda: None)()

    loop.add_reader(number, pressed)
    try:
        yield
    finally:
        loop.remove_reader(number)
        termios.tcsetattr(number, termios.TCSADRAIN, before)


@contextmanager
def _signals(action: Callable[[], None]) -> Iterator[None]:
    """Call a function for Ctrl-C and SIGTERM."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, action)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
