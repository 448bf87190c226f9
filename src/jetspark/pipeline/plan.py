"""From a `Pipeline` to frames of Spark: a view for each source and transform, a flow for each sink.

Nothing is started here. What Spark's analyser finds wrong is noted with its line in the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from jetspark.errors import JetSparkError

from .ddl import Column, read_ddl
from .payload import parsed_view, unparsable_rows
from .problems import Mark, Problems
from .references import check_columns
from .server_checks import System
from .sinks import Output, dead_letter_output, sink_output
from .spec import INFER, Kind, Mode, Pipeline, Sink, Source, Transform, Watermark
from .templates import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Flow", "Planner"]

_FORMATS = {
    Kind.STREAM: ("jetstream", "stream"),
    Kind.BUCKET: ("jetstream-kv", "bucket"),
    Kind.OBJECTS: ("jetstream-objects", "bucket"),
}
_SAMPLE = 1000  # messages that a schema is inferred from
_PLACE = re.compile(r"\(?\bline (\d+),? pos (\d+)\)?")


@dataclass(frozen=True)
class Flow:
    """What becomes one streaming query."""

    name: str
    what: str
    """`sink` or `source`, of which it brings away the dead letters."""
    frame: DataFrame
    output: Output
    mark: Mark


class Planner:
    """Makes views and flows in a session of Spark."""

    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession,
        system: System,
        problems: Problems,
        *,
        max_payload: int,
        say: Callable[[str], None],
    ) -> None:
        self._pipeline = pipeline
        self._spark = spark
        self._system = system
        self._problems = problems
        self._max_payload = max_payload
        self._say = say
        self._views: dict[str, DataFrame] = {}
        self._broken: set[str] = set()

    def plan(self) -> list[Flow]:
        """All flows; what is wrong is in the problems."""
        with _quiet():
            flows = [
                flow for source in self._pipeline.sources.values() for flow in self._source(source)
            ]
            for transform in self._pipeline.transforms.values():
                self._transform(transform)
            flows += [flow for sink in self._pipeline.sinks.values() for flow in self._sink(sink)]
        return flows

    # -- views --------------------------------------------------------------------------------

    def _source(self, source: Source) -> list[Flow]:
        """Make the view of a source; returns the flow of its dead letters, if it can have any."""
        with self._noting(source.name, source.mark, f"source {source.name!r}"):
            if source.kind is Kind.FORMAT:
                self._view(source.name, self._format(source), source.watermark)
                return []
            frame = self._load(source, _options_of(source), static=source.static)
            if source.kind is Kind.OBJECTS:
                self._view(source.name, frame, source.watermark)
                return []
            columns = self._columns(source)
            self._view(source.name, parsed_view(frame, source, columns), source.watermark)
            if source.parses and not source.static:
                rows = unparsable_rows(frame, source, columns, self._max_payload)
                subject = self._pipeline.dead_subject(source.name)
                output = dead_letter_output(
                    self._system.spark_options, self._pipeline.dead_letters.stream, subject
                )
                return [Flow(source.name, "source", rows, output, source.mark)]
        return []

    def _format(self, source: Source) -> DataFrame:
        schema = source.schema
        if schema == INFER:
            reader = self._spark.read.format(source.target).options(**source.options)
            schema = _ddl_of(reader.load(source.path))
            self._say(f"source {source.name}: inferred schema: {schema}")
        start = self._spark.read if source.static else self._spark.readStream
        loader: Any = start.format(source.target).options(**source.options)
        if schema is not None:
            loader = loader.schema(schema)
        frame: DataFrame = loader.load(source.path)
        return frame

    def _load(self, source: Source, options: Mapping[str, str], *, static: bool) -> DataFrame:
        kind, name = _FORMATS[source.kind]
        start = self._spark.read if static else self._spark.readStream
        given = {name: source.target, **options, **source.options, **self._system.spark_options}
        loader: Any = start.format(kind).options(**given)
        frame: DataFrame = loader.load()
        return frame

    def _columns(self, source: Source) -> tuple[Column, ...]:
        if source.columns is not None:
            return source.columns
        assert source.schema == INFER
        documents = self._sample(source)
        if not documents:
            self._problems.add(
                source.schema_mark,
                f"source {source.name!r}: there are no JSON objects in {source.target} to infer a "
                "schema from; write it, as in schema: id STRING, amount DOUBLE",
            )
            raise _AlreadyNoted
        text = "[" + ",".join(documents) + "]"
        literal = text.replace("\\", "\\\\").replace("'", "\\'")
        row = self._spark.sql(
            f"SELECT schema_of_json('{literal}', map('inferTimestamp', 'true')) AS ddl"
        ).first()
        assert row is not None
        columns = tuple(read_ddl(row.ddl.removeprefix("ARRAY<STRUCT<").removesuffix(">>")))
        listed = ", ".join(f"{_plain(column.name)} {column.type}" for column in columns)
        self._say(
            f"source {source.name}: inferred schema from {len(documents)} messages; to keep it, "
            f'write it into the file:\n  schema: "{listed}"'
        )
        return columns

    def _sample(self, source: Source) -> list[str]:
        """The payloads of the first messages that are JSON objects."""
        column = "data" if source.kind is Kind.STREAM else "value"
        subjects = _subject_option(source)
        rows = self._load(source, subjects, static=True).select(column).limit(_SAMPLE).collect()
        found = []
        for (data,) in rows:
            try:
                document = json.loads(bytes(data or b""))
            except (ValueError, RecursionError):
                continue
            if isinstance(document, dict):
                found.append(json.dumps(document))
        return found

    def _transform(self, transform: Transform) -> None:
        def place(line: int) -> Mark:
            if transform.folded:
                return transform.sql_mark
            return Mark(transform.sql_line + line - 1, transform.sql_mark.column)

        what = f"transform {transform.name!r}"
        with self._noting(transform.name, transform.sql_mark, what, place):
            self._view(transform.name, self._spark.sql(transform.sql), transform.watermark)

    def _view(self, name: str, frame: DataFrame, watermark: Watermark | None) -> None:
        if watermark is not None:
            frame = frame.withWatermark(watermark.column, f"{watermark.milliseconds} milliseconds")
        frame.createOrReplaceTempView(name)
        self._views[name] = frame

    # -- flows --------------------------------------------------------------------------------

    def _sink(self, sink: Sink) -> list[Flow]:
        frame = self._views.get(sink.origin)
        if frame is None:
            return []  # its view is broken, which is noted
        what = f"sink {sink.name!r}"
        before = len(self._problems.found)
        check_columns(sink, frame.columns, self._problems)
        if not frame.isStreaming:
            self._problems.add(
                sink.origin_mark,
                f"{what}: all that {sink.origin!r} reads is static; make one of its sources a "
                "stream by leaving out 'static'",
            )
        if sink.kind is Kind.CONSOLE and not hasattr(self._spark, "_jvm"):
            self._problems.add(
                sink.mark, f"{what}: rows are not shown with Spark Connect; leave the sink out"
            )
        if len(self._problems.found) > before:
            return []
        flows: list[Flow] = []
        with self._noting(sink.name, sink.mark, what):
            output = sink_output(self._pipeline, sink, frame, self._system.spark_options)
            self._check_streaming(sink, frame)
            flows.append(Flow(sink.name, "sink", frame, output, sink.mark))
        return flows

    def _check_streaming(self, sink: Sink, frame: DataFrame) -> None:
        """Ask Spark whether the query can run in the mode of the sink, which it says late."""
        jvm = getattr(self._spark, "_jvm", None)
        if jvm is None:
            return  # Spark Connect: it says it when the query is started
        modes = jvm.org.apache.spark.sql.streaming.OutputMode
        mode = {
            Mode.APPEND: modes.Append,
            Mode.UPDATE: modes.Update,
            Mode.COMPLETE: modes.Complete,
        }[sink.mode]()
        checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
        checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), mode)

    @contextmanager
    def _noting(
        self, name: str, mark: Mark, what: str, place: Callable[[int], Mark] | None = None
    ) -> Iterator[None]:
        """Note what Spark or a source says is wrong, with its place."""
        from pyspark.errors import PySparkException

        try:
            yield
        except _AlreadyNoted:
            self._broken.add(name)
        except (PySparkException, JetSparkError) as error:
            line, message = _said(str(error))
            if "TABLE_OR_VIEW_NOT_FOUND" in str(error) and any(
                f"`{broken}`" in message for broken in self._broken
            ):
                self._broken.add(name)
                return  # that view has a problem of its own
            self._broken.add(name)
            where = place(line) if place is not None and line else mark
            self._problems.add(where, f"{what}: {message}")


class _AlreadyNoted(Exception):
    pass


def _options_of(source: Source) -> dict[str, str]:
    options = _subject_option(source)
    start = source.start or "earliest"
    if start in ("earliest", "latest") or start.isdigit():
        if not (source.kind is Kind.BUCKET and source.static) and source.kind is not Kind.OBJECTS:
            options["startingOffsets"] = start
    else:
        moment = datetime.fromisoformat(start)
        options["startingTimestamp"] = start if moment.tzinfo else f"{start}+00:00"
    if "consumer" in source.options:
        options.pop("startingOffsets", None)
    return options


def _subject_option(source: Source) -> dict[str, str]:
    if source.subjects is None:
        return {}
    return {"keys" if source.kind is Kind.BUCKET else "subjects": source.subjects}


def _plain(name: str) -> str:
    """A column for DDL, in quotes only if it needs them."""
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else quoted(name)


def _ddl_of(frame: DataFrame) -> str:
    return ", ".join(
        f"{_plain(field.name)} {field.dataType.simpleString()}" for field in frame.schema.fields
    )


def _said(text: str) -> tuple[int, str]:
    """The line that Spark names, 0 if none, and its message on one line."""
    place = _PLACE.search(text)
    line = int(place[1]) if place is not None else 0
    ours = re.findall(r"^jetspark\.[\w.]+: (.+)$", text, re.MULTILINE)
    if ours:
        return line, ours[-1]
    message = text.strip().partition("\n\n")[0]
    message = re.split(r";?\s*\(?\bline \d+,? pos \d+|\bSQLSTATE: |\n== SQL", message)[0]
    return line, " ".join(message.split()).rstrip(" ;.")


@contextmanager
def _quiet() -> Iterator[None]:
    """PySpark logs errors of the analyser to the terminal; they are told with their lines."""
    from pyspark.logger import PySparkLogger

    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before
