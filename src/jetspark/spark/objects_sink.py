"""The `jetstream-objects` sink: a row becomes an object.

An object of the same name is replaced, so a row that is written again does no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from jetspark.errors import InvalidOptionError, JetSparkError, JetStreamNotEnabledError
from jetspark.objects import ObjectStore
from jetspark.objects.names import check_object_name

from .boundary import plain_errors
from .connection import run
from .objects_options import SOURCE, ObjectWriteSettings, open_store

__all__ = ["ObjectBatchWriter", "ObjectStreamWriter", "put"]

AT_A_TIME = 8  # objects that are written side by side
ATTEMPTS = 5
RETRY_DELAY = 1.0  # seconds


async def put(store: ObjectStore, name: str, content: Any, **more: Any) -> None:
    """Put an object, and again if the server cannot be reached for a moment."""
    for left in reversed(range(ATTEMPTS)):
        if hasattr(content, "seek"):
            content.seek(0)
        try:
            await store.put(name, content, **more)
            return
        except JetSparkError as error:
            passing = error.retryable or error.may_have_taken_effect
            if not left or not (passing or isinstance(error, JetStreamNotEnabledError)):
                raise
        await asyncio.sleep(RETRY_DELAY)


def rows_of(batch: pa.RecordBatch) -> dict[str, dict[str, Any]]:
    """What becomes of each name: its last row; raises if any row of the batch is not good."""
    found: dict[str, dict[str, Any]] = {}
    for row in batch.to_pylist():
        name, content = row.pop("name"), row["content"]
        try:
            check_object_name(name)
        except JetSparkError as error:
            raise InvalidOptionError(f"{SOURCE}: column 'name': {error}") from None
        if content is None:
            raise InvalidOptionError(
                f"{SOURCE}: object {name!r} has no content; an empty one is not null"
            )
        row["content"] = content.encode() if isinstance(content, str) else content
        for column in ("metadata", "headers"):
            if column in row:
                row[column] = dict(row[column] or ())
        found.pop(name, None)
        found[name] = row
    return found


async def write_rows(settings: ObjectWriteSettings, batch: pa.RecordBatch) -> None:
    """Store the rows of a batch."""
    rows = list(rows_of(batch).items())
    store = await open_store(settings.access, settings.bucket)
    for start in range(0, len(rows), AT_A_TIME):
        outcomes = await asyncio.gather(
            *(put(store, name, **row) for name, row in rows[start : start + AT_A_TIME]),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if outcome is not None:
                raise outcome


def _write(settings: ObjectWriteSettings, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    for batch in batches:
        run(write_rows(settings, batch))
    return WriterCommitMessage()


class ObjectStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query."""

    def __init__(self, settings: ObjectWriteSettings) -> None:
        self._settings = settings

    @plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task."""
        return _write(self._settings, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: every row is stored already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: what is stored is replaced when the batch is written again."""


class ObjectBatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame once."""

    def __init__(self, settings: ObjectWriteSettings) -> None:
        self._settings = settings

    @plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task."""
        return _write(self._settings, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing: every row is stored already."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing: what is stored cannot be taken back."""
