"""The manifest of an archive: what it holds, in a file that is only ever appended to.

The first line of JSON says which stream it is, and how it is laid out. Each further line is a
range of sequences that is complete: its files, their counts and checks, and what was lost. A line
is the moment in which a range counts as archived. A crash can leave the last line unfinished, and
then that never happened.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from jetspark.errors import ArchiveError

__all__ = ["ArchivedFile", "ArchivedRange", "Head", "Manifest"]

VERSION = 1


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """Which stream an archive is of, and how it is laid out."""

    jetspark_archive: int = VERSION
    stream: str
    created: datetime
    """The stream, which is another one if it is deleted and created again."""
    captured: tuple[str, ...] = ()
    """The subjects of the stream when the archive began."""
    subjects: tuple[str, ...] = ()
    """The messages that were asked for; all if there are none."""
    by_token: int
    """The token of the subject that divides the files; 0: none."""
    first: int
    """The sequence with which the archive begins."""


class ArchivedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A Parquet file of an archive."""

    path: str
    """Below the directory of the archive."""
    written: str
    """Where it was before its range was complete."""
    rows: int
    bytes: int
    first: int
    last: int
    """The sequences of its first and last row."""
    since: datetime
    until: datetime
    """And their times."""
    check: str


class ArchivedRange(msgspec.Struct, frozen=True, kw_only=True):
    """A range of sequences that is archived completely."""

    first: int
    last: int
    rows: int
    bytes: int
    lost: int = 0
    """Messages, at most, that the stream had removed before they were archived."""
    archived: datetime
    files: tuple[ArchivedFile, ...]


class Manifest:
    """What an archive holds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.head: Head | None = None
        self.ranges: list[ArchivedRange] = []
        self._end = 0  # of the last whole line
        self._read()

    @property
    def next(self) -> int:
        """The first sequence that is not archived."""
        if self.ranges:
            return self.ranges[-1].last + 1
        return self.head.first if self.head is not None else 1

    @property
    def rows(self) -> int:
        """How many messages are archived."""
        return sum(part.rows for part in self.ranges)

    @property
    def lost(self) -> int:
        """How many messages, at most, were lost."""
        return sum(part.lost for part in self.ranges)

    @property
    def files(self) -> list[ArchivedFile]:
        """All files, in the order of their ranges."""
        return [file for part in self.ranges for file in part.files]

    def _read(self) -> None:
        try:
            lines = self.path.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return
        for number, line in enumerate(lines):
            try:
                if not line.endswith(b"\n"):
                    raise msgspec.DecodeError("it has no end")
                self._take(line)
            except msgspec.MsgspecError as error:
                if number == len(lines) - 1:
                    return  # it was being written when the process ended
                raise ArchiveError(
                    f"{self.path}: line {number + 1} is damaged ({error}); the files are not "
                    "touched: archive into a new directory, or restore the manifest"
                ) from None
            self._end += len(line)

    def _take(self, line: bytes) -> None:
        if self.head is not None:
            self.ranges.append(msgspec.json.decode(line, type=ArchivedRange))
            return
        head = msgspec.json.decode(line, type=Head)
        if head.jetspark_archive != VERSION:
            raise ArchiveError(
                f"{self.path}: version {head.jetspark_archive} of an archive is not known, only "
                f"{VERSION}; use the jetspark that wrote it"
            )
        self.head = head

    def begin(self, head: Head) -> None:
        """Write the first line."""
        self._append(head)
        self.head = head

    def add(self, part: ArchivedRange) -> None:
        """Write that a range is archived; when this returns, it stays so."""
        self._append(part)
        self.ranges.append(part)

    def _append(self, value: Any) -> None:
        line = msgspec.json.encode(value) + b"\n"
        with self.path.open("r+b" if self.path.exists() else "w+b") as file:
            file.truncate(self._end)  # what a crash may have left
            file.seek(self._end)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._end += len(line)
