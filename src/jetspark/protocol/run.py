"""Messages one after another that are alike, found and cut many at a time.

They have payloads of the same length.

If they have no headers, one subject, and replies of one length, as is usual for what a consumer
reads from a stream with one subject, they stand at equal distances in the read that brought them.
These are a run: that read and a few numbers. Its messages are cut when somebody takes them, or
never: columns are made straight from the read.

If subjects, replies and headers are as they come, as with answers to requests and the keys of a
bucket, the messages are similar. A regular expression, made for their form, cuts them all in one
call.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import NamedTuple, Self, TypeAlias, overload

__all__ = ["Form", "Frame", "Run", "take_run"]

Frame: TypeAlias = tuple[bytes, bytes | None, bytes | None, bytes]
"""A message as received: subject, reply, header block, payload."""

_BLANK, _TAB, _NEWLINE = b" \t\n"

# Parts of regular expressions. None of them ever goes back, which would take time.
_FIELD = b"([^ ]++)"
_SIZES = rb"([^\r]++)"
_HEADERS = rb"((?:[^\r]++\r\n)++\r\n)"

_SIZES_KEPT = 256


class Layout(NamedTuple):
    """Where the parts of each message are, counted from its first byte."""

    reply: int
    reply_size: int  # 0: they have none
    payload: int
    payload_size: int
    width: int  # of the whole message


class Run(Sequence[Frame]):
    """Messages on one subject that are alike, without headers."""

    __slots__ = ("_count", "_replies", "data", "layout", "start", "subject")

    def __init__(
        self,
        data: bytes,
        start: int,
        subject: bytes,
        layout: Layout,
        replies: list[bytes] | None,
        count: int,
    ) -> None:
        self.data = data  # the read that they are in
        self.start = start  # of the first one in it
        self.subject = subject
        self.layout = layout
        self._replies = replies
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Frame: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Frame | Self:
        """One message, or the run of some that follow one another."""
        if isinstance(index, slice):
            first, stop, step = index.indices(self._count)
            if step != 1:
                raise ValueError("a run cannot be cut with a step")
            return type(self)(
                self.data,
                self.start + first * self.layout.width,
                self.subject,
                self.layout,
                self._replies and self._replies[first:stop],
                max(stop - first, 0),
            )
        index = range(self._count)[index]
        start = self.start + index * self.layout.width + self.layout.payload
        reply = None if self._replies is None else self._replies[index]
        return self.subject, reply, None, self.data[start : start + self.layout.payload_size]

    def __iter__(self) -> Iterator[Frame]:
        _, _, payload, size, width = self.layout
        payloads = self._cut(f"{payload}x{size}s{width - payload - size}x")
        none = repeat(None)
        # A list, whose iterator can be copied to look at what has not been taken.
        subjects = repeat(self.subject)
        return iter(list(zip(subjects, self._replies or none, none, payloads, strict=False)))

    def view(self) -> memoryview:
        """All of it, as it came."""
        stop = self.start + self._count * self.layout.width
        return memoryview(self.data)[self.start : stop]

    def _cut(self, form: str) -> Iterator[bytes]:
        return chain.from_iterable(struct.iter_unpack(form, self.view()))

    def __repr__(self) -> str:
        return f"<Run of {self._count} messages on {self[0][0]!r}>"


class Form:
    """What similar messages have in common: all but subject, reply and headers."""

    __slots__ = ("_find", "_has_reply", "_header_sizes", "_width")

    def __init__(
        self, sid: int, *, has_reply: bool, has_headers: bool, payload_size: int, max_size: int
    ) -> None:
        self._has_reply = has_reply
        self._header_sizes = _HeaderSizes(payload_size, max_size) if has_headers else None
        line = [b"HMSG" if has_headers else b"MSG", _FIELD, b"%d" % sid]
        if has_reply:
            line.append(_FIELD)
        line.append(_SIZES if has_headers else b"%d" % payload_size)
        headers = _HEADERS if has_headers else b""
        message = rb"%b\r\n%b(.{%d})\r\n" % (b" ".join(line), headers, payload_size)
        # Whatever else comes is one more match, without parts: so all of them stand in a row.
        self._find = re.compile(b"(?s:%b|.+)" % message).findall
        fixed = [part for part in line if part not in (_FIELD, _SIZES)]
        # Of a message on the wire without what differs.
        self._width = len(b"".join(fixed)) + len(line) - 1 + payload_size + 4

    def take(self, data: bytes, position: int) -> tuple[list[Frame], int] | None:
        """The messages from there on that have this form, and the position behind them."""
        found = self._find(data, position)
        if not found[-1][0]:
            found.pop()
        if not found:
            return None
        position += len(found) * self._width
        subjects, *others, payloads = zip(*found, strict=True)
        fields = b"".join(subjects)
        replies: Iterable[bytes | None] = repeat(None)
        headers: Iterable[bytes | None] = repeat(None)
        if self._has_reply:
            replies = others.pop(0)
            fields += b"".join(replies)
        if self._header_sizes is not None:
            sizes, headers = others
            lengths = list(map(len, headers))
            if lengths != list(map(self._header_sizes.__getitem__, sizes)):
                return None
            position += sum(lengths) + sum(map(len, sizes))
        if not _are_fields(fields):
            return None
        return list(zip(subjects, replies, headers, payloads, strict=False)), position + len(fields)


class _HeaderSizes(dict[bytes, int]):
    """How long headers are, by the sizes in the control line; -1 if these are not of the form."""

    def __init__(self, payload_size: int, max_size: int) -> None:
        super().__init__()
        self._payload_size = payload_size
        self._max_size = max_size  # of headers and payload

    def __missing__(self, sizes: bytes) -> int:
        header_size, _, size = sizes.partition(b" ")
        found = int(header_size) if header_size.isdigit() and len(header_size) <= 18 else -1
        total = found + self._payload_size
        if total > self._max_size or size != b"%d" % total:
            found = -1
        if len(self) >= _SIZES_KEPT:
            self.clear()
        self[sizes] = found
        return found


def take_run(
    data: bytes,
    position: int,
    line: tuple[bytes, bytes | None, bytes],
    subject: bytes,
    size: int,
    most: int,
) -> Run | None:
    """Up to `most` messages whose control lines differ in the reply only, not in its length.

    The line is that of the first one: what is before the reply, the reply, what is behind it. Every
    part of every message is looked at, so a payload that looks like the protocol cannot mislead it.
    """
    head, reply, tail = line
    reply_size = len(reply or b"")
    payload = len(head) + reply_size + len(tail)
    width = payload + size + 2
    count = _count_alike(data, position, (head, reply_size, tail, size), most)
    if not count:
        return None
    layout = Layout(len(head), reply_size, payload, size, width)
    run = Run(data, position, subject, layout, None, count)
    if reply is not None:
        replies = list(run._cut(f"{len(head)}x{reply_size}s{width - len(head) - reply_size}x"))
        if not _are_fields(b"".join(replies)):
            return None
        run._replies = replies
    return run


def _count_alike(data: bytes, position: int, form: tuple[bytes, int, bytes, int], most: int) -> int:
    """How many messages have this before and behind what differs, and the payload's length."""
    head, differs, tail, size = form
    behind = position + len(head) + differs
    ending = behind + len(tail) + size
    width = ending + 2 - position
    count = min(most, (len(data) - position) // width)
    fixed = (*enumerate(head, position), *enumerate(tail, behind), *enumerate(b"\r\n", ending))
    for place, byte in fixed:
        # This byte of every message at once.
        column = data[place : place + count * width : width]
        expected = bytes((byte,))
        if column != expected * count:
            count -= len(column.lstrip(expected))
    return count


def _are_fields(joined: bytes) -> bool:
    """Whether texts that are joined here are one field of a control line each."""
    return not (_BLANK in joined or _TAB in joined or _NEWLINE in joined)
