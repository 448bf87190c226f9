"""Fast ingest: many messages to one stream with few acknowledgements (ADR-50, 2.14).

Each message tells in its reply subject where in the batch it stands. The server answers every so
many messages with a flow acknowledgement, and at the end with one for the whole batch. In between
come notes about messages that were lost on the way or refused.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal, Self, Unpack

import msgspec

from jetspark.connection.connection import copy_error
from jetspark.connection.subscription import Route
from jetspark.errors import (
    APIError,
    BatchPublishError,
    InvalidAckError,
    InvalidOptionError,
    JetStreamError,
    NoStreamResponseError,
    PermissionsError,
    PublisherClosedError,
    TimeoutError,
    status_error,
)
from jetspark.protocol import MessageBatch, Payload, parse_status

from .ack_future import ERRORS_KEPT, Attempts, summary
from .api import ApiClient
from .codec import NOT_JSON
from .features import not_supported
from .publish_ack import PublishAck, decode_publish_ack
from .publish_headers import MessageOptions, encode_block, message_headers
from .subjects import DEFAULT_PREFIX

__all__ = ["FastIngest"]

PINGS = 2  # while an answer is waited for

_START, _APPEND, _END, _PING = 0, 1, 3, 4  # what a message is; the token after its sequence


class _Reply(msgspec.Struct):
    """Any answer of the server; the acknowledgement of the whole batch has no type."""

    type: str = ""
    seq: int = 0
    msgs: int = 0  # an acknowledgement comes every so many messages
    last_seq: int = 0  # of a gap: the first sequence that is missing; `seq` is there again
    error: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(_Reply).decode


class FastIngest(Route):
    """A batch of any length, made by `JetStream.fast_ingest`.

    >>> async with js.fast_ingest() as ingest:  # doctest: +SKIP
    ...     for line in file:
    ...         await ingest.add("lines", line)
    >>> ingest.ack.sequence, ingest.ack.batch_size  # doctest: +SKIP

    A message is stored when the server gets it, long before the batch ends. Leaving the block
    waits for the acknowledgement of all of them (see `close`). After an error the rest is not
    sent; what was stored stays, and `ack`, if it is there, says how many messages that is.

    With `gap="fail"` a message that is lost or refused ends the batch with an error, and nothing
    behind it is stored. With `gap="ok"` the batch goes on: `lost`, `refused` and `errors` tell
    what is missing, and the acknowledgement counts these messages, too.

    A pause of ten seconds ends the batch, as the server forgets it. Call it from one task at a
    time.
    """

    for_answers = True

    def __init__(
        self,
        api: ApiClient,
        *,
        gap: Literal["fail", "ok"],
        flow: int,
        max_outstanding: int,
        timeout: float,
    ) -> None:
        if gap not in ("fail", "ok"):
            raise InvalidOptionError(f"gap must be 'fail' or 'ok', not {gap!r}")
        if not 1 <= flow <= 65535:
            raise InvalidOptionError(f"flow must be between 1 and 65535, not {flow}")
        if not 1 <= max_outstanding <= 3:
            raise InvalidOptionError(f"max_outstanding must be 1, 2 or 3, not {max_outstanding}")
        inbox = api.client.new_inbox()
        super().__init__(api.client, f"{inbox}.>")
        self.id = inbox.rpartition(".")[2]
        self.ack: PublishAck | None = None
        """The acknowledgement of the whole batch."""
        self.lost = 0
        """Messages that did not reach the stream."""
        self.refused = 0
        """Messages that the stream did not take."""
        self.errors: list[JetStreamError] = []
        """What happened to the first of these."""
        self._api = api
        self._gaps_allowed = gap == "ok"
        self._max_outstanding = max_outstanding
        self._timeout = timeout
        self._base = f"{inbox}.{flow}.{gap}.".encode()
        self._sent = 0  # the sequence of the last message
        self._subject = ""  # of the first message: it is known to reach the stream
        self._limit = 0  # nothing is sent behind this sequence before the next acknowledgement
        self._closing = False
        self._ended = False
        self._error: BaseException | None = None  # why it ended, or is about to
        self._notes: list[BaseException] = []  # not reported yet
        self._answers = 0
        self._waiter: asyncio.Future[None] | None = None

    @property
    def size(self) -> int:
        """How many messages were added."""
        return self._sent

    @property
    def closed(self) -> bool:
        """Whether the batch has come to its end."""
        return self._ended

    async def add(
        self, subject: str, data: Payload = b"", **options: Unpack[MessageOptions]
    ) -> int:
        """Add a message and return its number in the batch, counted from 1.

        Waits while too many are without an acknowledgement.
        """
        client = self.client
        if client._encoder.is_full() and not client._restricted:
            await client._connection.make_room()
        while self._sent >= self._limit:
            if self._ended:
                raise self._end_error()
            if not self._sent:
                await self._start(subject, data, options)
                return 1
            await self._wait(f"fast ingest to {subject!r}: no acknowledgement", _PING)
        self._write(_APPEND, self._sent + 1, subject, data, options)
        return self._sent

    async def close(self) -> PublishAck | None:
        """End the batch and return its acknowledgement; None if nothing was added."""
        if self._sent and not self._ended and self._error is None:
            self._closing = True
            self._control(_END)
        while self._sent and not self._ended:
            await self._wait("fast ingest: no acknowledgement of the batch", _END)
        self.abandon()
        if self._error is not None:
            raise copy_error(self._error)
        return self.ack

    def abandon(self) -> None:
        """Stop without waiting for an acknowledgement; what was sent stays stored."""
        self._ended = True
        self._limit = 0
        self.client._unsubscribe(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *exc_info: object) -> None:
        if exc_type is None:
            await self.close()
        else:
            self.abandon()

    # -- sending --------------------------------------------------------------------------------

    async def _start(self, subject: str, data: Payload, options: MessageOptions) -> None:
        client = self.client
        client._check_open()
        # With a prefix or a domain, the server in use need not be the one of the stream.
        is_near = self._api.subjects.prefix == DEFAULT_PREFIX
        if is_near and client.server_info.version_tuple < (2, 14):
            raise not_supported(self._api, "fast ingest", "the server has no fast ingest")
        if not self.sid:
            client._add_route(self)
        retries, delay = Attempts().retries, Attempts().retry_delay
        for attempt in range(retries + 1):
            self._write(_START, 1, subject, data, options)
            self._subject = subject
            try:
                error = await self._first_answer(subject)
                if error is None:
                    return
                if attempt < retries and isinstance(error, NoStreamResponseError):
                    self._error = None
                    await asyncio.sleep(delay)
                    continue
            except BaseException:
                self.abandon()
                raise
            self.abandon()
            raise copy_error(error)

    async def _first_answer(self, subject: str) -> BaseException | None:
        while not self._limit and self._error is None:
            await self._wait(f"fast ingest to {subject!r}: no answer", _PING)
        return self._error

    def _write(
        self, kind: int, sequence: int, subject: str, data: Payload, options: MessageOptions
    ) -> None:
        """Send a message."""
        client = self.client
        if client._restricted:
            client._check_publish(len(data))
        reply = b"%b%d.%d.$FI" % (self._base, sequence, kind)
        if options:
            headers = message_headers(options)
            encode_block(headers)  # refuses what is too large for a stream
            client._encoder.publish(subject, data, reply, headers)
        else:
            client._encoder.request(subject, data, reply)
        self._sent = sequence

    def _control(self, kind: int) -> None:
        """Send a ping, or the end of the batch, which has a sequence of its own."""
        sequence = self._sent + (kind == _END)
        reply = b"%b%d.%d.$FI" % (self._base, sequence, kind)
        self.client._encoder.publish(self._subject, b"", reply)

    async def _wait(self, what: str, ask_with: int) -> None:
        """Wait for an answer; ask for it when it does not come, give up when that is in vain."""
        loop = asyncio.get_running_loop()
        answers = self._answers
        for turn in range(PINGS + 1):
            if turn:
                self._control(ask_with)
            self._waiter = loop.create_future()
            timer = loop.call_later(self._timeout / (PINGS + 1), self._wake)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
            if self._answers != answers or self._ended:
                return
        self._fail(self._error or TimeoutError(f"{what} in {self._timeout} s"))

    def _end_error(self) -> BaseException:
        if self._error is not None:
            return copy_error(self._error)
        error = PublisherClosedError("the fast ingest is closed; begin another one")
        error.may_have_taken_effect = False
        return error

    # -- what the server says -------------------------------------------------------------------

    def deliver(self, batch: MessageBatch) -> None:
        """Take acknowledgements and notes."""
        self._answers += 1
        for _, _, header, data in batch.frames:
            if self._ended:
                break
            if header is not None and not data:
                self._on_status(header)
            else:
                self._on_reply(data)
        if self._notes:
            notes, self._notes = self._notes, []
            self.client._connection.report(summary(notes, len(notes)))
        self._wake()

    def _on_status(self, header: bytes) -> None:
        status, description = parse_status(header)
        context = f"fast ingest to {self._subject!r}"
        error = status_error(status or 0, description, context=context)
        if self._limit and self._gaps_allowed:
            self._note(error)  # the messages behind it will show what is lost
        else:
            self._stop(error)

    def _on_reply(self, data: bytes) -> None:
        try:
            reply = _decode(data)
        except NOT_JSON as error:
            self._fail(InvalidAckError(f"fast ingest: an answer cannot be read: {error}"))
            return
        if reply.type == "ack":
            if self._error is None:
                self._limit = reply.seq + reply.msgs * self._max_outstanding
        elif reply.type == "gap":
            self.lost += max(reply.seq - reply.last_seq, 0)
            self._on_missing(
                BatchPublishError(
                    f"fast ingest: messages {reply.last_seq} to {reply.seq - 1} were lost"
                )
            )
        elif reply.type == "err":
            self.refused += 1
            context = f"fast ingest: message {reply.seq}"
            self._on_missing(APIError.from_response(reply.error or {}, context=context))
        elif not reply.type:
            self._on_end(data)

    def _on_missing(self, error: JetStreamError) -> None:
        if self._gaps_allowed:
            self._note(error)
        else:
            self._stop(error)

    def _note(self, error: JetStreamError) -> None:
        self._notes.append(error)
        if len(self.errors) < ERRORS_KEPT:
            self.errors.append(error)

    def _stop(self, error: BaseException) -> None:
        """Send no more; the acknowledgement of what is stored follows."""
        self._error = self._error or error
        self._limit = 0

    def _on_end(self, data: bytes) -> None:
        try:
            ack = decode_publish_ack(data, self._subject)
        except JetStreamError as error:
            self._fail(self._error or error)
            return
        if not ack.batch_id:
            what = "the server stored the message by itself, because it has no fast ingest"
            self._fail(not_supported(self._api, "fast ingest", what, may_have_taken_effect=True))
            return
        self.ack = ack
        if self._error is None and (not self._closing or ack.batch_size != self._sent):
            self._error = BatchPublishError(
                f"fast ingest: the server ended the batch after {ack.batch_size} of "
                f"{self._sent} messages"
            )
        self.abandon()

    def _fail(self, error: BaseException) -> None:
        self._error = error
        self.abandon()

    def publish_refused(self, error: PermissionsError) -> None:
        """End if the server cannot be reached any more; what else is refused shows as a gap."""
        if error.subject == self._subject and not self._ended:
            self._fail(error)

    def end(self, error: BaseException | None) -> None:
        """Note that nothing more will come."""
        if not self._ended:
            self._ended = True
            self._limit = 0
            if error is None:
                error = self.client._connection.closed_error()
            self._error = self._error or error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
