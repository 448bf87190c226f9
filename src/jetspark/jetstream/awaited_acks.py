"""Messages whose publisher waits for the acknowledgement of each.

What becomes of them is in `ack_window`. Here is the short way of a small plain message, such as a
value that is put into a bucket: it takes hardly more than what is sent and received.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from types import coroutine

from jetspark.connection import Client
from jetspark.connection.requests import SPARE
from jetspark.protocol import EARLY_PIECES, EARLY_SHARE, FULL_PIECES, SMALL

from .ack_future import AwaitedAck
from .ack_window import AckWindow
from .codec import NOT_JSON
from .publish_ack import parse_publish_ack

__all__ = ["AwaitedAcks", "StrayAnswer"]


class StrayAnswer(Exception):
    """What answers is no acknowledgement of the stream that was expected."""

    def __init__(self, answer: bytes) -> None:
        super().__init__(answer)
        self.answer = answer


class AwaitedAcks(AckWindow):
    """A window without a limit: every message in it has a task that waits."""

    def __init__(self, client: Client, *, timeout: float) -> None:
        super().__init__(client, limit=None, backpressure=True, timeout=timeout)
        self._timeout = timeout
        self._spare: deque[AwaitedAck] = deque(maxlen=SPARE)  # to be used again
        self._prefixes, self._tails = self.encoder.prefixes, self.encoder.tails
        self._write_now = client._connection.write_now

    @coroutine
    def store(
        self, subject: str, data: bytes, stream: str
    ) -> Generator[AwaitedAck, None, int | None]:
        """Have this stream store a small plain message, and return its sequence.

        None if something is in the way, and then nothing was sent. Of what this needs, nearly
        everything is there from an earlier message.
        """
        pieces, pending = self.pieces, self.pending
        if len(pending) >= self.ceiling or type(data) is not bytes:
            return None
        if len(pieces) > EARLY_PIECES and (
            len(pieces) >= EARLY_SHARE * len(pending) or len(pieces) > FULL_PIECES
        ):
            self._write_now()
            if len(pieces) > FULL_PIECES:  # the socket takes no more
                return None
        spare = self._spare
        ack = spare.pop() if spare else self._new_ack()
        reply = ack._reply
        try:
            frame = (self._prefixes[subject], reply + self._tails[len(data)], data)
        except KeyError:
            if len(data) > SMALL:  # for which the encoder never has a tail
                spare.append(ack)
                return None
            self.request(subject, data, reply)
        else:
            if not pieces:
                self.encoder.on_output()
            pieces += frame
        ack.subject = subject
        ack._data = data
        ack._deadline = expires = self.time() + self._timeout
        pending[reply] = ack
        if expires < self.expiry:
            self.arm(expires)
        ack._asyncio_future_blocking = True
        try:
            yield ack
        except BaseException:
            self.forget(ack)
            raise
        del ack.wakeup, ack.context
        ack.settled = False
        ack._data = b""
        try:
            stored = parse_publish_ack(ack.answer)
        except NOT_JSON:
            raise StrayAnswer(ack.answer) from None
        if stored.stream != stream or stored.error is not None:
            raise StrayAnswer(ack.answer)
        if ack._base is self.base and not ack._retries:  # nothing else can come for it
            spare.append(ack)
        return stored.sequence

    def _open(self) -> None:
        super()._open()
        self._spare.clear()  # their reply subjects are of the inbox before

    def _new_ack(self) -> AwaitedAck:
        return AwaitedAck(self._loop, self.base, self.next_reply(), self.attempts)
