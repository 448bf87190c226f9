"""Messages one after another that are alike, found and cut many at a time.

They have payloads of the same length. Either their subject is the same and they have replies of one
length, as is usual for what a consumer reads from a stream, or they have no replies and subjects of
one length, as acknowledgements and other answers have. So they stand at equal distances in the read
that brought them.

The first kind is a run: that read and a few numbers. Its messages are cut when somebody takes them,
or never: columns are made straight from the read. Somebody always waits for an answer, so answers
are cut at once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import NamedTuple, Self, TypeAlias, overload

__all__ = ["Frame", "Run", "take_answers", "take_run"]

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
        if not _are_fields(replies):
            return None
        run._replies = replies
    return run


def take_answers(
    data: bytes, position: int, line: tuple[bytes, bytes, bytes], size: int, most: int
) -> list[Frame] | None:
    """Up to `most` messages whose control lines differ in the subject only, not in its length.

    The line is that of the first one: what is before the subject, the subject, what is behind it.
    """
    head, subject, tail = line
    count = _count_alike(data, position, (head, len(subject), tail, size), most)
    if not count:
        return None
    form = f"{len(head)}x{len(subject)}s{len(tail)}x{size}s2x"
    stop = position + count * struct.calcsize(form)
    pairs = list(struct.iter_unpack(form, memoryview(data)[position:stop]))
    if not _are_fields([subject for subject, _ in pairs]):
        return None
    return [(subject, None, None, payload) for subject, payload in pairs]


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


def _are_fields(texts: list[bytes]) -> bool:
    """Whether each of them is one field of a control line."""
    joined = b"".join(texts)
    return not (_BLANK in joined or _TAB in joined or _NEWLINE in joined)
