"""The client: publish, subscribe, request, and the life of the connection below them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from types import TracebackType
from typing import Any, NoReturn, ParamSpec, Protocol, Self, TypeVar
from weakref import WeakSet

from jetspark.errors import (
    ConnectionDrainingError,
    ConnectionError,
    DisconnectedError,
    PermissionsError,
    ReconnectBufferFullError,
)
from jetspark.protocol import FULL_PIECES, HeadersLike, MessageBatch, Payload, ServerInfo

from .connection import Connection, ConnectionState, Statistics
from .deadline import deadline
from .events import ConnectionEvent
from .message import Message
from .nuid import next_nuid
from .options import ConnectOptions
from .requests import RequestMux
from .subscription import MessageCallback, Route, Subscription

__all__ = ["Client", "connector"]

P = ParamSpec("P")
C = TypeVar("C", bound="Client")


class Guest(Protocol):
    """What has something on the server that shall not outlive the client."""

    def leave(self) -> None:
        """Have it removed, without waiting; the connection still stands, or has been lost."""


class Client:
    """A connection to a NATS system, made by `connect`.

    It survives the loss of servers: subscriptions are restored, and what is published meanwhile is
    kept (up to `reconnect_buffer_size`) and sent afterwards.
    """

    def __init__(self, options: ConnectOptions) -> None:
        self._connection = Connection(options, self)
        self._encoder = encoder = self._connection.encoder
        self._sizes, self._pieces = encoder.sizes, encoder.pieces
        self._options = options
        self._routes: dict[int, Route] = {}
        self._last_sid = 0
        self._mux: RequestMux | None = None
        self._callback_tasks: set[asyncio.Task[None]] = set()
        self._guests: WeakSet[Guest] = WeakSet()  # those with something to tidy up on the server
        self._held = 0  # bytes that wait in all subscriptions
        self._draining = False
        self._drained = False  # callbacks have had their last say
        self._restrict(True)

    # -- publishing -----------------------------------------------------------------------------

    async def publish(
        self,
        subject: str,
        data: Payload = b"",
        *,
        headers: HeadersLike | None = None,
        reply: str | None = None,
    ) -> None:
        """Publish a message.

        Returns when the message is on its way, not when the server has it; `flush` waits for that.
        Waits while the server does not keep up.
        """
        # First wait, then add: a publish that is cancelled while it waits was not taken.
        pieces = self._pieces
        if len(pieces) > FULL_PIECES:
            await self._connection.make_room()
        # The short cut of Encoder.publish, without the cost of a call. While publishing is
        # restricted, _prefixes is empty and nobody gets through here.
        if (headers or reply) is None and type(data) is bytes:
            try:
                frame = (self._prefixes[subject], self._sizes[len(data)], data)
            except (KeyError, TypeError):
                pass
            else:
                if not pieces:
                    self._encoder.on_output()
                pieces += frame
                return
        if self._encoder.is_full():
            await self._connection.make_room()
        if self._restricted:
            self._check_publish(len(data))
        self._encoder.publish(subject, data, reply, headers)

    def _restrict(self, restricted: bool) -> None:
        """Have publishing look closer: the client is not connected, or draining."""
        self._restricted = restricted
        self._prefixes = {} if restricted else self._encoder.prefixes

    def _check_publish(self, size: int) -> None:
        connection = self._connection
        if connection.state is ConnectionState.CLOSED:
            raise connection.closed_error()
        if self._drained:
            raise ConnectionDrainingError("the connection is draining and takes no more messages")
        limit = self._options.reconnect_buffer_size
        if self._encoder.size + size >= limit:  # the frame around it has some bytes, too
            raise ReconnectBufferFullError(
                f"not connected, and the {limit} bytes for messages published meanwhile are "
                "used up; the message was not taken (see reconnect_buffer_size)"
            )

    async def flush(self, timeout: float | None = 10.0) -> None:
        """Wait until the server has processed everything published and subscribed before."""
        await self._connection.flush(timeout)

    async def rtt(self, timeout: float | None = 10.0) -> float:
        """The time in seconds to the server and back."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        await self._connection.flush(timeout)
        return loop.time() - start

    # -- subscribing ----------------------------------------------------------------------------

    async def subscribe(
        self,
        subject: str,
        *,
        queue: str | None = None,
        callback: MessageCallback | None = None,
        pending_messages: int | None = None,
        pending_bytes: int | None = None,
    ) -> Subscription:
        """Subscribe to a subject, which may have wildcards.

        Each message goes to one member of a `queue` only. Without a callback, iterate over the
        subscription or call its `next`. The limits default to those of the connection.
        """
        self._check_open()
        self._encoder.subscribe_frame(subject, 0, queue)  # refuses what cannot be subscribed to
        options = self._options
        subscription = Subscription(
            self,
            subject,
            queue,
            callback=callback,
            pending_messages=(
                options.pending_messages if pending_messages is None else pending_messages
            ),
            pending_bytes=options.pending_bytes if pending_bytes is None else pending_bytes,
        )
        self._add_route(subscription)
        if (task := subscription._task) is not None:
            self._own(task)
        return subscription

    def _own(self, task: asyncio.Task[None]) -> None:
        """Have a task that calls callbacks ended together with the client."""
        self._callback_tasks.add(task)
        task.add_done_callback(self._callback_tasks.discard)

    def _add_route(self, route: Route) -> None:
        self._last_sid += 1
        route.sid = self._last_sid
        self._routes[route.sid] = route
        if self._connected:
            self._encoder.subscribe(route.subject, route.sid, route.queue)

    def _auto_unsubscribe(self, route: Route, limit: int) -> None:
        route.limit = limit
        if route.received >= limit:
            self._unsubscribe(route)
        elif self._connected and route.sid in self._routes:
            self._encoder.unsubscribe(route.sid, limit - route.received_before)

    def _stop_sending(self, route: Route) -> None:
        """Have the server stop; what is on its way still arrives."""
        route.stopped = True
        if self._connected:
            self._encoder.unsubscribe(route.sid)

    def _unsubscribe(self, route: Route) -> None:
        if self._routes.pop(route.sid, None) is None:
            return
        if not route.stopped:
            self._stop_sending(route)
        route.end(None)

    @property
    def _connected(self) -> bool:
        return self._connection.state is ConnectionState.CONNECTED

    # -- requests -------------------------------------------------------------------------------

    async def request(
        self,
        subject: str,
        data: Payload = b"",
        *,
        timeout: float = 5.0,
        headers: HeadersLike | None = None,
    ) -> Message:
        """Send a request and return the first answer.

        Raises `NoRespondersError` at once when nobody listens, `TimeoutError` when nobody answers
        in time.
        """
        return await self._requests().request(subject, data, headers, timeout)

    def request_many(
        self,
        subject: str,
        data: Payload = b"",
        *,
        timeout: float = 5.0,
        max_messages: int | None = None,
        stall: float | None = None,
        sentinel: Callable[[Message], bool] | None = None,
        headers: HeadersLike | None = None,
    ) -> AsyncIterator[Message]:
        """Send a request and iterate over all answers.

        It ends after `timeout` seconds in all, after `max_messages`, when no answer came for
        `stall` seconds after the one before, or with the answer for which `sentinel` is true
        (which is not yielded), whichever comes first.
        """
        return self._requests().request_many(
            subject,
            data,
            headers,
            timeout=timeout,
            max_messages=max_messages,
            stall=stall,
            sentinel=sentinel,
        )

    def _requests(self) -> RequestMux:
        if self._mux is None:
            if self.closed:
                raise self._connection.closed_error()
            self._mux = RequestMux(self, self._options.inbox_prefix)
            self._add_route(self._mux)
        return self._mux

    def new_inbox(self) -> str:
        """A unique subject to get answers on."""
        return f"{self._options.inbox_prefix}.{next_nuid()}"

    # -- state ----------------------------------------------------------------------------------

    @property
    def state(self) -> ConnectionState:
        """Where the connection is in its life."""
        state = self._connection.state
        if self._draining and state is not ConnectionState.CLOSED:
            return ConnectionState.DRAINING
        return state

    @property
    def connected(self) -> bool:
        """Whether a server is connected right now."""
        return self._connected

    @property
    def closed(self) -> bool:
        """Whether the client is closed for good."""
        return self._connection.state is ConnectionState.CLOSED

    @property
    def server(self) -> str | None:
        """The URL of the server in use, without credentials."""
        return self._connection.server

    @property
    def server_info(self) -> ServerInfo:
        """What the server in use says about itself."""
        info = self._connection.server_info
        if info is None:
            raise DisconnectedError("no server has been connected to yet")
        return info

    @property
    def servers(self) -> list[str]:
        """All servers known, configured and discovered."""
        return [str(server.url) for server in self._connection.pool.servers]

    @property
    def max_payload(self) -> int:
        """How large a message may be, headers included."""
        return self._encoder.max_payload

    @property
    def statistics(self) -> Statistics:
        """Counters over the whole life of the client."""
        return self._connection.current_statistics()

    @property
    def last_error(self) -> BaseException | None:
        """Why the connection was lost or closed last."""
        return self._connection.last_error

    def events(self) -> AsyncIterator[ConnectionEvent]:
        """Iterate over the events of the connection from now on, until it is closed."""
        return self._connection.events.iterate()

    def _check_open(self) -> None:
        if self.closed:
            raise self._connection.closed_error()
        if self._draining:
            raise ConnectionDrainingError("the connection is draining and takes no more work")

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a connection, and what belongs to it, cannot be pickled or copied deeply; connect "
            "where it is needed"
        )

    def __repr__(self) -> str:
        return f"<Client {self.state.value} {self.server or ', '.join(self.servers)}>"

    # -- called by the connection ---------------------------------------------------------------

    def on_batch(self, batch: MessageBatch) -> None:
        """Messages arrived."""
        route = self._routes.get(batch.sid)
        if route is None:
            return
        route.received += len(batch.frames)
        limit = route.limit
        if limit is None or route.received < limit:
            route.deliver(batch)
            return
        surplus = route.received - limit
        if surplus:
            batch.frames = batch.frames[: len(batch.frames) - surplus]
        del self._routes[route.sid]
        route.deliver(batch)
        route.end(None)

    def on_server_error(self, error: ConnectionError, sid: int | None) -> None:
        """The server complained, perhaps about one subscription, and goes on."""
        if not isinstance(error, PermissionsError):
            return
        if error.operation == "publish":
            for route in list(self._routes.values()):
                route.publish_refused(error)
            return
        for route in list(self._routes.values()):
            # A server before 2.15 that takes a permission away does not name the queue.
            if route.subject == error.subject and (
                route.queue == error.queue if sid is None else route.sid == sid
            ):
                del self._routes[route.sid]
                if route is self._mux:  # the next request tries anew, and says the same if need be
                    self._mux = None
                route.end(error)

    def on_disconnected(self, error: ConnectionError) -> None:
        """The connection is lost."""
        self._restrict(True)
        if self._mux is not None:
            self._mux.fail_all(error)
        for route in list(self._routes.values()):
            route.disconnected()

    def on_closed(self, error: BaseException | None) -> None:
        """The connection will never come back."""
        self._restrict(True)
        routes, self._routes = self._routes, {}
        for route in routes.values():
            route.end(None if error is None else self._connection.closed_error())

    def restore(self) -> None:
        """Add to the encoder what a new server must know."""
        self._restrict(self._drained)
        for route in self._routes.values():
            if route.stopped:
                continue
            route.received_before = route.received
            self._encoder.subscribe(route.subject, route.sid, route.queue)
            if route.limit is not None:
                self._encoder.unsubscribe(route.sid, route.limit - route.received)
            route.restored()

    def _holds(self, size: int) -> None:
        """Note that so many bytes more wait in a subscription; stop reading at the watermark."""
        self._held += size
        if self._held > self._options.read_high_water:
            self._connection.pause_reading()
        elif self._held <= self._options.read_high_water // 2:
            self._connection.resume_reading()

    # -- the end --------------------------------------------------------------------------------

    async def force_reconnect(self) -> None:
        """Leave the server in use and connect again, to another one if there is one.

        Returns at once; use `flush` to wait for the new connection.
        """
        await self._connection.force_reconnect()

    async def drain(self, timeout: float | None = None) -> None:
        """Finish cleanly: no new messages, those that arrived are processed, then close.

        Callbacks are called for all that has arrived; iterators keep what waits for them. What was
        published to streams is waited for until it is acknowledged or has failed. If all that
        takes longer than `timeout` (default: `drain_timeout`), the client is closed all the same
        and `TimeoutError` is raised.
        """
        if self.closed:
            return
        self._check_open()
        timeout = self._options.drain_timeout if timeout is None else timeout
        try:
            async with deadline(timeout, "the connection was not drained"):
                await self._drain()
        finally:
            await self._close(discard=False)

    async def _drain(self) -> None:
        self._draining = True
        await self._connection.wait_connected()
        routes = [route for route in self._routes.values() if not route.for_answers]
        for route in routes:
            self._stop_sending(route)
        await self._flush_over_reconnects()
        for route in routes:
            self._unsubscribe(route)
        current = asyncio.current_task()
        tasks = [task for task in self._callback_tasks if task is not current]
        if tasks:
            await asyncio.wait(tasks)
        self._drained = True
        self._restrict(True)
        for route in list(self._routes.values()):
            await route.settle()
        await self._flush_over_reconnects()

    async def _flush_over_reconnects(self) -> None:
        while True:
            try:
                return await self._connection.flush(timeout=None)
            except DisconnectedError:
                pass  # what was not sent yet goes to the next server

    async def close(self) -> None:
        """Close at once: what waits in subscriptions is dropped, pending calls fail.

        What has been published is still written to the socket. Afterwards no task and no socket
        of the client is left, and on the server no consumer of an ordered reader or a watcher.
        """
        await self._close(discard=True)

    async def _close(self, *, discard: bool) -> None:
        subscriptions = [r for r in self._routes.values() if isinstance(r, Subscription)]
        try:
            for guest in list(self._guests):
                guest.leave()
            await self._connection.close()
        finally:
            if discard:
                for subscription in subscriptions:
                    subscription.discard()
            current = asyncio.current_task()
            tasks = [task for task in self._callback_tasks if task is not current]
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc_type is None:
            await self.drain()
        else:
            await self.close()


def connector(
    make_client: Callable[[ConnectOptions], C], make_options: Callable[P, ConnectOptions]
) -> Callable[P, Coroutine[Any, Any, C]]:
    """Make `connect` with the arguments of `ConnectOptions`, which are thus written down once."""

    async def connect(*args: P.args, **kwargs: P.kwargs) -> C:
        client = make_client(make_options(*args, **kwargs).with_context())
        await client._connection.connect()
        return client

    signature = inspect.signature(make_options).replace(return_annotation=make_client)
    connect.__signature__ = signature  # type: ignore[attr-defined]
    connect.__doc__ = f"""Connect to a NATS server and return the client.

    >>> async with await jetspark.connect("nats://localhost:4222") as nc:  # doctest: +SKIP
    ...     await nc.publish("greet", b"hello")

    {make_options.__doc__}
    """
    connect.__qualname__ = "connect"
    return connect
