"""Publishing to streams: the part of the JetStream context that sends messages.

What waits for acknowledgements is in `ack_window`, what a message may ask for in
`publish_headers`, and batches are in `atomic_batch` and `fast_ingest`.
"""

from __future__ import annotations

import weakref
from typing import Literal, Unpack

from jetspark.connection import Client
from jetspark.errors import InvalidOptionError
from jetspark.protocol import FULL_PIECES, SMALL, Headers, Payload

from .ack_future import PublishAckFuture
from .ack_window import AckWindow
from .atomic_batch import AtomicBatch
from .awaited_acks import AwaitedAcks
from .base import ContextBase
from .fast_ingest import FastIngest
from .features import not_supported
from .publish_ack import PublishAck
from .publish_headers import INCREMENT, PublishOptions

__all__ = ["Publisher"]

ASYNC_TIMEOUT = 30.0  # seconds: longer than an election, and than most reconnects


class Publisher(ContextBase):
    """Publishes messages to streams.

    The options of a message are those of `PublishOptions`: headers, an id, expectations, a TTL and
    more. When no stream answers, a message is sent again after 250 ms, twice (ADR-22), because a
    leader may just be elected.
    """

    def __init__(
        self,
        client: Client,
        *,
        domain: str | None = None,
        prefix: str | None = None,
        timeout: float = 5.0,
        max_ack_pending: int = 4000,
        backpressure: bool = True,
        strict: bool = False,
    ) -> None:
        super().__init__(client, domain=domain, prefix=prefix, timeout=timeout, strict=strict)
        self._acks = AckWindow(
            client, limit=max_ack_pending, backpressure=backpressure, timeout=ASYNC_TIMEOUT
        )
        self._awaited_acks = AwaitedAcks(client, timeout=timeout)
        for acks in (self._acks, self._awaited_acks):
            weakref.finalize(self, acks.retire).atexit = False

    async def publish(
        self, subject: str, data: Payload = b"", **options: Unpack[PublishOptions]
    ) -> PublishAck:
        """Publish a message and wait until the stream has stored it.

        >>> ack = await js.publish("orders.new", b"a dozen eggs", msg_id="17")  # doctest: +SKIP
        >>> ack.stream, ack.sequence  # doctest: +SKIP
        ('ORDERS', 1)

        Raises `NoStreamResponseError` when no stream has the subject, an `APIError` when the
        stream refuses the message, and `TimeoutError` or `DisconnectedError` when nobody knows
        what became of it. Then publish it again only if it has a `msg_id`. A message with one, and
        without an expected sequence, is sent again by itself when the connection is lost and
        comes back in time.
        """
        acks = self._awaited_acks
        future = await acks.publish(subject, data, options)
        try:
            return await future
        finally:
            acks.forget(future)

    async def publish_async(
        self, subject: str, data: Payload = b"", **options: Unpack[PublishOptions]
    ) -> PublishAckFuture:
        """Publish a message and return its acknowledgement as a future, to be awaited later.

        >>> for order in orders:  # doctest: +SKIP
        ...     await js.publish_async("orders.new", order)
        >>> await js.publish_async_complete()  # doctest: +SKIP

        Waits while `max_ack_pending` messages are without their acknowledgement; a context made
        with `backpressure=False` raises `PublishStalledError` instead. The `timeout`, 30 seconds
        if it is not given, holds for that, and then again for the acknowledgement.

        When the connection is lost, messages that were sent without a `msg_id`, or with an
        expected sequence, fail with `DisconnectedError`, because they may be stored or not. The
        others are sent again, in their order, when it is back: the acknowledgement of one that
        had been stored then says `duplicate`. What is published meanwhile is sent afterwards.
        Whatever is not acknowledged in its time fails with `TimeoutError`.
        """
        acks = self._acks
        pending = acks.pending
        if (
            options
            or len(pending) >= acks.ceiling
            or len(acks.pieces) > FULL_PIECES
            or type(data) is not bytes
            or len(data) > SMALL
        ):
            return await acks.publish(subject, data, options)
        # AckWindow.publish for a plain small message, while nothing is in its way.
        acks.counter = number = acks.counter + 1
        reply = b"%b%d" % (acks.base, number)
        attempts = acks.attempts
        expires = acks.time() + attempts.timeout
        acks.request(subject, data, reply)
        pending[reply] = future = PublishAckFuture(subject, reply, data, None, expires, attempts)
        if expires < acks.expiry:
            acks.arm(expires)
        return future

    @property
    def publish_async_pending(self) -> int:
        """How many messages of `publish_async` are without their acknowledgement."""
        return len(self._acks.pending)

    async def publish_async_complete(self, timeout: float | None = None) -> None:
        """Wait until each message of `publish_async` is acknowledged or has failed.

        Raises what failed since the last call and was not seen, because nobody has awaited its
        future: the error if it is one, an `ExceptionGroup` if there are several. Draining the
        connection waits, too, and reports failures as events; closing it does not wait.
        """
        await self._acks.complete(timeout)

    async def counter_add(
        self, subject: str, increment: int = 1, **options: Unpack[PublishOptions]
    ) -> int:
        """Add to a counter and return its new value; a negative number is subtracted.

        The stream needs `allow_msg_counter` (2.12). After a `TimeoutError` or `DisconnectedError`
        it is not known whether the number was added.
        """
        if type(increment) is not int:
            raise InvalidOptionError(f"increment must be an int, not {increment!r}")
        headers = Headers(options.get("headers") or {})
        headers[INCREMENT] = f"{increment:+d}"
        options["headers"] = headers
        ack = await self.publish(subject, b"", **options)
        if ack.value is None:
            what = "the server does not count and has stored an empty message instead"
            context = f"counter {subject!r}"
            raise not_supported(self.api, context, what, may_have_taken_effect=True)
        return ack.value

    def batch(self, *, timeout: float | None = None) -> AtomicBatch:
        """Begin a batch of messages that are stored all together or not at all.

        The stream needs `allow_atomic` (2.12). `timeout` is for each answer of the server.
        """
        return AtomicBatch(self.api, timeout=self.api.timeout if timeout is None else timeout)

    def fast_ingest(
        self,
        *,
        gap: Literal["fail", "ok"] = "fail",
        flow: int = 500,
        max_outstanding: int = 2,
        timeout: float | None = None,
    ) -> FastIngest:
        """Begin a stream of many messages with few acknowledgements.

        The stream needs `allow_batched` (2.14). With `gap="fail"` it ends when a message is lost
        or refused; with `"ok"` it goes on. The server acknowledges every `flow` messages, or more
        often if it wants, and up to `max_outstanding` acknowledgements may be missing (1 to 3).
        `timeout` is for each answer of the server.
        """
        return FastIngest(
            self.api,
            gap=gap,
            flow=flow,
            max_outstanding=max_outstanding,
            timeout=self.api.timeout if timeout is None else timeout,
        )
