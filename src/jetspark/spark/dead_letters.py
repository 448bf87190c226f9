"""Rows that cannot be written: instead of failing the task they go to a subject of their own.

Each becomes a message with the payload of the row and headers that say why, where it was to go and
where it came from, stored once like all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from jetspark.context import JetStream
from jetspark.errors import InvalidOptionError, MaxPayloadError
from jetspark.jetstream import Stream
from jetspark.protocol import check_subject

from .connection import Access, persist
from .ledger import Ledger, StoredIds
from .options import Option, Options, text
from .publishing import completed, publisher
from .stream_routes import Routes

__all__ = ["DEAD_LETTER_OPTIONS", "ORIGIN_COLUMNS", "DeadLetterSettings", "DeadLetters", "Origin"]

DEAD_LETTER_OPTIONS: tuple[Option[Any], ...] = (
    Option(
        "deadLetterSubject",
        text(),
        "Where rows go that cannot be written; without it such a row is an error.",
    ),
    Option("deadLetterLabel", text(), "A text for the header `Jetspark-Label` of these."),
)
ORIGIN_COLUMNS = {"origin_stream": {"string"}, "origin_sequence": {"bigint"}}
"""What rows may tell about where they come from."""


@dataclass(frozen=True)
class DeadLetterSettings:
    """What was asked for; travels to the executors."""

    subject: str
    label: str | None
    ledger: str
    ack_timeout: float

    @classmethod
    def read(cls, options: Options, sink: str) -> DeadLetterSettings | None:
        """Check the options; None if there are no dead letters."""
        subject = options["deadLetterSubject"]
        if subject is None:
            if options["deadLetterLabel"] is not None:
                raise InvalidOptionError(
                    f"{sink}: option 'deadLetterLabel' needs 'deadLetterSubject'"
                )
            return None
        check_subject(subject)
        label = options["deadLetterLabel"]
        return cls(subject, label, options["ledger"], options["ackTimeout"])


class Origin(NamedTuple):
    """Where a row comes from, as far as it says so."""

    stream: str | None
    sequence: int | None

    @staticmethod
    def of(batch: pa.RecordBatch) -> list[Origin]:
        """The origins of the rows of a batch."""
        columns = [
            batch.column(name).to_pylist()
            if name in batch.schema.names
            else [None] * batch.num_rows
            for name in ORIGIN_COLUMNS
        ]
        return [Origin(*row) for row in zip(*columns, strict=True)]


class DeadLetters:
    """The rows of a task that cannot be written."""

    def __init__(self, settings: DeadLetterSettings, access: Access, task: str) -> None:
        self._settings = settings
        self._access = access
        self._task = f"{task}.dead"
        self._js: JetStream
        self._stream: Stream
        self._ids: StoredIds | None = None

    async def open(self) -> None:
        """Make sure that there is a stream for them, before anything is written."""
        timeout = self._settings.ack_timeout
        self._js = await publisher(self._access, timeout)
        routes = Routes(self._js, None, "deadLetterSubject")
        self._stream = await persist(timeout, routes.of, self._settings.subject)

    async def add(
        self, row: int, reason: str, target: str, data: bytes, origin: Origin | None
    ) -> None:
        """Publish a row, of which `row` is the number in its task; `finish` waits for the acks."""
        settings = self._settings
        if self._ids is None:
            await persist(settings.ack_timeout, self._begin)
        assert self._ids is not None
        await persist(settings.ack_timeout, self._ids.refresh)
        message_id = f"{self._task}.{row}"
        if message_id in self._ids.found:
            return
        headers = self._headers(reason, target, origin)
        try:
            await self._js.publish_async(settings.subject, data, headers=headers, msg_id=message_id)
        except MaxPayloadError:
            # Too large for the server, wherever it goes: what is known about it stays.
            headers["Jetspark-Size"] = str(len(data))
            await self._js.publish_async(settings.subject, b"", headers=headers, msg_id=message_id)

    async def finish(self) -> None:
        """Wait until all are stored."""
        await completed(self._js, self._settings.ack_timeout)

    async def _begin(self) -> None:
        stream = self._stream
        ledger = await Ledger.open(self._js, self._settings.ledger, stream.config.num_replicas)
        ids = StoredIds(ledger, self._task, f"{self._task}.", self._settings.ack_timeout)
        await ids.add([stream])
        self._ids = ids

    def _headers(self, reason: str, target: str, origin: Origin | None) -> dict[str, str]:
        found: Mapping[str, str | None] = {
            "Jetspark-Reason": reason,
            "Jetspark-Target": target,
            "Jetspark-Label": self._settings.label,
            "Jetspark-Stream": origin.stream if origin else None,
            "Jetspark-Sequence": None
            if origin is None or origin.sequence is None
            else str(origin.sequence),
        }
        return {name: _line(value) for name, value in found.items() if value is not None}


def _line(value: str) -> str:
    """A text as a header can have it."""
    line = " ".join(value.split())[:1000]
    return "".join(letter if letter.isprintable() else "?" for letter in line)
