"""What a write is called: the same for all attempts of a task, and when it is done again.

A streaming query has an id that outlives restarts, and its batches have numbers. A batch write is
a job of its own, unless the user names it with option `writeId`.
"""

from __future__ import annotations

import re
import uuid

from pyspark import TaskContext

from jetspark.context import JetStream
from jetspark.errors import InvalidOptionError

from .ledger import Ledger
from .options import Kind, Option

__all__ = ["WRITE_ID", "forget_before", "new_job", "query_batch", "refuse_write_id", "task_in"]

_NUMBERED = re.compile(r"([A-Za-z0-9_-]+)-([0-9]+)")


def _read(text: str) -> str:
    if (found := _NUMBERED.fullmatch(text)) is None:
        raise ValueError
    return f"{found[1]}.{int(found[2])}"


WRITE_ID = Option(
    "writeId",
    Kind("a name and a number, such as totals-17, of letters, digits, - and _", _read),
    "Names a batch write: the same rows under the same name are stored once, however often they "
    "are written. For `foreachBatch`: the name of the query and the number of the batch. The notes "
    "on a write are removed when that with the next number is committed.",
)


def new_job(write_id: str | None) -> str:
    """The name of a batch write."""
    return write_id or uuid.uuid4().hex


def refuse_write_id(write_id: str | None, sink: str) -> None:
    """Streaming queries have names of their own."""
    if write_id is not None:
        raise InvalidOptionError(
            f"{sink}: option 'writeId' is for batch writes; a streaming query needs none"
        )


def query_batch() -> str:
    """The name of the batch of a streaming query that the current task writes."""
    context = _context()
    query = context.getLocalProperty("sql.streaming.queryId")
    return f"{query}.{context.getLocalProperty('streaming.sql.batchId')}"


def task_in(job: str) -> str:
    """The name of the current task."""
    return f"{job}.{_context().partitionId()}"


async def forget_before(js: JetStream, ledger: str, job: str) -> None:
    """Remove the notes that nobody needs any more, now that a job is committed.

    Those of a numbered job are kept until the next one is: it may have to be done again.
    """
    name, _, number = job.partition(".")
    await Ledger.forget(js, ledger, f"{name}.{int(number) - 1}" if number else name)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None
    return context
