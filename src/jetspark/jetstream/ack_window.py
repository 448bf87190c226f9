"""Published messages that wait for their acknowledgement, and what becomes of them.

All messages of a window have reply subjects under one wildcard inbox, each its own. Every message
is settled exactly once: by its acknowledgement, a refusal, its timeout, the loss of the connection
or the end of the client. Whoever takes it out of `pending` settles it.

A message with an id can be repeated, because the stream drops the copy that is one too many. Not
so if it also expects a last sequence: some servers look at that before they look at the id, and
would refuse the copy of a message that is stored.

- When no stream answers, a message is sent again, a few times. It was not stored.
- When no acknowledgement comes, a message that can be repeated is sent again. A leader that steps
  down may store messages and forget to acknowledge them.
- When the connection is lost, what was not written yet waits for the next one, and so does what is
  published meanwhile. What was written is sent again before all that if it can be repeated. If
  not, it fails with `DisconnectedError`: it may be stored or not.
- Time goes on without a connection. A message whose timeout passes before it was ever written is
  withdrawn: `may_have_taken_effect` of its error is false.

What it costs per message decides how fast a client can publish: there is no task, no timer and no
asyncio future for a message, unless somebody waits for its acknowledgement before it is there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable

from jetspark.connection import Client
from jetspark.connection.connection import copy_error
from jetspark.connection.deadline import deadline
from jetspark.connection.requests import FIRST_REPLY
from jetspark.connection.subscription import Route
from jetspark.errors import (
    DisconnectedError,
    DuplicateInProcessError,
    InvalidOptionError,
    JetSparkError,
    JetStreamError,
    NoStreamResponseError,
    PermissionsError,
    PublishStalledError,
    ReconnectBufferFullError,
    TimeoutError,
    status_error,
)
from jetspark.protocol import (
    FULL_PIECES,
    SMALL,
    MessageBatch,
    Payload,
    parse_headers,
    parse_status,
)

from .ack_future import (
    ERRORS_KEPT,
    Attempts,
    AwaitedAck,
    Pending,
    PublishAckFuture,
    UnseenFailures,
    summary,
    wake,
)
from .publish_ack import decode_publish_ack
from .publish_headers import PublishOptions, header_block, message_data

__all__ = ["AckWindow"]

LARGE_PENDING = 64 * 1024 * 1024  # bytes of larger messages that may wait
REPORT_INTERVAL = 1.0  # seconds between reports of failures that nobody waits for

_NEVER = float("inf")
_MSG_ID = b"\r\nNats-Msg-Id:"
_EXPECTATION = b"\r\nNats-Expected-Last-"


class _Inbox(Route):
    """The subscription that acknowledgements arrive on."""

    for_answers = True

    def __init__(self, window: AckWindow) -> None:
        self.base = window.client.new_inbox().encode() + b"."
        super().__init__(window.client, self.base.decode() + "*")
        self._window = window

    def deliver(self, batch: MessageBatch) -> None:
        self._window.deliver(batch)

    def end(self, error: BaseException | None) -> None:
        self._window.end(error)

    async def settle(self) -> None:
        await self._window.settle()

    def publish_refused(self, error: PermissionsError) -> None:
        self._window.publish_refused(error)

    def disconnected(self) -> None:
        self._window.disconnected()


class AckWindow:
    """Messages that wait for their acknowledgement, `limit` of them at most.

    With `backpressure`, `publish` waits for a place; without, it raises `PublishStalledError`.
    Failures that nobody waits for are counted and reported. With neither limit nor such failures,
    because the caller awaits each future, it serves the plain `publish`.
    """

    def __init__(
        self, client: Client, *, limit: int | None, backpressure: bool, timeout: float
    ) -> None:
        if limit is not None and limit < 1:
            raise InvalidOptionError(f"max_ack_pending must be at least 1, not {limit}")
        self.client = client
        self.pending: dict[bytes, Pending] = {}
        # What the short cuts in Publisher.publish_async and AwaitedAcks.store need. They are taken
        # while fewer than `ceiling` messages wait: 0 while something else has to be looked at.
        self.ceiling = 0
        self.encoder = client._encoder
        self.pieces = self.encoder.pieces
        self.request = self.encoder.request
        self.counter = FIRST_REPLY
        self.base = b""
        self.attempts = Attempts().within(timeout)
        self.time: Callable[[], float]
        self.expiry = _NEVER  # when the timer fires
        self._limit = limit or (1 << 62)
        self._awaited = limit is None
        self._backpressure = backpressure
        self._loop: asyncio.AbstractEventLoop
        self._inbox: _Inbox | None = None
        self._large = 0  # bytes of those messages that are not small
        self._timer: asyncio.TimerHandle | None = None  # one for all timeouts and retries
        self._room: deque[asyncio.Future[None]] = deque()  # publishers that wait for a place
        self._empty: list[asyncio.Future[None]] = []  # who waits until nothing is pending
        self._unseen = UnseenFailures()
        self._unreported = 0  # of those
        self._unreported_errors: list[BaseException] = []  # some of their errors
        self._next_report = 0.0
        self._retired = False

    # -- publishing -----------------------------------------------------------------------------

    async def publish(
        self, subject: str, data: Payload, options: PublishOptions
    ) -> PublishAckFuture:
        """Send a message; whoever cancels this has not sent it."""
        attempts = self.attempts
        if len(options) > 1 or "msg_id" not in options:
            attempts = self._take_attempts(options)
        block = header_block(options) if options else None
        if type(data) is not bytes:
            data = message_data(data)
        try:
            if self._is_obstructed():
                await self._enter(subject, len(data), attempts.timeout)
            repeatable = block is not None and _can_be_repeated(block)
            return self._send(subject, data, block, attempts, repeatable)
        except BaseException:
            self._call_waiters()  # the place is for another one
            raise

    async def publish_identified(self, messages: Iterable[tuple[str, bytes, bytes]]) -> None:
        """Send many messages whose header blocks are made and have ids; nobody gets their futures.

        The same as `publish` for each, with less to do for it.
        """
        attempts = self.attempts
        try:
            for subject, data, block in messages:
                if self._is_obstructed():
                    await self._enter(subject, len(data), attempts.timeout)
                self._send(subject, data, block, attempts, True)
        except BaseException:
            self._call_waiters()  # the place is for another one
            raise

    def _is_obstructed(self) -> bool:
        """Whether the next message has to wait, or something else has to be looked at first."""
        return (
            len(self.pending) >= self.ceiling
            or self._large >= LARGE_PENDING
            or self.encoder.is_full()
        )

    def _send(
        self, subject: str, data: bytes, block: bytes | None, attempts: Attempts, repeatable: bool
    ) -> PublishAckFuture:
        """Send a message for which there is a place."""
        if self._inbox is None:
            self._open()
        now = self.time()
        when = now + attempts.timeout
        future = PublishAckFuture(subject, self.next_reply(), data, block, when, attempts)
        self._write(future)
        if len(data) > SMALL:
            self._large += len(data)
        if repeatable:
            when = future._resend_at = now + attempts.silence
        self._added(future, when)
        return future

    def _added(self, future: PublishAckFuture, when: float) -> None:
        """Wait for the acknowledgement of a message, and look after it at a certain time."""
        self.pending[future._reply] = future
        if when < self.expiry:
            self.arm(when)
        if not self.ceiling and not self._room and not self.client._restricted:
            self.ceiling = self._limit

    # What comes from another thread brings its future along.

    @property
    def takes_later(self) -> bool:
        """Whether a message can be added later than it is published."""
        return self._inbox is not None and self._backpressure and not self.client._restricted

    def add_at_once(self, future: PublishAckFuture) -> bool:
        """Send a small plain message, unless something is in its way."""
        if len(self.pending) >= self.ceiling or len(self.pieces) > FULL_PIECES:
            return False
        future._reply = reply = self.next_reply()
        self.request(future.subject, future._data, reply)
        self.pending[reply] = future
        if future._deadline < self.expiry:
            self.arm(future._deadline)
        return True

    async def add(self, future: PublishAckFuture) -> None:
        """Send it when nothing is in its way any more."""
        try:
            await self._enter(future.subject, len(future._data), future._attempts.timeout)
            if self._inbox is None:
                self._open()
            future._reply = self.next_reply()
            self._write(future)
        except BaseException:
            self._call_waiters()  # the place is for another one
            raise
        self._added(future, future._deadline)

    def fail(self, future: PublishAckFuture, error: BaseException) -> None:
        """Settle a message that could not be added."""
        self._fail(future, error)
        self._settled()

    def _take_attempts(self, options: PublishOptions) -> Attempts:
        attempts = self.attempts
        if (timeout := options.pop("timeout", None)) is not None:
            if timeout <= 0:
                raise InvalidOptionError(f"timeout must be greater than 0, not {timeout!r}")
            attempts = attempts.within(timeout)
        if (retries := options.pop("retries", None)) is not None:
            attempts = attempts._replace(retries=retries)
        if (delay := options.pop("retry_delay", None)) is not None:
            if delay <= 0:
                raise InvalidOptionError(f"retry_delay must be greater than 0, not {delay!r}")
            attempts = attempts._replace(retry_delay=delay)
        return attempts

    async def _enter(self, subject: str, size: int, timeout: float) -> None:
        """Wait for a place and for the socket, and in an outage for the reconnect buffer."""
        connection = self.client._connection
        while True:
            if self._room or self._is_full():
                await self._wait_for_place(subject, timeout)
            if self.client._restricted:
                try:
                    self.client._check_publish(size)
                    return
                except ReconnectBufferFullError:
                    if not self._backpressure:
                        raise
                what, waiting = "the connection did not come back", connection.wait_connected
            elif self.encoder.is_full() and not self._awaited:
                what, waiting = "the server takes no more", connection.make_room
            else:
                return
            text = f"publish to {subject!r}: {what}"
            async with deadline(timeout, text, may_have_taken_effect=False):
                await waiting()

    def _is_full(self) -> bool:
        return len(self.pending) >= self._limit or self._large >= LARGE_PENDING

    async def _wait_for_place(self, subject: str, timeout: float) -> None:
        waiting = f"{len(self.pending)} messages wait for their acknowledgements"
        if not self._backpressure:
            raise PublishStalledError(
                f"publish to {subject!r}: {waiting}, as many as max_ack_pending (and "
                f"{LARGE_PENDING} bytes of large ones) allow; try again when some have come"
            )
        self.ceiling = 0  # nobody overtakes
        what = f"publish to {subject!r}: {waiting}, and no place became free"
        waiter: asyncio.Future[None] | None = None
        async with deadline(timeout, what, may_have_taken_effect=False):
            while waiter is None or self._is_full():
                again = waiter is not None
                waiter = asyncio.get_running_loop().create_future()
                # Who was called and came too late is still the first.
                (self._room.appendleft if again else self._room.append)(waiter)
                try:
                    await waiter
                except asyncio.CancelledError:
                    with contextlib.suppress(ValueError):
                        self._room.remove(waiter)
                    raise

    def _open(self) -> None:
        client = self.client
        if client.closed:
            raise client._connection.closed_error()
        self._loop = asyncio.get_running_loop()
        self.time = self._loop.time
        self._inbox = inbox = _Inbox(self)
        self.base = inbox.base
        client._add_route(inbox)

    def next_reply(self) -> bytes:
        """A reply subject that was never used before."""
        self.counter += 1
        return b"%b%d" % (self.base, self.counter)

    def _write(self, future: Pending) -> None:
        """Add a message to the encoder."""
        encoder, block = self.encoder, future._headers
        subject, data = future.subject, future._data
        inbox = future._reply
        prefix = encoder.prefixes.get(subject)
        if block is None:
            encoder.request(subject, data, inbox)
        elif prefix is None or len(block) + len(data) not in encoder.sizes:
            encoder.publish(subject, data, inbox, parse_headers(block))
        else:
            # What Encoder.publish does with a message like one before, with headers in a block.
            pieces = encoder.pieces
            if not pieces:
                encoder.on_output()
            sizes = (prefix[2:], inbox, len(block), len(block) + len(data))
            pieces += (b"\r\nH%b%b %d %d\r\n" % sizes, block, data)

    def forget(self, future: Pending) -> None:
        """Stop waiting for an acknowledgement that nobody wants any more."""
        if self.pending.pop(future._reply, None) is not None:
            self._withdraw([future])
            self._free(future)
            self._settled()

    # -- settling -------------------------------------------------------------------------------

    def deliver(self, batch: MessageBatch) -> None:
        """Settle what is acknowledged or refused; late answers are dropped."""
        pending = self.pending
        answered = self.client._connection.answered
        for subject, _, header, data in batch.frames:
            future = pending.pop(subject, None)
            if future is None:
                continue
            if header is not None and not data:
                self._on_status(future, header)
                continue
            if type(future) is AwaitedAck:
                if not future.settled:
                    future.answer = data
                    future.settled = True
                    answered.append(future)
                continue
            try:
                future._ack = decode_publish_ack(data, future.subject)
            except JetStreamError as error:
                self._on_refusal(future, error)
                continue
            if len(future._data) > SMALL:
                self._large -= len(future._data)
            future._data = b""
            for waiter in future._waiters or ():
                if not waiter.settled:
                    waiter.settled = True
                    answered.append(waiter)
        self._settled()

    def _on_status(self, future: Pending, header: bytes) -> None:
        status, description = parse_status(header)
        attempts = future._attempts
        if status != 503:
            context = f"publish to {future.subject!r}"
            self._fail(future, status_error(status or 0, description, context=context))
            return
        if attempts.retries < 0 or future._retries < attempts.retries:
            future._retries += 1
            if self._retry(future):
                return
        self._fail(future, _no_stream(future, future._retries + 1))

    def _on_refusal(self, future: PublishAckFuture, error: JetStreamError) -> None:
        # A copy is about to be stored: the next one will be acknowledged as its duplicate.
        if isinstance(error, DuplicateInProcessError) and _can_be_repeated(future._headers):
            if self._retry(future):
                return
            if future._resent:  # that copy is ours, and its acknowledgement may still come
                self.pending[future._reply] = future
                return
        self._fail(future, error)

    def _retry(self, future: Pending) -> bool:
        """Send a message again after a while; False if its time does not allow that."""
        when = self.time() + future._attempts.retry_delay
        if when >= future._deadline:
            return False
        future._resend_at = when
        future._idle = True
        self.pending[future._reply] = future  # it keeps its place
        if when < self.expiry:
            self.arm(when)
        return True

    def _fail(self, future: Pending, error: BaseException) -> None:
        """Settle a message that has been taken out of `pending`."""
        self._free(future)
        if isinstance(future, AwaitedAck):
            if not future.settled:
                future.fail(error)
            return
        future._error = error
        if future._waiters:
            wake(future)
        elif not self._awaited:
            self._unseen.add(future, error)
            self._unreported += 1
            if self._unreported <= ERRORS_KEPT:
                self._unreported_errors.append(error)

    def _free(self, future: Pending) -> None:
        if len(future._data) > SMALL:
            self._large -= len(future._data)
        future._data = b""

    def _settled(self) -> None:
        """Tell those who wait for others, and of what nobody waits for."""
        if self._unreported:
            self._report()
        if self._room:
            self._call_waiters()
        if self._empty and not self.pending:
            waiters, self._empty = self._empty, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
        if self._retired and self._inbox is not None and not self.pending:
            self.client._unsubscribe(self._inbox)

    def _report(self) -> None:
        """Report failures, but not each read that brings some by itself."""
        now = self.time()
        if self._inbox is not None and now < self._next_report:
            if self._next_report < self.expiry:
                self.arm(self._next_report)
            return
        error = summary(self._unreported_errors, self._unreported)
        self._unreported, self._unreported_errors = 0, []
        self._next_report = now + REPORT_INTERVAL
        self.client._connection.report(error)

    def _call_waiters(self) -> None:
        places = 0 if self._is_full() else self._limit - len(self.pending)
        while places > 0 and self._room:
            waiter = self._room.popleft()
            if not waiter.done():
                waiter.set_result(None)
                places -= 1

    # -- time -----------------------------------------------------------------------------------

    def arm(self, when: float) -> None:
        """Have one timer for all messages, at the earliest timeout or retry."""
        if self._timer is not None:
            self._timer.cancel()
        self.expiry = when
        self._timer = self._loop.call_at(when, self._on_timer)

    def _on_timer(self) -> None:
        now = self.time()
        self._timer = None
        self.expiry = earliest = _NEVER
        expired = []
        for future in list(self.pending.values()):
            if future._deadline <= now:
                expired.append(future)
                continue
            if 0 < future._resend_at <= now:
                self._send_again(future, now)
            earliest = min(earliest, future._deadline, future._resend_at or _NEVER)
        if expired:
            self._expire(expired)
        if earliest < _NEVER:
            self.arm(earliest)
        self._settled()

    def _send_again(self, future: Pending, now: float) -> None:
        again = now + future._attempts.silence
        repeat = again < future._deadline and _can_be_repeated(future._headers)
        if self.encoder.is_full() or not self.client.connected:
            # Not now: the last copy may not even be written yet.
            future._resend_at = again if repeat or future._idle else 0.0
            return
        future._resend_at = again if repeat else 0.0
        future._resent = future._resent or not future._idle
        future._idle = False
        self._write_again(future)

    def _write_again(self, future: Pending) -> None:
        try:
            self._write(future)
        except JetSparkError as error:  # the server in use now may have a smaller max_payload
            del self.pending[future._reply]
            self._fail(future, error)

    def _expire(self, expired: list[Pending]) -> None:
        withdrawn = self._withdraw(expired)
        for future in expired:
            del self.pending[future._reply]
            if future._idle and future._retries:  # it waits to be sent again
                self._fail(future, _no_stream(future, future._retries))
                continue
            sent = _may_be_stored(future, withdrawn)
            what = "no acknowledgement" if sent else "there was no connection to send it"
            error = TimeoutError(
                f"publish to {future.subject!r}: {what} in {future._attempts.timeout} s"
            )
            error.may_have_taken_effect = sent
            self._fail(future, error)

    # -- the connection -------------------------------------------------------------------------

    def publish_refused(self, error: PermissionsError) -> None:
        """Fail the messages to a subject that is not permitted."""
        for future in list(self.pending.values()):
            if future.subject == error.subject:
                del self.pending[future._reply]
                self._fail(future, copy_error(error))
        self._settled()

    def disconnected(self) -> None:
        """Decide what becomes of the messages on their way, see the module's docstring."""
        self.ceiling = 0
        unwritten = self._unwritten()
        again: list[Pending] = []
        for future in list(self.pending.values()):
            if future._reply in unwritten or future._idle:
                continue
            if _can_be_repeated(future._headers):
                again.append(future)
                continue
            del self.pending[future._reply]
            error = DisconnectedError(
                f"publish to {future.subject!r}: the connection was lost before the "
                f"acknowledgement came, so it is not known whether the message is stored "
                f"({self.client.last_error})"
            )
            error.__cause__ = self.client.last_error
            self._fail(future, error)
        if again:
            self._resend(again)
        self._settled()

    def _resend(self, futures: list[Pending]) -> None:
        """Put messages in front of those that wait to be written."""
        encoder = self.encoder
        others = encoder.pieces[:]
        encoder.pieces.clear()
        for future in futures:
            future._resent = True
            future._resend_at = self.time() + future._attempts.silence
            self._write_again(future)
        encoder.pieces += others
        encoder.drop_control_frames()  # there are none; it counts the bytes anew

    def _unwritten(self) -> set[bytes]:
        """The reply subjects of the messages that are still in the encoder."""
        pieces = self.encoder.pieces
        frames = (pieces[start : start + 3] for start in range(0, len(pieces), 3))
        return {reply for frame in frames if (reply := self._reply_in(frame))}

    def _reply_in(self, frame: list[bytes]) -> bytes:
        """The reply subject of a message, empty if it is not of this window."""
        _, base, rest = b"".join(frame[:2]).partition(self.base)
        return base + rest.partition(b" ")[0]

    def _withdraw(self, futures: list[Pending]) -> set[bytes]:
        """Take messages back that wait for a connection; their reply subjects."""
        if self.client.connected:
            return set()
        replies = {future._reply for future in futures} & self._unwritten()
        if replies:
            pieces = self.encoder.pieces
            frames = [pieces[start : start + 3] for start in range(0, len(pieces), 3)]
            pieces.clear()
            for frame in frames:
                if self._reply_in(frame) not in replies:
                    pieces += frame
            self.encoder.drop_control_frames()  # there are none; it counts the bytes anew
        return replies

    def end(self, error: BaseException | None) -> None:
        """Fail what is pending; the next message opens a new inbox, if that is possible."""
        self.ceiling = 0
        self._inbox = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self.expiry = None, _NEVER
        client = self.client
        if error is None:
            error = client._connection.closed_error()
        unwritten = set() if client.connected else self._unwritten()
        pending, self.pending = self.pending, {}
        for future in pending.values():
            failure = copy_error(error)
            if isinstance(failure, JetSparkError):
                failure.may_have_taken_effect = _may_be_stored(future, unwritten)
            self._fail(future, failure)
        self._settled()

    def retire(self) -> None:
        """Give the inbox up as soon as nothing is pending; nobody publishes any more.

        May be called from any thread.
        """
        if self._inbox is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and so is the client
                self._loop.call_soon_threadsafe(self._retire)

    def _retire(self) -> None:
        self._retired = True
        self._settled()

    # -- the application ------------------------------------------------------------------------

    async def complete(self, timeout: float | None) -> None:
        """Wait until nothing is pending, then raise what failed and nobody has seen."""
        async with deadline(timeout, "some publishes are still not acknowledged"):
            await self._wait_until_empty()
        if self._unseen.count:
            unseen, self._unseen = self._unseen, UnseenFailures()
            raise unseen.summary()

    async def settle(self) -> None:
        """Wait until nothing is pending, while the client refuses what is new."""
        self.ceiling = 0
        await self._wait_until_empty()

    async def _wait_until_empty(self) -> None:
        while self.pending:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._empty.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                with contextlib.suppress(ValueError):
                    self._empty.remove(waiter)
                raise


def _can_be_repeated(block: bytes | None) -> bool:
    return block is not None and _MSG_ID in block and _EXPECTATION not in block


def _no_stream(future: Pending, asked: int) -> NoStreamResponseError:
    error = NoStreamResponseError(
        f"publish to {future.subject!r}: no stream answers, asked {asked} times; either none has "
        "the subject, or its leader is being elected, or JetStream is off",
        subject=future.subject,
    )
    error.may_have_taken_effect = future._resent
    return error


def _may_be_stored(future: Pending, unwritten: set[bytes]) -> bool:
    return future._resent or not (future._idle or future._reply in unwritten)
