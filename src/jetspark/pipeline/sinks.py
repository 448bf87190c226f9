"""How rows are written: what each sink makes of a view, and how its query is started.

Streams that are appended to are written by the streaming sink itself. Everything else goes batch by
batch: Spark knows no output mode `update` for Python sinks, the rows of a key must come to one task
in their order, and after a shuffle rows must be sorted to be the same when they are written again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .spec import META_COLUMNS, Kind, Mode, Pipeline, Sink
from .templates import Template, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["Output", "RowsPrinter", "dead_letter_output", "sink_output"]

RowsPrinter = Callable[[str, int, list[str], list[list[str]], int], None]
"""Shows rows of a console sink: its name, the batch, columns, rows, and how many there are."""

_SHOWN_ROWS = 20
_SHUFFLES = re.compile(
    r"\b(Aggregate|Join|Deduplicate\w*|Distinct|Window|Sort|Repartition\w*|Rebalance\w*|"
    r"FlatMapGroups\w*|TransformWithState\w*|Union)\b"
)


@dataclass(frozen=True)
class Output:
    """Where the rows of a flow go."""

    format: str | None
    """Of the streaming sink; None: batch by batch."""
    options: dict[str, str] = field(repr=False)
    select: tuple[str, ...] = ()
    """What the sink takes, as expressions of SQL; empty is all."""
    mode: Mode = Mode.APPEND
    path: str | None = None
    partition_by: tuple[str, ...] = ()
    write: Callable[[DataFrame, int, str], None] | None = None
    """Writes a batch: rows, number, and a name for the write that is the same if it is repeated."""
    console: bool = False

    def start(
        self,
        frame: DataFrame,
        name: str,
        checkpoint: str,
        trigger: int | None,
        show: RowsPrinter | None,
    ) -> StreamingQuery:
        """Start the query."""
        rows = frame.selectExpr(*self.select) if self.select else frame
        writer: DataStreamWriter = rows.writeStream.queryName(name)
        writer = writer.outputMode(self.mode.value).option("checkpointLocation", checkpoint)
        writer = (
            writer.trigger(availableNow=True)
            if trigger is None
            else writer.trigger(processingTime=f"{trigger} milliseconds")
        )
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        if self.format is not None:
            return writer.format(self.format).options(**self.options).start(self.path)
        if self.console:
            return writer.foreachBatch(_shower(name, show)).start()
        assert self.write is not None
        return writer.foreachBatch(_batch_writer(self.write, checkpoint)).start()


def _batch_writer(
    write: Callable[[DataFrame, int, str], None], checkpoint: str
) -> Callable[[DataFrame, int], None]:
    query: list[str] = []

    def each(rows: DataFrame, batch: int) -> None:
        if not query:
            # The checkpoint has an id for the query, so a batch that is repeated has the same name.
            metadata = rows.sparkSession.read.text(f"{checkpoint}/metadata").first()
            assert metadata is not None
            query.append(json.loads(metadata.value)["id"])
        write(rows, batch, f"{query[0]}-{batch}")

    return each


def _shower(name: str, show: RowsPrinter | None) -> Callable[[DataFrame, int], None]:
    def each(rows: DataFrame, batch: int) -> None:
        rows = rows.persist()
        try:
            total = rows.count()
            if total and show is not None:
                columns = [f"CAST({quoted(column)} AS STRING)" for column in rows.columns]
                first = rows.selectExpr(*columns).limit(_SHOWN_ROWS).collect()
                texts = [["" if cell is None else str(cell) for cell in row] for row in first]
                show(name, batch, rows.columns, texts, total)
        finally:
            rows.unpersist()

    return each


def dead_letter_output(access: dict[str, str], stream: str, subject: str) -> Output:
    """Where the rows of a source go that cannot be parsed."""
    return Output("jetstream", {**access, "subject": subject, "expectedStream": stream})


def sink_output(pipeline: Pipeline, sink: Sink, frame: DataFrame, access: dict[str, str]) -> Output:
    """What a sink makes of the rows of its view; Spark checks the expressions."""
    if sink.kind is Kind.CONSOLE:
        return Output(None, {}, mode=sink.mode, console=True)
    if sink.kind is Kind.FORMAT:
        return Output(
            sink.target,
            sink.options,
            mode=sink.mode,
            path=sink.path,
            partition_by=sink.partition_by,
        )
    make = {Kind.STREAM: _stream, Kind.BUCKET: _bucket, Kind.OBJECTS: _objects}[sink.kind]
    output = make(pipeline, sink, frame, access)
    frame.selectExpr(*output.select)  # the analyser looks at them
    return output


def _stream(pipeline: Pipeline, sink: Sink, frame: DataFrame, access: dict[str, str]) -> Output:
    select = {"subject": _expression(sink.template), "data": _content(sink, frame, used=())}
    if sink.headers:
        listed = ", ".join(
            f"'{name}', {value.expression()}" for name, value in sink.headers.items()
        )
        select["headers"] = f"map_filter(map({listed}), (name, value) -> value IS NOT NULL)"
    if sink.message_id is not None:
        # A row without an id of its own has that of its payload.
        select["msg_id"] = f"coalesce({sink.message_id.expression()}, sha2({select['data']}, 256))"
    options = {**_dead(pipeline, sink), **sink.options, **access, "expectedStream": sink.target}
    columns = _columns({**select, **_origin(frame)})
    if sink.mode is Mode.APPEND and not _shuffles(frame):
        return Output("jetstream", options, columns)

    def write(rows: DataFrame, batch: int, name: str) -> None:
        ordered = rows.sortWithinPartitions("subject", "data")
        _save(ordered, "jetstream", {**options, "writeId": name})

    return Output(None, options, columns, sink.mode, write=write)


def _bucket(pipeline: Pipeline, sink: Sink, frame: DataFrame, access: dict[str, str]) -> Output:
    assert sink.template is not None
    used = sink.template.columns
    select = {"key": _expression(sink.template), "value": _content(sink, frame, used)}
    options = {**_dead(pipeline, sink), **sink.options, **access, "bucket": sink.target}
    order = "_order"
    select[order] = "_sequence" if "_sequence" in frame.columns else "0"
    origin = _origin(frame)

    def write(rows: DataFrame, batch: int, name: str) -> None:
        # The last row of a key wins, in the order of the stream: so they must be in one task.
        ordered = rows.repartition("key").sortWithinPartitions("key", order, "value")
        _save(ordered.drop(order), "jetstream-kv", {**options, "writeId": name})

    return Output(None, options, _columns({**select, **origin}), sink.mode, write=write)


def _objects(pipeline: Pipeline, sink: Sink, frame: DataFrame, access: dict[str, str]) -> Output:
    select = {"name": _expression(sink.template), "content": quoted(sink.content or "")}
    options = {**sink.options, **access, "bucket": sink.target}
    dead = {
        **access,
        "subject": pipeline.dead_subject(sink.name),
        "expectedStream": pipeline.dead_letters.stream,
    }
    good = "coalesce(length(name) > 0, false) AND content IS NOT NULL"
    reason = (
        "if(coalesce(length(name), 0) = 0, 'the name of the object is empty or null', "
        "'the content of the object is null')"
    )
    headers = {
        "Jetspark-Reason": reason,
        "Jetspark-Target": f"concat('{sink.target}/', coalesce(name, ''))",
        "Jetspark-Label": f"'{sink.name}'",
    }
    origin = _origin(frame)
    if origin:
        headers |= {
            "Jetspark-Stream": "origin_stream",
            "Jetspark-Sequence": "CAST(origin_sequence AS STRING)",
        }
    listed = ", ".join(f"'{name}', {value}" for name, value in headers.items())

    def write(rows: DataFrame, batch: int, name: str) -> None:
        rows = rows.persist()
        bad = rows.where(f"NOT ({good})").selectExpr("content AS data", f"map({listed}) AS headers")
        try:
            _save(bad, "jetstream", {**dead, "writeId": name})
            _save(rows.where(good).select("name", "content"), "jetstream-objects", options)
        finally:
            rows.unpersist()

    return Output(None, options, _columns({**select, **origin}), sink.mode, write=write)


def _save(rows: DataFrame, kind: str, options: dict[str, str]) -> None:
    rows.write.format(kind).options(**options).mode("append").save()


def _columns(select: dict[str, str]) -> tuple[str, ...]:
    return tuple(f"{expression} AS {name}" for name, expression in select.items())


def _expression(template: Template | None) -> str:
    assert template is not None
    return template.expression()


def _content(sink: Sink, frame: DataFrame, used: Any) -> str:
    """The payload: a column, or JSON of those that are not in the template already."""
    if sink.content is not None:
        kind = frame.schema[sink.content].dataType.simpleString()
        plain = quoted(sink.content)
        return plain if kind in ("string", "binary") else f"CAST({plain} AS STRING)"
    meta = {name for columns in META_COLUMNS.values() for name in columns}
    names = [name for name in frame.columns if name not in meta and name not in used]
    return f"to_json(struct({', '.join(quoted(name) for name in names)}))" if names else "'{}'"


def _shuffles(frame: DataFrame) -> bool:
    """Whether the order of the rows may differ when a batch is run again."""
    plan = getattr(frame, "_jdf", None)
    return plan is None or bool(_SHUFFLES.search(plan.queryExecution().analyzed().toString()))


def _dead(pipeline: Pipeline, sink: Sink) -> dict[str, str]:
    """The options for rows that cannot be written."""
    return {"deadLetterSubject": pipeline.dead_subject(sink.name), "deadLetterLabel": sink.name}


def _origin(frame: DataFrame) -> dict[str, str]:
    """Where a row comes from, if it is a row of a stream."""
    known = {"_stream", "_sequence"} <= set(frame.columns)
    return {"origin_stream": "_stream", "origin_sequence": "_sequence"} if known else {}
