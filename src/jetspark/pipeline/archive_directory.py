"""The directory of an archive: held by one process at a time, and always fit to be read.

Files are written below `_tmp`, where no reader looks for any. When all files of a range are there,
the manifest notes them, and only then they get their names. A crash between the two is made up for
when the directory is opened the next time. So a reader never sees half a file, or a row twice.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from jetspark.errors import ArchiveError

from .manifest import ArchivedFile, ArchivedRange, Manifest

__all__ = ["ArchiveDirectory", "open_archive", "read_archive"]

MANIFEST = "_manifest.jsonl"
LOCK = "_lock"
TEMPORARY = "_tmp"


class ArchiveDirectory:
    """A directory with an archive, or one that is to become one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = Manifest(path / MANIFEST)

    @property
    def temporary(self) -> Path:
        """Where files are written."""
        return self.path / TEMPORARY

    def repair(self) -> None:
        """Finish what a process that ended in the middle has left."""
        if self.manifest.ranges:
            self._name(self.manifest.ranges[-1].files)
        self.clean()

    def clean(self) -> None:
        """Remove what was written and is not part of the archive."""
        shutil.rmtree(self.temporary, ignore_errors=True)

    def add(self, part: ArchivedRange) -> None:
        """Make the files of a range, which are all written, part of the archive."""
        for file in part.files:
            if not (self.path / file.written).exists():
                raise ArchiveError(
                    f"{self.path}: a task has written {file.written}, but it is not there; the "
                    "directory must be one that all machines of the cluster share"
                )
        self.manifest.add(part)
        self._name(part.files)

    def _name(self, files: Iterable[ArchivedFile]) -> None:
        folders = set()
        for file in files:
            written, path = self.path / file.written, self.path / file.path
            if written.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                written.rename(path)
                folders |= {path.parent, path.parent.parent}
        for folder in folders:
            _sync(folder)

    def locate(self, file: ArchivedFile) -> Path:
        """Where a file is: under its name, unless a process ended before it gave it that."""
        path, written = self.path / file.path, self.path / file.written
        return written if not path.exists() and written.exists() else path

    def parquet_files(self) -> set[str]:
        """The Parquet files that readers find, as the manifest names them."""
        return {
            str(path.relative_to(self.path))
            for path in self.path.rglob("*.parquet")
            if not str(path.relative_to(self.path)).startswith("_")
        }


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_archive(path: Path) -> ArchiveDirectory:
    """The archive in a directory, to read what it holds; another process may add to it."""
    if not (path / MANIFEST).is_file():
        raise ArchiveError(
            f"there is no archive in {path}; `jetspark archive STREAM DIR` makes one"
        )
    directory = ArchiveDirectory(path)
    if directory.manifest.head is None:
        raise ArchiveError(
            f"the archive in {path} is empty; `jetspark archive STREAM DIR` fills it"
        )
    return directory


@contextmanager
def open_archive(path: Path) -> Iterator[ArchiveDirectory]:
    """Hold the archive in a directory, which is made if it is not there, to add to it."""
    if ":/" in str(path):
        raise ArchiveError(
            f"{path}: an archive is kept in a directory, not in an object store; mount the store, "
            "or copy the files there afterwards"
        )
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / LOCK).open("w")
    except OSError as error:
        raise ArchiveError(
            f"cannot write to {path}: {error.strerror or error}; choose another directory, or "
            "change its permissions"
        ) from error
    with lock:
        _hold(path, lock)
        directory = ArchiveDirectory(path)
        _check_content(directory)
        directory.repair()
        yield directory


def _hold(path: Path, lock: IO[str]) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ArchiveError(
            f"another process works on the archive in {path}; wait for it, or stop it first"
        ) from None


def _check_content(directory: ArchiveDirectory) -> None:
    if directory.manifest.head is not None:
        return
    strange = [entry.name for entry in directory.path.iterdir() if entry.name[0] not in "_."]
    if strange:
        raise ArchiveError(
            f"{directory.path} has no archive in it but other files, such as {min(strange)!r}; "
            "choose an empty directory"
        )
