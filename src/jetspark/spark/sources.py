"""The data sources that Spark knows by name."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from jetspark.errors import InvalidOptionError

from .boundary import plain_errors
from .schema import check_schema, stream_schema
from .stream_options import ReadSettings, check_options

__all__ = ["JetStreamKvSource", "JetStreamObjectsSource", "JetStreamSource"]


class JetStreamSource(DataSource):
    """Streams, as `spark.read.format("jetstream")` and `spark.readStream.format("jetstream")`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "jetstream"

    @plain_errors
    def schema(self) -> StructType:
        """The columns, which do not depend on what is in the stream."""
        return stream_schema(headers=check_options(self.options)["includeHeaders"])

    @plain_errors
    def reader(self, schema: StructType) -> DataSourceReader:
        """For a batch query."""
        from .stream_source import FilteringReader, StreamBatchReader, is_filtering

        settings = _for_columns(ReadSettings.batch(self.options), schema)
        return (FilteringReader if is_filtering() else StreamBatchReader)(settings, schema)

    @plain_errors
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For a streaming query."""
        from .queue_reader import QueueReader
        from .stream_reader import StreamReader

        settings = _for_columns(ReadSettings.streaming(self.options), schema)
        kind = StreamReader if settings.consumer is None else QueueReader
        return kind(settings, schema)

    @plain_errors
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For a batch query."""
        from .stream_sink import StreamBatchWriter, WriteSettings

        _refuse_overwrite(overwrite)
        return StreamBatchWriter(WriteSettings.read(self.options, schema))

    @plain_errors
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """For a streaming query."""
        from .stream_sink import StreamWriter, WriteSettings

        _refuse_overwrite(overwrite)
        return StreamWriter(WriteSettings.read(self.options, schema))


def _for_columns(settings: ReadSettings, schema: StructType) -> ReadSettings:
    """Settings that read no more than the columns need."""
    check_schema(schema, stream_schema(headers=settings.headers), "jetstream")
    if {"data", "headers"} & set(schema.fieldNames()):  # it adds a header if there is no data
        return settings
    return replace(settings, plan=replace(settings.plan, headers_only=True))


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise InvalidOptionError("jetstream: a stream is not overwritten; use mode 'append'")


class JetStreamKvSource(DataSource):
    """Buckets, as `spark.read.format("jetstream-kv")` and the like."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "jetstream-kv"

    @plain_errors
    def schema(self) -> StructType:
        """The columns."""
        from .kv_entries import KV_SCHEMA
        from .kv_options import check_kv_options

        check_kv_options(self.options)
        return KV_SCHEMA

    @plain_errors
    def reader(self, schema: StructType) -> DataSourceReader:
        """What the bucket has, or had."""
        from .kv_entries import KV_SCHEMA
        from .kv_options import SOURCE, KvReadSettings
        from .kv_snapshot import KvBatchReader

        check_schema(schema, KV_SCHEMA, SOURCE)
        return KvBatchReader(KvReadSettings.batch(self.options), schema)

    @plain_errors
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Its changes."""
        from .kv_entries import KV_SCHEMA
        from .kv_options import SOURCE, changes_settings
        from .kv_reader import KvStreamReader

        check_schema(schema, KV_SCHEMA, SOURCE)
        return KvStreamReader(*changes_settings(self.options), schema)

    @plain_errors
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Sets and deletes keys."""
        from .kv_sink import KvBatchWriter, KvWriteSettings

        _refuse_overwrite_of("jetstream-kv: a bucket", overwrite)
        return KvBatchWriter(KvWriteSettings.read(self.options, schema))

    @plain_errors
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The same, batch by batch.

        Output mode `complete`, which Spark calls overwriting, only sets each key again.
        """
        from .kv_sink import KvStreamWriter, KvWriteSettings

        return KvStreamWriter(KvWriteSettings.read(self.options, schema))


class JetStreamObjectsSource(DataSource):
    """Object stores, as `spark.read.format("jetstream-objects")` and the like."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "jetstream-objects"

    @plain_errors
    def schema(self) -> StructType:
        """The columns; with layout `parquet` they are those of the first file."""
        from .objects_options import ObjectReadSettings
        from .objects_parquet import parquet_schema
        from .objects_source import OBJECT_SCHEMA

        settings = ObjectReadSettings.read(self.options)
        return parquet_schema(settings) if settings.parquet else OBJECT_SCHEMA

    @plain_errors
    def reader(self, schema: StructType) -> DataSourceReader:
        """The objects, or the rows in them."""
        from .objects_options import SOURCE, ObjectReadSettings
        from .objects_parquet import ParquetReader
        from .objects_source import OBJECT_SCHEMA, ObjectReader

        settings = ObjectReadSettings.read(self.options)
        if settings.parquet:
            return ParquetReader(settings, schema)
        check_schema(schema, OBJECT_SCHEMA, SOURCE)
        return ObjectReader(settings, schema)

    @plain_errors
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Puts objects."""
        from .objects_options import ObjectWriteSettings
        from .objects_parquet import ParquetWriter
        from .objects_sink import ObjectBatchWriter

        settings = ObjectWriteSettings.read(self.options, schema)
        if settings.prefix is not None:
            return ParquetWriter(settings, schema, overwrite)
        _refuse_overwrite_of("jetstream-objects: a store", overwrite)
        return ObjectBatchWriter(settings)

    @plain_errors
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The same, batch by batch; in output mode `complete`, too."""
        from .objects_options import ObjectWriteSettings
        from .objects_sink import ObjectStreamWriter

        settings = ObjectWriteSettings.read(self.options, schema)
        if settings.prefix is not None:
            raise InvalidOptionError(
                "jetstream-objects: option 'layout' takes only 'objects' in a streaming query; to "
                "write Parquet files, use foreachBatch and write_parquet_objects with a prefix for "
                "each batch and mode='overwrite'"
            )
        return ObjectStreamWriter(settings)


def _refuse_overwrite_of(what: str, overwrite: bool) -> None:
    if overwrite:
        raise InvalidOptionError(
            f"{what} is not overwritten as a whole; use mode 'append', which replaces what has the "
            "same name"
        )
