"""The `jetstream-kv` sink: rows set keys, or delete them.

Within a task the last row of a key wins: of each Arrow batch only that is written, and all of a
batch is stored before the next one begins. What is written again, because a task is retried or a
query restarted, only sets the same keys to the same values. A row with a `revision` is different:
it must not be taken for a conflict with itself. So its message has an id, by which the server, or
whoever looks at the entries of the key, can tell that it is there already.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from jetspark.context import JetStream
from jetspark.errors import (
    InvalidOptionError,
    JetSparkError,
    JetStreamNotEnabledError,
    MessageNotFoundError,
    NoStreamResponseError,
    RevisionMismatchError,
    WrongLastSequenceError,
)
from jetspark.jetstream import PublishAckFuture, StoredMessage
from jetspark.jetstream.api import RETRY_DELAY
from jetspark.kv import KeyValue, KeyValueOperation
from jetspark.kv.entry import operation_of
from jetspark.kv.names import check_bucket, check_key

from .boundary import plain_errors
from .columns import check_columns
from .connection import CONNECTION_OPTIONS, Access, persist, run
from .kv_options import SOURCE, open_bucket
from .options import Option, count, duration, parse, text

__all__ = [
    "KV_WRITE_OPTIONS",
    "KvBatchWriter",
    "KvStreamWriter",
    "KvWriteSettings",
    "last_rows",
]

MESSAGE_ID = "Nats-Msg-Id"
ACK_PATIENCE = 5.0  # seconds without an ack until a row is sent again

KV_WRITE_OPTIONS: tuple[Option[Any], ...] = (
    Option("bucket", text(), "Where to write.", required=True),
    Option("maxPending", count(), "Entries of a task that wait for their ack.", 4000, "4000"),
    Option(
        "ackTimeout",
        duration(),
        "How long a batch of rows is tried while the server cannot be reached.",
        60.0,
        "60s",
    ),
    *CONNECTION_OPTIONS,
)

_COLUMNS = {
    "key": {"string"},
    "value": {"binary", "string"},
    "operation": {"string"},
    "revision": {"bigint", "int"},
}
_PUT = KeyValueOperation.PUT.value
_HEADERS: dict[str, dict[str, Any]] = {
    _PUT: {},
    KeyValueOperation.DELETE.value: {"headers": {"KV-Operation": "DEL"}},
    KeyValueOperation.PURGE.value: {"headers": {"KV-Operation": "PURGE"}, "rollup": "sub"},
}


@dataclass(frozen=True)
class KvWriteSettings:
    """What was asked of the sink; travels to the executors."""

    access: Access
    bucket: str
    columns: tuple[str, ...]
    max_pending: int
    ack_timeout: float

    @classmethod
    def read(cls, given: Mapping[str, str], schema: StructType) -> KvWriteSettings:
        """Check options and columns, and that there is such a bucket."""
        options = parse(KV_WRITE_OPTIONS, given, SOURCE)
        try:
            check_bucket(options["bucket"])
        except JetSparkError as error:
            raise InvalidOptionError(f"{SOURCE}: option 'bucket': {error}") from None
        deletes = "operation" in schema.fieldNames()
        settings = cls(
            access=Access.of(options),
            bucket=options["bucket"],
            columns=check_columns(
                schema, _COLUMNS, {"key"} if deletes else {"key", "value"}, SOURCE
            ),
            max_pending=options["maxPending"],
            ack_timeout=options["ackTimeout"],
        )
        run(open_bucket(settings.access, settings.bucket))
        return settings


class Row(NamedTuple):
    """What becomes of a key."""

    key: str
    value: bytes
    operation: str
    revision: int | None  # that the key must have; 0: it must not exist


def last_rows(batch: pa.RecordBatch, bucket: str) -> list[Row]:
    """The last row of each key; raises if any row of the batch is not good."""
    rows: dict[str, Row] = {}
    names = batch.schema.names
    columns = [
        batch.column(name).to_pylist() if name in names else [None] * batch.num_rows
        for name in _COLUMNS
    ]
    for key, value, said, revision in zip(*columns, strict=True):
        check_key(key, bucket)
        operation = _PUT if said is None else said.upper()
        if operation not in _HEADERS:
            raise InvalidOptionError(
                f"{SOURCE}: column 'operation' takes {', '.join(_HEADERS)} or null for PUT, not "
                f"{said!r} (key {key!r})"
            )
        if operation != _PUT:
            value = b""
        elif value is None:
            raise InvalidOptionError(
                f"{SOURCE}: key {key!r} has no value; to delete a key, add a column 'operation' "
                "that says DEL or PURGE"
            )
        if revision is not None and revision < 0:
            raise InvalidOptionError(
                f"{SOURCE}: column 'revision' takes the latest revision of the key, 0 if there is "
                f"none, or null, not {revision} (key {key!r})"
            )
        data = value.encode() if isinstance(value, str) else value
        rows.pop(key, None)
        rows[key] = Row(key, data, operation, revision)
    return list(rows.values())


class Task:
    """Writes the rows of one partition."""

    def __init__(self, settings: KvWriteSettings, name: str) -> None:
        self._settings = settings
        self._name = name
        self._js: JetStream
        self._bucket: KeyValue[bytes]

    async def open(self) -> None:
        """Connect."""
        settings = self._settings
        self._bucket = await persist(
            settings.ack_timeout, open_bucket, settings.access, settings.bucket
        )
        client = (await settings.access.jetstream()).client
        self._js = client.jetstream(  # type: ignore[attr-defined]
            domain=settings.access.domain,
            prefix=settings.access.prefix,
            timeout=settings.access.timeout,
            max_ack_pending=settings.max_pending,
        )
        # What a leader took with it when it died is sent again by us, and soon.
        acks = self._js._acks
        acks.attempts = acks.attempts.within(min(ACK_PATIENCE, settings.ack_timeout))

    async def write(self, batch: pa.RecordBatch) -> None:
        """Store the rows of a batch."""
        rows = last_rows(batch, self._settings.bucket)
        loop = asyncio.get_running_loop()
        end = loop.time() + self._settings.ack_timeout
        while rows:
            rows, error = await self._store(rows)
            if error is not None:
                if loop.time() >= end:
                    raise error
                await asyncio.sleep(RETRY_DELAY)

    async def _store(self, rows: list[Row]) -> tuple[list[Row], JetSparkError | None]:
        """Store rows of different keys; returns those to try again, and why."""
        publish, prefix = self._js.publish_async, self._bucket._put_prefix
        sent: list[tuple[Row, PublishAckFuture]] = []
        again: list[Row] = []
        conflicts: list[tuple[Row, WrongLastSequenceError]] = []
        failure: JetSparkError | None = None
        for row in rows:
            try:
                future = await publish(prefix + row.key, row.value, **self._options(row))
            except JetSparkError as error:
                if not _passes(error):
                    raise
                again, failure = rows[len(sent) :], error
                break
            sent.append((row, future))
        for row, future in sent:
            try:
                await future
            except WrongLastSequenceError as error:
                conflicts.append((row, error))
            except JetSparkError as error:
                if not _passes(error):
                    raise
                again.append(row)
                failure = error
        for row, conflict in conflicts:
            await self._resolve(row, conflict)
        return again, failure

    def _options(self, row: Row) -> dict[str, Any]:
        options = _HEADERS[row.operation]
        if row.revision is None:
            return options
        return {
            **options,
            "msg_id": self._id(row),
            "expected_last_subject_sequence": row.revision,
        }

    def _id(self, row: Row) -> str:
        return f"{self._name}.{row.revision}.{row.key}"

    # -- conflicts ------------------------------------------------------------------------------

    async def _resolve(self, row: Row, conflict: WrongLastSequenceError) -> None:
        """Find out whether a row is stored already, or can be after all; else it is an error."""
        assert row.revision is not None
        subject, last = self._bucket._prefix + row.key, None
        async for message in self._entries_after(subject, row.revision):
            if message.headers.get(MESSAGE_ID) == self._id(row):
                return
            last = message
        # A key that was deleted does not exist: its marker may be replaced.
        marked = last is not None and operation_of(last.raw_headers) is not KeyValueOperation.PUT
        if row.revision == 0 and marked:
            assert last is not None
            options = self._options(row) | {"expected_last_subject_sequence": last.sequence}
            try:
                await self._js.publish(self._bucket._put_prefix + row.key, row.value, **options)
                return
            except WrongLastSequenceError as error:
                conflict = error
        now = "none" if last is None else str(last.sequence)
        raise RevisionMismatchError(
            f"bucket {self._settings.bucket!r}: the latest revision of key {row.key!r} is {now}, "
            f"not {row.revision}, as column 'revision' says; read it again, and decide anew",
            code=conflict.code,
            err_code=conflict.err_code,
        ) from None

    async def _entries_after(self, subject: str, revision: int) -> Any:
        """The entries of a key behind a revision, as the leader has them."""
        while True:
            try:
                message: StoredMessage = await self._bucket._origin.get_next_message(
                    subject, seq=revision + 1
                )
            except MessageNotFoundError:
                return
            yield message
            revision = message.sequence


def _passes(error: JetSparkError) -> bool:
    """Whether it may be over soon, and the row is not harmed by being sent again."""
    again = error.retryable or error.may_have_taken_effect
    return again or isinstance(error, NoStreamResponseError | JetStreamNotEnabledError)


def _write(task: Task, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    run(task.open())
    for batch in batches:
        run(task.write(batch))
    return WriterCommitMessage()


class KvStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query."""

    def __init__(self, settings: KvWriteSettings) -> None:
        self._settings = settings

    @plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task."""
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        name = f"{query}.{batch}.{context.partitionId()}"
        return _write(Task(self._settings, name), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: every row is stored already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: what is stored is stored again when the batch is."""


class KvBatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame once."""

    def __init__(self, settings: KvWriteSettings) -> None:
        self._settings = settings
        self._job = uuid.uuid4().hex

    @plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task."""
        context = TaskContext.get()
        assert context is not None
        return _write(Task(self._settings, f"{self._job}.{context.partitionId()}"), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing: every row is stored already."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing: what is stored cannot be taken back."""
