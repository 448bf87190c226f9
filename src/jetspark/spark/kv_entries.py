"""Messages of a bucket's stream as rows: the columns of `jetstream-kv`. Pure: no I/O."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from jetspark.kv.entry import operation_of

__all__ = ["KV_SCHEMA", "entries", "keys_of"]

KV_SCHEMA = StructType(
    [
        StructField("key", StringType()),
        StructField("value", BinaryType()),
        StructField("revision", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("operation", StringType()),
    ]
)

_SAY_IT = ("KV-Operation", "Nats-Marker-Reason")


def keys_of(batch: pa.RecordBatch, prefix: str) -> pa.Array:
    """The keys of messages."""
    return pc.utf8_slice_codeunits(batch.column("subject"), len(prefix))


def entries(batch: pa.RecordBatch, prefix: str) -> pa.RecordBatch:
    """The rows of messages; what marks a deleted key has no value."""
    operations = _operations(batch.column("headers"))
    values = batch.column("data")
    puts = pc.equal(operations, "PUT")
    if pc.all(puts).as_py() is False:
        values = pc.if_else(puts, values, pa.scalar(None, pa.binary()))
    return pa.RecordBatch.from_arrays(
        [
            keys_of(batch, prefix),
            values,
            batch.column("sequence"),
            batch.column("timestamp"),
            operations,
        ],
        names=KV_SCHEMA.fieldNames(),
    )


def _operations(headers: pa.Array) -> pa.Array:
    if headers.null_count == len(headers):
        return pa.repeat("PUT", len(headers))
    return pa.array([_operation(pairs) for pairs in headers.to_pylist()], pa.string())


def _operation(pairs: list[tuple[str, list[str]]] | None) -> str:
    said = [(name, values[0]) for name, values in pairs or () if name in _SAY_IT and values]
    if not said:
        return "PUT"
    lines = "".join(f"{name}: {value}\r\n" for name, value in said)
    return operation_of(f"NATS/1.0\r\n{lines}\r\n".encode()).value
