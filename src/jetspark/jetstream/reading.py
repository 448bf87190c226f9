"""Reading stored messages without a consumer: one by one, and in batches.

There are two ways. `get_*` asks the leader of the stream and sees everything that was stored
before. `direct_get_*` asks any server that has the stream, or a mirror of it, which is faster and
may be a moment behind; the stream must have `allow_direct`.

The answer to a direct get is the message itself, with its place in the stream in headers that the
server adds behind those of the publisher.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

import msgspec

from jetspark.connection import Message
from jetspark.errors import (
    BadRequestError,
    DisconnectedError,
    InvalidOptionError,
    InvalidResponseError,
    JetStreamError,
    NoRespondersError,
    NoStreamResponseError,
    TimeoutError,
    TooManyResultsError,
    status_error,
)
from jetspark.protocol import Headers, parse_headers, parse_status

from .api import RETRY_DELAY, ApiClient
from .checks import INT32, UINT64, check_filter, check_range
from .codec import Wire, decode_time, encode
from .features import not_supported
from .names import check_stream_name
from .stream_info import StreamInfo

__all__ = ["SUBJECTS_AT_A_TIME", "StoredMessage", "StreamReader"]

PAGE_MESSAGES = 4096
PAGE_BYTES = 1024 * 1024
SUBJECTS_AT_A_TIME = 1024  # a server looks up no more
_LONG_SUBJECT = 1024  # would perhaps not fit into the line of a request

_ADDED = re.compile(
    rb"\r\nNats-Stream: (.*)\r\nNats-Subject: (.*)\r\nNats-Sequence: (\d+)\r\n"
    rb"Nats-Time-Stamp: (.*)\r\n(?:Nats-Num-Pending: (\d+)\r\nNats-Last-Sequence: (\d+)\r\n)?"
)
_NO_TIME = datetime.min.replace(tzinfo=UTC)


# gc=False: a message never refers back to itself.
class StoredMessage(msgspec.Struct, gc=False, eq=False):
    """A message in a stream."""

    stream: str
    """The stream that it was read from; with a direct get, that may be a mirror."""
    subject: str
    sequence: int
    data: bytes
    raw_headers: bytes | None
    raw_time: str
    num_pending: int | None = None
    """In a batch: how many messages were to follow."""
    _headers: Headers | None = None

    @property
    def headers(self) -> Headers:
        """The headers of the publisher; empty where there are none."""
        if self._headers is None:
            block = self.raw_headers
            self._headers = Headers() if block is None else parse_headers(block)
        return self._headers

    @property
    def timestamp(self) -> datetime:
        """When it was stored, cut to microseconds."""
        return decode_time(self.raw_time) or _NO_TIME

    def __repr__(self) -> str:
        data = self.data if len(self.data) <= 32 else self.data[:32] + b"..."
        return (
            f"<StoredMessage {self.sequence} of stream {self.stream!r} "
            f"subject={self.subject!r} data={data!r}>"
        )


class _Record(Wire, frozen=True, kw_only=True):
    """A message as the leader of a stream hands it out."""

    subject: str
    seq: int
    hdrs: bytes = b""  # base64; the whole header block
    data: bytes = b""  # base64
    time: str = ""


class _Direct(NamedTuple):
    """The answer to a direct get."""

    message: StoredMessage
    previous: int  # the sequence of the message before it in the same answer


def _parse_direct(reply: Message) -> _Direct | None:
    """The message in an answer; None if it is a status."""
    block = reply.raw_headers or b""
    # Headers of the same names may come before: the message may be a copy from another stream.
    start = block.rfind(b"\r\nNats-Stream: ")
    if start < 0:
        return None
    found = _ADDED.match(block, start)
    if found is None:
        raise InvalidResponseError(f"not the answer to a direct get: {block!r}")
    stream, subject, sequence, time, pending, previous = found.groups()
    message = StoredMessage(
        stream.decode(),
        subject.decode("utf-8", "surrogateescape"),
        int(sequence),
        reply.data,
        block[:start] + b"\r\n\r\n" if start > len(b"NATS/1.0") else None,
        time.decode(),
        None if pending is None else int(pending),
    )
    return _Direct(message, int(previous or 0))


class _Page(NamedTuple):
    """A part of a batch, which comes in one answer."""

    messages: list[StoredMessage]
    complete: bool  # nothing of it got lost on the way
    more: bool  # another page may follow
    up_to: int = 0  # the last sequence that was looked at, for the last messages of subjects


class StreamReader:
    """Reads the messages of a stream."""

    def __init__(self, api: ApiClient, name: str) -> None:
        check_stream_name(name)
        self.api = api
        self.name = name
        """The name of the stream."""

    # -- from the leader ------------------------------------------------------------------------

    async def get_message(self, seq: int) -> StoredMessage:
        """The message with a sequence; raises `MessageNotFoundError` if there is none."""
        check_range("seq", seq, 1, UINT64)
        return await self._get({"seq": seq}, f"message {seq}")

    async def get_last_message(self, subject: str) -> StoredMessage:
        """The last message of a subject, which may have wildcards."""
        check_filter("subject", subject)
        return await self._get({"last_by_subj": subject}, f"last message of {subject!r}")

    async def get_next_message(
        self, subject: str = ">", *, seq: int | None = None, start_time: datetime | None = None
    ) -> StoredMessage:
        """The first message of a subject at or after a sequence, or a time (2.11)."""
        body = _next_body(subject, seq, start_time)
        what = f"next message of {subject!r}"
        return self._check_time(await self._get(body, what), start_time, what)

    async def _get(self, body: dict[str, Any], what: str) -> StoredMessage:
        context = f"stream {self.name!r}: {what}"
        response = await self.api.request(
            self.api.subjects.stream_message_get(self.name), body, context=context, idempotent=True
        )
        record = self.api.decode(_Record, response.get("message"))
        return StoredMessage(
            self.name, record.subject, record.seq, record.data, record.hdrs or None, record.time
        )

    # -- from any replica -----------------------------------------------------------------------

    async def direct_get(self, seq: int) -> StoredMessage:
        """The message with a sequence; raises `MessageNotFoundError` if there is none."""
        check_range("seq", seq, 1, UINT64)
        subject = self.api.subjects.direct_get(self.name)
        return await self._direct_get(subject, {"seq": seq}, f"message {seq}")

    async def direct_get_last(self, subject: str) -> StoredMessage:
        """The last message of a subject, which may have wildcards."""
        check_filter("subject", subject)
        what = f"last message of {subject!r}"
        if "*" in subject or ">" in subject or len(subject) > _LONG_SUBJECT:
            endpoint = self.api.subjects.direct_get(self.name)
            return await self._direct_get(endpoint, {"last_by_subj": subject}, what)
        # In this form permissions can tell the subjects apart.
        endpoint = self.api.subjects.direct_get_last(self.name, subject)
        return await self._direct_get(endpoint, None, what)

    async def direct_get_next(
        self, subject: str = ">", *, seq: int | None = None, start_time: datetime | None = None
    ) -> StoredMessage:
        """The first message of a subject at or after a sequence, or a time (2.11)."""
        body = _next_body(subject, seq, start_time)
        what = f"next message of {subject!r}"
        endpoint = self.api.subjects.direct_get(self.name)
        return self._check_time(await self._direct_get(endpoint, body, what), start_time, what)

    def direct_get_batch(
        self,
        *,
        batch: int | None = None,
        subject: str = ">",
        seq: int | None = None,
        start_time: datetime | None = None,
        max_bytes: int = PAGE_BYTES,
    ) -> AsyncIterator[StoredMessage]:
        """Iterate over the messages of a subject from a sequence or a time on (2.11).

        It ends after `batch` messages, or when all that were there at the beginning have come.
        They are asked for in portions of `max_bytes`, and again where some got lost on the way.
        A server before 2.11 is asked for each message by itself.
        """
        if batch is not None:
            check_range("batch", batch, 1, INT32)
        check_range("max_bytes", max_bytes, 1, INT32)
        body = {**_next_body(subject, seq, start_time), "max_bytes": max_bytes}
        return self._batch(body, batch, start_time)

    async def _batch(
        self, body: dict[str, Any], limit: int | None, start_time: datetime | None
    ) -> AsyncIterator[StoredMessage]:
        what = f"batch of {body['next_by_subj']!r}"
        async for page in self._pages(body, limit, what):
            for message in page:
                if start_time is not None:
                    self._check_time(message, start_time, what)
                    start_time = None  # the others are later
                yield message

    def direct_get_last_many(
        self,
        subjects: str | Sequence[str],
        *,
        up_to_sequence: int | None = None,
        up_to_time: datetime | None = None,
        max_bytes: int = PAGE_BYTES,
    ) -> AsyncIterator[StoredMessage]:
        """Iterate over the last message of each of the subjects, which may have wildcards (2.11).

        All of them are from one moment: the present, or that of `up_to_sequence` or `up_to_time`.
        They are asked for in portions of `max_bytes`, each of up to 1024 subjects in the order of
        the sequences. Those that are removed before their portion is sent are left out, as may
        happen where a new message of a subject replaces the one before. Wildcards may match 1024
        subjects; `TooManyResultsError` says that they match more.
        """
        subjects = [subjects] if isinstance(subjects, str) else list(subjects)
        for index, subject in enumerate(subjects):
            check_filter(f"subjects[{index}]", subject)
        check_range("max_bytes", max_bytes, 1, INT32)
        body: dict[str, Any] = {"max_bytes": max_bytes}
        if up_to_sequence is not None:
            check_range("up_to_sequence", up_to_sequence, 1, UINT64)
            body["up_to_seq"] = up_to_sequence
        if up_to_time is not None:
            if up_to_sequence is not None:
                raise InvalidOptionError("set up_to_sequence or up_to_time, not both")
            body["up_to_time"] = _checked_time("up_to_time", up_to_time)
        return self._last_many(subjects, body)

    async def _last_many(
        self, subjects: Sequence[str], body: dict[str, Any]
    ) -> AsyncIterator[StoredMessage]:
        portions = range(0, len(subjects), SUBJECTS_AT_A_TIME)
        if len(portions) > 1 and "up_to_seq" not in body and "up_to_time" not in body:
            body = {**body, "up_to_seq": await self._last_sequence()}
        for start in portions:
            portion = subjects[start : start + SUBJECTS_AT_A_TIME]
            request = {**body, "multi_last": portion}
            async for page in self._pages(request, None, "last messages"):
                for message in page:
                    yield message

    async def _last_sequence(self) -> int:
        info = await self.api.fetch(
            StreamInfo,
            self.api.subjects.stream_info(self.name),
            context=f"stream {self.name!r}: info",
            idempotent=True,
        )
        return max(info.state.last_seq, 1)  # 0 would be no limit

    # -- requests -------------------------------------------------------------------------------

    async def _direct_get(
        self, subject: str, body: dict[str, Any] | None, what: str
    ) -> StoredMessage:
        context = f"stream {self.name!r}: {what}"
        payload = b"" if body is None else encode(body)
        loop = asyncio.get_running_loop()
        left = self.api.timeout
        end = loop.time() + left
        while True:
            try:
                reply = await self.api.client.request(subject, payload, timeout=left)
                break
            except DisconnectedError:
                left = round(end - loop.time(), 3)
                if left <= 0:
                    raise
            except NoRespondersError as error:
                raise self._nobody(context) from error
        direct = _parse_direct(reply)
        if direct is None:
            raise _status_error(reply, context)
        return direct.message

    async def _pages(
        self, body: dict[str, Any], limit: int | None, what: str
    ) -> AsyncIterator[list[StoredMessage]]:
        """Ask for one page after the other; what got lost is asked for again."""
        context = f"stream {self.name!r}: {what}"
        loop = asyncio.get_running_loop()
        end = loop.time() + self.api.timeout
        snapshot = "multi_last" in body
        started = False
        while limit is None or limit > 0:
            body["batch"] = PAGE_MESSAGES if limit is None else min(limit, PAGE_MESSAGES)
            page = await self._page(body, max(end - loop.time(), 0.001), context)
            messages = page.messages
            if snapshot and "up_to_seq" not in body:
                if not page.complete:
                    messages = []  # its end would have told which moment it is from
                elif page.up_to:
                    body.pop("up_to_time", None)
                    body["up_to_seq"] = page.up_to
            if messages:
                if not started and (pending := messages[0].num_pending) is not None:
                    # A stream may grow faster than it is read.
                    limit = pending + 1 if limit is None else min(limit, pending + 1)
                started = True
                yield messages
                if limit is not None:
                    limit -= len(messages)
                body.pop("start_time", None)
                body["seq"] = messages[-1].sequence + 1
                end = loop.time() + self.api.timeout
            elif not page.complete:
                if loop.time() >= end:
                    raise TimeoutError(
                        f"{context}: no answer in {self.api.timeout} s",
                        may_have_taken_effect=False,
                    )
                await asyncio.sleep(RETRY_DELAY)
            if page.complete and not page.more:
                return

    async def _page(self, body: dict[str, Any], timeout: float, context: str) -> _Page:
        subject = self.api.subjects.direct_get(self.name)
        replies = self.api.client.request_many(subject, encode(body), timeout=timeout)
        messages: list[StoredMessage] = []
        last = 0
        try:
            async with aclosing(cast(AsyncGenerator[Message, None], replies)):
                async for reply in replies:
                    direct = _parse_direct(reply)
                    if direct is None:
                        return _end_of_page(reply, messages, context)
                    message, previous = direct
                    if message.num_pending is None:  # a server before 2.11, which sends only one
                        return _Page([message], complete=True, more=True)
                    if previous != last:
                        break
                    messages.append(message)
                    last = message.sequence
        except DisconnectedError:
            pass
        except NoRespondersError as error:
            raise self._nobody(context) from error
        except BadRequestError as error:
            if "multi_last" in body:
                what = "the last messages of several subjects need a server of version 2.11"
                raise not_supported(self.api, context, what) from error
            raise
        return _Page(messages, complete=False, more=True)

    def _nobody(self, context: str) -> NoStreamResponseError:
        return NoStreamResponseError(
            f"{context}: nobody answers a direct get; the stream does not exist or does not have "
            "allow_direct, or none of its servers is up"
        )

    def _check_time(
        self, message: StoredMessage, start_time: datetime | None, what: str
    ) -> StoredMessage:
        """Notice a server that does not know of start times, and begins at the beginning."""
        if start_time is not None and message.timestamp < start_time:
            raise not_supported(
                self.api,
                f"stream {self.name!r}: {what}",
                "start_time needs a server of version 2.11",
            )
        return message


def _end_of_page(reply: Message, messages: list[StoredMessage], context: str) -> _Page:
    if reply.status == 204:
        headers = reply.headers
        last = messages[-1].sequence if messages else 0
        return _Page(
            messages,
            complete=headers.get("Nats-Last-Sequence") == str(last),
            more=headers.get("Nats-Num-Pending") != "0",
            up_to=int(headers.get("Nats-UpTo-Sequence") or 0),
        )
    if reply.status == 404:
        return _Page([], complete=True, more=False)
    raise _status_error(reply, context)


def _status_error(reply: Message, context: str) -> JetStreamError:
    status, description = parse_status(reply.raw_headers or b"")
    if status is None:
        return InvalidResponseError(f"{context}: not the answer to a direct get: {reply!r}")
    if status == 413:
        return TooManyResultsError(
            f"{context}: the wildcards match more than {SUBJECTS_AT_A_TIME} subjects; narrow "
            "them, or list the subjects",
            status=status,
            description=description,
        )
    return status_error(status, description, context=context)


def _next_body(subject: str, seq: int | None, start_time: datetime | None) -> dict[str, Any]:
    """What to ask for the first message of a subject at or after a place.

    The subject is always there: a sequence alone would have to be that of a message.
    """
    check_filter("subject", subject)
    body: dict[str, Any] = {"next_by_subj": subject}
    if seq is not None:
        check_range("seq", seq, 1, UINT64)
        if start_time is not None:
            raise InvalidOptionError("set seq or start_time, not both")
        body["seq"] = seq
    if start_time is not None:
        body["start_time"] = _checked_time("start_time", start_time)
    return body


def _checked_time(name: str, value: datetime) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidOptionError(f"{name} must be a datetime with a tzinfo, not {value!r}")
    return value
