"""What a connection tells about itself: events, for callbacks and for iteration."""

from __future__ import annotations

import asyncio
import enum
import logging
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

__all__ = ["ConnectionEvent", "EventHub", "EventKind"]

log = logging.getLogger("jetspark")


class EventKind(enum.Enum):
    """What happened."""

    CONNECTED = "connected"
    """A server was connected to, for the first time or again (`reconnect` tells which)."""
    DISCONNECTED = "disconnected"
    """The connection was lost (`error` says why) or given up."""
    RECONNECTING = "reconnecting"
    """An attempt on `server` begins; `attempt` counts since the connection was lost."""
    LAME_DUCK = "lame duck"
    """The server is about to shut down; the client moves to another one if it knows one."""
    DISCOVERED = "discovered"
    """The cluster announced `servers` that were not known."""
    ERROR = "error"
    """Something failed that no call waits for: see `error`."""
    CLOSED = "closed"
    """The client is closed for good; `error` says why if it was not asked to."""


@dataclass(frozen=True, slots=True)
class ConnectionEvent:
    """One event of a connection."""

    kind: EventKind
    server: str | None = None
    error: BaseException | None = None
    servers: tuple[str, ...] = ()
    attempt: int = 0
    reconnect: bool = False

    def __str__(self) -> str:
        parts = [self.kind.value]
        if self.reconnect:
            parts.append("again")
        if self.server:
            parts.append(self.server)
        if self.attempt:
            parts.append(f"attempt {self.attempt}")
        if self.servers:
            parts.append(", ".join(self.servers))
        if self.error is not None:
            parts.append(f"{type(self.error).__name__}: {self.error}")
        return " | ".join(parts)


class EventHub:
    """Hands each event to the log, to the callback and to everybody who iterates."""

    BACKLOG = 1024  # events kept for a slow reader; then the oldest go

    def __init__(self, callback: Callable[[ConnectionEvent], object] | None) -> None:
        self._callback = callback
        self._readers: weakref.WeakSet[_Reader] = weakref.WeakSet()
        self._closed = False

    def emit(self, event: ConnectionEvent) -> None:
        """Publish an event; whatever a callback raises is logged, never thrown at the caller."""
        troubled = event.error is not None
        log.log(logging.WARNING if troubled else logging.DEBUG, "%s", event)
        if self._callback is not None:
            try:
                self._callback(event)
            except Exception:
                log.exception("the event callback failed on: %s", event)
        for reader in self._readers:
            reader.push(event)
        if event.kind is EventKind.CLOSED:
            self._closed = True

    def iterate(self) -> AsyncIterator[ConnectionEvent]:
        """Iterate over the events from now on, until the connection is closed."""
        reader = _Reader(self.BACKLOG, ended=self._closed)
        self._readers.add(reader)
        return reader


class _Reader:
    """The events for one iteration, which begins with the call, not with the first step."""

    def __init__(self, backlog: int, *, ended: bool) -> None:
        self._events: deque[ConnectionEvent] = deque(maxlen=backlog)
        self._arrived = asyncio.Event()
        self._ended = ended

    def push(self, event: ConnectionEvent) -> None:
        self._events.append(event)
        self._ended = self._ended or event.kind is EventKind.CLOSED
        self._arrived.set()

    def __aiter__(self) -> AsyncIterator[ConnectionEvent]:
        return self

    async def __anext__(self) -> ConnectionEvent:
        while not self._events:
            if self._ended:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        return self._events.popleft()
