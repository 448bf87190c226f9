"""The encoder: what the client sends, checked and turned into bytes.

Frames are collected and taken out in one piece for one write. Published messages and control
frames (SUB, PING, ...) are kept apart, because after a lost connection the messages are still
wanted while the control frames are made anew from the state of the client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from jetspark.errors import InvalidArgumentError, InvalidSubjectError, MaxPayloadError

from .headers import HeadersLike, encode_headers
from .subjects import check_queue, check_subject, check_subscribe_subject, encode_subject

__all__ = [
    "EARLY_PIECES",
    "EARLY_SHARE",
    "FULL_PIECES",
    "SMALL",
    "Encoder",
    "Payload",
    "connect_frame",
]

Payload: TypeAlias = bytes | bytearray | memoryview

_SUBJECTS_KEPT = 4096
SMALL = 4096  # bytes of a message that is not worth counting
FULL_PIECES = 3 * 768
# More requests than these are written before the turn of the loop ends if they are a fifth of those
# without an answer: the server shall work on them while other tasks make theirs. While it has
# enough to do, a system call for a few would only cost time.
EARLY_PIECES = 3 * 6
EARLY_SHARE = 3 / 5  # pieces for each request without an answer
_FULL_BYTES = 128 * 1024
_NUMBERS_ROOM = 32  # for sizes, sid and blanks in a control line


def connect_frame(fields: Mapping[str, object]) -> bytes:
    """The CONNECT frame."""
    return b"CONNECT %b\r\n" % msgspec.json.encode(fields)


class Encoder:
    """Collects frames until `take` hands them out.

    >>> encoder = Encoder()
    >>> encoder.publish("greet", b"hello")
    False
    >>> encoder.ping()
    >>> encoder.take()
    b'PUB greet 5\\r\\nhello\\r\\nPING\\r\\n'

    `on_output` is called when the first frame is added after a `take`.

    Inside, each frame is three pieces, which `take` joins, and has its CRLF in front instead of
    behind: that makes three pieces enough for a message, and one append for all of them.
    """

    def __init__(
        self,
        *,
        max_payload: int = 1024 * 1024,
        max_control_line: int = 4096,
        on_output: Callable[[], object] = lambda: None,
    ) -> None:
        self.max_control_line = max_control_line  # the server closes the connection beyond it
        self._max_payload = max_payload
        self.on_output = on_output
        self.pieces: list[bytes] = []  # of all frames that wait, three each
        self._controls: list[int] = []  # where in it the control frames begin
        self._large = 0  # bytes of those messages in it that are not small
        self._counted = (0, 0)  # so many pieces have so many bytes, see `size`
        self._taken_messages = 0
        self.prefixes: dict[str, bytes] = {}  # checked subject: CRLF, PUB, subject, blank
        self.sizes: dict[int, bytes] = {}  # length of a small message: its digits and CRLF
        self.tails: dict[int, bytes] = {}  # the same with a blank in front, as behind a reply

    @property
    def size(self) -> int:
        """How many bytes wait to be taken."""
        counted, size = self._counted
        size += sum(map(len, self.pieces[counted:]))
        self._counted = (len(self.pieces), size)
        return size

    @property
    def messages(self) -> int:
        """How many messages were published so far."""
        return self._taken_messages + len(self.pieces) // 3 - len(self._controls)

    @property
    def max_payload(self) -> int:
        """How many bytes headers and payload may have together; negative: no limit."""
        return self._max_payload

    @max_payload.setter
    def max_payload(self, value: int) -> None:
        self._max_payload = value
        self.sizes.clear()  # it holds only sizes that are allowed
        self.tails.clear()

    def publish(
        self,
        subject: str,
        data: Payload,
        reply: str | bytes | None = None,
        headers: HeadersLike | None = None,
    ) -> bool:
        """Add a message and return whether so much waits that it should be written now.

        Everything is checked first: a refused message adds nothing. Of a reply in bytes, which is
        a subject of our own making, only the length is.

        `Client.publish` has a short cut: a plain message to a subject in `prefixes`, of a length
        in `sizes`, is checked already and may be added to `pieces` directly.
        """
        try:
            prefix = self.prefixes[subject]
        except (KeyError, TypeError):
            prefix = self._check_subject(subject)
        if type(data) is not bytes:
            data = _as_bytes(data)
        if reply is not None:
            if not isinstance(reply, bytes):
                check_subject(reply, "reply subject")
                reply = encode_subject(reply, "reply subject")
            prefix = b"%b%b " % (prefix, reply)
            self._check_line(len(prefix), "subject and reply subject")
        block = encode_headers(headers) if headers else b""
        total = len(block) + len(data)
        if total > self._max_payload >= 0:
            raise MaxPayloadError(
                f"a message of {total} bytes to {subject!r} is over the server's limit of "
                f"{self._max_payload} bytes",
                size=total,
                limit=self._max_payload,
            )
        size = b"%d\r\n" % total
        if total <= SMALL:
            self.sizes[total] = size
            self.tails[total] = b" " + size
        else:
            self._large += total
        pieces = self.pieces
        if not pieces:
            self.on_output()
        if block:
            pieces += (b"\r\nH%b%d %b" % (prefix[2:], len(block), size), block, data)
        else:
            pieces += (prefix, size, data)
        return self.is_full()

    def is_full(self) -> bool:
        """Whether so much waits that it should be written now."""
        return len(self.pieces) > FULL_PIECES or self._large > _FULL_BYTES

    def request(
        self, subject: str, data: Payload, inbox: bytes, headers: HeadersLike | None = None
    ) -> bool:
        """Add a message like `publish`, with a reply subject of our own making.

        `AwaitedAcks.store` and `RequestMux.ask` have this as a short cut.
        """
        if headers is not None or type(data) is not bytes:
            return self.publish(subject, data, inbox, headers)
        pieces = self.pieces
        try:
            frame = (self.prefixes[subject], inbox + self.tails[len(data)], data)
        except (KeyError, TypeError):
            return self.publish(subject, data, inbox, headers)
        if not pieces:
            self.on_output()
        pieces += frame
        return len(pieces) > FULL_PIECES

    def publish_trusted(self, subject: bytes, data: bytes, reply: bytes | None = None) -> bool:
        """Add a small message to a subject that a server gave us, such as that of an ack."""
        pieces = self.pieces
        if not pieces:
            self.on_output()
        if reply is None:
            pieces += (b"\r\nPUB %b %d\r\n" % (subject, len(data)), data, b"")
        else:
            pieces += (b"\r\nPUB %b %b %d\r\n" % (subject, reply, len(data)), data, b"")
        return len(pieces) > FULL_PIECES

    def _check_subject(self, subject: str) -> bytes:
        check_subject(subject)
        prefix = b"\r\nPUB %b " % encode_subject(subject)
        self._check_line(len(prefix), "subject")
        self._keep_subject(subject, prefix)
        return prefix

    def trust_subject(self, subject: str) -> bool:
        """Let a subject be published to although it has wildcards in it; False if it is too long.

        Requests to the JetStream API may carry a filter in their subject.
        """
        check_subscribe_subject(subject)
        return self._keep_subject(subject, b"\r\nPUB %b " % encode_subject(subject))

    def _keep_subject(self, subject: str, prefix: bytes) -> bool:
        # One that is kept leaves room for an inbox in the control line, so `request` need not look.
        if len(prefix) > self.max_control_line // 2:
            return False
        if len(self.prefixes) >= _SUBJECTS_KEPT:
            self.prefixes.clear()
        self.prefixes[subject] = prefix
        return True

    def _check_line(self, size: int, what: str) -> None:
        if size + _NUMBERS_ROOM > self.max_control_line:
            raise InvalidSubjectError(
                f"{what} too long: the server takes {self.max_control_line} bytes in a line"
            )

    def subscribe(self, subject: str, sid: int, queue: str | None = None) -> None:
        """Add a SUB."""
        self._control(self.subscribe_frame(subject, sid, queue))

    def subscribe_frame(self, subject: str, sid: int, queue: str | None = None) -> bytes:
        """Check and encode a SUB without adding it."""
        check_subscribe_subject(subject)
        text = encode_subject(subject)
        if queue is not None:
            check_queue(queue)
            text += b" " + encode_subject(queue, "queue name")
        self._check_line(len(text), "subject and queue name")
        return b"\r\nSUB %b %d" % (text, sid)

    def unsubscribe(self, sid: int, max_messages: int | None = None) -> None:
        """Add an UNSUB; with a number the server does it after that many messages in total."""
        if max_messages is None:
            self._control(b"\r\nUNSUB %d" % sid)
        else:
            self._control(b"\r\nUNSUB %d %d" % (sid, max_messages))

    def ping(self) -> None:
        """Add a PING."""
        self._control(b"\r\nPING")

    def pong(self) -> None:
        """Add a PONG."""
        self._control(b"\r\nPONG")

    def _control(self, frame: bytes) -> None:
        pieces = self.pieces
        if not pieces:
            self.on_output()
        self._controls.append(len(pieces))
        pieces += (frame, b"", b"")

    def take(self) -> bytes:
        """Hand out all frames, for one write."""
        self._taken_messages = self.messages
        pieces = self.pieces
        if not pieces:
            return b""
        pieces[0] = pieces[0][2:]
        pieces.append(b"\r\n")
        taken = b"".join(pieces)
        pieces.clear()
        self._controls.clear()
        self._large = 0
        self._counted = (0, 0)
        return taken

    def drop_control_frames(self) -> None:
        """Keep only the published messages: the connection they were to go to is gone."""
        pieces, kept, start = self.pieces, [], 0
        for control in self._controls:
            kept += pieces[start:control]
            start = control + 3
        pieces[:] = kept + pieces[start:]
        self._controls.clear()
        self._counted = (0, 0)


def _as_bytes(data: object) -> bytes:
    # A copy of whatever is not bytes already: the caller may change it before it is sent, and a
    # memoryview may count items that are no bytes.
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidArgumentError(
            f"data must be bytes, not {type(data).__name__}; encode it first, for example "
            "with .encode() or json.dumps(...).encode()"
        )
    return bytes(data)
