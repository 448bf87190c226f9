"""From a pipeline file to a `Pipeline`: everything that can be checked by reading alone."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

from jetspark.errors import JetSparkError
from jetspark.jetstream.names import check_stream_name
from jetspark.kv.names import check_bucket
from jetspark.objects.names import check_bucket as check_store
from jetspark.protocol import check_subject, check_subscribe_subject

from .ddl import Column
from .fields import Fields
from .problems import Mark, Problems
from .references import check_references
from .spec import (
    INFER,
    META_COLUMNS,
    DeadLetters,
    Kind,
    Mode,
    Payload,
    Pipeline,
    Sink,
    Source,
    SparkSettings,
    Transform,
    Watermark,
)
from .templates import Template
from .yaml_lines import Value, read_yaml

__all__ = ["parse", "read_file"]

_TOP = (
    "name",
    "server",
    "context",
    "checkpoint",
    "trigger",
    "spark",
    "dead_letter",
    "sources",
    "transforms",
    "sinks",
)
_ANY_SOURCE = ("options", "watermark", "static")
_SOURCE_KEYS = {
    Kind.STREAM: ("stream", "subjects", "start", "payload", "schema", *_ANY_SOURCE),
    Kind.BUCKET: ("bucket", "keys", "start", "payload", "schema", *_ANY_SOURCE),
    Kind.OBJECTS: ("objects", "options", "static"),
    Kind.FORMAT: ("format", "path", "schema", *_ANY_SOURCE),
}
_ANY_SINK = ("from", "mode", "options")
_SINK_KEYS = {
    Kind.STREAM: ("stream", "subject", "data", "headers", "msg_id", "create", *_ANY_SINK),
    Kind.BUCKET: ("bucket", "key", "value", "create", *_ANY_SINK),
    Kind.OBJECTS: ("objects", "name", "content", "create", *_ANY_SINK),
    Kind.FORMAT: ("format", "path", "partition_by", *_ANY_SINK),
    Kind.CONSOLE: ("console", "from", "mode"),
}
_FILES = {"parquet", "csv", "json", "orc", "text", "avro", "xml"}
_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
_VIEW = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


def read_file(path: Path, problems: Problems) -> str | None:
    """The text of a file; None, and a problem, if there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        problems.add(Mark(1, 1), f"the file is not UTF-8: {error}")
    except OSError as error:
        problems.add(Mark(1, 1), f"the file cannot be read: {error.strerror or error}")
    return None


def parse(
    text: str, problems: Problems, environment: Mapping[str, str] | None = None
) -> Pipeline | None:
    """What a file declares; None if it cannot be told. What is wrong is in `problems`."""
    root = read_yaml(text, os.environ if environment is None else environment, problems)
    if root is None:
        return None
    top = Fields(root, "the pipeline", problems)
    if not isinstance(root.data, dict):
        return None
    top.allow(_TOP)
    pipeline = _Parser(problems).pipeline(top)
    check_references(pipeline, problems)
    return pipeline


