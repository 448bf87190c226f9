"""Archives of real streams: complete, each message once, with a proof that finds differences."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas  # type: ignore[import-untyped]
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import jetspark
from jetspark.errors import ArchiveError, DataLossError, InvalidOptionError, StreamNotFoundError
from jetspark.pipeline import archive as archive_module
from jetspark.pipeline.archive import ArchiveOptions, archive
from jetspark.pipeline.archive_directory import open_archive, read_archive
from jetspark.pipeline.archive_verify import Verified, verify
from jetspark.server import NatsServer
from jetspark.spark.connection import Access
from tests.support.archives import access_to, archive_here, read_all

from .conftest import Read, Streams


@pytest.fixture
def access(nats: NatsServer) -> Access:
    return access_to(nats.url)


@pytest.fixture
def stream(streams: Streams) -> str:
    """Messages of several subjects, some with headers."""
    name = streams.new(allow_direct=True)

    async def fill(js: jetspark.JetStream) -> None:
        for number in range(3000):
            options: dict[str, Any] = (
                {"headers": {"n": [str(number), "x"]}} if number % 7 == 0 else {}
            )
            subject = f"{name}.{number % 3}.{number % 2}"
            await js.publish_async(subject, b"%d" % number, **options)
        await js.publish_async_complete()

    streams.edit(fill)
    return name


def edit(streams: Streams, stream: str, change: Any) -> Any:
    async def work(js: jetspark.JetStream) -> Any:
        return await change(await js.get_stream(stream))

    return streams.edit(work)


def proof(path: Path, access: Access, stream: str) -> Verified:
    return verify(path, access, stream, lambda done, total: None)


def test_with_spark(
    spark: SparkSession,
    read: Read,
    stream: str,
    access: Access,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Several tasks; Spark reads from the files what it reads from the stream."""
    monkeypatch.setattr(archive_module, "PART_SEQUENCES", 1000)
    options = ArchiveOptions(access=access, stream=stream, directory=tmp_path / "a", by_token=2)
    *_, done = archive(options, lambda: spark)
    assert (done.rows, done.files, done.lag) == (3000, 9, 0)
    columns = ["stream", "subject", "sequence", "timestamp", "headers", "data"]
    frame = spark.read.parquet(str(tmp_path / "a"))
    assert frame.columns == [*columns, "day", "token"]
    rows = sorted(frame.collect(), key=lambda row: row.sequence)
    expected = sorted(read(stream=stream).collect(), key=lambda row: row.sequence)
    assert [row[:6] for row in rows] == [tuple(row) for row in expected]
    assert [str(row.token) for row in rows] == [row.subject.split(".")[1] for row in rows]


def test_range_after_range(
    stream: str, access: Access, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_module, "PART_SEQUENCES", 500)
    done = archive_here(access, stream, tmp_path, tasks=2)
    assert (done.rows, done.files, done.last) == (3000, 6, 3000)
    ranges = read_archive(tmp_path).manifest.ranges
    assert [(part.first, part.last, part.rows) for part in ranges] == [
        (1, 1000, 1000),
        (1001, 2000, 1000),
        (2001, 3000, 1000),
    ]
    assert proof(tmp_path, access, stream).differences == ()


def test_again_and_again(streams: Streams, stream: str, access: Access, tmp_path: Path) -> None:
    assert archive_here(access, stream, tmp_path).rows == 3000
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    done = archive_here(access, stream, tmp_path)
    assert (done.rows, done.files, done.last) == (0, 0, 3000)
    streams.publish(stream, 10)
    edit(streams, stream, lambda found: found.delete_message(3004))
    done = archive_here(access, stream, tmp_path)
    assert (done.rows, done.first, done.last) == (9, 3001, 3010)
    rows = read_all(tmp_path)
    assert [row["sequence"] for row in rows] == [each for each in range(1, 3011) if each != 3004]
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())
    found = proof(tmp_path, access, stream)
    assert (found.rows, found.compared, found.ranges, found.differences) == (3009, 3009, 2, ())


def test_with_pandas(stream: str, access: Access, tmp_path: Path) -> None:
    """As the documentation says."""
    archive_here(access, stream, tmp_path, by_token=2)
    days = {f"{row['timestamp']:%Y-%m-%d}" for row in read_all(tmp_path)}
    frames = [pandas.read_parquet(tmp_path, filters=[("day", "=", day)]) for day in days]
    assert sum(len(frame) for frame in frames) == 3000
    assert set(frames[0].columns) >= {"subject", "sequence", "data", "day", "token"}


