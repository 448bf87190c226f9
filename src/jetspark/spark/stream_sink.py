"""The `jetstream` sink: rows become messages, each of them acknowledged and stored once.

Every message has an id, made of the query, the batch, the task and the number of the row in it, or
the user's own from the column `msg_id`. Whatever is written again, because a task is retried, runs
twice or the query is restarted, has the same ids: the server sorts out what it remembers, and the
`ledger` what it does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from jetspark.context import JetStream
from jetspark.errors import (
    AtomicPublishError,
    InvalidOptionError,
    JetSparkError,
    NoMatchingStreamError,
    StreamNotFoundError,
)
from jetspark.jetstream import Stream
from jetspark.protocol import check_subject, subject_matches

from .boundary import plain_errors
from .connection import CONNECTION_OPTIONS, Access, persist, run
from .ledger import Ledger, StoredIds
from .options import Option, boolean, count, duration, parse, text

__all__ = ["WRITE_OPTIONS", "StreamBatchWriter", "StreamWriter", "WriteSettings"]

SINK = "jetstream"
MOST_IN_A_BATCH = 1000  # messages that a server stores all together or not at all
AT_A_TIME = 1000  # rows between two looks for those that are stored already

WRITE_OPTIONS: tuple[Option[Any], ...] = (
    Option("subject", text(), "The subject of all messages, if there is no column `subject`."),
    Option(
        "expectedStream",
        text(),
        "The stream that must store them; one that stores a subject by mistake refuses it.",
    ),
    Option(
        "atomic",
        boolean(),
        "Store the rows of each partition, up to 1,000, all together or not at all (2.12).",
        False,
        "false",
    ),
    Option("maxPending", count(), "Messages of a task that wait for their ack.", 4000, "4000"),
    Option("ackTimeout", duration(), "For the ack of a message.", 60.0, "60s"),
    Option(
        "ledger",
        text(),
        "The bucket in which tasks note where they began to write; it is created.",
        "jetspark_ledger",
        "jetspark_ledger",
    ),
    *CONNECTION_OPTIONS,
)

_COLUMNS = {
    "subject": {"string"},
    "data": {"binary", "string"},
    "headers": {"map<string,array<string>>", "map<string,string>"},
    "msg_id": {"string"},
    "ttl": {"int", "bigint", "smallint"},
}


@dataclass(frozen=True)
class WriteSettings:
    """What was asked of the sink; travels to the executors."""

    access: Access
    columns: tuple[str, ...]
    subject: str | None
    expected_stream: str | None
    atomic: bool
    max_pending: int
    ack_timeout: float
    ledger: str

    @classmethod
    def read(cls, given: Mapping[str, str], schema: StructType) -> WriteSettings:
        """Check options and columns."""
        options = parse(WRITE_OPTIONS, given, SINK)
        types = {field.name: field.dataType.simpleString() for field in schema.fields}
        for name, kind in types.items():
            if name not in _COLUMNS:
                raise InvalidOptionError(
                    f"{SINK}: there is no use for column {name!r}; a sink takes "
                    f"{', '.join(_COLUMNS)}: select these"
                )
            if kind not in _COLUMNS[name]:
                raise InvalidOptionError(
                    f"{SINK}: column {name!r} must be {' or '.join(sorted(_COLUMNS[name]))}, "
                    f"not {kind}; cast it"
                )
        if "data" not in types:
            raise InvalidOptionError(f"{SINK}: there is no column 'data'; select what to publish")
        if ("subject" in types) == (options["subject"] is not None):
            raise InvalidOptionError(
                f"{SINK}: set option 'subject' or select a column 'subject', one of the two"
            )
        if options["subject"] is not None:
            check_subject(options["subject"])
        return cls(
            access=Access.of(options),
            columns=tuple(types),
            subject=options["subject"],
            expected_stream=options["expectedStream"],
            atomic=options["atomic"],
            max_pending=options["maxPending"],
            ack_timeout=options["ackTimeout"],
            ledger=options["ledger"],
        )


class Routes:
    """Which stream takes which subject."""

    def __init__(self, js: JetStream, expected: str | None) -> None:
        self._js = js
        self._expected = expected
        self._streams: dict[str, tuple[Stream, list[str]]] = {}
        self._known: dict[str, Stream] = {}

    async def of(self, subjects: list[str | None]) -> set[str]:
        """The streams of subjects; raises if one has none."""
        found = set()
        for subject in subjects:
            if not subject:
                raise InvalidOptionError(
                    f"{SINK}: a row has no subject; fill the column, or filter such rows out"
                )
            stream = self._known.get(subject)
            if stream is None:
                if len(self._known) > 10_000:
                    self._known.clear()
                check_subject(subject)
                stream = self._known[subject] = await self._find(subject)
            found.add(stream.name)
        return found

    def stream(self, name: str) -> Stream:
        """A stream that takes one of the subjects."""
        return self._streams[name][0]

    async def _find(self, subject: str) -> Stream:
        if not self._streams:
            await self._list()
        for stream, patterns in self._streams.values():
            if any(subject_matches(pattern, subject) for pattern in patterns):
                return stream
        where = f"stream {self._expected!r} does" if self._expected else "no stream does"
        raise NoMatchingStreamError(
            f"{SINK}: nothing was written: {where} not store subject {subject!r}; add it to the "
            "subjects of a stream, or correct the column or option 'subject'"
        )

    async def _list(self) -> None:
        if self._expected is not None:
            try:
                streams = [await self._js.get_stream(self._expected)]
            except StreamNotFoundError as error:
                raise StreamNotFoundError(
                    f"{SINK}: there is no stream {self._expected!r}; correct option "
                    "'expectedStream', or create it",
                    code=error.code,
                    err_code=error.err_code,
                ) from None
        else:
            streams = [stream async for stream in self._js.streams()]
        for stream in streams:
            self._streams[stream.name] = (stream, list(stream.cached_info.config.subjects or ()))


class Task:
    """Writes the rows of one partition."""

    def __init__(self, settings: WriteSettings, name: str) -> None:
        self._settings = settings
        self._name = name  # the same for all attempts
        self._row = 0
        self._seen: set[str] = set()  # streams
        self._ids: StoredIds | None = None  # of these
        self._together: list[tuple[str, bytes, dict[str, Any]]] = []  # of an atomic batch
        self._common: dict[str, Any] = {}
        if settings.expected_stream is not None:
            self._common["expected_stream"] = settings.expected_stream
        self._js: JetStream
        self._routes: Routes

    async def open(self) -> None:
        """Connect."""
        settings = self._settings
        client = (await persist(settings.ack_timeout, settings.access.jetstream)).client
        self._js = client.jetstream(  # type: ignore[attr-defined]
            domain=settings.access.domain,
            prefix=settings.access.prefix,
            timeout=settings.access.timeout,
            max_ack_pending=settings.max_pending,
        )
        # Once for all messages: to say it with each would take as long as the rest.
        acks = self._js._acks
        acks.attempts = acks.attempts.within(settings.ack_timeout)._replace(retries=-1)
        self._routes = Routes(self._js, settings.expected_stream)

    async def write(self, batch: pa.RecordBatch) -> None:
        """Publish the rows of a batch; the acks are waited for in `finish`."""
        settings = self._settings
        rows = batch.num_rows
        if not rows:
            return
        subjects = self._subjects(batch)
        names = await persist(settings.ack_timeout, self._routes.of, list(dict.fromkeys(subjects)))
        await persist(settings.ack_timeout, self._prepare, sorted(names - self._seen))
        payloads = _payloads(batch.column("data"))
        ids = self._message_ids(batch)
        columns = [
            batch.column(name).to_pylist() if name in settings.columns else [None] * rows
            for name in ("headers", "ttl")
        ]
        publish = self._publish_all if not settings.atomic else self._publish_together
        await publish(subjects, payloads, ids, *columns)
        self._row += rows

    def _subjects(self, batch: pa.RecordBatch) -> list[str]:
        if self._settings.subject is not None:
            return [self._settings.subject] * batch.num_rows
        found: list[str] = batch.column("subject").to_pylist()
        return found

    def _message_ids(self, batch: pa.RecordBatch) -> list[str]:
        if "msg_id" in self._settings.columns:
            given: list[str] = batch.column("msg_id").to_pylist()
            if None in given:
                raise InvalidOptionError(
                    f"{SINK}: a row has no msg_id; fill the column, or leave it out"
                )
            return given
        return [f"{self._name}.{self._row + number}" for number in range(batch.num_rows)]

    async def _prepare(self, new: list[str]) -> None:
        """Find out what of the rows may be in streams already."""
        if not new:
            return
        streams = [self._routes.stream(name) for name in new]
        settings = self._settings
        if self._ids is None:
            replicas = max(stream.config.num_replicas for stream in streams)
            ledger = await Ledger.open(self._js, settings.ledger, replicas)
            prefix = "" if "msg_id" in settings.columns else f"{self._name}."
            self._ids = StoredIds(ledger, self._name, prefix, settings.ack_timeout)
        await self._ids.add(streams)
        self._seen.update(new)

    async def _stored(self) -> set[str]:
        """The ids that are stored, and that the server may have forgotten."""
        assert self._ids is not None
        await persist(self._settings.ack_timeout, self._ids.refresh)
        return self._ids.found

    async def _publish_all(
        self,
        subjects: list[str],
        payloads: list[bytes],
        ids: list[str],
        headers: list[Any],
        ttls: list[Any],
    ) -> None:
        publish = self._js.publish_async
        rows = zip(subjects, payloads, ids, headers, ttls, strict=True)
        for number, (subject, data, message_id, header, ttl) in enumerate(rows):
            if number % AT_A_TIME == 0:
                stored = await self._stored()
            if message_id not in stored:
                await publish(subject, data, **self._options(message_id, header, ttl))

    async def _publish_together(
        self,
        subjects: list[str],
        payloads: list[bytes],
        ids: list[str],
        headers: list[Any],
        ttls: list[Any],
    ) -> None:
        if self._row + len(ids) > MOST_IN_A_BATCH:
            raise InvalidOptionError(
                f"{SINK}: with atomic=true a partition has at most {MOST_IN_A_BATCH} rows; "
                "repartition the data, or write them without it"
            )
        for subject, data, message_id, header, ttl in zip(
            subjects, payloads, ids, headers, ttls, strict=True
        ):
            options = self._options(message_id, header, ttl)
            self._together.append((subject, data, options))

    def _options(self, message_id: str, headers: Any, ttl: int | None) -> dict[str, Any]:
        options = {**self._common, "msg_id": message_id}
        if headers:
            options["headers"] = dict(headers)
        if ttl is not None:
            options["ttl"] = ttl
        return options

    async def _commit_together(self) -> None:
        """Store all rows at once, apart from those that are stored already."""
        if not self._together:
            return
        try:
            await self._store(await self._stored())
        except AtomicPublishError:
            # Another attempt at the same time may have been faster.
            assert self._ids is not None
            before = len(self._ids.found)
            await self._ids.look()
            if len(self._ids.found) == before:
                raise
            await self._store(self._ids.found)

    async def _store(self, stored: set[str]) -> None:
        rows = [row for row in self._together if row[2]["msg_id"] not in stored]
        if not rows:
            return
        async with self._js.batch(timeout=self._settings.ack_timeout) as batch:
            for subject, data, options in rows:
                await batch.add(subject, data, **options)
            await batch.commit()

    async def finish(self) -> int:
        """Wait until everything is stored; returns how many rows that are."""
        if self._settings.atomic:
            await self._commit_together()
        else:
            try:
                await self._js.publish_async_complete(timeout=self._settings.ack_timeout)
            except ExceptionGroup as group:
                raise group.exceptions[0] from None  # the others say the same, or follow from it
        return self._row


def _payloads(column: pa.Array) -> list[bytes]:
    """The payloads; null is an empty one."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.binary() if pa.types.is_string(column.type) else pa.large_binary())
    if column.null_count:
        column = pc.fill_null(column, b"")
    found: list[bytes] = column.to_pylist()
    return found