class _Parser:
    def __init__(self, problems: Problems) -> None:
        self._problems = problems

    def pipeline(self, top: Fields) -> Pipeline:
        name = top.text("name", required="name: orders, or another") or "pipeline"
        if not _NAME.fullmatch(name):
            top.wrong("name", f"name {name!r} may have letters, digits, - and _, at most 100")
        if "server" in top and "context" in top:
            top.wrong("context", "'server' and 'context' exclude each other; leave one out")
        sources = self._named(top, "sources", required=True)
        sinks = self._named(top, "sinks", required=True)
        transforms = self._named(top, "transforms", required=False)
        return Pipeline(
            file=self._problems.file,
            name=name,
            mark=top.mark,
            sources={key: self._source(key, fields) for key, fields in sources.items()},
            transforms={key: self._transform(key, fields) for key, fields in transforms.items()},
            sinks={key: self._sink(key, fields) for key, fields in sinks.items()},
            dead_letters=self._dead_letters(top),
            server=top.text("server"),
            context=top.text("context"),
            server_mark=top.at("server" if "server" in top else "context"),
            checkpoint=top.text("checkpoint") or f".jetspark/checkpoints/{name}",
            checkpoint_mark=top.at("checkpoint"),
            trigger=self._trigger(top),
            spark=self._spark(top),
        )

    def _named(self, top: Fields, key: str, *, required: bool) -> dict[str, Fields]:
        """The sources, transforms or sinks."""
        value = top.value(key)
        what = {"sources": "source", "transforms": "transform", "sinks": "sink"}[key]
        allowed = _NAME if key == "sinks" else _VIEW
        found = {}
        if value is not None:
            for name, item, mark in Fields(value, key, self._problems).items():
                if not allowed.fullmatch(name):
                    more = ", -" if key == "sinks" else ""
                    self._problems.add(
                        mark, f"{what} {name!r}: a name has letters, digits{more} and _"
                    )
                placed = Value(mark, item.data, item.text, keys=item.keys)
                found[name] = Fields(placed, f"{what} {name!r}", self._problems)
        if not found and required:
            top.wrong(key, f"there are no {key}; a pipeline needs at least one")
        return found

    def _trigger(self, top: Fields) -> int | None:
        text = top.text("trigger")
        if text is None:
            return 1000
        if text.lower() == "available-now":
            return None
        return top.span("trigger")

    def _spark(self, top: Fields) -> SparkSettings:
        value = top.value("spark")
        if value is None:
            return SparkSettings()
        fields = Fields(value, "spark", self._problems)
        fields.allow(("master", "remote", "conf"))
        if "master" in fields and "remote" in fields:
            fields.wrong("remote", "'master' and 'remote' exclude each other; leave one out")
        return SparkSettings(fields.text("master"), fields.text("remote"), fields.options("conf"))

    def _dead_letters(self, top: Fields) -> DeadLetters:
        value = top.value("dead_letter")
        if value is None:
            return DeadLetters(top.mark)
        fields = Fields(value, "dead_letter", self._problems)
        fields.allow(("stream", "create"))
        stream = fields.text("stream", required="stream: DEAD, or another") or "DEAD"
        _check(fields, "stream", stream, check_stream_name)
        return DeadLetters(fields.at("stream"), stream, fields.flag("create", True))

    def _watermark(self, fields: Fields) -> Watermark | None:
        value = fields.value("watermark")
        if value is None:
            return None
        inner = Fields(value, f"{fields.what}: watermark", self._problems)
        inner.allow(("column", "delay"))
        column = inner.text("column", required="column: at, or another column")
        delay = inner.span("delay", required="delay: 10 minutes, or another time span")
        if column is None or delay is None:
            return None
        return Watermark(inner.at("column"), column, delay)

    def _kind(self, fields: Fields, table: Mapping[Kind, tuple[str, ...]]) -> Kind:
        """The one key that says what it is."""
        named = [kind for kind in table if kind.value in fields]
        if len(named) != 1:
            words = [kind.value for kind in table]
            listed = f"{', '.join(words[:-1])} or {words[-1]}"
            if named:
                both = " and ".join(repr(kind.value) for kind in named)
                fields.wrong(named[-1].value, f"{both} exclude each other; leave one out")
            else:
                fields.wrong("", f"it is missing what it is; write one of {listed}")
        kind = named[0] if named else next(iter(table))
        known = set(table[kind]) if named else set().union(*table.values())
        order = [key for keys in table.values() for key in keys if key in known]
        fields.allow(dict.fromkeys(order), {key for keys in table.values() for key in keys})
        return kind

    # -- sources ------------------------------------------------------------------------------

    def _source(self, name: str, fields: Fields) -> Source:
        kind = self._kind(fields, _SOURCE_KEYS)
        target = fields.text(kind.value, required=_EXAMPLES[kind]) if kind.value in fields else None
        if target is not None and kind in _CHECKS:
            for one in target.split(",") if kind is Kind.STREAM else [target]:
                _check(fields, kind.value, one.strip(), _CHECKS[kind])
        payload = fields.choice("payload", Payload, Payload.JSON)
        schema, columns = self._schema(fields, kind, payload)
        return Source(
            name=name,
            mark=fields.mark,
            kind=kind,
            target=target or "",
            target_mark=fields.at(kind.value),
            static=fields.flag("static", kind is Kind.OBJECTS) or kind is Kind.OBJECTS,
            subjects=self._subjects(fields, kind),
            start=self._start(fields),
            payload=payload,
            schema=schema,
            schema_mark=fields.at("schema"),
            columns=columns,
            path=fields.text("path"),
            watermark=self._watermark(fields),
            options=fields.options("options"),
        )

    def _subjects(self, fields: Fields, kind: Kind) -> str | None:
        key = "keys" if kind is Kind.BUCKET else "subjects"
        subjects = fields.texts(key)
        for subject in subjects:
            for one in subject.split(","):
                _check(fields, key, one.strip(), check_subscribe_subject)
        return ",".join(subjects) or None

    def _start(self, fields: Fields) -> str | None:
        text = fields.text("start")
        if text is None or text.lower() in ("earliest", "latest"):
            return text and text.lower()
        if re.fullmatch(r"[1-9]\d{0,17}", text):
            return text
        try:
            datetime.fromisoformat(text)
        except ValueError:
            fields.wrong(
                "start",
                f"'start' must be earliest, latest, a sequence such as 1000, or a time such as "
                f"2026-01-31T12:00:00Z, not {text!r}",
            )
        return text

    def _schema(
        self, fields: Fields, kind: Kind, payload: Payload
    ) -> tuple[str | None, tuple[Column, ...] | None]:
        text = fields.text("schema")
        nats = kind in (Kind.STREAM, Kind.BUCKET)
        if nats and payload is not Payload.JSON:
            if text is not None:
                fields.wrong("schema", f"payload {payload.value} has no schema; leave it out")
            data = Column("text", "STRING", True)
            return None, (data if payload is Payload.TEXT else Column("data", "BINARY", True),)
        if text is None:
            if nats and kind.value in fields:
                fields.wrong(
                    "schema",
                    "'schema' is missing; write schema: id STRING, amount DOUBLE, or schema: infer",
                )
            return None, None
        if text.lower() == INFER:
            return INFER, None
        columns = fields.ddl("schema", text)
        for column in columns or () if nats else ():
            if column.name.lower() in META_COLUMNS[kind]:
                fields.wrong("schema", f"column {column.name!r} is one that every {kind.value} has")
        return text, columns

    # -- transforms and sinks -----------------------------------------------------------------

    def _transform(self, name: str, fields: Fields) -> Transform:
        fields.allow(("sql", "watermark"))
        sql = fields.text("sql", required="sql: SELECT ... FROM ...") or ""
        value = fields.value("sql")
        line = value.text_line if value is not None else fields.mark.line
        if value is not None:  # what `text` stripped
            line += value.text[: len(value.text) - len(value.text.lstrip())].count("\n")
        return Transform(
            name=name,
            mark=fields.mark,
            sql=sql,
            sql_mark=fields.at("sql"),
            sql_line=line,
            folded=value.folded if value is not None else True,
            watermark=self._watermark(fields),
        )

    def _sink(self, name: str, fields: Fields) -> Sink:
        kind = self._kind(fields, _SINK_KEYS)
        target = fields.text(kind.value, required=_EXAMPLES[kind]) if kind.value in fields else None
        if target is not None and kind in _CHECKS:
            _check(fields, kind.value, target, _CHECKS[kind])
        mode = fields.choice("mode", Mode, Mode.APPEND)
        template, content = self._template(fields, kind)
        if kind is Kind.CONSOLE and not fields.flag("console"):
            fields.wrong("console", "'console' must be true")
        if kind is Kind.FORMAT and target is not None and target.lower() in _FILES:
            fields.text("path", required=f"path: out, or another directory for {target} files")
            if mode is not Mode.APPEND:
                fields.wrong(
                    "mode", f"files of {target} can only be appended to; mode must be append"
                )
        return Sink(
            name=name,
            mark=fields.mark,
            kind=kind,
            target=target or "",
            target_mark=fields.at(kind.value),
            origin=fields.text("from", required="from: the name of a source or transform") or "",
            origin_mark=fields.at("from"),
            mode=mode,
            mode_mark=fields.at("mode"),
            create=fields.flag("create"),
            template=template,
            template_mark=fields.at(_TEMPLATES.get(kind, ("", "", ""))[0]),
            content=content,
            content_mark=fields.at(_TEMPLATES.get(kind, ("", "", ""))[1]),
            headers=fields.templates("headers"),
            message_id=fields.template("msg_id"),
            path=fields.text("path"),
            path_mark=fields.at("path"),
            partition_by=tuple(fields.texts("partition_by")),
            options=fields.options("options"),
        )

    def _template(self, fields: Fields, kind: Kind) -> tuple[Template | None, str | None]:
        """The template of a sink, and the column with the content."""
        if kind not in _TEMPLATES or kind.value not in fields:
            return None, None
        key, content, example = _TEMPLATES[kind]
        template = fields.template(key, required=example)
        if template is not None and not template.columns:
            if kind is Kind.STREAM:
                _check(fields, key, template.pattern(), check_subject)
            else:
                fields.wrong(key, f"every row would have the same {key}; write {example}")
        required = "content: the column to store" if kind is Kind.OBJECTS else ""
        return template, fields.text(content, required=required)


_EXAMPLES = {
    Kind.STREAM: "stream: ORDERS, or another",
    Kind.BUCKET: "bucket: customers, or another",
    Kind.OBJECTS: "objects: files, or another",
    Kind.FORMAT: "format: parquet, or another",
    Kind.CONSOLE: "console: true",
}
_TEMPLATES = {
    Kind.STREAM: ("subject", "data", 'subject: "alerts.{country}", or another'),
    Kind.BUCKET: ("key", "value", 'key: "{country}", or another'),
    Kind.OBJECTS: ("name", "content", 'name: "{id}.json", or another'),
}
_CHECKS: dict[Kind, Callable[[object], None]] = {
    Kind.STREAM: check_stream_name,
    Kind.BUCKET: check_bucket,
    Kind.OBJECTS: check_store,
}


def _check(fields: Fields, key: str, value: str, check: Callable[[object], None]) -> None:
    """Note it if a name cannot be one."""
    try:
        check(value)
    except JetSparkError as error:
        fields.wrong(key, str(error))
