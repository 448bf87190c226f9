"""One logical connection over many sockets: connect, write, ping, reconnect, close.

What the application sees (publish, subscriptions, requests) is built on top of it in `client.py`,
which is its `Owner`. This class owns the socket, the encoder's output and the reconnect task.

Writes are coalesced: all frames that one turn of the event loop adds to the encoder leave in one
system call. So do those of the tasks that one read brings answers for, without waiting for a turn.
"""

from __future__ import annotations

import asyncio
import copy
import enum
import random
from collections import deque
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from jetspark.errors import (
    ConnectionClosedError,
    ConnectionError,
    DisconnectedError,
    JetSparkError,
    NoServersError,
    StaleConnectionError,
    TimeoutError,
)
from jetspark.protocol import Encoder, ErrorReply, Event, MessageBatch, Op, ServerInfo

from .backoff import Backoff
from .deadline import deadline
from .events import ConnectionEvent, EventHub, EventKind
from .handshake import connect_server
from .link import Link
from .lookout import Lookout
from .options import ConnectOptions
from .pool import Server, ServerPool
from .server_errors import closes_connection, error_from_text, refused_sid
from .waiter import Waiter, finished, go_on

__all__ = ["Connection", "ConnectionState", "Owner", "Statistics", "copy_error"]

KEEPALIVE = 0.5  # seconds between two signs of life while reading is paused
SHORT_LIFE = 1.0  # a connection lost sooner makes us wait like a failed attempt, or we would spin

E = TypeVar("E", bound=BaseException)