@dataclass
class Written(WriterCommitMessage):
    """What a task tells the driver."""

    rows: int
    query: str = ""


async def _write(task: Task, batches: Iterator[pa.RecordBatch]) -> int:
    await task.open()
    # The rows come from Spark over a socket, in the thread of the task.
    while (batch := await asyncio.to_thread(next, batches, None)) is not None:
        await task.write(batch)
    return await task.finish()


async def _forget(settings: WriteSettings, tasks: str) -> None:
    js = await persist(settings.ack_timeout, settings.access.jetstream)
    await persist(settings.ack_timeout, Ledger.forget, js, settings.ledger, tasks)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query."""

    def __init__(self, settings: WriteSettings) -> None:
        self._settings = settings

    @plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of a task."""
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        name = f"{query}.{batch}.{context.partitionId()}"
        return Written(run(_write(Task(self._settings, name), iterator)), query or "")

    @plain_errors
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Forget what was noted for the batch before, which is surely committed now."""
        queries = {message.query for message in messages if isinstance(message, Written)}
        for query in queries - {""}:
            run(_forget(self._settings, f"{query}.{batchId - 1}"))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: what is stored stays, and is found when the batch is written again."""


class StreamBatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame once."""

    def __init__(self, settings: WriteSettings) -> None:
        self._settings = settings
        self._job = uuid.uuid4().hex

    @plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of a task."""
        context = TaskContext.get()
        assert context is not None
        name = f"{self._job}.{context.partitionId()}"
        return Written(run(_write(Task(self._settings, name), iterator)))

    @plain_errors
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Forget what was noted; every row is acknowledged already."""
        run(_forget(self._settings, self._job))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Forget what was noted; what is stored cannot be taken back."""
        with contextlib.suppress(JetSparkError):
            run(_forget(self._settings, self._job))
