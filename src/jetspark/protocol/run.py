"""Messages one after another that are alike, found and cut many at a time.

They have payloads of the same length, and headers of the same length if they have any.

If also their subject is the same and their replies have one length, as is usual for what a consumer
reads from a stream with one subject, they stand at equal distances in the read that brought them.
These are a run: that read and a few numbers. Its messages are cut when somebody takes them, or
never: columns are made straight from the read.

If subjects and replies are as they come, as with answers to requests and the keys of a bucket, the
messages are similar. A regular expression, made for their form, cuts them all in one call.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat, takewhile
from typing import NamedTuple, Self, TypeAlias, overload

__all__ = ["Form", "Frame", "Run", "take_run"]

Frame: TypeAlias = tuple[bytes, bytes | None, bytes | None, bytes]
"""A message as received: subject, reply, header block, payload."""

_BLANK, _TAB, _NEWLINE = b" \t\n"


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
    """What similar messages have in common: fields and sizes, but neither subject nor reply."""

    __slots__ = ("_find", "_has_headers", "_has_reply", "_width")

    def __init__(self, *, has_reply: bool, header_size: int, size: int) -> None:
        """The sizes are as in the control line; without headers, `header_size` is -1."""
        self._has_reply = has_reply
        self._has_headers = header_size >= 0
        verb, sizes, header = b"MSG", b"%d" % size, b""
        if self._has_headers:
            verb, sizes, header = b"HMSG", b"%d %d" % (header_size, size), b"(.{%d})" % header_size
        reply = b" ([^ ]+)" if has_reply else b""
        payload_size = size - max(header_size, 0)
        line = b"%b ([^ ]+) ([^ ]+)%b %b\r\n" % (verb, reply, sizes)
        # Whatever else comes is one more match, without parts: so all of them stand in a row.
        pattern = re.compile(b"(?s:%b%b(.{%d})\r\n|.+)" % (line, header, payload_size))
        self._find = pattern.findall
        blanks = 4 if has_reply else 3
        self._width = len(verb) + blanks + len(sizes) + 2 + size + 2  # without the other fields

    def take(self, data: bytes, position: int, sid: bytes) -> tuple[list[Frame], int] | None:
        """The messages from there on that have this form, and the position behind them."""
        found = self._find(data, position)
        if not found[-1][0]:
            found.pop()
        if [parts[1] for parts in found] != [sid] * len(found):
            found = list(takewhile(lambda parts: parts[1] == sid, found))
        if not found:
            return None
        replies: Iterable[bytes | None] = repeat(None)
        headers: Iterable[bytes | None] = repeat(None)
        subjects, _, *others, payloads = zip(*found, strict=True)
        fields = b"".join(subjects)
        if self._has_reply:
            replies = others.pop(0)
            fields += b"".join(replies)
        if self._has_headers:
            (headers,) = others
        if not _are_fields(fields):
            return None
        frames = list(zip(subjects, replies, headers, payloads, strict=False))
        return frames, position + len(fields) + len(frames) * (self._width + len(sid))


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
