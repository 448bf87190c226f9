"""What tells whether rows are still the ones that were archived: a checksum of their content.

It is made from the values, column by column, so it does not depend on how a file is divided into
row groups, how it is compressed, or how many rows are read at a time.
"""

from __future__ import annotations

import zlib
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Check"]

_COLUMNS = ("sequence", "timestamp", "subject", "headers", "data")
_PAIRS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.list_(pa.string()))]))


class Check:
    """The checksum of rows, which are added in their order."""

    def __init__(self) -> None:
        self._sums: dict[str, int] = {}

    def add(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Take in more rows."""
        for name in _COLUMNS:
            column = rows.column(name)
            chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
            for chunk in chunks:
                self._add(name, chunk)

    def _add(self, name: str, array: Any) -> None:
        kind = array.type
        if pa.types.is_map(kind):
            if array.null_count == len(array):
                self._bytes(f"{name} length", pa.repeat(pa.scalar(-1, pa.int32()), len(array)))
                return
            array = array.cast(_PAIRS)
            kind = array.type
        if pa.types.is_list(kind):
            self._bytes(f"{name} length", pc.fill_null(pc.list_value_length(array), -1))
            self._add(f"{name} item", pc.list_flatten(array))
        elif pa.types.is_struct(kind):
            for number, field in enumerate(kind):
                self._add(f"{name} {field.name}", array.field(number))
        elif pa.types.is_string(kind) or pa.types.is_binary(kind):
            self._bytes(f"{name} length", pc.fill_null(pc.binary_length(array), -1))
            self._bytes(name, array)
        else:
            self._bytes(name, array.cast(pa.int64()))

    def _bytes(self, name: str, array: Any) -> None:
        """Take in the values as they are in memory."""
        buffers = array.buffers()
        if len(buffers) == 3:
            offsets = pa.Array.from_buffers(
                pa.int32(), len(array) + 1, [None, buffers[1]], offset=array.offset
            )
            first, last, values = offsets[0].as_py(), offsets[-1].as_py(), buffers[2]
        else:
            width = array.type.bit_width // 8
            first, last = array.offset * width, (array.offset + len(array)) * width
            values = buffers[1]
        if last > first:
            self._sums[name] = zlib.crc32(memoryview(values)[first:last], self._sums.get(name, 0))

    def text(self) -> str:
        """The checksum, as it stands in the manifest."""
        whole = ";".join(f"{name}={value:08x}" for name, value in sorted(self._sums.items()))
        return f"{zlib.crc32(whole.encode()):08x}"
