"""SQL over the tables of a NATS system: a statement becomes Arrow batches.

Spark runs the statement; the tables that it names are opened as temporary views, and no others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from jetspark.errors import InvalidQueryError

from .sql_errors import translate
from .sql_text import Rewritten, Table, quoted, reads_payloads, rewrite, tables
from .tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["Answer", "Queries", "distinct", "is_interrupt"]

_HIDDEN = "jetspark_table_"


class Answer(NamedTuple):
    """What a statement gives."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


class Queries:
    """Runs statements in one Spark session.

    >>> Queries(spark, tables).run("SELECT count(*) FROM stream.ORDERS")  # doctest: +SKIP
    """

    def __init__(self, spark: SparkSession, tables: Tables) -> None:
        self._spark = spark
        self._tables = tables
        self._views: dict[Table, str] = {}

    def run(self, sql: str, *, limit: int | None = None) -> Answer:
        """The rows of a statement, at most `limit` of them; raises what is wrong with it."""
        for table in tables(sql):
            self._tables.check(table)
        if not reads_payloads(sql):
            try:
                return self._run(sql, limit, payloads=False)
            except InvalidQueryError:
                pass  # with all columns, Spark can say better what is wrong
        return self._run(sql, limit, payloads=True)

    def _run(self, sql: str, limit: int | None, *, payloads: bool) -> Answer:
        views = {}
        for table in tables(sql):
            # Views that statements have made build on the one with payloads: it keeps its name.
            name = self._views.setdefault(table, f"{_HIDDEN}{len(self._views)}")
            views[table] = name if payloads else f"{name}_places"
        rewritten = rewrite(sql, views)
        with self._plain_errors(sql, rewritten):
            for table, view in views.items():
                frame = self._tables.frame(self._spark, table, payloads=payloads)
                frame.createOrReplaceTempView(view)
            frame = _showable(self._spark.sql(rewritten.sql))
            if not frame.columns:
                return Answer(pa.schema([]), iter(()))
            if limit is not None:
                rows = frame.limit(limit).toArrow()
                return Answer(rows.schema, iter(rows.to_batches()))
            return Answer(_arrow_schema(frame), self._all_rows(frame, sql, rewritten))

    def describe(self, table: Table) -> Answer:
        """The columns of a table and their types, and the fields of those that have some."""
        self._tables.check(table)
        with self._plain_errors("", Rewritten("", ())):
            rows = list(_columns(self._tables.frame(self._spark, table).schema, ""))
        schema = pa.schema([("column", pa.string()), ("type", pa.string())])
        return Answer(schema, iter(pa.Table.from_pylist(rows, schema).to_batches()))

    def views(self) -> list[str]:
        """The temporary views that statements have made."""
        names = [table.name for table in self._spark.catalog.listTables() if table.isTemporary]
        return sorted(name for name in names if not name.startswith(_HIDDEN))

    def _all_rows(
        self, frame: DataFrame, sql: str, rewritten: Rewritten
    ) -> Iterator[pa.RecordBatch]:
        """The rows as they come: a result may be larger than the memory of the driver."""
        schema = _arrow_schema(frame)
        with self._plain_errors(sql, rewritten):
            packed = frame.mapInArrow(_pack, "batch binary")
            for row in packed.toLocalIterator(prefetchPartitions=True):
                yield from pa.ipc.open_stream(row["batch"]).read_all().cast(schema).to_batches()

    @contextmanager
    def _plain_errors(self, sql: str, rewritten: Rewritten) -> Iterator[None]:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        try:
            yield
        except (PySparkException, Py4JError) as error:
            if is_interrupt(error):
                raise KeyboardInterrupt from None
            raise translate(error, sql, rewritten, self._names()) from error

    def _names(self) -> dict[str, Table]:
        """What the hidden names stand for, the longer ones first."""
        short = {view: table for table, view in self._views.items()}
        return {**{f"{view}_places": table for view, table in short.items()}, **short}


def is_interrupt(error: BaseException) -> bool:
    """Whether Ctrl-C came first: Spark cancels its jobs, and then complains about that."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__context__
    return cause is not None


def _pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each batch as one value, in the workers."""
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        packed = pa.array([sink.getvalue().to_pybytes()], pa.binary())
        yield pa.RecordBatch.from_arrays([packed], names=["batch"])


def _showable(frame: DataFrame) -> DataFrame:
    """The same with a name of its own for each column, and text where Arrow knows no type."""
    from pyspark.sql.functions import col, to_json
    from pyspark.sql.types import CalendarIntervalType, VariantType, YearMonthIntervalType

    names = distinct(frame.columns)
    frame = frame.toDF(*names) if names != frame.columns else frame
    for name, field in zip(names, frame.schema.fields, strict=True):
        column = col("`" + name.replace("`", "``") + "`")
        if isinstance(field.dataType, VariantType):
            frame = frame.withColumn(name, to_json(column))
        elif isinstance(field.dataType, CalendarIntervalType | YearMonthIntervalType):
            frame = frame.withColumn(name, column.cast("string"))
    return frame


def distinct(names: list[str]) -> list[str]:
    """The names, with numbers for those that were there before, as joins make them.

    >>> distinct(["id", "name", "ID"])
    ['id', 'name', 'ID_2']
    """
    taken: set[str] = set()
    found = []
    for name in names:
        unique, number = name, 1
        while unique.lower() in taken:
            number += 1
            unique = f"{name}_{number}"
        taken.add(unique.lower())
        found.append(unique)
    return found


def _columns(schema: StructType, prefix: str) -> Iterator[dict[str, str]]:
    from pyspark.sql.types import StructType

    for field in schema.fields:
        name = prefix + quoted(field.name)
        if isinstance(field.dataType, StructType):
            yield {"column": name, "type": "struct"}
            yield from _columns(field.dataType, name + ".")
        else:
            yield {"column": name, "type": field.dataType.simpleString()}


def _arrow_schema(frame: DataFrame) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(frame.schema, timezone="UTC")
