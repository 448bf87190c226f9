"""The acknowledgement that a publisher waits for, and the failures that nobody waited for.

What settles them is in `ack_window`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeAlias, final

import msgspec

from jetspark.connection.waiter import Waiter
from jetspark.errors import JetStreamError

from .publish_ack import PublishAck

__all__ = [
    "Attempts",
    "AwaitedAck",
    "Pending",
    "PublishAckFuture",
    "UnseenFailures",
    "summary",
    "wake",
]

ERRORS_KEPT = 16
LONGEST_SILENCE = 5.0


class Attempts(NamedTuple):
    """How long and how often a message is tried; times are seconds."""

    timeout: float = 5.0
    silence: float = 1.25  # without an acknowledgement until what can be repeated is
    retries: int = 2  # when no stream answers (ADR-22); -1: until the timeout
    retry_delay: float = 0.25  # before that; a leader election takes about as long

    def within(self, timeout: float) -> Attempts:
        """The same with another timeout."""
        return self._replace(timeout=timeout, silence=min(timeout / 4, LONGEST_SILENCE))


class AckWaiter(Waiter):
    """What one task waits for that wants an acknowledgement."""

    __slots__ = ()

    in_bursts = True


# gc=False: nothing that it refers to leads back to it once it is settled.
class PublishAckFuture(msgspec.Struct, gc=False, eq=False):
    """The acknowledgement of a published message, to be awaited now, later or never.

    >>> future = await js.publish_async("orders.new", b"a dozen eggs")  # doctest: +SKIP
    >>> ack = await future  # doctest: +SKIP

    It may be awaited several times and by several tasks. Cancelling a task that waits for it does
    not take the message back.
    """

    subject: str
    _reply: bytes  # where the acknowledgement is to come; empty before it is sent
    _data: bytes  # until it is settled, to be sent again
    _headers: bytes | None
    _deadline: float
    _attempts: Attempts
    _ack: PublishAck | None = None
    _error: BaseException | None = None
    _waiters: list[Waiter] | None = None
    _unseen: UnseenFailures | None = None  # where the error waits to be seen
    _retries: int = 0  # so far, because no stream answered
    _resend_at: float = 0.0  # when it is sent again, if nothing happens; 0: not at all
    _idle: bool = False  # it is not on its way, but waits to be sent again
    _resent: bool = False  # while an earlier copy may be on its way

    def done(self) -> bool:
        """Whether the message is acknowledged or has failed."""
        return self._ack is not None or self._error is not None

    def result(self) -> PublishAck:
        """The acknowledgement; raises what the publish failed with."""
        error = self.exception()
        if error is not None:
            raise error.with_traceback(None)  # or it would grow with each call
        assert self._ack is not None
        return self._ack

    def exception(self) -> BaseException | None:
        """What the publish failed with, None if it is acknowledged."""
        if not self.done():
            raise asyncio.InvalidStateError(f"{self!r}: await it first")
        if self._unseen is not None:
            self._unseen.see(self)
            self._unseen = None
        return self._error

    def __await__(self) -> Generator[Any, None, PublishAck]:
        if not self.done():
            waiter = AckWaiter(asyncio.get_running_loop())
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(waiter)
            try:
                yield from waiter.__await__()
            finally:
                self._waiters.remove(waiter)
        return self.result()

    def __repr__(self) -> str:
        state = repr(self._ack or self._error) if self.done() else "pending"
        return f"<PublishAckFuture subject={self.subject!r} {state}>"


@final
class AwaitedAck(AckWaiter):
    """The acknowledgement of a plain small message, for the one task that publishes and awaits it.

    It fails with what the publish failed with. When the acknowledgement has come, it may be used
    again, if nobody else can answer, and the message was sent once. Servers remember the way to a
    reply subject that they have seen, and find it faster.
    """

    __slots__ = (
        "_attempts",
        "_base",
        "_data",
        "_deadline",
        "_idle",
        "_reply",
        "_resend_at",
        "_resent",
        "_retries",
        "answer",
        "subject",
    )

    _headers = None

    def __init__(
        self, loop: asyncio.AbstractEventLoop, base: bytes, reply: bytes, attempts: Attempts
    ) -> None:
        super().__init__(loop)
        self._base = base  # the inbox that the reply subject belongs to
        # As in PublishAckFuture.
        self.subject: str
        self._reply = reply
        self._data: bytes
        self._deadline: float
        self._attempts = attempts
        self._retries = 0
        self._resend_at = 0.0
        self._idle = False
        self._resent = False
        self.answer: bytes  # the acknowledgement, or an error of the stream


Pending: TypeAlias = PublishAckFuture | AwaitedAck
"""What waits for an acknowledgement."""


def wake(future: PublishAckFuture) -> None:
    """Let those go on who wait for a future that is settled now."""
    for waiter in future._waiters or ():
        if not waiter.settled:
            waiter.settled = True
            waiter.wake()


class UnseenFailures:
    """Publishes that failed while nobody waited for them, until somebody looks at them."""

    def __init__(self) -> None:
        self.count = 0
        self._errors: dict[int, BaseException] = {}  # some of them

    def add(self, future: PublishAckFuture, error: BaseException) -> None:
        """Note a failure."""
        self.count += 1
        future._unseen = self
        if len(self._errors) < ERRORS_KEPT:
            self._errors[id(future)] = error

    def see(self, future: PublishAckFuture) -> None:
        """Note that somebody has seen a failure after all."""
        self.count -= 1
        self._errors.pop(id(future), None)

    def summary(self) -> BaseException:
        """All of them in one error."""
        return summary(list(self._errors.values()), self.count)


def summary(errors: Sequence[BaseException], count: int) -> BaseException:
    """The one error that there is, or a group with some of them."""
    if count == 1 and errors:
        return errors[0]
    errors = errors[:ERRORS_KEPT]
    text = f"{count} publishes failed"
    if len(errors) < count:
        text += f", {len(errors)} of the errors are here"
    return BaseExceptionGroup(text, errors or [JetStreamError("none of the errors was kept")])
