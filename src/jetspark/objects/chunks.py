"""The chunks of an object in the stream, as its leader has them."""

from __future__ import annotations

import asyncio

from jetspark.errors import ConnectionClosedError, JetSparkError, NotFoundError, TimeoutError
from jetspark.jetstream import StreamInfo
from jetspark.jetstream.api import RETRY_DELAY, ApiClient

from .names import chunk_subject, stream_name

__all__ = ["count_chunks", "purge_chunks"]

PURGE_PATIENCE = 20.0  # seconds to wait for a server that can remove chunks; elections take half
PURGE_TIMEOUT = 1.0  # seconds for an answer: while there is no leader, none comes


async def count_chunks(api: ApiClient, bucket: str, nuid: str) -> int:
    """How many there are of one version of an object."""
    subject = chunk_subject(bucket, nuid)
    info = await api.fetch(
        StreamInfo,
        api.subjects.stream_info(stream_name(bucket)),
        {"subjects_filter": subject},
        context=f"store {bucket!r}: count the chunks {nuid!r}",
        idempotent=True,
    )
    return info.state.subjects.get(subject, 0)


async def purge_chunks(
    api: ApiClient, bucket: str, nuid: str, passing: tuple[type[JetSparkError], ...] = ()
) -> None:
    """Remove those of one version of an object, if need be when a leader is elected.

    Errors of the types `passing` are waited out, too.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + PURGE_PATIENCE
    while True:
        try:
            await api.succeed(
                api.subjects.stream_purge(stream_name(bucket)),
                {"filter": chunk_subject(bucket, nuid)},
                context=f"store {bucket!r}: remove the chunks {nuid!r}",
                timeout=PURGE_TIMEOUT,
            )
            return
        except NotFoundError:
            return  # the store is gone, and the chunks with it
        except ConnectionClosedError:
            raise
        except JetSparkError as error:
            waits = error.retryable or isinstance(error, (TimeoutError, *passing))
            if loop.time() >= end or not waits:
                raise
        await asyncio.sleep(RETRY_DELAY)
