"""The rows of a query as a table, JSON lines, CSV and files."""

from __future__ import annotations

import io
import json
import stat
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from jetspark.cli.failures import CommandError, Status
from jetspark.cli.sql_output import check_path, save, table_lines, write_csv, write_json

SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("count", pa.int64()),
        ("price", pa.decimal128(10, 2)),
        ("time", pa.timestamp("us", tz="UTC")),
        ("data", pa.binary()),
        ("tags", pa.map_(pa.string(), pa.list_(pa.string()))),
        ("json", pa.struct([("a", pa.int64()), ("b", pa.list_(pa.bool_()))])),
    ]
)
ROWS = [
    {
        "name": "one\ntwo",
        "count": 1,
        "price": Decimal("1.50"),
        "time": datetime(2026, 1, 2, 3, 4, 5, 60, tzinfo=UTC),
        "data": b"\x00\xff",
        "tags": [("k", ["x", "y"])],
        "json": {"a": 1, "b": [True, None]},
    },
    dict.fromkeys(SCHEMA.names),
]


def batches(
    rows: Sequence[Mapping[str, object]] = ROWS, schema: pa.Schema = SCHEMA
) -> Iterator[pa.RecordBatch]:
    return iter(pa.Table.from_pylist(rows, schema).to_batches(max_chunksize=1))


def test_json_lines() -> None:
    file = io.StringIO()
    assert write_json(SCHEMA, batches(), file) == 2
    first, second = map(json.loads, file.getvalue().splitlines())
    assert first == {
        "name": "one\ntwo",
        "count": 1,
        "price": 1.5,
        "time": "2026-01-02T03:04:05.000060Z",
        "data": "AP8=",
        "tags": {"k": ["x", "y"]},
        "json": {"a": 1, "b": [True, None]},
    }
    assert '"price":1.50' in file.getvalue()  # not a float on the way
    assert set(second.values()) == {None}


def test_csv() -> None:
    file = io.StringIO()
    assert write_csv(SCHEMA, batches(), file) == 2
    assert file.getvalue() == (
        "name,count,price,time,data,tags,json\n"
        '"one\ntwo",1,1.50,2026-01-02T03:04:05.000060Z,AP8=,'
        '"{""k"":[""x"",""y""]}","{""a"":1,""b"":[true,null]}"\n'
        ",,,,,,\n"
    )


def test_a_table_is_aligned() -> None:
    schema = pa.schema([("city", pa.string()), ("n", pa.int64()), ("f", pa.float64())])
    rows = [{"city": "東京", "n": 5, "f": 0.5}, {"city": "Oslo\t", "n": 12345, "f": None}]
    assert table_lines(schema, batches(rows, schema)) == [
        " city   |     n |    f",
        "--------+-------+------",
        " 東京   |     5 |  0.5",
        " Oslo\\t | 12345 | NULL",
    ]


def test_a_table_without_rows() -> None:
    schema = pa.schema([("a", pa.string())])
    assert table_lines(schema, iter(()), width=80) == [" a", "---"]


def test_other_values_in_a_table() -> None:
    schema = pa.schema(
        [("d", pa.date32()), ("t", pa.duration("us")), ("b", pa.bool_()), ("x", pa.binary())]
    )
    rows = [{"d": date(2026, 1, 2), "t": timedelta(hours=1), "b": True, "x": b"abc"}]
    assert table_lines(schema, batches(rows, schema))[-1] == (
        " 2026-01-02 | PT3600S | true | <3 bytes>"
    )


def test_long_cells_are_cut_before_the_table_is_turned() -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.string())])
    rows = [{"a": "x" * 200, "b": "y"}]
    wide = table_lines(schema, batches(rows, schema), width=300)
    assert wide[-1] == f" {'x' * 200} | y"
    cut = table_lines(schema, batches(rows, schema), width=80)
    assert cut[-1] == f" {'x' * 59}… | y"
    assert table_lines(schema, batches(rows, schema), width=40)[1:] == [
        f" a | {'x' * 200}",
        " b | y",
    ]


def test_a_file_is_there_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    assert save(SCHEMA, batches(), path) == 2
    assert pa.parquet.read_table(path).to_pylist() == pa.Table.from_pylist(ROWS, SCHEMA).to_pylist()
    assert stat.S_IMODE(path.stat().st_mode) & 0o400

    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches()
        raise OSError("no more")

    for name in ("rows.parquet", "new.csv", "new.json"):
        with pytest.raises(OSError, match="no more"):
            save(SCHEMA, broken(), tmp_path / name)
    assert [file.name for file in tmp_path.iterdir()] == ["rows.parquet"]
    assert pa.parquet.read_table(path).num_rows == 2


@pytest.mark.parametrize("name", ["rows.csv", "rows.json", "rows.jsonl", "ROWS.CSV"])
def test_files_by_their_ending(tmp_path: Path, name: str) -> None:
    save(SCHEMA, batches(), tmp_path / name)
    text = (tmp_path / name).read_text()
    assert text.startswith("name," if name.lower().endswith("csv") else '{"name":')


@pytest.mark.parametrize("name", ["rows", "rows.xml", "missing/rows.csv", "folder.csv"])
def test_files_that_cannot_be_written(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(CommandError, match="--output") as caught:
        check_path(tmp_path / name)
    assert caught.value.status is Status.USAGE
