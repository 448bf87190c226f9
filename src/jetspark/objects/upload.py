"""Sending the chunks of one object, and taking them back when that fails.

Many chunks are under way at a time, a bounded number of bytes of them. They all go to one subject,
where their order is that in which they are stored. So a chunk cannot simply be sent again: it would
come behind others. Only what no stream has taken is, together with all that follows it, because a
leader may just be elected; whatever else happens to a chunk is the end of the put.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import hashlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

from jetspark.connection.deadline import deadline
from jetspark.errors import (
    BadObjectError,
    JetSparkError,
    JetStreamNotEnabledError,
    NoStreamResponseError,
    TimeoutError,
)
from jetspark.jetstream import PublishAck, PublishAckFuture, Publisher
from jetspark.jetstream.api import RETRY_DELAY

from .chunks import purge_chunks
from .names import chunk_subject, stream_name
from .records import Records

__all__ = ["ProgressCallback", "Upload"]

ProgressCallback: TypeAlias = Callable[[int, int | None], object]
"""Called with the number of bytes done so far, and that of all of them if it is known."""

WINDOW_BYTES = 8 * 1024 * 1024  # that may be under way
WINDOW_CHUNKS = 512
CHUNK_TIMEOUT = 30.0  # seconds for a chunk to be sent and acknowledged
SILENCE = 2.0  # seconds without an acknowledgement until it is looked for the reason
ACK_TIMEOUT = 10.0  # seconds for an acknowledgement when the server has the chunk
FIRST_PATIENCE = 1.0  # seconds to go on while no stream takes the first chunk
RESEND_PATIENCE = 10.0  # ... a later one: there was a stream, so there will be


class Upload:
    """The chunks of one object on their way into a store."""

    def __init__(
        self,
        context: Publisher,
        records: Records,
        nuid: str,
        *,
        on_progress: ProgressCallback | None,
        total: int | None,
    ) -> None:
        self.nuid = nuid
        self.size = 0  # bytes sent
        self.chunks = 0
        self._records = records
        self._context = context
        self._acks = context._awaited_acks
        self._subject = records.publish_prefix + chunk_subject(records.bucket, nuid)
        self._hash = hashlib.sha256()
        self._on_progress = on_progress
        self._total = total
        self._window: deque[tuple[PublishAckFuture, bytes]] = deque()
        self._window_bytes = 0
        self._acked = 0  # bytes
        self._last_sequence = 0
        self._stored = False  # at least one chunk, perhaps
        self._give_up_at: float | None = None  # when to send what is not taken no more

    async def send(self, chunks: AsyncIterator[bytes]) -> bytes:
        """Send all chunks; returns their digest when the last one is stored."""
        encoder, connection = self._context.client._encoder, self._context.client._connection
        window = self._window
        async for chunk in chunks:
            self._hash.update(chunk)
            await self._publish(chunk)
            self._window_bytes += len(chunk)
            self.size += len(chunk)
            self.chunks += 1
            if encoder.is_full():
                await connection.make_room()
            while window and window[0][0].done():
                await self._take_ack()
            while self._window_bytes > WINDOW_BYTES or len(window) > WINDOW_CHUNKS:
                await self._take_ack()
        while window:
            await self._take_ack()
        return self._hash.digest()

    async def _publish(self, chunk: bytes) -> None:
        future = await self._acks.publish(
            self._subject, chunk, {"timeout": CHUNK_TIMEOUT, "retries": 0}
        )
        self._window.append((future, chunk))

    async def _take_ack(self) -> None:
        future, chunk = self._window[0]
        try:
            ack = await self._ack(future)
        except NoStreamResponseError as error:
            await self._publish_again(error)
            return
        self._window.popleft()
        self._window_bytes -= len(chunk)
        self._acked += len(chunk)
        self._stored = True
        self._give_up_at = None
        if self._records.check_ack(ack):  # the sequences of another store mean nothing here
            if ack.sequence <= self._last_sequence:
                raise BadObjectError(
                    f"a chunk was stored as {ack.sequence}, not behind the one before it "
                    f"({self._last_sequence}); put the object again",
                    retryable=True,
                )
            self._last_sequence = ack.sequence
        if self._on_progress is not None:
            self._on_progress(self._acked, self._total)

    async def _ack(self, future: PublishAckFuture) -> PublishAck:
        """Wait for an acknowledgement, but not long after the server has got all that was sent.

        A leader that steps down, and a stream that is deleted, may forget to acknowledge.
        """
        if future.done():
            return future.result()
        try:
            async with asyncio.timeout(SILENCE):
                return await future
        except builtins.TimeoutError:
            if future.done():
                raise
        await self._context.client.flush(CHUNK_TIMEOUT)
        await self._records.check_store()
        async with deadline(ACK_TIMEOUT, f"publish to {self._subject!r}: no acknowledgement"):
            return await future

    async def _publish_again(self, error: NoStreamResponseError) -> None:
        """Send all that is under way again, in its order, after the first of it was not taken."""
        now = asyncio.get_running_loop().time()
        if self._give_up_at is None:
            self._give_up_at = now + (RESEND_PATIENCE if self._acked else FIRST_PATIENCE)
        if now >= self._give_up_at:
            raise error
        await asyncio.sleep(RETRY_DELAY)
        await self._records.check_store()
        taken = False  # one that follows was
        for future, _ in self._window:
            try:
                await future
                taken = self._stored = True
            except NoStreamResponseError:
                pass
        if taken:
            if self._acked:
                raise error
            await self._purge()  # nothing is lost: the first chunk is still here
        again = [chunk for _, chunk in self._window]
        self._window.clear()
        for chunk in again:
            await self._publish(chunk)

    async def abandon(self, reason: BaseException) -> None:
        """Remove what has been stored; the reason is told of what could not be removed."""
        await self._settle()
        if not self._stored:
            return
        try:
            await self._purge()
        except JetSparkError as error:
            bucket = self._records.bucket
            reason.add_note(
                f"Chunks of the object are left in the store: {error}. To remove them, purge the "
                f"subject {chunk_subject(bucket, self.nuid)} of stream {stream_name(bucket)}."
            )

    async def _settle(self) -> None:
        """Wait until nothing is under way: a chunk that came behind the purge would stay."""
        try:
            async with deadline(self._context.api.timeout, "chunks are not acknowledged"):
                while self._window:
                    future, _ = self._window[0]
                    if not future.done():
                        with contextlib.suppress(JetSparkError):
                            await future
                    error = future.exception()
                    if not isinstance(error, JetSparkError) or error.may_have_taken_effect:
                        self._stored = True
                    self._window.popleft()
        except TimeoutError:
            self._stored = True
            for future, _ in self._window:
                self._acks.forget(future)

    async def _purge(self) -> None:
        api, bucket = self._context.api, self._records.bucket
        await purge_chunks(api, bucket, self.nuid, passing=(JetStreamNotEnabledError,))
