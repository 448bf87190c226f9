"""The chunks of an object in the stream, as its leader has them."""

from __future__ import annotations

from jetspark.jetstream import StreamInfo
from jetspark.jetstream.api import ApiClient

from .names import chunk_subject, stream_name

__all__ = ["count_chunks", "purge_chunks"]


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
    api: ApiClient, bucket: str, nuid: str, timeout: float | None = None
) -> None:
    """Remove those of one version of an object."""
    await api.succeed(
        api.subjects.stream_purge(stream_name(bucket)),
        {"filter": chunk_subject(bucket, nuid)},
        context=f"store {bucket!r}: remove the chunks {nuid!r}",
        timeout=timeout,
    )
