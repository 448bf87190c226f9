"""The rows of a query, as people and programs read them: a table, JSON lines, CSV, or a file."""

from __future__ import annotations

import csv
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import IO, Any

import msgspec
import pyarrow as pa

from jetspark.cli.failures import CommandError, Status

__all__ = ["FORMATS", "check_path", "save", "table_lines", "write_csv", "write_json"]

Batches = Iterator[pa.RecordBatch]

_WIDEST_CELL = 60  # characters, on a terminal that is too narrow for all
_encode = msgspec.json.Encoder(decimal_format="number").encode


def write_json(schema: pa.Schema, batches: Batches, file: IO[Any]) -> int:
    """One JSON object on a line for each row; how many there were."""
    count = 0
    for row in _rows(schema, batches):
        file.write(_encode(dict(zip(schema.names, row, strict=True))).decode() + "\n")
        count += 1
    return count


def write_csv(schema: pa.Schema, batches: Batches, file: IO[Any]) -> int:
    """A line of names, and a line for each row; how many rows there were."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(schema.names)
    count = 0
    for row in _rows(schema, batches):
        writer.writerow([_csv_cell(value) for value in row])
        count += 1
    return count


def _write_parquet(schema: pa.Schema, batches: Batches, file: IO[Any]) -> int:
    import pyarrow.parquet

    count = 0
    with pyarrow.parquet.ParquetWriter(file, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


FORMATS: dict[str, Callable[[pa.Schema, Batches, IO[Any]], int]] = {
    ".parquet": _write_parquet,
    ".csv": write_csv,
    ".json": write_json,
    ".jsonl": write_json,
}
"""What can be written, by the ending of the file's name."""


def check_path(path: Path) -> None:
    """Refuse a file that cannot be written, before the query is run."""
    if path.suffix.lower() not in FORMATS:
        raise CommandError(
            f"--output {path}: the name must end with {', '.join(FORMATS)}", Status.USAGE
        )
    if not path.absolute().parent.is_dir():
        raise CommandError(f"--output {path}: there is no directory {path.parent}", Status.USAGE)
    if path.is_dir():
        raise CommandError(f"--output {path} is a directory; name a file", Status.USAGE)


def save(schema: pa.Schema, batches: Batches, path: Path) -> int:
    """Write a file, which is there when it is complete and not before."""
    suffix = path.suffix.lower()
    with _replacing(path, binary=suffix == ".parquet") as file:
        return FORMATS[suffix](schema, batches, file)


@contextmanager
def _replacing(path: Path, *, binary: bool) -> Iterator[IO[Any]]:
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.absolute().parent)
    text: dict[str, Any] = {} if binary else {"encoding": "utf-8", "newline": ""}
    try:
        with open(number, "wb" if binary else "w", **text) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def table_lines(schema: pa.Schema, batches: Batches, *, width: int | None = None) -> list[str]:
    """The rows with aligned columns; line by line, if that does not fit into the width.

    The first line is the names of the columns.
    """
    from rich.cells import cell_len, set_cell_size

    rows = [[_cell(value) for value in row] for row in _rows(schema, batches)]
    grid = [[_printable(name) for name in schema.names], *rows]
    widths = _widths(grid)
    if width is not None and _total(widths) > width:
        grid = [[_cut(cell) for cell in line] for line in grid]
        widths = _widths(grid)
        if _total(widths) > width:
            return _records(grid[0], rows, width)
    right = [_is_number(field.type) for field in schema]

    def line(cells: list[str]) -> str:
        padded = [
            " " * (size - cell_len(cell)) + cell if to_right else set_cell_size(cell, size)
            for cell, size, to_right in zip(cells, widths, right, strict=True)
        ]
        return f" {' | '.join(padded)}".rstrip()

    ruler = "-+-".join("-" * size for size in widths)
    return [line(grid[0]), f"-{ruler}-", *(line(cells) for cells in grid[1:])]


def _widths(grid: list[list[str]]) -> list[int]:
    from rich.cells import cell_len

    return [max(map(cell_len, column)) for column in zip(*grid, strict=True)]


def _total(widths: list[int]) -> int:
    return sum(widths) + 3 * len(widths) - 1


def _records(names: list[str], rows: list[list[str]], width: int) -> list[str]:
    """Each column on a line of its own."""
    from rich.cells import cell_len

    broadest = max(map(cell_len, names))
    lines = []
    for number, row in enumerate(rows, 1):
        lines.append(f"-[ {number} ]".ljust(min(width, 60), "-"))
        for name, value in zip(names, row, strict=True):
            lines.append(f" {name}{' ' * (broadest - cell_len(name))} | {value}")
    return lines


def _rows(schema: pa.Schema, batches: Batches) -> Iterator[tuple[Any, ...]]:
    """The rows as Python values, with dictionaries for maps."""
    kinds = [field.type for field in schema]
    for batch in batches:
        columns = [
            [_plain(value, kind) for value in column.to_pylist()]
            for column, kind in zip(batch.columns, kinds, strict=True)
        ]
        yield from zip(*columns, strict=True)


def _plain(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {str(key): _plain(item, kind.item_type) for key, item in value}
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_plain(item, kind.value_type) for item in value]
    return value


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _cell(value: Any) -> str:
    """A value in a table."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    return _printable(_text(value))


def _csv_cell(value: Any) -> str | None:
    return None if value is None else _text(value)


def _text(value: Any) -> str:
    """A value alone: JSON without quotes around texts and times."""
    if isinstance(value, bool | dict | list):
        return _encode(value).decode()
    if isinstance(value, bytes | date | datetime | timedelta):
        return _encode(value).decode().strip('"')
    return str(value)


def _printable(text: str) -> str:
    """Without line breaks and what else would move the cursor."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _cut(cell: str) -> str:
    from rich.cells import cell_len, set_cell_size

    if cell_len(cell) <= _WIDEST_CELL:
        return cell
    return set_cell_size(cell, _WIDEST_CELL - 1) + "…"
