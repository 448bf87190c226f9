"""Reading the data of an object, chunk by chunk.

The chunks come from an ordered consumer with a bounded number of bytes on order, so a slow reader
slows the server down. What is missing is noticed at once: the server says how many chunks are left.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import itertools
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Self

from jetspark.errors import (
    BadObjectError,
    DigestMismatchError,
    InvalidArgumentError,
    IteratorClosedError,
    JetSparkError,
    JetStreamNotEnabledError,
    StreamNotFoundError,
    TimeoutError,
)
from jetspark.jetstream import OrderedOptions
from jetspark.jetstream.message import parse_metadata
from jetspark.protocol import Frame, parse_headers

from .chunk_feed import ChunkFeed
from .chunks import count_chunks
from .feed import Feed
from .info import ObjectInfo
from .names import chunk_subject, decode_digest, encode_digest, stream_name
from .records import bucket_not_found, naming
from .upload import ProgressCallback

if TYPE_CHECKING:
    from jetspark.jetstream.consumer_management import ConsumerManager

__all__ = ["ObjectReader"]

WINDOW_BYTES = 8 * 1024 * 1024  # on order, or here and not taken yet; or one chunk
WINDOW_HEADERS = 2000
_NO_LEADER = (TimeoutError, JetStreamNotEnabledError)
SCAN_FROM = 2 * 1024 * 1024  # bytes in front of a range that are rather skipped than read


def _close_from_anywhere(loop: asyncio.AbstractEventLoop, feed: Feed) -> None:
    """Close the feed of a reader that has been collected, in whatever thread that was."""
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(feed.close)


class ObjectReader:
    """The data of an object, or a part of them: iterate over it, or `read` it.

    >>> async with await store.get("photo.jpg") as reader:  # doctest: +SKIP
    ...     async for chunk in reader:
    ...         file.write(chunk)

    Whether the data are those that were stored shows at the end: instead of the last of them,
    `DigestMismatchError` is raised if they are not. Of a part, only the sizes can be checked.
    Leave the block, or call `stop`, to give up early; a reader that is not referred to any more
    gives up by itself.

    Whoever cancels the wait for a chunk can wait for it again. After an error it is raised again,
    and after `stop`, or a `read` that was cancelled, `IteratorClosedError`: there is no end of the
    data but the true one.
    """

    def __init__(
        self,
        context: ConsumerManager,
        info: ObjectInfo,
        *,
        offset: int,
        length: int | None,
        timeout: float,
        on_progress: ProgressCallback | None,
    ) -> None:
        self.info = info
        """What is known of the object; of its target, if the name was that of a link."""
        self._context = context
        self._offset = min(offset, info.size)
        self._end = info.size if length is None else min(self._offset + length, info.size)
        self._timeout = timeout
        self._on_progress = on_progress
        self._name = f"object {info.name!r} in store {info.bucket!r}"
        self._digest = b""  # as it should be
        self._hash = hashlib.sha256() if self.length == info.size else None
        self._feed: ChunkFeed | None = None
        self._closer: weakref.finalize[..., ObjectReader] | None = None
        self._failure: BaseException | None = None  # why the rest cannot be read
        self._position = 0  # in the object, behind the chunks that came
        self._number = 0  # of chunks before that
        self._chunks: Iterator[bytes] = iter(())  # that wait to be taken
        self._taken = 0  # bytes

    @property
    def length(self) -> int:
        """How many bytes there are to read, in all."""
        return self._end - self._offset

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while True:
            for chunk in self._chunks:
                if self._on_progress is not None:
                    try:
                        self._on_progress(self._taken + len(chunk), self.length)
                    except BaseException:
                        self._chunks = itertools.chain([chunk], self._chunks)  # it was not taken
                        raise
                self._taken += len(chunk)
                return chunk
            if self._failure is not None:
                # Without its traceback, which would grow with each call.
                raise self._failure.with_traceback(None)
            if self._taken == self.length:
                raise StopAsyncIteration
            self._chunks = iter(await self._next())

    async def read(self) -> bytes:
        """All the data that have not been read yet."""
        buffer = io.BytesIO()  # hands its bytes out without a copy
        async with self:
            async for chunk in self:
                buffer.write(chunk)
        return buffer.getvalue()

    async def stop(self) -> None:
        """Read no more."""
        if self._taken == self.length:
            self._close_feed()
        else:
            self._give_up(IteratorClosedError(f"{self._name}: reading was stopped; get it again"))

    def _give_up(self, reason: BaseException) -> None:
        self._failure = self._failure or reason
        self._chunks = iter(())
        self._close_feed()

    def _close_feed(self) -> None:
        if self._feed is not None:
            feed, self._feed = self._feed, None
            feed.close()
        if self._closer is not None:
            self._closer.detach()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()

    # -- chunks ---------------------------------------------------------------------------------

    async def open(self) -> None:
        """Ask for the chunks; raises `BadObjectError` if some are missing."""
        with self._explaining():
            await self._open()

    async def _open(self) -> None:
        if self._hash is not None:
            self._digest = decode_digest(self.info.digest)
        if not self.length:
            if not self.info.size:
                self._check_digest()
            return
        start: int | None = None
        if self._offset >= SCAN_FROM:
            start = await self._skip()
        info = self.info
        options: OrderedOptions = {"filter_subject": chunk_subject(info.bucket, info.nuid)}
        if start is not None:
            options["opt_start_seq"] = start
        self._feed = feed = await ChunkFeed.open(
            self._context, stream_name(info.bucket), max_bytes=WINDOW_BYTES, **options
        )
        loop = asyncio.get_running_loop()
        self._closer = weakref.finalize(self, _close_from_anywhere, loop, feed)
        self._closer.atexit = False
        feed.expect(-(-info.size // max(info.chunks, 1)))
        if self._number + feed.pending < max(info.chunks, 1):
            try:
                await self._look_for_more(feed)
            except BaseException as error:
                self._give_up(error)
                raise

    async def _skip(self) -> int:
        """The sequence of the chunk in which the range begins.

        The sizes of all chunks before it are looked at, because only their sum is known.
        """
        # By number: the server does not count the bytes of what it leaves out as we would.
        feed = await Feed.open(
            self._context,
            stream_name(self.info.bucket),
            max_messages=WINDOW_HEADERS,
            filter_subject=chunk_subject(self.info.bucket, self.info.nuid),
            headers_only=True,
        )
        try:
            while True:
                for frame in await self._take(feed):
                    size = int(parse_headers(frame[2] or b"").get("Nats-Msg-Size") or 0)
                    if self._position + size > self._offset:
                        return parse_metadata(frame[1]).stream_sequence
                    self._position += size
                    self._number += 1
        finally:
            await feed.stop()

    async def _take(self, feed: Feed) -> Sequence[Frame]:
        """The chunks that come next; raises if none will."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._timeout
        while not (frames := await feed.take_rest(self._timeout)):
            if feed.ended:
                if self._failure is not None:
                    raise self._failure
                raise self._context.client._connection.closed_error()
            if loop.time() >= end:
                raise TimeoutError(
                    f"{self._name}: no data in {self._timeout} s", may_have_taken_effect=False
                )
            await self._look_for_more(feed)
        return frames

    async def _look_for_more(self, feed: Feed) -> None:
        """Raise if the leader of the stream has no more chunks than have come.

        The consumer may be on another server, which does not have all of them yet.
        """
        info = self.info
        try:
            stored = await count_chunks(self._context.api, info.bucket, info.nuid)
        except JetSparkError as error:
            if not error.retryable and not isinstance(error, _NO_LEADER):
                raise
            feed.pending = max(feed.pending, 1)  # who knows
            return
        if stored < info.chunks:
            raise self._error(f"{info.chunks - stored} of {info.chunks} chunks are gone")
        if stored <= self._number:
            raise self._error(f"its chunks end after {self._position} of {info.size} bytes")
        feed.pending = stored - self._number

    @contextlib.contextmanager
    def _explaining(self) -> Iterator[None]:
        """Have errors say which object it was about, and that the store is gone if it is."""
        with naming(self._name):
            try:
                yield
            except JetSparkError as error:
                cause = error if isinstance(error, StreamNotFoundError) else error.__cause__
                if isinstance(cause, StreamNotFoundError):
                    raise bucket_not_found(self.info.bucket, cause) from error
                raise

    async def _next(self) -> list[bytes]:
        """The chunks that come next, cut to the range."""
        feed = self._feed
        assert feed is not None
        try:
            with self._explaining():
                while True:
                    frames = await self._take(feed)
                    if chunks := self._accept(feed, [frame[3] for frame in frames]):
                        return chunks
        except (asyncio.CancelledError, InvalidArgumentError):
            raise  # nothing has been taken: it can go on, and the other task that waits, too
        except BaseException as error:
            self._give_up(error)
            raise

    def _accept(self, feed: Feed, chunks: list[bytes]) -> list[bytes]:
        start = self._position
        self._position += sum(map(len, chunks))
        self._number += len(chunks)
        if self._hash is not None:
            for chunk in chunks:
                self._hash.update(chunk)
        if self._position >= self._end:
            self._check_end(feed)
        if start < self._offset or self._position > self._end:
            return self._cut(chunks, start)
        return chunks

    def _cut(self, chunks: list[bytes], position: int) -> list[bytes]:
        found = []
        for chunk in chunks:
            part = chunk[max(self._offset - position, 0) : max(self._end - position, 0)]
            position += len(chunk)
            if part:
                found.append(part)
        return found

    def _check_end(self, feed: Feed) -> None:
        size, number = self.info.size, self._number + feed.pending
        if self._position >= size and number != self.info.chunks:
            raise self._error(f"it has {number} chunks instead of {self.info.chunks}")
        if self._position > size or (self._position == size and feed.pending):
            raise self._error(f"its chunks have more than {size} bytes")
        self._close_feed()
        self._check_digest()

    def _check_digest(self) -> None:
        if self._hash is None:
            return
        found = self._hash.digest()
        if found != self._digest:
            raise DigestMismatchError(
                f"{self._name}: its data are not those that were stored: they have the digest "
                f"{encode_digest(found)} instead of {encode_digest(self._digest)}"
            )

    def _error(self, what: str) -> BadObjectError:
        return BadObjectError(
            f"{self._name}: {what}; it may have been replaced meanwhile: get it again, or "
            "put it again if it stays so"
        )
