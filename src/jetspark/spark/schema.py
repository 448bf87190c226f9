"""The columns of the data sources."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from jetspark.errors import InvalidOptionError
from jetspark.jetstream.consumer.arrow import SCHEMA as ARROW_SCHEMA

__all__ = ["arrow_columns", "check_schema", "stream_schema"]

_STREAM = {
    "stream": StringType(),
    "subject": StringType(),
    "sequence": LongType(),
    "timestamp": TimestampType(),
    "headers": MapType(StringType(), ArrayType(StringType())),
    "data": BinaryType(),
}


def stream_schema(*, headers: bool) -> StructType:
    """The columns of a stream."""
    return StructType(
        [StructField(name, kind) for name, kind in _STREAM.items() if headers or name != "headers"]
    )


def check_schema(schema: StructType, known: StructType, source: str) -> None:
    """Refuse columns that the source does not have, in what may be from `.schema(...)`."""
    kinds = {field.name: field.dataType for field in known.fields}
    for field in schema.fields:
        if field.name not in kinds:
            raise InvalidOptionError(
                f"{source}: there is no column {field.name!r}; a schema chooses among "
                f"{', '.join(kinds)}"
            )
        if field.dataType != kinds[field.name]:
            raise InvalidOptionError(
                f"{source}: column {field.name!r} is {kinds[field.name].simpleString()}, not "
                f"{field.dataType.simpleString()}; read it as it is, and cast it"
            )


def arrow_columns(batch: pa.RecordBatch, names: list[str], *, data: bool) -> pa.RecordBatch:
    """The named columns of messages; without data, what was not read is null."""
    if not data:
        index = ARROW_SCHEMA.get_field_index("data")
        batch = batch.set_column(index, "data", pa.nulls(batch.num_rows, pa.binary()))
    return batch.select(names)
