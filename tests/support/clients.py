"""Fixtures and helpers for tests that use the client against a real server."""

from __future__ import annotations

import asyncio
import inspect
import json
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import pytest_asyncio

import jetspark
from jetspark import Client, ConnectionEvent, EventKind
from jetspark.connection.nuid import next_nuid
from jetspark.server import NatsServer


class Connect(Protocol):
    """The type of the fixture `connect`."""

    async def __call__(self, servers: Any = None, **options: Any) -> Client: ...


@pytest_asyncio.fixture
async def connect() -> AsyncIterator[Connect]:
    """`jetspark.connect`, whose clients are closed at the end of the test."""
    clients: list[Client] = []

    async def connect(servers: Any = None, **options: Any) -> Client:
        client = await jetspark.connect(servers, **options)
        clients.append(client)
        return client

    yield connect
    for client in clients:
        await client.close()


def unique(prefix: str = "t") -> str:
    """A subject that no other test uses."""
    return f"{prefix}.{next_nuid()}"


class Events:
    """Records the events of a client: `connect(..., on_event=events)`."""

    def __init__(self) -> None:
        self.seen: list[ConnectionEvent] = []

    def __call__(self, event: ConnectionEvent) -> None:
        self.seen.append(event)

    @property
    def kinds(self) -> list[EventKind]:
        return [event.kind for event in self.seen]

    @property
    def errors(self) -> list[BaseException | None]:
        return [event.error for event in self.seen if event.kind is EventKind.ERROR]

    async def wait(self, kind: EventKind, count: int = 1) -> ConnectionEvent:
        """Wait for an event of a kind, the first or a later one."""

        def found() -> list[ConnectionEvent]:
            return [event for event in self.seen if event.kind is kind]

        await eventually(lambda: len(found()) >= count)
        return found()[count - 1]


async def eventually(
    condition: Callable[[], object | Awaitable[object]], timeout: float = 10.0
) -> None:
    """Wait until a condition, plain or async, holds; fail if it does not in time."""
    async with asyncio.timeout(timeout):
        while True:
            result = condition()
            if await result if inspect.isawaitable(result) else result:
                return
            await asyncio.sleep(0.005)


async def monitor(server: NatsServer, path: str) -> Any:
    """What the monitoring port answers, for example to `/connz`."""

    def get() -> Any:
        with urllib.request.urlopen(server.monitor_url + path, timeout=5) as answer:
            return json.load(answer)

    return await asyncio.to_thread(get)
