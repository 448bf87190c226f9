"""A message from a stream: what a consumer delivers, with its place in the stream and its acks."""

from __future__ import annotations

import enum
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta

import msgspec

from jetspark.connection import Message
from jetspark.errors import (
    InvalidArgumentError,
    JetSparkError,
    MessageAlreadyAckedError,
    NoRespondersError,
    NoStreamResponseError,
    NotJetStreamMessageError,
    status_error,
)

from .codec import encode, to_nanoseconds

__all__ = ["AckKind", "JetStreamMessage", "Metadata", "parse_metadata"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class AckKind(enum.Enum):
    """What to tell the server about a message; the value is what goes over the wire."""

    ACK = b"+ACK"
    NAK = b"-NAK"
    PROGRESS = b"+WPI"
    TERM = b"+TERM"
    NEXT = b"+NXT"


class Metadata(msgspec.Struct, frozen=True, gc=False):
    """Where a message comes from, as its reply subject tells."""

    stream: str
    consumer: str
    stream_sequence: int
    consumer_sequence: int
    num_delivered: int
    num_pending: int  # messages left for the consumer after this one
    timestamp_ns: int  # when it was stored, nanoseconds since 1970
    domain: str = ""

    @property
    def timestamp(self) -> datetime:
        """When it was stored, cut to microseconds."""
        return _EPOCH + timedelta(microseconds=self.timestamp_ns // 1000)

    @property
    def redelivered(self) -> bool:
        """Whether it was delivered before."""
        return self.num_delivered > 1


def parse_metadata(reply: bytes | None) -> Metadata:
    """Read a reply subject `$JS.ACK...`, in its form of 9 or of 11 and more tokens."""
    tokens = reply.split(b".") if reply else []
    count = len(tokens)
    if count < 9 or count == 10 or tokens[0] != b"$JS" or tokens[1] != b"ACK":
        raise NotJetStreamMessageError(_not_ours(reply))
    domain = b""
    if count >= 11:
        domain = b"" if tokens[2] == b"_" else tokens[2]
        tokens = tokens[2:]
    stream, consumer = tokens[2], tokens[3]
    numbers = tokens[4:9]
    if not all(map(bytes.isdigit, numbers)):
        raise NotJetStreamMessageError(_not_ours(reply))
    delivered, sequence, consumer_sequence, timestamp, pending = map(int, numbers)
    return Metadata(
        stream.decode("utf-8", "surrogateescape"),
        consumer.decode("utf-8", "surrogateescape"),
        sequence,
        consumer_sequence,
        delivered,
        pending,
        timestamp,
        domain.decode("utf-8", "surrogateescape"),
    )


def _not_ours(reply: bytes | None) -> str:
    return (
        f"the message was not delivered by a JetStream consumer (reply subject {reply!r}), so it "
        "has no metadata and cannot be acknowledged"
    )


class JetStreamMessage(Message, gc=False, eq=False):
    """A message that a consumer delivered.

    It is acknowledged with one of `ack`, `double_ack`, `nak` and `term`, once: later calls do
    nothing. On a consumer without acknowledgements (`ack_policy=none`) all of them do nothing.
    """

    _no_acks: bool = False  # the consumer takes none
    _acked: bool = False
    _metadata: Metadata | None = None

    @property
    def metadata(self) -> Metadata:
        """Stream, consumer, sequences, time and counts."""
        if self._metadata is None:
            self._metadata = parse_metadata(self.raw_reply)
        return self._metadata

    @property
    def acked(self) -> bool:
        """Whether it has been acknowledged for good."""
        return self._acked

    async def ack(self) -> None:
        """Tell the server that the message is done; returns when that is on its way."""
        # Like _finish(b"+ACK"), in one step, because it is called for every message.
        if self._no_acks or self._acked:
            return
        subject = self._ack_subject()
        client = self.client
        if client._restricted:
            client._check_publish(len(subject))
        self._acked = True
        if client._encoder.publish_trusted(subject, b"+ACK"):
            await client._connection.make_room()

    async def double_ack(self, timeout: float = 5.0) -> None:
        """Tell the server that the message is done and wait until it has noted that."""
        if self._no_acks or self._acked:
            return
        subject = self._ack_subject().decode()
        try:
            await self.client.request(subject, b"+ACK", timeout=timeout)
        except NoRespondersError as error:
            raise NoStreamResponseError(
                f"cannot acknowledge the message on {self.subject!r}: its consumer was deleted, or "
                "has no leader at the moment"
            ) from error
        self._acked = True

    async def nak(self, delay: float | timedelta | None = None) -> None:
        """Ask for the message again, at once or after a delay."""
        body = b"-NAK"
        if delay is not None:
            body += b" " + encode({"delay": to_nanoseconds(delay)})
        await self._finish(body)

    async def in_progress(self) -> None:
        """Ask for more time: the server waits for another `ack_wait` before it redelivers."""
        if not (self._no_acks or self._acked):
            await self._send(b"+WPI")

    async def term(self, reason: str | None = None) -> None:
        """Give the message up: it will not be delivered again (the reason needs 2.10.4)."""
        await self._finish(b"+TERM" if reason is None else b"+TERM " + reason.encode())

    async def ack_next(self, timeout: float = 5.0) -> JetStreamMessage:
        """Acknowledge, and get the next message of the pull consumer in the same round trip.

        Raises `TimeoutError` if none comes in time; the message is acknowledged all the same.
        """
        subject = self._ack_subject()
        if self._no_acks:
            raise InvalidArgumentError("ack_next: the consumer takes no acknowledgements; fetch")
        if self._acked:
            raise MessageAlreadyAckedError(
                f"ack_next: the message on {self.subject!r} has been acknowledged before"
            )
        inbox = self.client.new_inbox()
        async with await self.client.subscribe(inbox) as subscription:
            self._acked = True
            await self._publish(subject, AckKind.NEXT.value, inbox.encode())
            answer = await subscription.next(timeout)
        if answer.status is not None:
            raise status_error(answer.status, answer.headers.description, context="ack_next")
        return JetStreamMessage(
            answer.raw_subject, answer.raw_reply, answer.raw_headers, answer.data, self.client
        )

    async def ack_with(self, kind: AckKind) -> None:
        """Acknowledge in the way that `kind` says."""
        if kind is AckKind.PROGRESS:
            await self.in_progress()
        else:
            await self._finish(kind.value)

    async def _finish(self, body: bytes) -> None:
        if self._no_acks or self._acked:
            return
        self._acked = True
        try:
            await self._send(body)
        except JetSparkError:
            self._acked = False  # it was not sent
            raise

    def _send(self, body: bytes) -> Awaitable[None]:
        return self._publish(self._ack_subject(), body)

    async def _publish(self, subject: bytes, body: bytes, reply: bytes | None = None) -> None:
        client = self.client
        if client._restricted:
            client._check_publish(len(subject))
        if client._encoder.publish_trusted(subject, body, reply):
            await client._connection.make_room()

    def _ack_subject(self) -> bytes:
        reply = self.raw_reply
        if reply is None or not reply.startswith(b"$JS.ACK."):
            raise NotJetStreamMessageError(_not_ours(reply))
        return reply
