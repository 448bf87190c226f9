"""Runs: messages one after another that are alike, found and cut many at a time.

The messages of a run have payloads of the same length. Either their subject is the same and they
have replies of one length, as is usual for what a consumer reads from a stream, or they have no
replies and subjects of one length, as acknowledgements and other answers have. So they stand at
equal distances in the read that brought them, and a run is that read and a few numbers. Its
messages are cut when somebody takes them, or never: columns are made straight from the read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import NamedTuple, Self, TypeAlias, overload

__all__ = ["Frame", "Run", "take_run"]

Frame: TypeAlias = tuple[bytes, bytes | None, bytes | None, bytes]
"""A message as received: subject, reply, header block, payload."""

_BLANK, _TAB, _NEWLINE = b" \t\n"


class Layout(NamedTuple):
    """Where the parts of each message are, counted from its first byte."""

    reply: int  # or subject: what differs from message to message
    reply_size: int  # 0: nothing does
    payload: int
    payload_size: int
    width: int  # of the whole message


class Run(Sequence[Frame]):
    """Messages that are alike, without headers."""

    __slots__ = ("_count", "_replies", "_subjects", "data", "layout", "start", "subject")

    def __init__(
        self,
        data: bytes,
        start: int,
        subject: bytes,
        layout: Layout,
        replies: list[bytes] | None,
        count: int,
        subjects: list[bytes] | None = None,
    ) -> None:
        self.data = data  # the read that they are in
        self.start = start  # of the first one in it
        self.subject = subject
        self.layout = layout
        self._replies = replies
        self._count = count
        self._subjects = subjects  # if they differ; then `subject` means nothing

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
                self._subjects and self._subjects[first:stop],
            )
        index = range(self._count)[index]
        start = self.start + index * self.layout.width + self.layout.payload
        reply = None if self._replies is None else self._replies[index]
        subject = self.subject if self._subjects is None else self._subjects[index]
        return subject, reply, None, self.data[start : start + self.layout.payload_size]

    def __iter__(self) -> Iterator[Frame]:
        _, _, payload, size, width = self.layout
        payloads = self._cut(f"{payload}x{size}s{width - payload - size}x")
        none = repeat(None)
        # A list, whose iterator can be copied to look at what has not been taken.
        subjects = self._subjects or repeat(self.subject)
        return iter(list(zip(subjects, self._replies or none, none, payloads, strict=False)))

    def view(self) -> memoryview:
        """All of it, as it came."""
        stop = self.start + self._count * self.layout.width
        return memoryview(self.data)[self.start : stop]

    def _cut(self, form: str) -> Iterator[bytes]:
        return chain.from_iterable(struct.iter_unpack(form, self.view()))

    def __repr__(self) -> str:
        return f"<Run of {self._count} messages on {self[0][0]!r}>"


def take_run(
    data: bytes,
    position: int,
    line: tuple[bytes, bytes | None, bytes],
    subject: bytes | None,
    size: int,
    most: int,
) -> Run | None:
    """Up to `most` messages whose control lines differ in the reply only, not in its length.

    The line is that of the first one: what is before the reply, the reply, what is behind it. With
    no subject, it is the subject that differs, and stands in the place of the reply. Every part of
    every message is looked at, so a payload that looks like the protocol cannot mislead it.
    """
    head, reply, tail = line
    reply_size = len(reply or b"")
    payload = len(head) + reply_size + len(tail)
    width = payload + size + 2
    count = min(most, (len(data) - position) // width)
    fixed = (
        *enumerate(head, position),
        *enumerate(tail, position + len(head) + reply_size),
        *enumerate(b"\r\n", position + payload + size),
    )
    for place, byte in fixed:
        # This byte of every message at once.
        column = data[place : place + count * width : width]
        if column.count(byte) != count:
            count -= len(column.lstrip(bytes((byte,))))
    if not count:
        return None
    layout = Layout(len(head), reply_size, payload, size, width)
    run = Run(data, position, subject or b"", layout, None, count)
    if reply is not None:
        replies = list(run._cut(f"{len(head)}x{reply_size}s{width - len(head) - reply_size}x"))
        joined = b"".join(replies)
        if _BLANK in joined or _TAB in joined or _NEWLINE in joined:
            return None
        if subject is None:
            run._subjects = replies
        else:
            run._replies = replies
    return run
