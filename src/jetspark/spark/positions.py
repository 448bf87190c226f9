"""Where reading begins and ends: what the user says, as offsets of streams."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

from jetspark.context import JetStream
from jetspark.errors import (
    InvalidOptionError,
    JetSparkError,
    MessageNotFoundError,
    NoMatchingStreamError,
    NotSupportedError,
    StreamNotFoundError,
)
from jetspark.jetstream import AckPolicy, DeliverPolicy, RetentionPolicy, Stream

from .connection import Access
from .filters import Narrowing
from .ranges import Range
from .stream_options import Offset, ReadSettings

__all__ = [
    "end_offsets",
    "first_offset",
    "last_before",
    "last_matching",
    "narrowed",
    "open_stream",
    "open_streams",
    "start_offsets",
]


async def open_streams(js: JetStream, settings: ReadSettings) -> dict[str, Stream]:
    """The streams to read, by name."""
    if settings.pattern is not None:
        pattern = re.compile(settings.pattern)
        names = sorted([name async for name in js.stream_names() if pattern.fullmatch(name)])
        if not names:
            raise NoMatchingStreamError(
                f"option 'streamPattern': no stream is called like {settings.pattern!r}"
            )
    else:
        names = sorted(settings.streams)
    return {name: await open_stream(settings.access, name) for name in names}


async def open_stream(access: Access, name: str) -> Stream:
    """A stream, over the connection of this process."""
    js = await access.jetstream()
    try:
        return await js.get_stream(name)
    except StreamNotFoundError as error:
        raise StreamNotFoundError(
            f"there is no stream {name!r} on {access.servers}; create it, or correct option "
            "'stream'",
            code=error.code,
            err_code=error.err_code,
        ) from None


def first_offset(stream: Stream) -> int:
    """The offset before everything that the stream has."""
    return max(stream.cached_info.state.first_seq - 1, 0)


async def start_offsets(streams: Mapping[str, Stream], settings: ReadSettings) -> dict[str, int]:
    """What counts as read already when reading begins."""
    offsets = {}
    for name, stream in streams.items():
        if settings.starting_time is not None:
            offsets[name] = await last_before(stream, settings.starting_time)
        else:
            starting = _of_stream(settings.starting, name, "startingOffsets")
            if starting == "earliest":
                offsets[name] = first_offset(stream)
            elif starting == "latest":
                offsets[name] = stream.cached_info.state.last_seq
            else:
                assert isinstance(starting, int)
                offsets[name] = starting - 1
    return offsets


async def end_offsets(streams: Mapping[str, Stream], settings: ReadSettings) -> dict[str, int]:
    """The last sequences to read."""
    offsets = {}
    for name, stream in streams.items():
        last = stream.cached_info.state.last_seq
        if settings.ending_time is not None:
            offsets[name] = await last_before(stream, settings.ending_time)
        else:
            ending = _of_stream(settings.ending, name, "endingOffsets")
            offsets[name] = min(ending, last) if isinstance(ending, int) else last
    return offsets


async def narrowed(stream: Stream, part: Range, narrowing: Narrowing) -> Range:
    """What of a range can satisfy filters."""
    part = narrowing.sequences(part)
    if part.size <= 0 or narrowing.since is narrowing.until is None:
        return part
    try:
        if narrowing.since is not None:
            part = part._replace(
                first=max(part.first, await last_before(stream, narrowing.since) + 1)
            )
        if narrowing.until is not None:
            part = part._replace(last=min(part.last, await last_before(stream, narrowing.until)))
    except JetSparkError as error:
        # Servers before 2.11 do not look for times in queues, and the rows are filtered anyway.
        if error.retryable:
            raise
    return part


async def last_matching(stream: Stream, subjects: tuple[str, ...]) -> int:
    """The last sequence that holds a message of the subjects; 0: none."""
    if not subjects:
        return stream.cached_info.state.last_seq
    found = [0]
    for subject in subjects:
        try:
            found.append((await stream.get_last_message(subject)).sequence)
        except MessageNotFoundError:
            pass
    return max(found)


async def last_before(stream: Stream, moment: datetime) -> int:
    """The sequence before the first message at or after a moment."""
    try:
        return (await stream.get_next_message(start_time=moment)).sequence - 1
    except MessageNotFoundError:
        return stream.cached_info.state.last_seq
    except NotSupportedError:
        if stream.config.retention != RetentionPolicy.LIMITS:  # a consumer would have an effect
            raise
        return await _last_before_by_consumer(stream, moment)


async def _last_before_by_consumer(stream: Stream, moment: datetime) -> int:
    """The same for servers before 2.11, at the cost of a consumer."""
    consumer = await stream.create_consumer(
        deliver_policy=DeliverPolicy.BY_START_TIME,
        opt_start_time=moment,
        ack_policy=AckPolicy.NONE,
        headers_only=True,
        mem_storage=True,
        num_replicas=1,
    )
    try:
        messages = await consumer.fetch_no_wait(1)
    finally:
        await consumer.delete()
    if not messages:
        return stream.cached_info.state.last_seq
    return messages[0].metadata.stream_sequence - 1


def _of_stream(offset: Offset | Mapping[str, Offset], name: str, option: str) -> Offset:
    if not isinstance(offset, Mapping):
        return offset
    try:
        return offset[name]
    except KeyError:
        raise InvalidOptionError(f"option {option!r} says nothing of stream {name!r}") from None
