"""Watching the objects of a store: their descriptions as they change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

from jetspark.connection.deadline import deadline
from jetspark.errors import (
    InvalidArgumentError,
    IteratorClosedError,
    JetSparkError,
    StreamNotFoundError,
)
from jetspark.jetstream import DeliverPolicy, OrderedOptions
from jetspark.jetstream.consumer.messages import WarningHandler
from jetspark.jetstream.message import parse_metadata
from jetspark.protocol import Frame

from .feed import Feed
from .info import ObjectInfo, decode_info
from .names import all_metas, stream_name
from .records import bucket_not_found

if TYPE_CHECKING:
    from jetspark.jetstream.consumer_management import ConsumerManager

__all__ = ["ObjectWatcher"]


class ObjectWatcher:
    """The objects of a store as they change, made by `ObjectStore.watch`.

    >>> async with store.watch() as watcher:  # doctest: +SKIP
    ...     async for info in watcher:
    ...         if info is None:
    ...             print("that is what there was; now come the changes")
    ...         else:
    ...             print(info.name, "deleted" if info.deleted else info.size)

    It begins when the block is entered, or with the first object that is asked for. It survives
    reconnects, restarts and leader changes without a loss; what passes by itself goes to
    `on_warning`. It ends quietly after `stop`, and with `BucketNotFoundError` when the store is
    deleted. A few megabytes wait locally; a reader that does not keep up makes the server wait.

    A renamed object shows up under its new name only. A description that is damaged raises
    `BadObjectError`; the next one can be asked for all the same.
    """

    def __init__(
        self,
        context: ConsumerManager,
        bucket: str,
        deliver_policy: DeliverPolicy,
        *,
        ignore_deletes: bool,
        on_warning: WarningHandler | None,
    ) -> None:
        self.bucket = bucket
        """The name of the store."""
        self.initial_done = False
        """Whether the end of the initial data has been seen."""
        self._context = context
        self._deliver_policy = deliver_policy
        self._ignore_deletes = ignore_deletes
        self._on_warning = on_warning
        self._feed: Feed | None = None
        self._starting = False
        self._initial = 0  # descriptions until the end of the initial data
        self._frames: Iterator[Frame] = iter(())  # those that wait to be taken
        self._stopped = False

    async def _start(self) -> Feed:
        if self._starting:
            raise InvalidArgumentError(
                f"object store {self.bucket!r}: watch: two tasks begin it; begin it in one, or "
                "give each its own"
            )
        self._starting = True
        try:
            return await self._open()
        finally:
            self._starting = False

    async def _open(self) -> Feed:
        options: OrderedOptions = {
            "filter_subject": all_metas(self.bucket),
            "deliver_policy": self._deliver_policy,
        }
        try:
            feed = await Feed.open(
                self._context,
                stream_name(self.bucket),
                on_warning=self._on_warning,
                **options,
            )
        except StreamNotFoundError as error:
            raise bucket_not_found(self.bucket, error) from error
        info = feed.consumer.cached_info
        self._initial = info.num_pending
        if not info.num_pending:
            # If it breaks off before the first one, everything that was missed is wanted.
            feed.consumer.series.start = info.delivered.stream_seq + 1
        self._feed = feed
        if self._stopped:  # meanwhile
            await feed.stop()
        else:
            feed.begin()
        return feed

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ObjectInfo | None:
        while True:
            for frame in self._frames:
                # Not counted as they arrive: the mark stands behind the last of them.
                self._initial -= 1
                info = self._decode(frame)
                if not (info.deleted and self._ignore_deletes):
                    return info
            if not self.initial_done and self._initial <= 0 and self._feed is not None:
                self.initial_done = True
                return None
            if self._stopped:
                raise StopAsyncIteration
            await self._take(self._feed or await self._start())

    async def _take(self, feed: Feed) -> None:
        try:
            if self.initial_done:
                frames = await feed.take()
            elif self._initial > 0:
                frames = await feed.take_rest()
            else:
                return
        except JetSparkError as error:
            if isinstance(error.__cause__, StreamNotFoundError):
                raise bucket_not_found(self.bucket, error.__cause__) from error
            raise
        if frames:
            self._frames = iter(frames)
        elif feed.ended:
            raise StopAsyncIteration
        else:
            self._initial = 0  # fewer than there were: some have been replaced or removed

    def _decode(self, frame: Frame) -> ObjectInfo:
        place = parse_metadata(frame[1])
        return decode_info(
            frame[3],
            frame[0].decode("utf-8", "surrogateescape"),
            f"message {place.stream_sequence} of store {self.bucket!r}",
            bucket=self.bucket,
            modified=place.timestamp,
            sequence=place.stream_sequence,
        )

    async def next(self, timeout: float | None = None) -> ObjectInfo | None:
        """The next object, or None for the end of the initial data.

        Raises `TimeoutError` if none comes in time, and `IteratorClosedError` after `stop`.
        """
        what = f"object store {self.bucket!r}: watch: no object"
        try:
            async with deadline(timeout, what, may_have_taken_effect=False):
                return await self.__anext__()
        except StopAsyncIteration:
            raise IteratorClosedError(
                f"object store {self.bucket!r}: watch: it was stopped"
            ) from None

    async def stop(self) -> None:
        """End the watch at once; what waits is dropped. May be called from anywhere."""
        self._stopped = True
        self._frames = iter(())
        if self._feed is not None:
            await self._feed.stop()

    async def __aenter__(self) -> Self:
        if self._feed is None and not self._stopped:
            await self._start()
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        await self.stop()