def test_subjects_and_places(streams: Streams, stream: str, access: Access, tmp_path: Path) -> None:
    subjects = (f"{stream}.0.>", f"{stream}.1.1")
    done = archive_here(
        access, stream, tmp_path, subjects=subjects, start=100, until=1999, by_token=0
    )
    rows = read_all(tmp_path)
    numbers = [number for number in range(99, 1999) if number % 3 == 0 or number % 6 == 1]
    assert [int(row["data"]) for row in rows] == numbers
    assert (done.last, done.lag) == (1999, 1001)
    assert {path.parent.parent for path in tmp_path.rglob("*.parquet")} == {tmp_path}
    moment = rows[-1]["timestamp"]  # nothing before it is left
    archive_here(access, stream, tmp_path, until=moment)
    assert len(read_all(tmp_path)) == len(rows)
    archive_here(access, stream, tmp_path)
    last = [number for number in range(99, 3000) if number % 3 == 0 or number % 6 == 1]
    assert [int(row["data"]) for row in read_all(tmp_path)] == last
    found = proof(tmp_path, access, stream)
    assert (found.compared, found.differences) == (len(last), ())


def test_from_a_moment(streams: Streams, access: Access, tmp_path: Path) -> None:
    name = streams.new()
    streams.publish(name, 5)
    moment = datetime.now(UTC)
    streams.publish(name, 5, first=6)
    archive_here(access, name, tmp_path, start=moment)
    assert [int(row["data"]) for row in read_all(tmp_path)] == [6, 7, 8, 9, 10]


def test_what_does_not_fit(streams: Streams, stream: str, access: Access, tmp_path: Path) -> None:
    archive_here(access, stream, tmp_path, until=10)
    other = streams.new()
    with pytest.raises(ArchiveError, match=f"is that of stream '{stream}'"):
        archive_here(access, other, tmp_path)
    with pytest.raises(ArchiveError, match=f"is that of stream '{stream}'"):
        proof(tmp_path, access, other)
    for options in ({"subjects": ("a",)}, {"by_token": 2}, {"start": 3}):
        with pytest.raises(InvalidOptionError, match="use another directory"):
            archive_here(access, stream, tmp_path, **options)
    with pytest.raises(StreamNotFoundError, match="there is no stream 'NO'"):
        archive_here(access, "NO", tmp_path / "new")

    async def recreate(js: jetspark.JetStream) -> None:
        await js.delete_stream(stream)
        await js.create_stream(name=stream, subjects=[f"{stream}.>"])

    streams.edit(recreate)
    with pytest.raises(ArchiveError, match="was deleted and created again"):
        archive_here(access, stream, tmp_path)
    # The files are as they were, and there is nothing to compare them with.
    found = proof(tmp_path, access, stream)
    assert (found.rows, found.compared, found.differences) == (10, 0, ())


def test_an_empty_stream(streams: Streams, access: Access, tmp_path: Path) -> None:
    name = streams.new()
    assert archive_here(access, name, tmp_path).rows == 0
    assert proof(tmp_path, access, name).differences == ()
    streams.publish(name, 3)
    assert archive_here(access, name, tmp_path).rows == 3


def test_a_work_queue_keeps_its_messages(streams: Streams, access: Access, tmp_path: Path) -> None:
    name = streams.new(retention="workqueue", allow_direct=True)
    streams.publish(name, 20)
    assert archive_here(access, name, tmp_path).rows == 20
    edit(streams, name, lambda found: found.purge(sequence=15))
    streams.publish(name, 5)
    assert archive_here(access, name, tmp_path).rows == 5  # what was done is not lost
    assert edit(streams, name, lambda found: found.info()).state.messages == 11


@pytest.mark.parametrize("gone", [1500, 3000])
def test_what_retention_removes_is_not_passed_over(
    streams: Streams, stream: str, access: Access, tmp_path: Path, gone: int
) -> None:
    archive_here(access, stream, tmp_path, until=1000)
    edit(streams, stream, lambda found: found.purge(sequence=gone + 1))
    with pytest.raises(DataLossError, match=rf"up to {gone - 1000} messages from sequence 1001"):
        archive_here(access, stream, tmp_path)
    assert len(read_all(tmp_path)) == 1000
    done = archive_here(access, stream, tmp_path, allow_loss=True)
    assert (done.lost, done.rows, done.last) == (gone - 1000, 3000 - gone, 3000)
    manifest = read_archive(tmp_path).manifest
    assert (manifest.lost, manifest.next) == (gone - 1000, 3001)
    found = proof(tmp_path, access, stream)
    assert (found.lost, found.differences) == (gone - 1000, ())


