"""Watches clients in trouble: what they tell, and that they leave nothing behind.

`no_leaks` holds for everything that runs inside it: sockets, tasks, transports and exceptions that
nobody looked at. `assert_client_gone` is stricter and holds at once, right after a `close`.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from jetspark import Client, ConnectionEvent, EventKind
from jetspark.connection.link import Link
from jetspark.connection.websocket import WebSocketLayer
from tests.support.clients import Events, eventually

__all__ = ["GUARD", "EventLog", "assert_client_gone", "no_leaks", "open_links", "until"]

GUARD: Final = 20.0
"""Seconds after which a wait is given up: only a test that fails ever waits that long."""

_DESCRIPTORS = Path("/proc/self/fd")


class EventLog(Events):
    """The `on_event` of a client; lets a test look at the events of one kind."""

    def of(self, kind: EventKind) -> list[ConnectionEvent]:
        return [event for event in self.seen if event.kind is kind]


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds that nothing announces."""
    await eventually(condition, timeout=GUARD)


def open_links() -> list[Link]:
    """All links of all clients whose transport has not been closed."""
    # The collector knows the objects of this process; asyncio has no list of its transports.
    return [found for found in gc.get_objects() if type(found) is Link and _is_open(found)]


def _is_open(link: Link) -> bool:
    transport: object = link._transport
    if isinstance(transport, WebSocketLayer):
        transport = transport._transport
    # A link that was given up in a TLS handshake is never told of its end.
    return isinstance(transport, asyncio.Transport) and not (link.closed or transport.is_closing())


def _owner(link: Link) -> object:
    """The connection that a link belongs to; None while it is in its handshake."""
    return getattr(link._on_lost, "__self__", None)


def assert_client_gone(client: Client) -> None:
    """Assert that a closed client has no task, link or waiting future left, without any wait."""
    assert client.closed
    tasks = [task for task in asyncio.all_tasks() if task.get_name().startswith("jetspark ")]
    tasks = [task for task in tasks if task is not asyncio.current_task()]
    assert not tasks, f"tasks outlive the client: {tasks}"
    connection = client._connection
    links = [link for link in open_links() if _owner(link) in (connection, None)]
    assert not links, f"links outlive the client: {[str(link.url) for link in links]}"
    timers = (connection._ping_timer, connection._keepalive_timer)
    assert timers == (None, None)
    waiters = (connection._room_waiters, connection._state_waiters, list(connection._pongs))
    assert waiters == ([], [], [])


@asynccontextmanager
async def no_leaks() -> AsyncIterator[None]:
    """Fail if sockets or tasks are left, or if an exception went unseen, at the end of the block.

    Both ends of a connection through a proxy live in this process, and the far end may close a
    moment later: that is waited for.
    """
    loop = asyncio.get_running_loop()
    unseen: list[dict[str, Any]] = []
    handler = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: unseen.append(context))
    sockets, tasks, before = _open_sockets(), asyncio.all_tasks(), open_links()
    try:
        yield
        try:
            await until(lambda: _open_sockets() <= sockets)
        except TimeoutError:
            raise AssertionError(f"sockets left: {_open_sockets() - sockets}") from None
        left = asyncio.all_tasks() - tasks - {asyncio.current_task()}
        assert not left, f"tasks left: {left}"
        links = [link for link in open_links() if link not in before]
        assert not links, f"links left: {[str(link.url) for link in links]}"
        gc.collect()  # an exception that nobody looked at is reported when its future goes
        await asyncio.sleep(0)
        assert not unseen, f"exceptions that nobody saw: {unseen}"
    finally:
        loop.set_exception_handler(handler)


def _open_sockets() -> set[str]:
    found = set()
    for descriptor in _DESCRIPTORS.iterdir():
        try:
            target = os.readlink(descriptor)
        except FileNotFoundError:
            continue  # the one that lists the directory
        if target.startswith("socket:"):
            found.add(target)
    return found
