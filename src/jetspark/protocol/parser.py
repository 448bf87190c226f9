"""The parser: bytes from a server in, events out.

One call takes a whole read and returns everything in it. Consecutive messages of one subscription
come as one `MessageBatch`, so that the layers above work per batch, not per message. A message is a
plain tuple of slices: nothing is decoded before somebody asks for it.

Speed comes from three habits: control lines are found and split by C code; a control line that is
like the one before (equal-sized messages on one subject, with or without a reply) is recognised
without being parsed again; a payload that spans reads is joined once, from its pieces.

How the bytes are cut into reads never matters: the events are the same, and so are the errors.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from jetspark.errors import ProtocolError

from .info import ServerInfo, parse_info
from .run import Form, Frame, take_run

__all__ = ["ErrorReply", "Event", "MessageBatch", "Op", "Parser"]


class Op(enum.Enum):
    """The events that carry nothing."""

    PING = "PING"
    PONG = "PONG"
    OK = "+OK"


class ErrorReply(msgspec.Struct, frozen=True):
    """The server sent `-ERR`; the text is without its quotes."""

    text: str


class MessageBatch(msgspec.Struct):
    """Consecutive messages of one subscription."""

    sid: int
    frames: Sequence[Frame]
    size: int = 0  # bytes on the wire, control lines included
    has_headers: bool = False  # at least one of them

    def __len__(self) -> int:
        return len(self.frames)


Event: TypeAlias = MessageBatch | ServerInfo | ErrorReply | Op

_CRLF = b"\r\n"
_NUMBERS_KEPT = 4096
_PIECES_KEPT = 1024
_RUN = 8  # so many equal control lines in a row, and more of them are expected
_SIMILAR = 16  # so many in a row with payloads of one size, and more are expected
_NOT_SIMILAR = -1024  # where they are looked for in vain, as many more until the next try
_FEW = 4  # similar messages are not worth it
_LONG_RUN = 64  # so many messages are a batch of their own
_UNKNOWN = 1 << 62  # larger than any message


class _Control(NamedTuple):
    """The control line of a message."""

    subject: bytes
    sid: int
    reply: bytes | None
    header_size: int  # -1: a MSG, which has no headers
    size: int  # of headers and payload


class Parser:
    """A parser for one connection.

    >>> parser = Parser()
    >>> parser.feed(b"PING\\r\\nMSG greet 1 5\\r\\nhel")
    [<Op.PING: 'PING'>]
    >>> parser.feed(b"lo\\r\\n")[0].frames
    [(b'greet', None, None, b'hello')]

    What is no NATS protocol raises `ProtocolError`, at once and at every later call.
    """

    def __init__(self, *, max_line: int = 1024 * 1024, max_message: int = 64 * 1024 * 1024) -> None:
        self.max_line = max_line  # bytes with CRLF; an INFO of a large cluster is long
        self.max_message = max_message  # bytes of headers and payload
        self._line_head = bytearray()  # a control line of which the end is missing
        self._control: _Control | None = None  # of a message of which the end is missing
        self._pieces: list[memoryview] = []  # what is there of its headers and payload
        self._missing = 0  # how many bytes of these are not there
        self._ending = b""  # what is there of the CRLF behind them
        self._frame_size = 0  # how many bytes all of it has on the wire
        # Numbers seen, because int() is slow. A size is the last field: with the CR in the key,
        # looking it up also proves that the line ends with CRLF.
        self._numbers: dict[bytes, int] = {}
        self._sizes: dict[bytes, int] = {}  # none over max_message
        # The last control line (head, tail, subject, size, sid, repeats), and the form of the last
        # ones with how many had it: the next read goes on with them.
        self._last_line = (b"", b"", b"", -1, -1, 0)
        self._last_form: tuple[int, int, int, int, Form | None] = (0, -1, -1, 0, None)
        self._failure: ProtocolError | None = None

    @property
    def buffered(self) -> int:
        """How many bytes of an incomplete frame are held."""
        return len(self._line_head) + sum(map(len, self._pieces)) + len(self._ending)

    def feed(self, data: bytes) -> list[Event]:
        """Take bytes from the server and return the events that they complete."""
        if self._failure is not None:
            # Without the old traceback, which would grow and keep every read alive.
            raise self._failure.with_traceback(None)
        events: list[Event] = []
        try:
            # In reads of at most max_line, no line that is complete can be too long.
            for start in range(0, len(data), self.max_line):
                read = data[start : start + self.max_line]
                position, begun = self._resume(read, events)
                self._scan(read, position, begun, events)
        except ProtocolError as error:
            self._failure = error
            self._line_head.clear()
            self._pieces.clear()
            self._ending = b""
            raise
        return events

    def _resume(self, data: bytes, events: list[Event]) -> tuple[int, MessageBatch | None]:
        """Complete what the last read cut: the position behind it, and the message that it was."""
        position = 0
        if self._line_head:
            position = data.find(b"\n", 0, self.max_line - len(self._line_head)) + 1
            if not position:
                self._keep_line_head(data)
                return len(data), None
            line = bytes(self._line_head) + data[:position]
            self._line_head.clear()
            parsed = self._parse_line(line[:-1])
            if not isinstance(parsed, _Control):
                events.append(parsed)
                return position, None
            self._begin_message(parsed, len(line))
        if self._control is not None:
            position = self._take_piece(data, position)
            if len(self._ending) == 2:
                return position, self._finish_message(self._control)
        return position, None

    def _keep_line_head(self, head: bytes) -> None:
        if len(self._line_head) + len(head) >= self.max_line:
            raise ProtocolError(f"a control line is longer than {self.max_line} bytes")
        self._line_head += head

    def _begin_message(self, control: _Control, line_size: int) -> None:
        self._control = control
        self._missing = control.size
        self._frame_size = line_size + control.size + 2

    def _take_piece(self, data: bytes, position: int) -> int:
        """Take what belongs to the incomplete message; the position behind it."""
        piece = memoryview(data)[position : position + self._missing]
        self._pieces.append(piece)
        if len(self._pieces) > _PIECES_KEPT:  # a small piece takes far more memory than its bytes
            self._pieces = [memoryview(b"".join(self._pieces))]
        self._missing -= len(piece)
        position += len(piece)
        if self._missing:
            return position
        stop = position + 2 - len(self._ending)
        self._ending += data[position:stop]
        return min(stop, len(data))

    def _finish_message(self, control: _Control) -> MessageBatch:
        """Join the pieces of a message, once."""
        _check_ending(self._ending, control.size)
        body = b"".join(self._pieces)
        self._control, self._pieces, self._ending = None, [], b""
        header: bytes | None = None
        if control.header_size >= 0:
            header, body = body[: control.header_size], body[control.header_size :]
        frame = (control.subject, control.reply, header, body)
        return MessageBatch(control.sid, [frame], self._frame_size, header is not None)

    def _scan(
        self, data: bytes, position: int, begun: MessageBatch | None, events: list[Event]
    ) -> None:
        """Take all complete frames from `position` on and keep the rest.

        They may belong to a batch that the last read has begun.
        """
        find, startswith, endswith = data.find, data.startswith, data.endswith
        number_of, size_of = self._numbers.get, self._sizes.get
        length = len(data)
        frames: list[Frame] = []  # of the batch being filled
        has_headers = False  # one of them
        batch_start = position
        # The last control line, if it had no headers: what stood before its reply and behind it.
        # Without a reply, head is all of the line. And how many lines like it came in a row.
        head, tail, subject, size, batch_sid, repeats = self._last_line
        # Of those that had to be parsed, the last: how many fields (negative: with headers), and
        # the payload's size. And how many like it, whatever the rest of them, came in a row.
        form_kind, form_sid, form_payload, similar, form = self._last_form
        if begun is not None:
            if begun.sid == batch_sid:
                frames = [*begun.frames]
                has_headers = begun.has_headers
                batch_start -= begun.size
            else:  # only its control line was cut, and the last one is of another subscription
                events.append(begun)
        reply: bytes | None = None
        size_text = b""
        header_size = -1
        while position < length:
            alike = bool(head) and startswith(head, position)
            if alike and not tail:
                start = position + len(head)
            else:
                end = find(b"\n", position)
                if end < 0:
                    self._keep_line_head(data[position:])
                    break
                start = end + 1
                if alike:
                    alike = endswith(tail, position, start)
                    reply = data[position + len(head) : start - len(tail)]
                    alike = alike and bool(reply) and 32 not in reply and 9 not in reply
            if alike:
                repeats += 1
                # Worth it only if the read can have as many again.
                if repeats >= _RUN and length - position >= _RUN * (start - position + size + 2):
                    width = start - position + size + 2
                    run = take_run(data, position, (head, reply, tail), subject, size, repeats)
                    if run is None:
                        repeats = 0
                    else:
                        taken = len(run)
                        stop = position + taken * width
                        # After one that something else ended, not much is expected of the next.
                        ended = taken < repeats and stop + width <= length
                        repeats = taken if ended else repeats + taken
                        if taken < _LONG_RUN:
                            frames += run
                        else:
                            if frames:
                                taken = position - batch_start
                                events.append(MessageBatch(batch_sid, frames, taken, has_headers))
                                frames, has_headers = [], False
                            events.append(MessageBatch(batch_sid, run, stop - position))
                            batch_start = stop
                        position = stop
                        continue
            else:
                text = data[position:end]  # with its CR
                fields = text.split(b" ")
                verb, count = fields[0], len(fields)
                kind = count
                head = tail = b""
                repeats = 0
                reply = None
                size = -1  # unknown
                header_size = -1  # no headers
                if verb == b"MSG":
                    if count == 5:
                        _, next_subject, sid_text, reply, next_size = fields
                        size = size_of(next_size, -1) if reply else -1
                        if next_subject == subject and next_size == size_text:
                            head = b"MSG %b %b " % (subject, sid_text)
                            tail = b" %b\n" % size_text
                        subject, size_text = next_subject, next_size
                    elif count == 4:
                        _, next_subject, sid_text, next_size = fields
                        size = size_of(next_size, -1)
                        if next_size != size_text or next_subject == subject:
                            head = data[position:start]
                        subject, size_text = next_subject, next_size
                elif verb == b"HMSG":
                    header_size = _UNKNOWN
                    kind = -count
                    if count == 6:
                        _, subject, sid_text, reply, header_text, size_text = fields
                        header_size = number_of(header_text, _UNKNOWN)
                        size = size_of(size_text, -1) if reply else -1
                    elif count == 5:
                        _, subject, sid_text, header_text, size_text = fields
                        header_size = number_of(header_text, _UNKNOWN)
                        size = size_of(size_text, -1)
                    if header_size > size:
                        size = -1  # unknown, or wrong
                if (
                    size < 0  # another verb, or a number not seen yet
                    or (sid := number_of(sid_text, -1)) < 0
                    or not subject  # two blanks in a row
                    or 9 in text  # a tab; to look for b"\t" would take ten times as long
                ):
                    head = tail = b""
                    parsed = self._parse_line(text)
                    if not isinstance(parsed, _Control):
                        if frames:
                            taken = position - batch_start
                            events.append(MessageBatch(batch_sid, frames, taken, has_headers))
                            frames, has_headers = [], False
                        events.append(parsed)
                        position = batch_start = start
                        continue
                    subject, sid, reply, header_size, size = parsed
                if sid != batch_sid:
                    if frames:
                        taken = position - batch_start
                        events.append(MessageBatch(batch_sid, frames, taken, has_headers))
                        frames, has_headers = [], False
                    batch_sid = sid
                    batch_start = position
                payload_size = size if header_size < 0 else size - header_size
                if kind != form_kind or payload_size != form_payload or sid != form_sid:
                    form_kind, form_payload, form_sid = kind, payload_size, sid
                    similar, form = 0, None
                elif similar < _SIMILAR:
                    similar += 1
                elif length - position >= _FEW * (start - position + size + 2):
                    if form is None:
                        form = Form(
                            sid,
                            has_reply=reply is not None,
                            has_headers=header_size >= 0,
                            payload_size=payload_size,
                            max_size=self.max_message,
                        )
                    found = form.take(data, position)
                    if found is None:
                        similar = _NOT_SIMILAR
                    else:
                        frames += found[0]
                        has_headers = has_headers or header_size >= 0
                        position = found[1]
                        head = tail = b""
                        subject = frames[-1][0]
                        if header_size < 0 and len({frame[0] for frame in frames[-_RUN:]}) == 1:
                            similar = 0  # a run may have begun
                        continue
            stop = start + size
            if stop + 2 > length:
                control = _Control(subject, batch_sid, reply, header_size, size)
                self._begin_message(control, start - position)
                self._take_piece(data, start)
                break
            if data[stop] != 13 or data[stop + 1] != 10:
                _check_ending(data[stop : stop + 2], size)
            if header_size < 0:
                frames.append((subject, reply, None, data[start:stop]))
            else:
                split = start + header_size
                frames.append((subject, reply, data[start:split], data[split:stop]))
                has_headers = True
            position = stop + 2
        if frames:
            events.append(MessageBatch(batch_sid, frames, position - batch_start, has_headers))
        self._last_line = (head, tail, subject, size, batch_sid, repeats)
        self._last_form = (form_kind, form_sid, form_payload, similar, form)

    def _parse_line(self, line: bytes) -> _Control | Event:
        """Parse any control line, however it is spelled; it comes with its CR.

        Only blanks and tabs separate fields: the server lets all other control characters, even a
        CR, pass in subjects.
        """
        if not line.endswith(b"\r"):
            raise ProtocolError(f"a control line does not end with CRLF: {_excerpt(line)}")
        line = line[:-1].strip(b" \t")
        fields = [field for field in line.replace(b"\t", b" ").split(b" ") if field]
        verb = fields[0].upper() if fields else b""
        if verb in (b"MSG", b"HMSG"):
            return self._parse_message_line(line, fields[1:], has_headers=verb == b"HMSG")
        if verb == b"INFO":
            return parse_info(line[4:])
        if verb == b"-ERR":
            text = line[4:].strip().decode("utf-8", "replace")
            return ErrorReply(text[1:-1] if text[:1] == text[-1:] == "'" else text)
        try:
            return _PLAIN[verb]
        except KeyError:
            raise ProtocolError(f"unknown operation: {_excerpt(line)}") from None

    def _parse_message_line(self, line: bytes, args: list[bytes], *, has_headers: bool) -> _Control:
        numbers = 2 if has_headers else 1
        if len(args) not in (2 + numbers, 3 + numbers):
            raise ProtocolError(f"wrong number of arguments: {_excerpt(line)}")
        reply = args[2] if len(args) == 3 + numbers else None
        try:
            sid = self._number(args[1])
            size = self._number(args[-1])
            header_size = self._number(args[-2]) if has_headers else -1
        except ValueError:
            raise ProtocolError(f"not a number: {_excerpt(line)}") from None
        if size > self.max_message:
            raise ProtocolError(f"a message of {size} bytes is over {self.max_message}")
        if header_size > size:
            raise ProtocolError(f"headers longer than the message: {_excerpt(line)}")
        _keep_number(self._sizes, args[-1] + b"\r", size)
        return _Control(args[0], sid, reply, header_size, size)

    def _number(self, token: bytes) -> int:
        if not token.isdigit() or len(token) > 18:
            raise ValueError(token)
        number = int(token)
        _keep_number(self._numbers, token, number)
        return number


_PLAIN = {b"PING": Op.PING, b"PONG": Op.PONG, b"+OK": Op.OK}


def _keep_number(numbers: dict[bytes, int], token: bytes, number: int) -> None:
    if len(numbers) >= _NUMBERS_KEPT:
        numbers.clear()
    numbers[token] = number


def _check_ending(ending: bytes, size: int) -> None:
    if ending != _CRLF:
        raise ProtocolError(f"a message of {size} bytes does not end with CRLF")


def _excerpt(line: bytes) -> str:
    return repr(line if len(line) <= 80 else line[:80] + b"...")
