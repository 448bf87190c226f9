"""Atomic batches: messages that a stream stores all together or not at all (ADR-50, 2.12).

The server collects the messages of a batch and checks and stores them at the commit. The commit is
the last message: it is therefore held back until the next one, or the call of `commit`, shows
what it is.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Self, Unpack

from jetspark.connection.nuid import next_nuid
from jetspark.errors import (
    APIError,
    InvalidAckError,
    InvalidOptionError,
    MaxPayloadError,
    NoRespondersError,
    NoStreamResponseError,
    PublisherClosedError,
)
from jetspark.protocol import Headers, Payload
from jetspark.protocol.subjects import check_subject

from .ack_future import Attempts
from .api import ApiClient
from .features import not_supported
from .publish_ack import PublishAck, decode_publish_ack
from .publish_headers import (
    BATCH_COMMIT,
    BATCH_ID,
    BATCH_SEQUENCE,
    EXPECTED_LAST_MSG_ID,
    EXPECTED_LAST_SEQUENCE,
    EXPECTED_LAST_SUBJECT_SEQUENCE,
    MSG_ID,
    ROLLUP,
    MessageOptions,
    encode_block,
    message_data,
    message_headers,
)
from .subjects import DEFAULT_PREFIX

__all__ = ["AtomicBatch"]

MAX_MESSAGES = 1000  # more are refused by the server
ASK_EVERY = 100  # messages; between them nobody would notice that the server gave the batch up


class _Message(NamedTuple):
    subject: str
    data: bytes
    headers: Headers


class AtomicBatch:
    """A batch, made by `JetStream.batch`.

    >>> async with js.batch() as batch:  # doctest: +SKIP
    ...     await batch.add("orders.1", b"eggs", expected_last_subject_sequence=0)
    ...     await batch.add("orders.2", b"flour")
    ...     ack = await batch.commit()

    All messages go to one stream, 1000 at most. Expectations are checked at the commit, against
    what the stream held before the batch. Nothing is stored without a commit: leaving the block
    without one, and any error, give the batch up. So does the server after ten seconds without a
    message.
    """

    def __init__(self, api: ApiClient, *, timeout: float) -> None:
        self.id = next_nuid()
        self._api = api
        self._client = api.client
        self._timeout = timeout
        self._held: _Message | None = None
        self._sent = 0
        self._subjects: set[str] = set()
        self._msg_ids: set[str] = set()
        self._end = ""  # why it takes no more messages
        self._lock = asyncio.Lock()  # sequences must reach the server in their order

    @property
    def size(self) -> int:
        """How many messages were added."""
        return self._sent + (self._held is not None)

    @property
    def closed(self) -> bool:
        """Whether it is committed or given up."""
        return bool(self._end)

    async def add(
        self, subject: str, data: Payload = b"", **options: Unpack[MessageOptions]
    ) -> None:
        """Add a message.

        An option that cannot be right in a batch is refused and leaves the batch as it was; any
        other error ends it.
        """
        async with self._lock:
            await self._add(subject, data, options)

    async def commit(self) -> PublishAck:
        """Have all messages stored; the acknowledgement is that of the last one.

        The messages have consecutive sequences, of which `sequence` is the last, and `batch_size`
        says how many they are.
        """
        async with self._lock:
            self._check_open()
            if self._held is None:
                raise InvalidOptionError("the batch is empty: add messages before the commit")
            message, self._held = self._held, None
            message.headers[BATCH_COMMIT] = "1"
            ack = await self._send(message, ask=True)
            self._end = "is committed"
        if ack is None or ack.batch_id != self.id or ack.batch_size != self._sent:
            raise InvalidAckError(
                f"atomic batch: the commit of {self._sent} messages was acknowledged with {ack!r}"
            )
        return ack

    def abandon(self) -> None:
        """Give the batch up: none of its messages will be stored."""
        self._end = self._end or "was abandoned"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.abandon()

    # -- inside ---------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._end:
            error = PublisherClosedError(f"the atomic batch {self._end}; begin another one")
            error.may_have_taken_effect = False
            raise error

    async def _add(self, subject: str, data: Payload, options: MessageOptions) -> None:
        self._check_open()
        if not self.size and self._api.subjects.prefix == DEFAULT_PREFIX:
            # Elsewhere, the server in use need not be the one of the stream.
            self._check_server()
        message = self._checked(subject, data, options)
        before, self._held = self._held, message
        self._subjects.add(subject)
        if msg_id := message.headers.get(MSG_ID):
            self._msg_ids.add(msg_id)
        if before is not None:
            await self._send(before, ask=not self._sent % ASK_EVERY)

    def _check_server(self) -> None:
        if self._client.server_info.version_tuple < (2, 12):
            raise not_supported(self._api, "atomic batch", "the server has no atomic batches")

    def _checked(self, subject: str, data: Payload, options: MessageOptions) -> _Message:
        """The message, if it can be part of this batch."""
        check_subject(subject)
        payload = message_data(data)
        headers = message_headers(options)
        if refusal := self._refusal(subject, headers):
            raise InvalidOptionError(refusal)
        headers[BATCH_ID] = self.id
        headers[BATCH_SEQUENCE] = str(self.size + 1)
        headers[BATCH_COMMIT] = "1"  # counted, whether it is sent or not
        size = len(encode_block(headers)) + len(payload)
        del headers[BATCH_COMMIT]
        if size > self._client.max_payload:
            raise MaxPayloadError(
                f"a message of {size} bytes to {subject!r} is over the server's limit of "
                f"{self._client.max_payload} bytes",
                size=size,
                limit=self._client.max_payload,
            )
        return _Message(subject, payload, headers)

    def _refusal(self, subject: str, headers: Headers) -> str | None:
        """Why the server would give the batch up at its commit."""
        if self.size >= MAX_MESSAGES:
            return f"a batch has at most {MAX_MESSAGES} messages: commit it and begin another one"
        if EXPECTED_LAST_MSG_ID in headers:
            return "expected_last_msg_id is not possible in a batch"
        if headers.get(MSG_ID) in self._msg_ids:
            return f"msg_id {headers.get(MSG_ID)!r} is in the batch already"
        if self.size:
            if EXPECTED_LAST_SEQUENCE in headers:
                return "expected_last_sequence is for the first message of a batch"
            if headers.get(ROLLUP) == "all":
                return "rollup='all' is for the first message of a batch"
        if subject in self._subjects:
            if EXPECTED_LAST_SUBJECT_SEQUENCE in headers:
                return f"{subject!r} is in the batch already: expect its last sequence before that"
            if headers.get(ROLLUP) == "sub":
                return f"{subject!r} is in the batch already: roll it up before that"
        return None

    async def _send(self, message: _Message, *, ask: bool) -> PublishAck | None:
        """Send a message; with `ask`, wait for the answer."""
        subject, data, headers = message
        self._sent += 1
        try:
            if not ask:
                await self._client.publish(subject, data, headers=headers)
                return None
            answer = await self._request(message)
            if not answer:
                return None
            ack = self._decode(answer, message)
            if BATCH_COMMIT not in headers:
                what = "the server stored the message by itself, because it has no atomic batches"
                raise not_supported(self._api, "atomic batch", what, may_have_taken_effect=True)
            return ack
        except BaseException as error:
            self._end = f"has failed: {error or type(error).__name__}"
            raise

    def _decode(self, answer: bytes, message: _Message) -> PublishAck:
        try:
            return decode_publish_ack(answer, message.subject)
        except APIError as error:
            # At the commit it is about any of the messages.
            step = "commit" if BATCH_COMMIT in message.headers else "add"
            context = f"atomic batch: {step} of message {self._sent}"
            raise APIError.from_response(error, context=context) from None

    async def _request(self, message: _Message) -> bytes:
        subject, data, headers = message
        attempts = Attempts()
        # Only the first message can find a leader that is just being elected: with another leader,
        # the batch is lost.
        retries = attempts.retries if self._sent == 1 else 0
        while True:
            try:
                answer = await self._client.request(
                    subject, data, headers=headers, timeout=self._timeout
                )
                return answer.data
            except NoRespondersError as error:
                if not retries:
                    raise NoStreamResponseError(
                        f"atomic batch: no stream answers on {subject!r}", subject=subject
                    ) from error
            retries -= 1
            await asyncio.sleep(attempts.retry_delay)
