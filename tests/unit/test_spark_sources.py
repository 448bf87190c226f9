"""What readers the sources make, before anything is read."""

from __future__ import annotations

import sys
import types

import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter
from pyspark.sql.types import BinaryType, DataType, LongType, StringType, StructField, StructType

from jetspark.errors import InvalidOptionError
from jetspark.spark.schema import stream_schema
from jetspark.spark.sources import JetStreamKvSource, JetStreamObjectsSource, JetStreamSource

OPTIONS = {"servers": "nats://127.0.0.1:1", "stream": "A"}
BUCKET = {"servers": "nats://127.0.0.1:1", "bucket": "A"}


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def offers_filters(reader: DataSourceReader) -> bool:
    """Whether Spark would say so."""
    return type(reader).pushFilters is not DataSourceReader.pushFilters


def test_filters_are_taken_only_where_they_are_pushed(monkeypatch: pytest.MonkeyPatch) -> None:
    source = JetStreamSource(OPTIONS)
    assert not offers_filters(source.reader(stream_schema(headers=True)))
    worker = "pyspark.sql.worker.data_source_pushdown_filters"
    monkeypatch.setitem(sys.modules, worker, types.ModuleType(worker))
    reader = source.reader(stream_schema(headers=True))
    assert offers_filters(reader)
    filters: list[Filter] = [EqualTo(("sequence",), 5), EqualTo(("data",), b"")]
    assert list(reader.pushFilters(filters)) == filters  # Spark is to apply them, too


@pytest.mark.parametrize(
    ("source", "columns", "message"),
    [
        (
            JetStreamSource(OPTIONS),
            {"sequence": LongType(), "key": StringType()},
            "jetstream: there is no column 'key'; a schema chooses among stream, subject, sequence",
        ),
        (
            JetStreamSource(OPTIONS),
            {"data": StringType()},
            "jetstream: column 'data' is binary, not string; read it as it is, and cast it",
        ),
        (
            JetStreamSource({**OPTIONS, "includeHeaders": "false"}),
            {"headers": StringType()},
            "there is no column 'headers'",
        ),
        (JetStreamKvSource(BUCKET), {"value": StringType()}, "jetstream-kv: column 'value' is"),
        (JetStreamObjectsSource(BUCKET), {"data": BinaryType()}, "there is no column 'data'"),
    ],
)
def test_columns_that_are_not_there(
    source: DataSource, columns: dict[str, DataType], message: str
) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        source.reader(schema(**columns))


@pytest.mark.parametrize(
    ("columns", "left_out"),
    [
        ({"sequence": LongType()}, True),
        ({"sequence": LongType(), "data": BinaryType()}, False),
    ],
)
def test_payloads_are_left_out_if_nobody_wants_them(
    columns: dict[str, DataType], left_out: bool
) -> None:
    for reader in (
        JetStreamSource(OPTIONS).reader(schema(**columns)),
        JetStreamSource(OPTIONS).streamReader(schema(**columns)),
    ):
        assert vars(reader)["_settings"].plan.headers_only is left_out
