"""The manifest of an archive and its directory, as they are after crashes and other mishaps."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jetspark.errors import ArchiveError
from jetspark.pipeline.archive_directory import open_archive, read_archive
from jetspark.pipeline.manifest import (
    ArchivedFile,
    ArchivedRange,
    Head,
    Manifest,
)

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
HEAD = Head(stream="ORDERS", created=NOW, by_token=1, first=1)


def a_file(name: str = "day=2026-01-31/a.parquet") -> ArchivedFile:
    return ArchivedFile(
        path=name,
        written=f"_tmp/{Path(name).name}.part",
        rows=10,
        bytes=3,
        first=1,
        last=10,
        since=NOW,
        until=NOW,
        check="00000000",
    )


def a_range(first: int = 1, *files: ArchivedFile) -> ArchivedRange:
    return ArchivedRange(first=first, last=first + 9, rows=10, bytes=3, archived=NOW, files=files)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path / "m")
    assert manifest.next == 1
    manifest.begin(HEAD)
    manifest.add(a_range(1, a_file()))
    manifest.add(a_range(11))
    again = Manifest(tmp_path / "m")
    assert again.head == HEAD
    assert again.ranges == manifest.ranges
    assert (again.next, again.rows, again.files) == (21, 20, [a_file()])


@pytest.mark.parametrize("cut", [1, 40])
def test_an_unfinished_line_never_happened(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "m"
    manifest = Manifest(path)
    manifest.begin(HEAD)
    manifest.add(a_range(1))
    manifest.add(a_range(11))
    path.write_bytes(path.read_bytes()[:-cut])
    again = Manifest(path)
    assert again.next == 11
    again.add(a_range(11, a_file()))
    assert Manifest(path).ranges == [a_range(1), a_range(11, a_file())]


def test_an_unfinished_head_is_a_new_archive(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b'{"jetspark_archive":1,"str')
    manifest = Manifest(tmp_path / "m")
    assert manifest.head is None
    manifest.begin(HEAD)
    assert Manifest(tmp_path / "m").head == HEAD


def test_a_damaged_line_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "m"
    manifest = Manifest(path)
    manifest.begin(HEAD)
    manifest.add(a_range(1))
    manifest.add(a_range(11))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"rubbish\n" + lines[2])
    with pytest.raises(ArchiveError, match="line 2 is damaged"):
        Manifest(path)


def test_a_later_version_is_an_error(tmp_path: Path) -> None:
    Manifest(tmp_path / "m").begin(
        Head(jetspark_archive=9, stream="ORDERS", created=NOW, by_token=1, first=1)
    )
    with pytest.raises(ArchiveError, match="version 9"):
        Manifest(tmp_path / "m")


def write(path: Path, content: bytes = b"abc") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def test_files_get_their_names_with_their_range(tmp_path: Path) -> None:
    file = a_file()
    with open_archive(tmp_path / "a") as directory:
        directory.manifest.begin(HEAD)
        write(directory.path / file.written)
        assert not directory.parquet_files()
        directory.add(a_range(1, file))
        assert directory.parquet_files() == {file.path}
        directory.clean()
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [
        "_lock",
        "_manifest.jsonl",
        "day=2026-01-31",
    ]


def test_a_crash_before_the_files_have_their_names(tmp_path: Path) -> None:
    first, second = a_file("day=1/a.parquet"), a_file("day=1/b.parquet")
    with open_archive(tmp_path) as directory:
        directory.manifest.begin(HEAD)
        for file in (first, second):
            write(directory.path / file.written)
        write(directory.temporary / "of-another-range.part")
        directory.manifest.add(a_range(1, first, second))
        (directory.path / "day=1").mkdir()
        (directory.path / first.written).rename(directory.path / first.path)
    reader = read_archive(tmp_path)
    assert reader.locate(second) == tmp_path / second.written  # until somebody has mended it
    with open_archive(tmp_path) as directory:
        assert directory.parquet_files() == {first.path, second.path}
        assert not directory.temporary.exists()


def test_a_file_that_the_driver_does_not_see(tmp_path: Path) -> None:
    with open_archive(tmp_path) as directory:
        directory.manifest.begin(HEAD)
        with pytest.raises(ArchiveError, match="all machines of the cluster share"):
            directory.add(a_range(1, a_file()))
    assert not read_archive(tmp_path).manifest.ranges


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with open_archive(tmp_path):
        code = (
            "from pathlib import Path; from jetspark.pipeline.archive_directory import *\n"
            f"with open_archive(Path({str(tmp_path)!r})): pass"
        )
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert "another process works on the archive" in other.stderr
    with open_archive(tmp_path):
        pass  # it is free again


def test_a_directory_with_other_files(tmp_path: Path) -> None:
    write(tmp_path / "letter.txt")
    other = pytest.raises(ArchiveError, match=r"other files, such as 'letter\.txt'")
    with other, open_archive(tmp_path):
        pass
    with pytest.raises(ArchiveError, match="there is no archive in"):
        read_archive(tmp_path)


def test_a_place_that_is_no_directory(tmp_path: Path) -> None:
    write(tmp_path / "file")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ArchiveError, match="cannot write to"), open_archive(path):
            pass
    store = pytest.raises(ArchiveError, match="not in an object store")
    with store, open_archive(Path("s3://bucket/archive")):
        pass