class ConnectionState(enum.Enum):
    """Where a connection is in its life."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    RECONNECTING = "reconnecting"
    DRAINING = "draining"
    CLOSED = "closed"


# State changes go through this table, see Connection._move.
_MOVES = {
    ConnectionState.CONNECTING: {
        ConnectionState.CONNECTED,
        ConnectionState.RECONNECTING,
        ConnectionState.CLOSED,
    },
    ConnectionState.CONNECTED: {ConnectionState.RECONNECTING, ConnectionState.CLOSED},
    ConnectionState.RECONNECTING: {ConnectionState.CONNECTED, ConnectionState.CLOSED},
    ConnectionState.CLOSED: set[ConnectionState](),
}


@dataclass(slots=True)
class Statistics:
    """Counters over the whole life of a client, reconnects included."""

    messages_in: int = 0
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    connects: int = 0
    reconnects: int = 0
    dropped: int = 0
    """Messages dropped because a subscription was full."""
    errors: int = 0
    """Errors that no call waited for."""


class Owner(Protocol):
    """What the connection asks of the client."""

    def on_batch(self, batch: MessageBatch) -> None:
        """Messages arrived."""

    def on_server_error(self, error: ConnectionError, sid: int | None) -> None:
        """The server complained, perhaps about one subscription, and goes on."""

    def on_disconnected(self, error: ConnectionError) -> None:
        """The connection is lost."""

    def on_closed(self, error: BaseException | None) -> None:
        """The connection will never come back."""

    def restore(self) -> None:
        """Add to the encoder what a new server must know."""


class Connection:
    """Keeps one connection alive until it is closed."""

    def __init__(self, options: ConnectOptions, owner: Owner) -> None:
        self.options = options
        self.state = ConnectionState.CONNECTING
        self.encoder = Encoder(
            max_control_line=options.max_control_line, on_output=self._schedule_write
        )
        self.events = EventHub(options.on_event)
        self.statistics = Statistics()
        self.server_info: ServerInfo | None = None
        self.last_error: BaseException | None = None
        self.answered: list[Waiter] = []  # by the read that is processed, and not woken yet
        self._waking = False  # them; what they send is written afterwards
        self._loop = asyncio.get_running_loop()
        self._done = finished(self._loop)
        self._lookout = Lookout(self._loop, options.busy_poll)
        self._owner = owner
        self._random = random.Random()
        self._authenticator = options.authenticator()
        self.pool = ServerPool(
            options.urls(),
            randomize=options.randomize_servers,
            ignore_discovered=options.ignore_discovered_servers,
            max_attempts=options.max_reconnect_attempts,
            rng=self._random,
        )
        self._link: Link | None = None
        self._server: Server | None = None
        self._connected_at = 0.0
        self._task: asyncio.Task[None] | None = None  # reconnects, or moves to another server
        self._ping_timer: asyncio.TimerHandle | None = None
        self._keepalive_timer: asyncio.TimerHandle | None = None
        self._pings_out = 0
        self._received = 0  # bytes, when the last ping was sent
        self._pongs: deque[asyncio.Future[None] | None] = deque()  # a PING each, in order
        self._room_waiters: list[asyncio.Future[None]] = []
        self._state_waiters: list[asyncio.Future[None]] = []
        self._closing: list[Link] = []  # links given up whose sockets are not gone yet

    # -- state ----------------------------------------------------------------------------------

    def _move(self, state: ConnectionState) -> None:
        assert state in _MOVES[self.state], f"{self.state} -> {state}"
        self.state = state
        _resolve(self._state_waiters)

    @property
    def server(self) -> str | None:
        """The URL of the server in use."""
        return str(self._link.url) if self._link is not None else None

    def closed_error(self) -> ConnectionClosedError:
        """What to raise when somebody uses a closed connection."""
        if self.last_error is None:
            return ConnectionClosedError("the connection is closed")
        error = ConnectionClosedError(f"the connection is closed: {self.last_error}")
        error.__cause__ = self.last_error
        return error

    def report(self, error: BaseException) -> None:
        """Tell of an error that no call waits for."""
        self.statistics.errors += 1
        self.events.emit(ConnectionEvent(EventKind.ERROR, self.server, error))

    # -- connecting -----------------------------------------------------------------------------

    async def connect(self) -> None:
        """Try each server once; raise if none can be connected to."""
        failures: list[tuple[Server, JetSparkError]] = []
        for _ in range(len(self.pool)):
            server = self.pool.next()
            assert server is not None
            try:
                link, info = await connect_server(server, self.options, self._authenticator)
            except (ConnectionError, TimeoutError) as error:
                server.last_error = error
                failures.append((server, error))
            else:
                self._adopt(link, info, server)
                return
        failure = _all_failed(failures)
        if self.options.retry_initial_connect and failure.retryable:
            self.report(failure)
            self._move(ConnectionState.RECONNECTING)
            for server, _ in failures:
                server.attempts = 1
            self._start_reconnecting()
            return
        self.last_error = failure
        self._move(ConnectionState.CLOSED)
        raise failure

    def _adopt(self, link: Link, info: ServerInfo, server: Server) -> None:
        """Use a link that is ready."""
        again = self.statistics.connects > 0
        self.statistics.connects += 1
        self.statistics.reconnects += again
        self._link, self._server = link, server
        self._connected_at = self._loop.time()
        self._pings_out = 0
        self.pool.mark_connected(server)
        self.server_info = info
        if self.state is not ConnectionState.CONNECTED:
            self._move(ConnectionState.CONNECTED)
        published = self.encoder.take()
        self._owner.restore()
        if restored := self.encoder.take():
            link.write(restored)
        if published:
            link.write(published)
        self._start_ping_timer()
        self.events.emit(ConnectionEvent(EventKind.CONNECTED, str(link.url), reconnect=again))
        self._take_info(info)
        link.adopt(on_events=self._on_events, on_lost=self._on_lost, on_writable=self._on_writable)

    async def _reconnect(self) -> None:
        attempt = 0
        last: BaseException | None = self.last_error
        await self._close_retired()  # what was published before goes before what comes now
        while True:
            server = self.pool.next()
            if server is None:
                self._give_up(last)
                return
            if (delay := self._delay(server.attempts + server.short_lives)) > 0:
                await asyncio.sleep(delay)
            attempt += 1
            self.events.emit(
                ConnectionEvent(EventKind.RECONNECTING, str(server.url), attempt=attempt)
            )
            try:
                link, info = await connect_server(server, self.options, self._authenticator)
            except JetSparkError as error:
                last = error
                self.report(error)
                self.pool.mark_failed(server, error)
            else:
                self._task = None
                self._adopt(link, info, server)
                return

    def _delay(self, attempts: int) -> float:
        policy = self.options.reconnect_delay
        if not isinstance(policy, Backoff):
            try:
                return float(policy(attempts)) if attempts else 0.0
            except Exception as error:  # it must not end the reconnecting
                self.report(error)
                policy = Backoff()
        return policy.delay(attempts, self._random.random())

    def _give_up(self, last: BaseException | None) -> None:
        error = NoServersError(f"gave up reconnecting, no server is left; the last error: {last}")
        error.__cause__ = last
        self._task = None
        self._end(error)

    # -- what arrives ---------------------------------------------------------------------------

    def _on_events(self, events: list[Event]) -> None:
        try:
            for event in events:
                if type(event) is MessageBatch:
                    self.statistics.messages_in += len(event.frames)
                    self._owner.on_batch(event)
                elif event is Op.PING:
                    self.encoder.pong()
                elif event is Op.PONG:
                    self._on_pong()
                elif isinstance(event, ServerInfo):
                    self._take_info(event)
                elif isinstance(event, ErrorReply):
                    self._on_error_reply(event.text)
        finally:
            if self.answered:
                self._wake_answered()

    def _wake_answered(self) -> None:
        """Let the tasks go on whose answers have come, and write what they send next.

        At once: a turn of the loop for the tasks and one more for the write would take longer than
        all the rest of a request.
        """
        answered, self.answered = self.answered, []
        self._waking = True
        try:
            go_on(answered, self._done)
        finally:
            self._waking = False
            self.write_now()
            if answered[-1].in_bursts:
                self._lookout.acknowledged(len(answered))

    def _on_pong(self) -> None:
        self._pings_out = 0
        if self._pongs:
            waiter = self._pongs.popleft()
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

    def _on_error_reply(self, text: str) -> None:
        error = error_from_text(text, self.server)
        if closes_connection(text):
            if self._link is not None:
                self._link.abort(error)
        else:
            self._owner.on_server_error(error, refused_sid(text))
            self.report(error)

    def _take_info(self, info: ServerInfo) -> None:
        self.server_info = info
        self.encoder.max_payload = info.max_payload
        server = self._server
        assert server is not None
        # To a client on WebSocket they are those of the WebSocket ports (2.10 to 2.15).
        new = self.pool.merge_discovered(
            info.connect_urls or (),
            scheme=server.url.scheme,
            tls_host=server.tls_name or server.url.host,
        )
        if new:
            names = tuple(str(url) for url in new)
            self.events.emit(ConnectionEvent(EventKind.DISCOVERED, self.server, servers=names))
        if info.ldm:
            self._on_lame_duck(server)

    def _on_lame_duck(self, server: Server) -> None:
        self.events.emit(ConnectionEvent(EventKind.LAME_DUCK, self.server))
        self.pool.defer(server)
        if self._task is None and self.options.allow_reconnect and len(self.pool) > 1:
            self._task = self._loop.create_task(self._leave(server), name="jetspark lame duck")
            self._task.add_done_callback(self._on_left)

    async def _leave(self, leaving: Server) -> None:
        """Move to another server while this one still works; stay if none can be reached."""
        for candidate in self.pool.servers:
            if candidate is leaving:
                continue
            try:
                link, info = await connect_server(candidate, self.options, self._authenticator)
            except JetSparkError as error:
                candidate.last_error = error
                continue
            try:
                await self.flush(timeout=self.options.connect_timeout)
            except JetSparkError:  # it does not answer any more; the pings will show that
                link.abort()
                return
            except asyncio.CancelledError:  # lost or closed meanwhile
                link.abort()
                raise
            self._switch(link, info, candidate)
            await self._close_retired()
            return

    def _on_left(self, _: asyncio.Task[None]) -> None:
        self._task = None
        if self.state is ConnectionState.RECONNECTING:
            self._start_reconnecting()

    def _switch(self, link: Link, info: ServerInfo, server: Server) -> None:
        old = self._link
        assert old is not None
        self._retire(old)
        self._detach(old, DisconnectedError(f"moved away from {old.url}, a lame duck"))
        self._adopt(link, info, server)

    # -- losing the connection ------------------------------------------------------------------

    def _on_lost(self, link: Link) -> None:
        self._count_bytes(link)
        if link in self._closing:
            self._closing.remove(link)
        if link is not self._link:
            return
        cause = link.error
        if isinstance(cause, ConnectionError):
            error = cause
        else:
            reason = str(cause) if cause is not None else "the server closed it"
            error = DisconnectedError(f"lost the connection to {link.url}: {reason}")
            error.__cause__ = cause
        if self._server is not None:
            short = self._loop.time() - self._connected_at < SHORT_LIFE
            self._server.short_lives = self._server.short_lives + 1 if short else 0
        self._detach(link, error)
        if not self.options.allow_reconnect:
            self._end(error)
            return
        self._start_reconnecting()

    def _start_reconnecting(self) -> None:
        if self._task is None:
            self._task = self._loop.create_task(self._reconnect(), name="jetspark reconnect")
        else:
            self._task.cancel()  # it leaves a lame duck; _on_left comes back here

    def _detach(self, link: Link, error: ConnectionError) -> None:
        """Stop using a link and tell everybody who waits for something from it."""
        self._link = None
        self.last_error = error
        self._move(ConnectionState.RECONNECTING)
        self.encoder.drop_control_frames()
        self._stop_timers()
        lost = error
        if not isinstance(error, DisconnectedError):
            lost = DisconnectedError(f"lost the connection to {link.url}: {error}")
            lost.__cause__ = error
        self._fail_pongs(lost)
        _resolve(self._room_waiters)
        self._owner.on_disconnected(lost)
        self.events.emit(ConnectionEvent(EventKind.DISCONNECTED, str(link.url), error))

    def _retire(self, link: Link) -> None:
        """Have a link closed; whoever calls this sees to it that `_close_retired` follows."""
        self._closing.append(link)
        link.retire(len(self._pongs))

    async def _close_retired(self) -> None:
        for link in list(self._closing):
            await link.close()

    def _count_bytes(self, link: Link) -> None:
        self.statistics.bytes_in += link.bytes_in
        self.statistics.bytes_out += link.bytes_out
        link.bytes_in = link.bytes_out = 0

    def current_statistics(self) -> Statistics:
        """The counters as of now."""
        if self._link is not None:
            self._count_bytes(self._link)
        self.statistics.messages_out = self.encoder.messages
        return replace(self.statistics)

    def _fail_pongs(self, error: ConnectionError) -> None:
        pongs, self._pongs = self._pongs, deque()
        for waiter in pongs:
            if waiter is not None and not waiter.done():
                waiter.set_exception(copy_error(error))

    async def force_reconnect(self) -> None:
        """Give up the server in use and connect again, to another one if there is one."""
        if self.state is ConnectionState.CLOSED:
            raise self.closed_error()
        link = self._link
        if link is None:
            return
        self._retire(link)
        self._detach(link, DisconnectedError(f"left {link.url} on request"))
        self._start_reconnecting()

    # -- pings ----------------------------------------------------------------------------------

    def _start_ping_timer(self) -> None:
        self._stop_timers()
        self._ping_timer = self._loop.call_later(self.options.ping_interval, self._on_ping_timer)

    def _stop_timers(self) -> None:
        for timer in (self._ping_timer, self._keepalive_timer):
            if timer is not None:
                timer.cancel()
        self._ping_timer = self._keepalive_timer = None

    def _on_ping_timer(self) -> None:
        link = self._link
        if link is None:
            return
        if self._keepalive_timer is None:  # while we do not read, no PONG can be seen
            received = self.statistics.bytes_in + link.bytes_in
            if received != self._received:  # it lives, if its PONG is stuck behind much else
                self._received = received
                self._pings_out = 0
            if self._pings_out >= self.options.max_outstanding_pings:
                link.abort(
                    StaleConnectionError(
                        f"{link.url} did not answer {self._pings_out} pings in "
                        f"{self._pings_out * self.options.ping_interval:g} s",
                        server=str(link.url),
                    )
                )
                return
            self._pings_out += 1
            self._send_ping(None)
        self._ping_timer = self._loop.call_later(self.options.ping_interval, self._on_ping_timer)

    def _send_ping(self, waiter: asyncio.Future[None] | None) -> None:
        self._pongs.append(waiter)
        self.encoder.ping()

    async def flush(self, timeout: float | None) -> None:
        """Wait until the server has processed everything that was sent before."""
        async with deadline(timeout, "flush: no answer from the server"):
            await self.wait_connected()
            waiter = self._loop.create_future()
            self._send_ping(waiter)
            await waiter

    async def wait_connected(self) -> None:
        """Wait for the end of a reconnect; raise if the connection is closed."""
        while self.state is not ConnectionState.CONNECTED:
            if self.state is ConnectionState.CLOSED:
                raise self.closed_error()
            await self._wait_in(self._state_waiters)

    async def _wait_in(self, waiters: list[asyncio.Future[None]]) -> None:
        waiter = self._loop.create_future()
        waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in waiters:
                waiters.remove(waiter)

    # -- reading --------------------------------------------------------------------------------

    def pause_reading(self) -> None:
        """Stop reading until `resume_reading`, and show the server that we live."""
        if self._link is not None and self._keepalive_timer is None:
            self._link.pause_reading()
            self._keepalive()

    def _keepalive(self) -> None:
        # An unasked PONG tells the server what an answer to its PING would, which we cannot read.
        self.encoder.pong()
        self._keepalive_timer = self._loop.call_later(KEEPALIVE, self._keepalive)

    def resume_reading(self) -> None:
        """Go on reading."""
        if self._keepalive_timer is not None:
            self._keepalive_timer.cancel()
            self._keepalive_timer = None
            if self._link is not None:
                self._link.resume_reading()

    # -- writing --------------------------------------------------------------------------------

    def _schedule_write(self) -> None:
        """Have the encoder's frames written at the end of this turn of the loop."""
        if not self._waking:
            self._loop.call_soon(self.write_now)

    def write_now(self) -> None:
        """Write the encoder's frames without waiting for the end of the turn."""
        link = self._link
        if link is not None and not link.write_paused and self.encoder.pieces:
            link.write(self.encoder.take())

    def _on_writable(self) -> None:
        self.write_now()
        if self._link is None or not self._link.write_paused:
            _resolve(self._room_waiters)

    async def make_room(self) -> None:
        """Write a large output now, and wait while the socket takes no more.

        Also lets other tasks run: a loop that only publishes would otherwise never yield.
        """
        self.write_now()
        if self._link is not None and self._link.write_paused:
            await self._wait_in(self._room_waiters)
            if self.state is ConnectionState.CLOSED:
                raise self.closed_error()
        else:
            await asyncio.sleep(0)

    # -- the end --------------------------------------------------------------------------------

    def _end(self, error: BaseException | None) -> None:
        if self.state is ConnectionState.CLOSED:
            return
        self.last_error = error
        self._move(ConnectionState.CLOSED)
        self._stop_timers()
        if (link := self._link) is not None:
            self._link = None
            self._retire(link)
        self._fail_pongs(self.closed_error())
        _resolve(self._room_waiters)
        self._owner.on_closed(error)
        if link is not None:
            self.events.emit(ConnectionEvent(EventKind.DISCONNECTED, str(link.url)))
        self.events.emit(ConnectionEvent(EventKind.CLOSED, error=error))

    async def close(self) -> None:
        """Write what is buffered and close; all tasks and sockets are gone afterwards."""
        if self._link is not None and self.encoder.pieces:
            self._link.write(self.encoder.take())
        self._end(None)
        try:
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait([self._task])
            await self._close_retired()
        finally:
            for link in list(self._closing):
                link.abort()


def _resolve(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
    waiters.clear()


def copy_error(error: E) -> E:
    """An exception of its own for each waiter, so that tracebacks do not grow into each other."""
    copied = copy.copy(error)
    copied.__cause__ = error.__cause__
    return copied


def _all_failed(failures: list[tuple[Server, JetSparkError]]) -> JetSparkError:
    """The one error to raise: the common one, or a summary."""
    last = failures[-1][1]
    if len({type(error) for _, error in failures}) == 1:
        return last
    lines = "; ".join(f"{server.url}: {error}" for server, error in failures)
    summary = NoServersError(f"none of {len(failures)} servers could be connected to: {lines}")
    summary.__cause__ = last
    return summary