def damage(path: Path, kind: str) -> None:
    """Change an archive in some way."""
    file = min(path.rglob("*.parquet"))
    table = pq.ParquetFile(file).read()
    if kind == "missing":
        file.unlink()
    elif kind == "extra":
        (path / "day=2000-01-01").mkdir()
        pq.write_table(table, path / "day=2000-01-01" / "x.parquet")
    elif kind == "cut":
        file.write_bytes(file.read_bytes()[:-100])
    elif kind == "bits":
        content = bytearray(file.read_bytes())
        content[200] ^= 1
        file.write_bytes(content)
    elif kind == "fewer":
        pq.write_table(table.slice(1), file)
    elif kind == "changed":
        data = table.column("data").to_pylist()
        table = table.set_column(5, "data", [[*data[:-1], b"other"]])
        pq.write_table(table, file)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("missing", "missing, with 500 messages"),
        ("extra", "x.parquet: not in the manifest"),
        ("cut", "cannot be read"),
        ("bits", "cannot be read"),
        ("fewer", "499 messages, the manifest says 500"),
        ("changed", "changed, its check is"),
    ],
)
def test_the_proof_finds(stream: str, access: Access, tmp_path: Path, kind: str, text: str) -> None:
    archive_here(access, stream, tmp_path, by_token=2, until=1500)
    assert proof(tmp_path, access, stream).differences == ()
    damage(tmp_path, kind)
    differences = proof(tmp_path, access, stream).differences
    assert any(text in each for each in differences), differences


def test_the_proof_finds_what_the_manifest_lacks(
    stream: str, access: Access, tmp_path: Path
) -> None:
    for until in (1000, 2000, 3000):
        archive_here(access, stream, tmp_path, until=until)
    path = tmp_path / "_manifest.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    part = json.loads(lines[2])
    part["files"] = part["files"][1:]
    path.write_text("".join([*lines[:2], json.dumps(part) + "\n", *lines[3:]]))
    differences = proof(tmp_path, access, stream).differences
    assert any("not in the manifest" in each for each in differences)
    assert any("the stream has 1000 messages, the archive 0" in each for each in differences)
    path.write_text("".join([*lines[:2], *lines[3:]]))
    differences = proof(tmp_path, access, stream).differences
    assert "sequences 1001 to 2000: not in the manifest" in differences


def test_continuously(streams: Streams, stream: str, access: Access, tmp_path: Path) -> None:
    stop = threading.Event()
    steps: list[int] = []

    def follow() -> None:
        archive_here(access, stream, tmp_path, interval=0.05, stop=stop)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        for number in range(3):
            until(lambda: len(read_rows(tmp_path)) == 3000 + 10 * number)  # noqa: B023
            streams.publish(stream, 10)
            steps.append(number)
        until(lambda: len(read_rows(tmp_path)) == 3030)
        held = pytest.raises(ArchiveError, match="another process works on the archive")
        with held, open_archive(tmp_path):
            pass
    finally:
        stop.set()
        thread.join()
    assert steps == [0, 1, 2]
    assert proof(tmp_path, access, stream).differences == ()


def read_rows(path: Path) -> list[dict[str, Any]]:
    """What a reader finds while the archive grows: never half a file."""
    return read_all(path) if any(path.rglob("*.parquet")) else []


def until(happens: Any, limit: float = 60) -> None:
    end = time.monotonic() + limit
    while not happens():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def test_a_full_disk(stream: str, nats: NatsServer, tmp_path: Path) -> None:
    """No file may be larger than so much; a full disk fails in the same place."""
    code = f"""
import resource
from pathlib import Path
from tests.support.archives import access_to, archive_here
from jetspark.errors import ArchiveError
access = access_to({nats.url!r})
archive_here(access, {stream!r}, Path({str(tmp_path)!r}), until=10)
resource.setrlimit(resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY))
try:
    archive_here(access, {stream!r}, Path({str(tmp_path)!r}))
except ArchiveError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True
    )
    assert done.stdout.startswith(f"cannot write to {tmp_path}: File too large; make room"), done
    access = access_to(nats.url)
    assert len(read_all(tmp_path)) == 10
    assert archive_here(access, stream, tmp_path).rows == 2990
    assert proof(tmp_path, access, stream).differences == ()
