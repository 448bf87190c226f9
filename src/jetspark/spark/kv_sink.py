"""The `jetstream-kv` sink: rows set keys, or delete them.

Within a task the last row of a key wins: of each Arrow batch only that is written, and all of a
batch is stored before the next one begins. What is written again, because a task is retried or a
query restarted, only sets the same keys to the same values. A row with a `revision` is different:
it must not be taken for a conflict with itself. So its message has an id, by which the server, or
whoever looks at the entries of the key, can tell that it is there already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from jetspark.context import JetStream
from jetspark.errors import (
    InvalidArgumentError,
    InvalidOptionError,
    JetSparkError,
    JetStreamNotEnabledError,
    MessageNotFoundError,
    MessageTooLargeError,
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
from .dead_letters import (
    DEAD_LETTER_OPTIONS,
    ORIGIN_COLUMNS,
    DeadLetters,
    DeadLetterSettings,
    Origin,
)
from .kv_options import SOURCE, open_bucket
from .ledger import LEDGER, MESSAGE_ID
from .options import Option, count, duration, parse, text
from .write_job import WRITE_ID, forget_before, new_job, query_batch, refuse_write_id, task_in

__all__ = [
    "KV_WRITE_OPTIONS",
    "KvBatchWriter",
    "KvStreamWriter",
    "KvWriteSettings",
    "last_rows",
]

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
    *DEAD_LETTER_OPTIONS,
    LEDGER,
    WRITE_ID,
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
    dead_letters: DeadLetterSettings | None
    write_id: str | None

    @classmethod
    def read(cls, given: Mapping[str, str], schema: StructType) -> KvWriteSettings:
        """Check options and columns, and that there is such a bucket."""
        options = parse(KV_WRITE_OPTIONS, given, SOURCE)
        dead_letters = DeadLetterSettings.read(options, SOURCE)
        allowed = _COLUMNS | (ORIGIN_COLUMNS if dead_letters else {})
        try:
            check_bucket(options["bucket"])
        except JetSparkError as error:
            raise InvalidOptionError(f"{SOURCE}: option 'bucket': {error}") from None
        deletes = "operation" in schema.fieldNames()
        settings = cls(
            access=Access.of(options),
            bucket=options["bucket"],
            columns=check_columns(
                schema, allowed, {"key"} if deletes else {"key", "value"}, SOURCE
            ),
            max_pending=options["maxPending"],
            ack_timeout=options["ackTimeout"],
            dead_letters=dead_letters,
            write_id=options["writeId"],
        )
        run(open_bucket(settings.access, settings.bucket))
        return settings


class Row(NamedTuple):
    """What becomes of a key."""

    number: int
    key: str
    value: bytes
    operation: str
    revision: int | None  # that the key must have; 0: it must not exist


class BadRow(NamedTuple):
    """A row that cannot be written."""

    number: int
    error: JetSparkError
    key: str | None
    value: bytes


def last_rows(batch: pa.RecordBatch, bucket: str) -> tuple[list[Row], list[BadRow]]:
    """The last good row of each key, and those that are not good."""
    rows: dict[str, Row] = {}
    bad: list[BadRow] = []
    names = batch.schema.names
    columns = [
        batch.column(name).to_pylist() if name in names else [None] * batch.num_rows
        for name in _COLUMNS
    ]
    for number, (key, value, said, revision) in enumerate(zip(*columns, strict=True)):
        data = value.encode() if isinstance(value, str) else value or b""
        operation = _PUT if said is None else said.upper()
        try:
            _check(bucket, key, value, operation, said, revision)
        except JetSparkError as error:
            bad.append(BadRow(number, error, key, data))
            continue
        rows.pop(key, None)
        rows[key] = Row(number, key, data if operation == _PUT else b"", operation, revision)
    return list(rows.values()), bad


def _check(
    bucket: str, key: Any, value: Any, operation: str, said: Any, revision: int | None
) -> None:
    check_key(key, bucket)
    if operation not in _HEADERS:
        raise InvalidOptionError(
            f"{SOURCE}: column 'operation' takes {', '.join(_HEADERS)} or null for PUT, not "
            f"{said!r} (key {key!r})"
        )
    if operation == _PUT and value is None:
        raise InvalidOptionError(
            f"{SOURCE}: key {key!r} has no value; to delete a key, add a column 'operation' "
            "that says DEL or PURGE"
        )
    if revision is not None and revision < 0:
        raise InvalidOptionError(
            f"{SOURCE}: column 'revision' takes the latest revision of the key, 0 if there is "
            f"none, or null, not {revision} (key {key!r})"
        )


class Task:
    """Writes the rows of one partition."""

    def __init__(self, settings: KvWriteSettings, name: str) -> None:
        self._settings = settings
        self._name = name
        self._row = 0
        self._js: JetStream
        self._bucket: KeyValue[bytes]
        self._dead: DeadLetters | None = None

    async def open(self) -> None:
        """Connect."""
        settings = self._settings
        self._bucket = await persist(
            settings.ack_timeout, open_bucket, settings.access, settings.bucket
        )
        self._js = await settings.access.jetstream(settings.max_pending)
        # What a leader took with it when it died is sent again by us, and soon.
        acks = self._js._acks
        acks.attempts = acks.attempts.within(min(ACK_PATIENCE, settings.ack_timeout))
        if settings.dead_letters is not None:
            self._dead = DeadLetters(settings.dead_letters, settings.access, self._name)
            await self._dead.open()

    async def write(self, batch: pa.RecordBatch) -> None:
        """Store the rows of a batch."""
        rows, bad = last_rows(batch, self._settings.bucket)
        if bad and self._dead is None:
            raise bad[0].error
        loop = asyncio.get_running_loop()
        end = loop.time() + self._settings.ack_timeout
        while rows:
            rows, error = await self._store(rows, bad)
            if error is not None:
                if loop.time() >= end:
                    raise error
                await asyncio.sleep(RETRY_DELAY)
        if bad:
            await self._reject(bad, Origin.of(batch))
        self._row += batch.num_rows

    async def _store(
        self, rows: list[Row], bad: list[BadRow]
    ) -> tuple[list[Row], JetSparkError | None]:
        """Store rows of different keys; returns those to try again, and why.

        Those that nobody would store are added to `bad`.
        """
        publish, prefix = self._js.publish_async, self._bucket._put_prefix
        sent: list[tuple[Row, PublishAckFuture]] = []
        again: list[Row] = []
        conflicts: list[tuple[Row, WrongLastSequenceError]] = []
        failure: JetSparkError | None = None
        for place, row in enumerate(rows):
            try:
                future = await publish(prefix + row.key, row.value, **self._options(row))
            except InvalidArgumentError as error:
                bad.append(BadRow(row.number, error, row.key, row.value))
            except JetSparkError as error:
                if not _passes(error):
                    raise
                again, failure = rows[place:], error
                break
            else:
                sent.append((row, future))
        for row, future in sent:
            try:
                await future
            except MessageTooLargeError as error:
                bad.append(BadRow(row.number, error, row.key, row.value))
            except WrongLastSequenceError as error:
                conflicts.append((row, error))
            except JetSparkError as error:
                if not _passes(error):
                    raise
                again.append(row)
                failure = error
        for row, conflict in conflicts:
            try:
                await self._resolve(row, conflict)
            except RevisionMismatchError as error:
                bad.append(BadRow(row.number, error, row.key, row.value))
        return again, failure

    async def _reject(self, bad: list[BadRow], origins: list[Origin]) -> None:
        """Make dead letters of rows; without those, they are errors."""
        if self._dead is None:
            raise bad[0].error
        for row in sorted(bad, key=lambda row: row.number):
            await self._dead.add(
                self._row + row.number,
                str(row.error),
                f"{self._settings.bucket}/{row.key}",
                row.value,
                origins[row.number],
            )

    async def finish(self) -> None:
        """Wait until the dead letters are stored; all others are already."""
        if self._dead is not None:
            await self._dead.finish()

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


@dataclass
class KvWritten(WriterCommitMessage):
    """What a task tells the driver."""

    job: str


def _write(settings: KvWriteSettings, job: str, batches: Iterator[pa.RecordBatch]) -> KvWritten:
    task = Task(settings, task_in(job))
    run(task.open())
    for batch in batches:
        run(task.write(batch))
    run(task.finish())
    return KvWritten(job)


def _forget(settings: KvWriteSettings, job: str) -> None:
    if settings.dead_letters is not None:
        run(_forget_notes(settings, settings.dead_letters.ledger, job))


async def _forget_notes(settings: KvWriteSettings, ledger: str, job: str) -> None:
    js = await persist(settings.ack_timeout, settings.access.jetstream)
    await persist(settings.ack_timeout, forget_before, js, ledger, job)


class KvStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query."""

    def __init__(self, settings: KvWriteSettings) -> None:
        refuse_write_id(settings.write_id, SOURCE)
        self._settings = settings

    @plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> KvWritten:
        """Write the rows of a task."""
        return _write(self._settings, query_batch(), iterator)

    @plain_errors
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Forget what was noted for the batch before; every row is stored already."""
        for job in {message.job for message in messages if isinstance(message, KvWritten)}:
            _forget(self._settings, job)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: what is stored is stored again when the batch is."""


class KvBatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame once."""

    def __init__(self, settings: KvWriteSettings) -> None:
        self._settings = settings
        self._job = new_job(settings.write_id)

    @plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> KvWritten:
        """Write the rows of a task."""
        return _write(self._settings, self._job, iterator)

    @plain_errors
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Forget what nobody needs any more; every row is stored already."""
        _forget(self._settings, self._job)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing: what is stored cannot be taken back."""
