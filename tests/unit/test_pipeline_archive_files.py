"""The files of an archive without a server: how rows are divided, checked, written and read."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jetspark.errors import ArchiveError
from jetspark.jetstream.consumer.arrow import SCHEMA
from jetspark.pipeline import archive_write
from jetspark.pipeline.archive_check import Check
from jetspark.pipeline.archive_directory import ArchiveDirectory
from jetspark.pipeline.archive_split import split
from jetspark.pipeline.archive_write import PartWriter
from jetspark.pipeline.manifest import ArchivedFile, ArchivedRange, Head
from jetspark.pipeline.replay_read import Selection, in_order, survey
from jetspark.spark.ranges import Range

START = datetime(2026, 1, 31, 23, tzinfo=UTC)


def messages(count: int, *, first: int = 1, subjects: int = 3) -> pa.RecordBatch:
    """Messages an hour apart, some of them with headers."""
    rows: list[dict[str, Any]] = [
        {
            "stream": "ORDERS",
            "subject": f"orders.{number % subjects}",
            "sequence": number,
            "timestamp": START + timedelta(hours=number),
            "headers": [("a", [str(number), "x"]), ("b", [])] if number % 3 == 0 else None,
            "data": b"%d" % number * (number % 5),
        }
        for number in range(first, first + count)
    ]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def check(*batches: pa.RecordBatch) -> str:
    made = Check()
    for batch in batches:
        made.add(batch)
    return made.text()


def test_a_check_does_not_depend_on_the_batches() -> None:
    rows = messages(100)
    whole = check(rows)
    rng = random.Random(1)
    for _ in range(20):
        cuts = sorted({0, 100, *(rng.randrange(100) for _ in range(5))})
        slices = [rows.slice(a, b - a) for a, b in pairwise(cuts)]
        assert check(*slices) == whole
        assert check(*[piece.take(pa.array(range(len(piece)))) for piece in slices]) == whole


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("data", b"21"),
        ("subject", "orders.x"),
        ("sequence", 99),
        ("timestamp", START),
        ("headers", None),
        ("headers", [("a", ["6", "y"]), ("b", [])]),
        ("headers", [("a", ["6"]), ("b", ["x"])]),
    ],
)
def test_a_check_sees_every_change(column: str, value: Any) -> None:
    rows = messages(10).to_pylist()
    rows[5][column] = value
    assert check(pa.RecordBatch.from_pylist(rows, SCHEMA)) != check(messages(10))


def test_a_check_sees_where_a_payload_ends() -> None:
    def payloads(*data: bytes) -> pa.RecordBatch:
        rows = messages(len(data)).to_pylist()
        found = [{**row, "data": each} for row, each in zip(rows, data, strict=True)]
        return pa.RecordBatch.from_pylist(found, SCHEMA)

    assert check(payloads(b"ab", b"c")) != check(payloads(b"a", b"bc"))


def test_rows_are_divided_by_day_and_token() -> None:
    rows = messages(30)
    parts = split(rows, 2)
    assert sorted(name for name, _ in parts) == [
        f"day=2026-02-0{day}/token={token}" for day in (1, 2) for token in (0, 1, 2)
    ]
    for name, part in parts:
        sequences = part.column("sequence").to_pylist()
        assert sequences == sorted(sequences)
        for row in part.to_pylist():
            assert name == f"day={row['timestamp']:%Y-%m-%d}/token={row['subject'][-1]}"
    assert sum(part.num_rows for _, part in parts) == 30
    assert [name for name, _ in split(rows, 0)] == ["day=2026-02-01", "day=2026-02-02"]
    assert split(rows.slice(0, 5), 1) == [("day=2026-02-01/token=orders", rows.slice(0, 5))]


def test_odd_tokens() -> None:
    tokens = ["a/b", "a=b", "ü", "%", "a b", "x" * 300, "..."]
    subjects = ["no", *[f"s.{token}" for token in tokens]]
    rows = messages(len(subjects))
    rows = rows.set_column(1, "subject", pa.array(subjects))
    names = [name.partition("token=")[2] for name, _ in split(rows, 2)]
    assert sorted(names) == sorted(
        ["__HIVE_DEFAULT_PARTITION__", "a%2Fb", "a%3Db", "%C3%BC", "%25", "a b"]
    )


def write(
    directory: Path, *batches: pa.RecordBatch, by_token: int = 2, name: int = 1
) -> list[ArchivedFile]:
    with PartWriter(
        directory, f"_tmp/{name}", Range("ORDERS", name, name + 99), by_token
    ) as writer:
        for batch in batches:
            writer.add(batch)
        return writer.finish()


def archive_of(path: Path, *parts: list[ArchivedFile]) -> ArchiveDirectory:
    directory = ArchiveDirectory(path)
    directory.manifest.begin(Head(stream="ORDERS", created=START, by_token=2, first=1))
    for files in parts:
        directory.add(
            ArchivedRange(
                first=files[0].first,
                last=max(file.last for file in files),
                rows=sum(file.rows for file in files),
                bytes=0,
                archived=START,
                files=tuple(files),
            )
        )
    return directory


def test_files_tell_what_they_hold(tmp_path: Path) -> None:
    files = write(tmp_path, messages(10), messages(20, first=11))
    assert len(files) == 6
    for file in files:
        table = pq.ParquetFile(tmp_path / file.written).read()
        sequences = table.column("sequence").to_pylist()
        times = table.column("timestamp").to_pylist()
        assert (file.rows, file.first, file.last) == (len(sequences), sequences[0], sequences[-1])
        assert (file.since, file.until) == (times[0], times[-1])
        assert file.check == check(*table.to_batches())
        assert file.bytes == (tmp_path / file.written).stat().st_size


@pytest.mark.parametrize(("limit", "value"), [("MOST_OPEN", 2), ("FILE_BYTES", 10)])
def test_more_files_where_one_would_be_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(archive_write, limit, value)
    files = write(tmp_path, *[messages(10, first=first) for first in range(1, 50, 10)])
    assert len(files) > 9
    assert len({file.path for file in files}) == len(files)
    directory = archive_of(tmp_path, files)
    found = [row for batch in in_order(directory, Selection(), 0) for row in batch.to_pylist()]
    assert [row["sequence"] for row in found] == list(range(1, 51))


def test_row_groups_are_written_as_memory_fills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_write, "BUFFERED_BYTES", 1)
    (file,) = write(tmp_path, messages(10), messages(10, first=11), by_token=0)[:1]
    assert pq.ParquetFile(tmp_path / file.written).num_row_groups > 1


def test_nothing_is_left_of_a_part_that_failed(tmp_path: Path) -> None:
    part = Range("ORDERS", 1, 100)
    with (
        pytest.raises(RuntimeError, match="half way"),
        PartWriter(tmp_path, "_tmp/1", part, 2) as writer,
    ):
        writer.add(messages(10))
        raise RuntimeError("half way")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_an_archive_is_read_in_order(tmp_path: Path) -> None:
    first = write(tmp_path, *[messages(7, first=start) for start in range(1, 70, 7)])
    second = write(tmp_path, messages(40, first=100), name=101)
    directory = archive_of(tmp_path, first, second)
    expected = [*range(1, 71), *range(100, 140)]
    whole = [row for batch in in_order(directory, Selection(), 0) for row in batch.to_pylist()]
    assert [row["sequence"] for row in whole] == expected
    assert whole[:70] == messages(70).to_pylist()
    for after in (1, 30, 69, 70, 99, 139):
        rest = [
            row for batch in in_order(directory, Selection(), after) for row in batch.to_pylist()
        ]
        assert [row["sequence"] for row in rest] == [each for each in expected if each > after]


def test_a_selection(tmp_path: Path) -> None:
    directory = archive_of(tmp_path, write(tmp_path, messages(60)))
    since, until = START + timedelta(hours=10), START + timedelta(hours=40)
    selection = Selection(("orders.1", "x.>"), since, until)
    found = [
        row["sequence"] for batch in in_order(directory, selection, 0) for row in batch.to_pylist()
    ]
    assert found == [number for number in range(10, 40) if number % 3 == 1]
    assert survey(directory, selection, 0) == (10, {"orders.1"}, 10, 37)
    assert survey(directory, selection, 20).rows == 6
    assert survey(directory, Selection(until=START), 0) == (0, set(), 0, 0)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    files = write(tmp_path, messages(10))
    directory = archive_of(tmp_path, files)
    (tmp_path / files[0].path).write_bytes(b"rubbish")
    with pytest.raises(ArchiveError, match="cannot be read"):
        list(in_order(directory, Selection(), 0))
