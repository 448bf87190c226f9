"""A pipeline as its file declares it, after `parse` has read it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from .ddl import Column
from .problems import Mark
from .templates import Template

__all__ = [
    "INFER",
    "META_COLUMNS",
    "DeadLetters",
    "Kind",
    "Mode",
    "Payload",
    "Pipeline",
    "Sink",
    "Source",
    "SparkSettings",
    "Transform",
    "Watermark",
]

INFER = "infer"
_START = Mark(1, 1)


class Kind(Enum):
    """Where rows come from or go to: the key that says so."""

    STREAM = "stream"
    BUCKET = "bucket"
    OBJECTS = "objects"
    FORMAT = "format"
    CONSOLE = "console"


class Payload(Enum):
    """What a message or an entry of a bucket holds."""

    JSON = "json"
    TEXT = "text"
    BINARY = "binary"


class Mode(Enum):
    """The output mode of a sink."""

    APPEND = "append"
    UPDATE = "update"
    COMPLETE = "complete"


META_COLUMNS = {
    Kind.STREAM: {
        "_stream": "stream",
        "_subject": "subject",
        "_sequence": "sequence",
        "_timestamp": "timestamp",
        "_headers": "headers",
    },
    Kind.BUCKET: {
        "_key": "key",
        "_revision": "revision",
        "_timestamp": "timestamp",
        "_operation": "operation",
    },
}
"""The columns that the view of a source has beside its payload, and where they come from."""


@dataclass(frozen=True)
class Watermark:
    """How late rows may be."""

    mark: Mark
    column: str
    milliseconds: int


@dataclass(frozen=True)
class Source:
    """Rows that come in; a view of its name."""

    name: str
    mark: Mark
    kind: Kind
    target: str
    """The stream, bucket, object store or Spark format."""
    target_mark: Mark
    static: bool = False
    subjects: str | None = None
    """Of a stream, or the keys of a bucket."""
    start: str | None = None
    payload: Payload = Payload.JSON
    schema: str | None = None
    """DDL, or `infer`."""
    schema_mark: Mark = _START
    columns: tuple[Column, ...] | None = None
    """Those of the payload, if they are known from the file alone."""
    path: str | None = None
    watermark: Watermark | None = None
    options: dict[str, str] = field(default_factory=dict)

    @property
    def parses(self) -> bool:
        """Whether it has rows that may turn out not to be what the file says."""
        nats = self.kind in (Kind.STREAM, Kind.BUCKET)
        return nats and self.payload is not Payload.BINARY

    @property
    def view_columns(self) -> list[str] | None:
        """The columns of the view, if they are known from the file alone."""
        if self.columns is None or self.kind not in META_COLUMNS:
            return None
        return [column.name for column in self.columns] + list(META_COLUMNS[self.kind])


@dataclass(frozen=True)
class Transform:
    """A view made by SQL from the views above it."""

    name: str
    mark: Mark
    sql: str
    sql_mark: Mark
    sql_line: int
    """The line of the file on which the SQL begins."""
    folded: bool
    """Whether the lines of the SQL are not those of the file."""
    watermark: Watermark | None = None


@dataclass(frozen=True)
class Sink:
    """Where the rows of a view go."""

    name: str
    mark: Mark
    kind: Kind
    target: str
    target_mark: Mark
    origin: str
    """The view."""
    origin_mark: Mark
    mode: Mode = Mode.APPEND
    mode_mark: Mark = _START
    create: bool = False
    template: Template | None = None
    """Of the subject, the key or the name."""
    template_mark: Mark = _START
    content: str | None = None
    """The column with the payload, value or content; else it is JSON."""
    content_mark: Mark = _START
    headers: dict[str, Template] = field(default_factory=dict)
    message_id: Template | None = None
    path: str | None = None
    path_mark: Mark = _START
    partition_by: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DeadLetters:
    """Where rows go that cannot be parsed or written."""

    mark: Mark
    stream: str = "DEAD"
    create: bool = True


@dataclass(frozen=True)
class SparkSettings:
    """Which Spark runs the pipeline."""

    master: str | None = None
    remote: str | None = None
    conf: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Pipeline:
    """All of a file."""

    file: str
    name: str
    mark: Mark
    sources: dict[str, Source]
    transforms: dict[str, Transform]
    sinks: dict[str, Sink]
    dead_letters: DeadLetters
    server: str | None = None
    context: str | None = None
    server_mark: Mark = _START
    checkpoint: str = ""
    checkpoint_mark: Mark = _START
    trigger: int | None = 1000
    """Milliseconds between batches; None is available-now."""
    spark: SparkSettings = SparkSettings()

    def dead_subject(self, name: str) -> str:
        """Where the rows of a source or sink go that cannot be parsed or written."""
        return f"dead.{self.name}.{name}"
