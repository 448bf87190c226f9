"""The `jetstream` sink: rows become messages, each of them acknowledged and stored once.

Every message has an id, made of the query, the batch, the task and the number of the row in it, or
the user's own from the column `msg_id`. Whatever is written again, because a task is retried, runs
twice or the query is restarted, has the same ids: the server sorts out what it remembers, and the
`ledger` what it does not.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from jetspark.context import JetStream
from jetspark.errors import (
    AtomicPublishError,
    InvalidArgumentError,
    InvalidMessageTTLError,
    InvalidOptionError,
    JetSparkError,
    MessageTooLargeError,
    MessageTTLDisabledError,
    NoMatchingStreamError,
)
from jetspark.jetstream import PublishAckFuture, Stream
from jetspark.jetstream.publish_headers import header_block
from jetspark.protocol import check_subject

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
from .ledger import LEDGER, Ledger, StoredIds
from .options import Option, boolean, count, duration, parse, text
from .publishing import completed, publisher
from .stream_routes import SINK, Routes
from .write_job import WRITE_ID, forget_before, new_job, query_batch, refuse_write_id, task_in

__all__ = ["WRITE_OPTIONS", "StreamBatchWriter", "StreamWriter", "WriteSettings"]

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
    LEDGER,
    *DEAD_LETTER_OPTIONS,
    WRITE_ID,
    *CONNECTION_OPTIONS,
)

_COLUMNS = {
    "subject": {"string"},
    "data": {"binary", "string"},
    "headers": {"map<string,array<string>>", "map<string,string>"},
    "msg_id": {"string"},
    "ttl": {"int", "bigint", "smallint"},
}


_REFUSALS = (MessageTooLargeError, InvalidMessageTTLError, MessageTTLDisabledError)
"""What a server has against a message, and not against all of them."""


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
    dead_letters: DeadLetterSettings | None
    write_id: str | None

    @classmethod
    def read(cls, given: Mapping[str, str], schema: StructType) -> WriteSettings:
        """Check options and columns."""
        options = parse(WRITE_OPTIONS, given, SINK)
        dead_letters = DeadLetterSettings.read(options, SINK)
        allowed = _COLUMNS | (ORIGIN_COLUMNS if dead_letters else {})
        columns = check_columns(schema, allowed, {"data"}, SINK)
        if ("subject" in columns) == (options["subject"] is not None):
            raise InvalidOptionError(
                f"{SINK}: set option 'subject' or select a column 'subject', one of the two"
            )
        if options["subject"] is not None:
            check_subject(options["subject"])
        if options["atomic"] and dead_letters:
            raise InvalidOptionError(
                f"{SINK}: options 'atomic' and 'deadLetterSubject' exclude each other: of a batch "
                "that is stored together no row can be left out"
            )
        return cls(
            access=Access.of(options),
            columns=columns,
            subject=options["subject"],
            expected_stream=options["expectedStream"],
            atomic=options["atomic"],
            max_pending=options["maxPending"],
            ack_timeout=options["ackTimeout"],
            ledger=options["ledger"],
            dead_letters=dead_letters,
            write_id=options["writeId"],
        )


class Row(NamedTuple):
    """A message to publish."""

    subject: str
    data: bytes
    message_id: str
    headers: Any
    ttl: int | None


class Task:
    """Writes the rows of one partition."""

    def __init__(self, settings: WriteSettings, name: str) -> None:
        self._settings = settings
        self._name = name  # the same for all attempts
        self._row = 0
        self._seen: set[str] = set()  # streams
        self._ids: StoredIds | None = None  # of these
        self._together: list[Row] = []  # of an atomic batch
        self._common: dict[str, Any] = {}
        if settings.expected_stream is not None:
            self._common["expected_stream"] = settings.expected_stream
        # The ids that we make need no check, and the headers before them are always the same.
        self._plain_ids = "msg_id" not in settings.columns
        self._plain_head = (header_block({**self._common, "msg_id": "0"}) or b"")[
            : -len("0\r\n\r\n")
        ]
        self._js: JetStream
        self._routes: Routes
        self._dead: DeadLetters | None = None

    async def open(self) -> None:
        """Connect."""
        settings = self._settings
        self._js = await publisher(settings.access, settings.ack_timeout, settings.max_pending)
        self._routes = Routes(self._js, settings.expected_stream)
        if settings.dead_letters is not None:
            self._dead = DeadLetters(settings.dead_letters, settings.access, self._name)
            await self._dead.open()

    async def write(self, batch: pa.RecordBatch) -> None:
        """Publish the rows of a batch; the acks are waited for in `finish`."""
        count = batch.num_rows
        if not count:
            return
        subjects = self._subjects(batch)
        wrong = await self._prepare(subjects)
        headers, ttls = (
            batch.column(name).to_pylist() if name in self._settings.columns else [None] * count
            for name in ("headers", "ttl")
        )
        payloads, ids = _payloads(batch.column("data")), self._message_ids(batch)
        rows = map(Row, subjects, payloads, ids, headers, ttls)
        if self._dead is not None:
            await self._publish_good(list(rows), wrong, Origin.of(batch), self._dead)
        elif self._settings.atomic:
            self._publish_together(list(rows))
        else:
            await self._publish_all(list(rows))
        self._row += count

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

    async def _prepare(self, subjects: list[str]) -> dict[str, str]:
        """Find out what of the rows may be in streams already; returns what no stream stores.

        That are subjects, and why; without dead letters it is an error.
        """
        streams: dict[str, Stream] = {}
        wrong: dict[str, str] = {}
        timeout = self._settings.ack_timeout
        for subject in dict.fromkeys(subjects):
            try:
                stream = await persist(timeout, self._routes.of, subject)
            except (InvalidArgumentError, NoMatchingStreamError) as error:
                if self._dead is None:
                    raise
                wrong[subject] = str(error)
            else:
                streams[stream.name] = stream
        new = [streams[name] for name in sorted(streams.keys() - self._seen)]
        if new:
            await persist(timeout, self._begin, new)
            self._seen.update(streams)
        return wrong

    async def _begin(self, streams: list[Stream]) -> None:
        settings = self._settings
        if self._ids is None:
            replicas = max(stream.config.num_replicas for stream in streams)
            ledger = await Ledger.open(self._js, settings.ledger, replicas)
            prefix = "" if "msg_id" in settings.columns else f"{self._name}."
            self._ids = StoredIds(ledger, self._name, prefix, settings.ack_timeout)
        await self._ids.add(streams)

    async def _stored(self) -> set[str]:
        """The ids that are stored, and that the server may have forgotten."""
        assert self._ids is not None
        await persist(self._settings.ack_timeout, self._ids.refresh)
        return self._ids.found

    async def _publish_all(self, rows: list[Row]) -> None:
        for start in range(0, len(rows), AT_A_TIME):
            stored = await self._stored()
            await self._js._acks.publish_identified(
                (row.subject, row.data, self._block(row))
                for row in rows[start : start + AT_A_TIME]
                if row.message_id not in stored
            )

    def _block(self, row: Row) -> bytes:
        """The headers of a message."""
        if row.headers or row.ttl is not None or not self._plain_ids:
            block = header_block(self._options(row))
            assert block is not None
            return block
        return b"%b%b\r\n\r\n" % (self._plain_head, row.message_id.encode())

    async def _publish_good(
        self, rows: list[Row], wrong: Mapping[str, str], origins: list[Origin], dead: DeadLetters
    ) -> None:
        """Publish what can be; the rest becomes dead letters."""
        sent: list[tuple[int, PublishAckFuture]] = []
        bad: dict[int, str] = {}  # number of the row, and why
        stored: set[str] = set()
        for number, row in enumerate(rows):
            if row.subject in wrong:
                bad[number] = wrong[row.subject]
                continue
            if self._ids is not None and len(sent) % AT_A_TIME == 0:
                stored = await self._stored()
            if row.message_id not in stored:
                try:
                    future = await self._js.publish_async(
                        row.subject, row.data, **self._options(row)
                    )
                    sent.append((number, future))
                except InvalidArgumentError as error:
                    bad[number] = str(error)
        for number, future in sent:
            try:
                await future
            except _REFUSALS as error:
                bad[number] = str(error)
        for number, reason in sorted(bad.items()):
            row = rows[number]
            await dead.add(self._row + number, reason, row.subject or "", row.data, origins[number])

    def _publish_together(self, rows: list[Row]) -> None:
        self._together += rows
        if len(self._together) > MOST_IN_A_BATCH:
            raise InvalidOptionError(
                f"{SINK}: with atomic=true a partition has at most {MOST_IN_A_BATCH} rows; "
                "repartition the data, or write them without it"
            )

    def _options(self, row: Row) -> dict[str, Any]:
        options = {**self._common, "msg_id": row.message_id}
        if row.headers:
            options["headers"] = dict(row.headers)
        if row.ttl is not None:
            options["ttl"] = row.ttl
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
        rows = [row for row in self._together if row.message_id not in stored]
        if not rows:
            return
        async with self._js.batch(timeout=self._settings.ack_timeout) as batch:
            for row in rows:
                await batch.add(row.subject, row.data, **self._options(row))
            await batch.commit()

    async def finish(self) -> int:
        """Wait until everything is stored; returns how many rows that are."""
        if self._settings.atomic:
            await self._commit_together()
        else:
            await completed(self._js, self._settings.ack_timeout)
        if self._dead is not None:
            await self._dead.finish()
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
    job: str


async def _write(task: Task, batches: Iterator[pa.RecordBatch]) -> int:
    await task.open()
    # The rows come from Spark over a socket, in the thread of the task.
    while (batch := await asyncio.to_thread(next, batches, None)) is not None:
        await task.write(batch)
    return await task.finish()


async def _forget(settings: WriteSettings, job: str) -> None:
    js = await persist(settings.ack_timeout, settings.access.jetstream)
    await persist(settings.ack_timeout, forget_before, js, settings.ledger, job)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query."""

    def __init__(self, settings: WriteSettings) -> None:
        refuse_write_id(settings.write_id, SINK)
        self._settings = settings

    @plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of a task."""
        job = query_batch()
        return Written(run(_write(Task(self._settings, task_in(job)), iterator)), job)

    @plain_errors
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Forget what was noted for the batch before, which is surely committed now."""
        for job in {message.job for message in messages if isinstance(message, Written)}:
            run(_forget(self._settings, job))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: what is stored stays, and is found when the batch is written again."""


class StreamBatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame once."""

    def __init__(self, settings: WriteSettings) -> None:
        self._settings = settings
        self._job = new_job(settings.write_id)

    @plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of a task."""
        rows = run(_write(Task(self._settings, task_in(self._job)), iterator))
        return Written(rows, self._job)

    @plain_errors
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Forget what nobody needs any more; every row is acknowledged already."""
        run(_forget(self._settings, self._job))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Forget what was noted, unless it may be tried again; what is stored is stored."""
        if self._settings.write_id is None:
            with contextlib.suppress(JetSparkError):
                run(_forget(self._settings, self._job))
