"""Streams, buckets and object stores as tables of SQL: what there is, and a DataFrame for each.

To the columns of a stream or bucket come `text`, the payload if it is UTF-8, and `json`, its fields
as far as a sample of the payloads has some.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from jetspark.errors import InvalidArgumentError, NotFoundError
from jetspark.kv.names import STREAM_PREFIX as KV
from jetspark.objects.names import STREAM_PREFIX as OBJECTS
from jetspark.spark.sources import JetStreamSource
from jetspark.sync import JetStream

from . import json_schema
from .sql_text import KINDS, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Listed", "Tables"]

NAMES_SHOWN = 10
SAMPLE_FIRST, SAMPLE_LAST = 100, 400  # messages at both ends of a stream
SAMPLE_BYTES = 4 * 1024 * 1024
_PLACES = "stream string, subject string, sequence bigint, timestamp timestamp"


@dataclass(frozen=True)
class Listed:
    """A table, as a list shows it."""

    table: Table
    messages: int
    """Of the stream; for a bucket the revisions that it has."""
    bytes: int
    last: datetime | None
    """When the last one came."""


class Tables:
    """What a NATS system has, for queries.

    `options` are those of the Spark sources: where NATS is, and who we are there.
    """

    def __init__(self, js: JetStream, options: Mapping[str, str]) -> None:
        self._js = js
        self._options = dict(options)

    def all(self) -> list[Listed]:
        """All tables, by kind and name."""
        stores = set(self._js.object_store_names())
        found = []
        for stream in self._js.streams():
            name, state = stream.name, stream.cached_info.state
            table = Table("stream", name)
            if name.startswith(KV):
                table = Table("kv", name.removeprefix(KV))
            elif name.startswith(OBJECTS) and name.removeprefix(OBJECTS) in stores:
                table = Table("objects", name.removeprefix(OBJECTS))
            last = state.last_ts if state.last_seq else None
            found.append(Listed(table, state.messages, state.bytes, last))
        return sorted(found, key=lambda item: (KINDS.index(item.table.kind), item.table.name))

    def names(self, kind: str) -> list[str]:
        """The names of the tables of a kind."""
        match kind:
            case "kv":
                return list(self._js.key_value_names())
            case "objects":
                return list(self._js.object_store_names())
            case _:
                hidden = (KV, OBJECTS)
                return [name for name in self._js.stream_names() if not name.startswith(hidden)]

    def check(self, table: Table) -> None:
        """Raise if there is no such table, and say which one may be meant."""
        try:
            match table.kind:
                case "kv":
                    self._js.key_value(table.name)
                case "objects":
                    self._js.object_store(table.name)
                case _:
                    self._js.get_stream(table.name)
        except NotFoundError:
            pass
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{table}: {error}") from None
        else:
            return
        what = {"stream": "stream", "kv": "bucket", "objects": "object store"}[table.kind]
        raise InvalidArgumentError(
            f"there is no {what} {table.name!r}; {_advice(table, self.names(table.kind))}"
        )

    def frame(self, spark: SparkSession, table: Table, *, payloads: bool = True) -> DataFrame:
        """The table; without payloads and headers, what the server sends of a stream is less."""
        match table.kind:
            case "kv":
                reader = spark.read.format("jetstream-kv").options(**self._options)
                frame = reader.option("bucket", table.name).load()
                return self._with_payload(frame, "value", KV + table.name)
            case "objects":
                reader = spark.read.format("jetstream-objects").options(**self._options)
                reader = reader.options(bucket=table.name, includeContent="false")
                return reader.load().drop("content")
            case _:
                reader = spark.read.format("jetstream").options(**self._options)
                reader = reader.option("stream", table.name)
                if not payloads:
                    return reader.schema(_PLACES).load()
                frame = reader.load()
                return self._with_payload(frame, "data", table.name)

    def _with_payload(self, frame: DataFrame, column: str, stream: str) -> DataFrame:
        """Add what can be made of the payload."""
        from pyspark.sql.functions import col, from_json, try_validate_utf8

        text = col(column).cast("string")
        frame = frame.withColumn("text", try_validate_utf8(text))
        schema = json_schema.infer(self._sample(stream))
        return frame if schema is None else frame.withColumn("json", from_json(text, schema))

    def _sample(self, stream: str) -> Iterator[bytes]:
        """Some payloads from both ends of a stream."""
        state = self._js.get_stream(stream).cached_info.state
        if not state.messages:
            return
        first, last = state.first_seq, state.last_seq
        head = min(first + SAMPLE_FIRST - 1, last)
        tail = max(head + 1, last - SAMPLE_LAST + 1)
        size = 0
        for start, end in ((tail, last), (first, head)):
            for payload in self._payloads(stream, start, end) if start <= end else ():
                yield payload
                size += len(payload)
                if size > SAMPLE_BYTES:
                    return

    def _payloads(self, stream: str, first: int, last: int) -> Iterator[bytes]:
        options: dict[str, Any] = {
            **self._options,
            "stream": stream,
            "startingOffsets": str(first),
            "endingOffsets": str(last),
            "failOnDataLoss": "false",
            "rowsPerBatch": "100",
        }
        source = JetStreamSource(options)
        reader = source.reader(source.schema())
        for partition in reader.partitions():
            for batch in reader.read(partition):
                yield from batch.column("data").to_pylist()  # type: ignore[union-attr]


def _advice(missing: Table, names: list[str]) -> str:
    """Which table may be meant: one that is written alike, or all, if they are few."""
    wanted = missing.name.lower()
    lower = {name.lower(): name for name in names}
    near = [lower[name] for name in difflib.get_close_matches(wanted, lower, n=3)]
    near = near or [name for name in names if name.lower().startswith(wanted)]
    if near:
        return f"did you mean {' or '.join(str(Table(missing.kind, name)) for name in near[:3])}?"
    if not names:
        return "there are none; SHOW TABLES lists what there is"
    more = ", ..." if len(names) > NAMES_SHOWN else ""
    shown = ", ".join(str(Table(missing.kind, name)) for name in names[:NAMES_SHOWN])
    return f"there are {shown}{more}"
