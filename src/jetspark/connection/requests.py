"""Requests: one wildcard inbox for all of them, and a reply subject under it for each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator
from types import coroutine
from typing import TYPE_CHECKING

from jetspark.errors import (
    InvalidArgumentError,
    NoRespondersError,
    PermissionsError,
    SlowConsumerError,
    TimeoutError,
)
from jetspark.protocol import EARLY_PIECES, EARLY_SHARE, Frame, HeadersLike, MessageBatch, Payload

from .connection import copy_error
from .message import Message
from .nuid import next_nuid
from .subscription import Route
from .waiter import Waiter

if TYPE_CHECKING:
    from .client import Client

__all__ = ["FIRST_REPLY", "SPARE", "RequestMux"]

FIRST_REPLY = 1_000_000  # so that reply subjects are equally long: answers are cut faster
SPARE = 512  # reply subjects kept to be used again; servers remember the way to about as many
REPLIES_KEPT = 64 * 1024  # of one request_many, for a reader that does not keep up
_NO_RESPONDERS = b"NATS/1.0 503"


class Answer(Waiter):
    """The one answer to a request."""

    __slots__ = ("deadline", "empty", "frame", "reply", "subject", "timeout")

    def __init__(self, loop: asyncio.AbstractEventLoop, reply: bytes) -> None:
        super().__init__(loop)
        self.reply = reply
        self.empty = reply + b" 0\r\n"  # the rest of the line of a request without data
        self.subject: str
        self.timeout: float
        self.deadline: float
        self.frame: Frame  # the answer

    def on_error(self, error: BaseException) -> None:
        if not self.settled:
            self.fail(error)


class _Many:
    """Collects answers."""

    deadline = float("inf")  # looked after by request_many

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.frames: deque[Frame] = deque()
        self.error: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None

    def on_frame(self, frame: Frame) -> None:
        if len(self.frames) >= REPLIES_KEPT:
            self.error = self.error or SlowConsumerError(
                f"more than {REPLIES_KEPT} answers to {self.subject!r} wait to be taken",
                subject=self.subject,
            )
            return
        self.frames.append(frame)
        self._wake()

    def on_error(self, error: BaseException) -> None:
        self.error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def next(self, deadline: float) -> Frame | None:
        """The next answer; None when the deadline passes first."""
        loop = asyncio.get_running_loop()
        while not self.frames:
            if self.error is not None:
                raise self.error
            self._waiter = loop.create_future()
            timer = loop.call_at(deadline, self._wake)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
            if not self.frames and self.error is None and loop.time() >= deadline:
                return None
        return self.frames.popleft()


class RequestMux(Route):
    """Sends requests and hands out the answers."""

    for_answers = True

    def __init__(self, client: Client, inbox_prefix: str) -> None:
        base = f"{inbox_prefix}.{next_nuid()}."
        super().__init__(client, base + "*")
        self._base = base.encode()
        self._counter = FIRST_REPLY
        self._spare: deque[Answer] = deque(maxlen=SPARE)  # to be used again, see `ask`
        self._pieces, self._prefixes = client._encoder.pieces, client._encoder.prefixes
        self._write_now = client._connection.write_now
        self._pending: dict[bytes, Answer | _Many] = {}
        self._loop = asyncio.get_running_loop()
        self._time = self._loop.time
        self._timer: asyncio.TimerHandle | None = None  # for the earliest deadline
        self._expiry_at = float("inf")

    def deliver(self, batch: MessageBatch) -> None:
        """Hand each answer to the request that waits for it; late ones are dropped."""
        pending = self._pending
        answered = self.client._connection.answered
        for frame in batch.frames:
            request = pending.get(frame[0])
            if isinstance(request, Answer):
                del pending[frame[0]]
                if not request.settled:
                    request.frame = frame
                    request.settled = True
                    answered.append(request)
            elif request is not None:
                request.on_frame(frame)

    def end(self, error: BaseException | None) -> None:
        """Fail what is pending."""
        if self._timer is not None:
            self._timer.cancel()
        self.fail_all(error or self.client._connection.closed_error())

    def fail_all(self, error: BaseException) -> None:
        """Fail all requests, for example because the connection is lost."""
        pending, self._pending = self._pending, {}
        for request in pending.values():
            request.on_error(copy_error(error))

    def publish_refused(self, error: PermissionsError) -> None:
        """Fail the requests to a subject that is not permitted."""
        for token, request in list(self._pending.items()):
            if request.subject == error.subject:
                del self._pending[token]
                request.on_error(copy_error(error))

    @property
    def pending(self) -> int:
        """How many requests wait for an answer."""
        return len(self._pending)

    def _next_reply(self) -> bytes:
        self._counter += 1
        return b"%b%d" % (self._base, self._counter)

    async def request(
        self,
        subject: str,
        data: Payload,
        headers: HeadersLike | None,
        timeout: float,
        *,
        repeat_after: float | None = None,
    ) -> Message:
        """Send a request and wait for the first answer.

        With `repeat_after` it is sent a second time if there is none after so many seconds.
        """
        waiter = Answer(self._loop, self._next_reply())
        repeat: asyncio.TimerHandle | None = None
        try:
            self._send(subject, data, waiter.reply, headers)
            self._wait_for(waiter, subject, timeout)
            if repeat_after is not None:
                again = (subject, data, waiter.reply, headers)
                repeat = self._loop.call_later(repeat_after, self._repeat, *again)
            await waiter
        finally:
            self._pending.pop(waiter.reply, None)
            if repeat is not None:
                repeat.cancel()
        name, reply, header, answer = waiter.frame
        if header is not None and not answer:
            _raise_if_no_responders(header, subject)
        return Message(name, reply, header, answer, self.client)

    @coroutine
    def ask(self, subject: str, timeout: float) -> Generator[Answer, None, tuple[bytes, bytes]]:
        """Send an empty request that only one can answer, and return the answer's header and data.

        The reply subject is used again, and servers find the way to one that they have seen faster.
        So nobody may answer twice, and nothing is sent again.
        """
        client, pieces, spare = self.client, self._pieces, self._spare
        if client._restricted:
            client._check_publish(0)
        if len(pieces) > EARLY_PIECES and len(pieces) >= EARLY_SHARE * len(self._pending):
            self._write_now()
        answer = spare.pop() if spare else Answer(self._loop, self._next_reply())
        try:
            frame = (self._prefixes[subject], answer.empty, b"")
        except KeyError:
            client._encoder.request(subject, b"", answer.reply)
        else:
            if not pieces:
                client._encoder.on_output()
            pieces += frame
        self._wait_for(answer, subject, timeout)
        answer._asyncio_future_blocking = True
        try:
            yield answer
        except BaseException:
            self._pending.pop(answer.reply, None)
            raise
        del answer.wakeup, answer.context
        answer.settled = False
        _, _, header, data = answer.frame
        del answer.frame  # which may be large
        spare.append(answer)
        if header is not None and not data:
            _raise_if_no_responders(header, subject)
        return header or b"", data

    def _wait_for(self, waiter: Answer, subject: str, timeout: float) -> None:
        waiter.subject, waiter.timeout = subject, timeout
        waiter.deadline = deadline = self._time() + timeout
        self._pending[waiter.reply] = waiter
        if deadline < self._expiry_at:
            self._expire_at(deadline)

    def _send(self, subject: str, data: Payload, reply: bytes, headers: HeadersLike | None) -> None:
        # Unlike `publish` this does not wait for room in the socket: whoever waits for an answer
        # cannot flood it, and the wait would not be bound by the timeout of the request.
        client = self.client
        if client._restricted:
            client._check_publish(len(data))
        client._encoder.request(subject, data, reply, headers)

    def _repeat(
        self, subject: str, data: Payload, reply: bytes, headers: HeadersLike | None
    ) -> None:
        if self.client.connected:
            self._send(subject, data, reply, headers)

    def _expire_at(self, when: float) -> None:
        """Have one timer for all requests, at the earliest deadline."""
        if self._timer is not None:
            self._timer.cancel()
        self._expiry_at = when
        self._timer = self._loop.call_at(when, self._expire)

    def _expire(self) -> None:
        now = self._loop.time()
        earliest = float("inf")
        for request in list(self._pending.values()):
            if request.deadline > now:
                earliest = min(earliest, request.deadline)
            elif isinstance(request, Answer):
                request.on_error(
                    TimeoutError(
                        f"no answer to the request to {request.subject!r} in {request.timeout} s"
                    )
                )
        self._timer = None
        self._expiry_at = earliest
        if earliest < float("inf"):
            self._expire_at(earliest)

    async def request_many(
        self,
        subject: str,
        data: Payload,
        headers: HeadersLike | None,
        *,
        timeout: float,
        max_messages: int | None,
        stall: float | None,
        sentinel: Callable[[Message], bool] | None,
    ) -> AsyncIterator[Message]:
        """Send a request and yield answers until one of the conditions ends it (ADR-47)."""
        if max_messages is not None and max_messages < 1:
            raise InvalidArgumentError("max_messages must be at least 1")
        loop = asyncio.get_running_loop()
        replies = _Many(subject)
        inbox = self._next_reply()
        self._pending[inbox] = replies
        count = 0
        try:
            self._send(subject, data, inbox, headers)
            deadline = loop.time() + timeout
            while (max_messages is None or count < max_messages) and loop.time() < deadline:
                until = deadline
                if stall is not None and count:
                    until = min(deadline, loop.time() + stall)
                frame = await replies.next(until)
                if frame is None:
                    return
                name, reply, header, answer = frame
                if not count and header is not None and not answer:
                    _raise_if_no_responders(header, subject)
                message = Message(name, reply, header, answer, self.client)
                if sentinel is not None and sentinel(message):
                    return
                count += 1
                yield message
        finally:
            self._pending.pop(inbox, None)


def _raise_if_no_responders(header: bytes, subject: str) -> None:
    if header.startswith(_NO_RESPONDERS):
        raise NoRespondersError(
            f"nobody answers requests to {subject!r}: no subscription matches it", subject=subject
        )
