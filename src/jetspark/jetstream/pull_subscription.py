"""The older way to pull: `PullSubscription.fetch` asks twice (ADR-13).

First for what is there, which is answered at once; only if that is nothing, a second request waits.
Messages keep the subjects of the stream on their way here, so requests cannot share the inbox of
the connection, where answers are told apart by their subjects.
"""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import timedelta
from typing import Self

from jetspark.connection.connection import copy_error
from jetspark.connection.deadline import deadline
from jetspark.connection.nuid import next_nuid
from jetspark.connection.subscription import Route
from jetspark.errors import (
    ConsumerNotFoundError,
    DisconnectedError,
    InvalidArgumentError,
    JetSparkError,
    PermissionsError,
    SubscriptionClosedError,
    TimeoutError,
    status_error,
)
from jetspark.protocol import Frame, MessageBatch, parse_headers, parse_status

from .codec import encode, to_timedelta
from .consumer import PullConsumer
from .message import JetStreamMessage

__all__ = ["PullSubscription"]

MARGIN = 0.1  # seconds by which the server gives up sooner than we do


class _Exchange:
    """The messages of one fetch, and how it ends."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.frames: list[Frame] = []
        self.error: JetSparkError | None = None
        self.nothing_there = False  # the server says so
        self.over = asyncio.get_running_loop().create_future()  # nothing more comes for now
        self.returned = asyncio.get_running_loop().create_future()

    def message(self, frame: Frame) -> None:
        self.frames.append(frame)
        if len(self.frames) >= self.wanted:
            self.finish()

    def status(self, header: bytes, context: str) -> None:
        headers = parse_headers(header)
        if headers.status == 100:
            return
        if headers.status in (404, 408):
            self.nothing_there = not self.frames
            self.finish()
        else:
            self.finish(status_error(headers.status or 0, headers.description, context=context))

    def finish(self, error: JetSparkError | None = None) -> None:
        if not self.over.done():
            self.error = error
            self.over.set_result(None)


class _Inbox(Route):
    """An inbox for one request."""

    def __init__(self, consumer: PullConsumer, exchange: _Exchange) -> None:
        client = consumer.api.client
        super().__init__(client, client.new_inbox())
        self.consumer = consumer
        self.exchange = exchange
        self.address = self.subject.encode()

    def deliver(self, batch: MessageBatch) -> None:
        """Collect messages."""
        for frame in batch.frames:
            if is_status(frame, self.address):
                assert frame[2] is not None
                self.exchange.status(frame[2], self.consumer.description)
            else:
                self.exchange.message(frame)

    def disconnected(self) -> None:
        """End: the server has forgotten the request."""
        self.exchange.finish(_lost(self.consumer))

    def end(self, error: BaseException | None) -> None:
        """End with the connection, or because all has come."""
        self.exchange.finish(error if isinstance(error, JetSparkError) else None)


class PullSubscription(Route):
    """A subscription that fetches from a pull consumer, made by `pull_subscribe`.

    >>> subscription = await js.pull_subscribe("orders.*", durable="worker")  # doctest: +SKIP
    >>> for message in await subscription.fetch(10, timeout=5):  # doctest: +SKIP
    ...     await message.ack()

    Where the consumer was made for it, `unsubscribe` and `drain` delete the consumer.
    """

    def __init__(self, consumer: PullConsumer, *, owns_consumer: bool) -> None:
        client = consumer.api.client
        base = client.new_inbox()
        super().__init__(client, f"{base}.*")  # single messages need no inbox of their own
        self._base = f"{base}.".encode()
        self.consumer = consumer
        self._owns_consumer = owns_consumer
        self._closed = False
        self._draining = False
        self._single: tuple[bytes, _Exchange] | None = None  # the request that waits, if one does
        self._leftovers: deque[Frame] = deque()  # came after their request was given up
        self._fetches: set[_Exchange] = set()
        client._check_open()
        client._add_route(self)

    # -- fetching -------------------------------------------------------------------------------

    async def fetch(
        self, batch: int = 1, timeout: float | timedelta = 5.0
    ) -> list[JetStreamMessage]:
        """Get up to `batch` messages: those that are there, or else those that come in time.

        Raises `TimeoutError` if none comes in time, and other errors only if there is no message
        to return.
        """
        if batch < 1:
            raise InvalidArgumentError(f"batch must be at least 1, not {batch}")
        seconds = to_timedelta(timeout).total_seconds()
        if seconds <= 0:
            raise InvalidArgumentError(f"timeout must be greater than 0, not {timeout}")
        if self._closed or self._draining:
            raise self._closed_error()
        exchange = _Exchange(batch)
        self._fetches.add(exchange)
        try:
            if self._leftovers:
                while self._leftovers and not exchange.over.done():
                    exchange.message(self._leftovers.popleft())
            else:
                await self._run(exchange, seconds)
        except asyncio.CancelledError:
            self.consumer.give_back(exchange.frames)
            raise
        finally:
            self._fetches.discard(exchange)
            exchange.returned.set_result(None)
        return self._messages(exchange)

    async def next(self, timeout: float | timedelta = 5.0) -> JetStreamMessage:
        """Get one message; raises `TimeoutError` if none comes in time."""
        return (await self.fetch(1, timeout))[0]

    def _messages(self, exchange: _Exchange) -> list[JetStreamMessage]:
        if not exchange.frames and exchange.error is not None:
            raise exchange.error
        if not exchange.frames:
            raise self._closed_error() if self._closed else self._no_message()
        client, no_acks = self.client, self.consumer.no_acks
        return [
            JetStreamMessage(subject, reply, header, data, client, None, no_acks)
            for subject, reply, header, data in exchange.frames
        ]

    async def _run(self, exchange: _Exchange, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        try:
            async with deadline(seconds, self.consumer.description):
                await self.client._connection.wait_connected()
                if exchange.wanted == 1 and self._single is None:
                    await self._ask_single(exchange)
                    if exchange.nothing_there:
                        await self._ask(exchange, until, wait=True)
                else:
                    await self._ask(exchange, until, wait=False)
        except TimeoutError:
            pass  # what has come is returned

    async def _ask_single(self, exchange: _Exchange) -> None:
        """Ask for one message that is there, without a subscription of its own."""
        address = self._base + next_nuid().encode()
        self._single = address, exchange
        try:
            self._send({"batch": 1, "no_wait": True}, address)
            await exchange.over
        finally:
            self._single = None

    async def _ask(self, exchange: _Exchange, until: float, *, wait: bool) -> None:
        """Ask on an inbox of its own, for what is there and, if that is nothing, for what comes."""
        client, wanted = self.client, exchange.wanted
        inbox = _Inbox(self.consumer, exchange)
        client._add_route(inbox)
        try:
            if not wait:
                self._send({"batch": wanted, "no_wait": True}, inbox.address)
                await exchange.over
            if (wait or exchange.nothing_there) and not self._closed:
                exchange.over = asyncio.get_running_loop().create_future()
                # The answer that nothing is there counts, too.
                client._auto_unsubscribe(inbox, inbox.received + wanted)
                self._send({"batch": wanted, "expires": _expiry(until)}, inbox.address)
                await exchange.over
        finally:
            # Else the server would send to an inbox that nobody looks into any more.
            client._unsubscribe(inbox)

    def _send(self, request: dict[str, int | timedelta], address: bytes) -> None:
        self.client._encoder.publish_trusted(self.consumer.next_subject, encode(request), address)

    # -- what arrives for single messages ---------------------------------------------------------

    def deliver(self, batch: MessageBatch) -> None:
        """Hand a message to the fetch that waits for it, or keep it for the next."""
        for frame in batch.frames:
            address, exchange = self._single or (b"", None)
            if frame[0].startswith(self._base) and is_status(frame, frame[0]):
                if exchange is not None and frame[0] == address:
                    assert frame[2] is not None
                    exchange.status(frame[2], self.consumer.description)
            elif exchange is not None and not exchange.over.done():
                exchange.message(frame)
            else:
                self._leftovers.append(frame)

    def publish_refused(self, error: PermissionsError) -> None:
        """Fail the fetches if asking is not permitted."""
        if error.subject.encode() == self.consumer.next_subject:
            for exchange in self._fetches:
                exchange.finish(copy_error(error))

    def disconnected(self) -> None:
        """Fail the request: the server has forgotten it."""
        if self._single is not None:
            self._single[1].finish(_lost(self.consumer))

    def end(self, error: BaseException | None) -> None:
        """Note that no more messages will come."""
        self._closed = True
        for exchange in self._fetches:
            exchange.finish(error if isinstance(error, JetSparkError) else None)
        if self._owns_consumer and self.client._draining and not self.client.closed:
            deletion = asyncio.get_running_loop().create_task(
                self._delete_quietly(), name=f"jetspark {self.consumer.description}: delete"
            )
            self.client._own(deletion)

    # -- ending ---------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether nothing can be fetched any more."""
        return self._closed

    async def unsubscribe(self) -> None:
        """Stop at once; the consumer is deleted if it was made for this subscription."""
        self.client._unsubscribe(self)
        self.consumer.give_back(self._leftovers)
        self._leftovers.clear()
        await self._delete()

    async def drain(self) -> None:
        """Let the fetches that wait end, then stop.

        Then the consumer is deleted if it was made for this subscription; should that fail, it is
        reported.
        """
        self._draining = True
        if self._fetches:
            await asyncio.wait([exchange.returned for exchange in self._fetches])
        self.client._unsubscribe(self)
        self.consumer.give_back(self._leftovers)
        self._leftovers.clear()
        await self._delete_quietly()

    async def _delete(self) -> None:
        if self._owns_consumer:
            self._owns_consumer = False
            try:
                await self.consumer.delete()
            except ConsumerNotFoundError:
                pass  # it has expired

    async def _delete_quietly(self) -> None:
        try:
            await self._delete()
        except JetSparkError as error:
            self.client._connection.report(error)

    def _closed_error(self) -> SubscriptionClosedError:
        return SubscriptionClosedError(
            f"the subscription to {self.consumer.description} has ended", subject=self.subject
        )

    def _no_message(self) -> TimeoutError:
        return TimeoutError(
            f"{self.consumer.description}: no message in time", may_have_taken_effect=False
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.unsubscribe()

    def __repr__(self) -> str:
        return f"<PullSubscription {self.consumer.description}{' ended' if self._closed else ''}>"


def is_status(frame: Frame, address: bytes) -> bool:
    """Whether this is a status of the server and no message."""
    header = frame[2]
    return (
        header is not None
        and not frame[3]
        and frame[0] == address
        and parse_status(header)[0] is not None
    )


def _lost(consumer: PullConsumer) -> DisconnectedError:
    return DisconnectedError(f"{consumer.description}: the connection was lost in a fetch")


def _expiry(until: float) -> timedelta:
    """What is left for the server of the time until then."""
    left = until - asyncio.get_running_loop().time()
    return timedelta(seconds=max(left - min(MARGIN, left / 10), 0.001))
