"""Watching keys: an ordered consumer whose messages become entries when they are taken.

What arrives waits in batches, as everywhere, and at most as much as is on order waits. The end of
the data that were there at the beginning is found when a batch arrives, and waits between the
batches as an empty one, so that it is seen exactly once and in its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from jetspark.connection.deadline import deadline
from jetspark.errors import (
    InvalidArgumentError,
    IteratorClosedError,
    JetSparkError,
    StreamNotFoundError,
)
from jetspark.jetstream.consumer.messages import WarningHandler
from jetspark.jetstream.consumer.ordered import OrderedConsumer, OrderedFeed
from jetspark.jetstream.consumer.ordered_config import HEARTBEAT, OrderedOptions, OrderedPlan
from jetspark.jetstream.consumer.ordered_route import OrderedSeries
from jetspark.jetstream.consumer.pull_options import PriorityOptions, StreamOptions
from jetspark.jetstream.consumer_config import DeliverPolicy
from jetspark.jetstream.consumer_info import ConsumerInfo
from jetspark.jetstream.message import parse_metadata
from jetspark.protocol import Frame, MessageBatch
from jetspark.protocol.subjects import subject_matches

from .entry import EntryForm, KeyValueEntry, KeyValueOperation, operation_of
from .failures import bucket_not_found
from .names import is_key, stream_of

if TYPE_CHECKING:
    from .management import KeyValues

__all__ = ["KeyValueWatcher"]

T = TypeVar("T")

EXPIRES = 30.0  # seconds that a request of the watch waits on the server
FIRST_LOOK = 0.1  # seconds without an entry until the server is asked whether one will come
LONGEST_LOOK = 5.0
FIRST_ON_ORDER = 256  # entries, if there are no initial data
MOST_WAITING_BYTES = 16 * 1024 * 1024
OVERHEAD = 256  # bytes that an entry takes besides its value, about
_SHORT_FORM_DOTS = 8  # in a reply subject, whose last token is then the number of pending messages


class _Feed(OrderedFeed):
    """Pulls entries and finds the end of the initial data."""

    _bytes_on_order = MOST_WAITING_BYTES // 4
    _most_on_order = 10_000

    def __init__(self, consumer: OrderedConsumer, on_warning: WarningHandler | None) -> None:
        options = StreamOptions(
            max_messages=None,
            max_bytes=None,
            expires=EXPIRES,
            heartbeat=HEARTBEAT,
            threshold_messages=None,
            threshold_bytes=None,
            stop_after=None,
            priority=PriorityOptions(),
        )
        super().__init__(consumer, options, on_warning)
        if not consumer.cached_info.num_pending:
            self._window.resize(FIRST_ON_ORDER)
        self._initial: int | None = 0  # entries until the end of the initial data; None: it is past
        self._arrived = 0  # bytes, since those that wait were counted

    def _resume(self) -> None:
        # After a loss the number is that of the new consumer: it delivers revisions that the one
        # before would have left out, and the old number would be reached too soon.
        if self._initial is not None:
            info = self.consumer.cached_info
            self._initial = info.num_pending + info.delivered.consumer_seq
            if not self._initial:
                self._end_initial()
        super()._resume()

    def _end_initial(self) -> None:
        self._initial = None
        self._batches.append([])
        self._wake()

    def deliver(self, batch: MessageBatch) -> None:
        """Queue what comes next in order, unless far more waits than was to be expected."""
        super().deliver(batch)
        self._arrived += batch.size
        if self._arrived > MOST_WAITING_BYTES:
            waiting = self._waiting()
            self._arrived = _size(waiting)
            if self._arrived > MOST_WAITING_BYTES:
                self._hold_back(waiting)

    def _hold_back(self, waiting: Sequence[Frame]) -> None:
        """Give up what is on order if that was ordered when the entries were much smaller."""
        if self._ended or self.stopped or self._renewal is not None:
            return
        if self._window.pending_messages > self._window.max_messages:
            self._move()  # the server stops at once; the next consumer goes on after what waits
            self._reset(None)

    def _in_order(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        frames = super()._in_order(frames)
        if self._initial is not None and frames:
            if not (end := _end_of_initial(frames, self._initial)):
                self._initial -= len(frames)
            else:
                self._queue(frames[:end], _size(frames[:end]))
                self._end_initial()
                frames = frames[end:]
        return frames

    def _is_hopeless(self, error: JetSparkError) -> bool:
        # A bucket that is created again counts from 1: nothing can be resumed.
        return super()._is_hopeless(error) or isinstance(error, StreamNotFoundError)

    async def next_batch(self) -> Sequence[Frame]:
        """What has arrived next; empty: the end of the initial data."""
        patience = FIRST_LOOK
        while not self._batches:
            if self._ended:
                self._raise_end()
            if self._initial is None:
                await self._arrival()
                continue
            look_at = self._loop.time() + patience
            await self._arrival(look_at)
            if self._loop.time() >= look_at and not self._batches:
                patience = min(2 * patience, LONGEST_LOOK)
                await self._look()
        return self._take_frames(self._most_on_order)

    async def _look(self) -> None:
        """Ask whether the initial data have an end: what has expired or was purged never comes."""
        name = self.consumer.name
        try:
            info = await self.consumer.info()
        except JetSparkError:
            return  # what is wrong will show itself
        if (
            self._initial is not None
            and self.consumer.name == name
            and self._renewal is None
            and not info.num_pending
            and info.delivered.consumer_seq == self._check.consumer_sequence
        ):
            self._end_initial()


def _size(frames: Sequence[Frame]) -> int:
    """How many bytes entries take, about."""
    return sum([len(frame[3]) for frame in frames]) + OVERHEAD * len(frames)


def _end_of_initial(frames: Sequence[Frame], left: int) -> int:
    """After how many of the frames the initial data end; 0: not among these.

    That is after so many as the server counted, or when nothing is pending: what was overwritten
    meanwhile does not come in its old place.
    """
    if parse_metadata(frames[-1][1]).num_pending == left - len(frames) > 0:
        # Everything comes as it was counted. (If all were deleted, and within this batch as many
        # created, the end is told with the last of these.)
        return 0
    if (frames[0][1] or b"").count(b".") == _SHORT_FORM_DOTS:
        ends = [(frame[1] or b"").endswith(b".0") for frame in frames[:left]]
    else:
        ends = [parse_metadata(frame[1]).num_pending == 0 for frame in frames[:left]]
    if True in ends:
        return ends.index(True) + 1
    return left if left <= len(frames) else 0


class KeyValueWatcher(Generic[T]):
    """The entries of keys as they change, made by `KeyValue.watch`.

    >>> async with bucket.watch("orders.*") as watcher:  # doctest: +SKIP
    ...     async for entry in watcher:
    ...         if entry is None:
    ...             print("that is what there was; now come the changes")
    ...         else:
    ...             print(entry.key, entry.operation, entry.value)

    It begins when the block is entered, or with the first entry that is asked for. It survives
    reconnects, restarts and leader changes without a loss; what passes by itself goes to
    `on_warning`. An entry may then come that has been replaced by a later one, which comes, too.
    It ends quietly after `stop`, and with `BucketNotFoundError` when the bucket is deleted.

    As much as makes up a few megabytes waits locally; a reader that does not keep up makes the
    server wait.
    """

    def __init__(
        self,
        context: KeyValues,
        form: EntryForm[T],
        options: OrderedOptions,
        *,
        only: list[str] | None,
        ignore_deletes: bool,
        on_warning: WarningHandler | None,
    ) -> None:
        self._context = context
        self._form = form
        self._options = options
        # Patterns, if the server does not look at them.
        self._only_keys = None if only is None else frozenset(filter(is_key, only))
        self._only_like = [pattern for pattern in only or () if not is_key(pattern)]
        self._ignore_deletes = ignore_deletes
        self._on_warning = on_warning
        self._feed: _Feed | None = None
        self._starting = False
        self._stopped = False
        self._entries: Iterator[KeyValueEntry[T]] = iter(())  # the batch being taken
        self.initial_done = False
        """Whether the end of the initial data has been seen."""

    @property
    def bucket(self) -> str:
        """The name of the bucket."""
        return self._form.bucket

    async def _start(self) -> None:
        if self._starting:
            raise InvalidArgumentError(
                f"bucket {self.bucket!r}: watch: two tasks begin it; begin it in one, or give each "
                "its own"
            )
        self._starting = True
        try:
            await self._open()
        finally:
            self._starting = False

    async def _open(self) -> None:
        plan = OrderedPlan(push=False, **self._options)
        series = OrderedSeries(self._context, stream_of(self.bucket), plan)
        try:
            info = await self._create(series)
        except StreamNotFoundError as error:
            raise bucket_not_found(self.bucket, error) from error
        if not info.num_pending and info.config.deliver_policy == DeliverPolicy.LAST_PER_SUBJECT:
            # If it breaks off before the first entry, every one that was missed is wanted.
            series.start = info.delivered.stream_seq + 1
        consumer = OrderedConsumer(series, info)
        self._feed = _Feed(consumer, self._on_warning)
        if self._stopped:  # meanwhile
            series.leave()
            self._feed.end(None)
        else:
            self._feed._start()

    async def _create(self, series: OrderedSeries) -> ConsumerInfo:
        """Create the first consumer; if that is given up, it is deleted when it exists."""

        def delete(task: asyncio.Task[ConsumerInfo]) -> None:
            if not task.cancelled() and task.exception() is None:
                series.leave()

        creation = asyncio.get_running_loop().create_task(
            series.open(), name=f"jetspark bucket {self.bucket!r}: watch"
        )
        self._context.client._own(creation)  # type: ignore[arg-type]  # whatever it returns
        try:
            return await asyncio.shield(creation)
        except asyncio.CancelledError:
            # Not yet: a server may be faster with the deletion than with the creation.
            creation.add_done_callback(delete)
            raise

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> KeyValueEntry[T] | None:
        while True:
            for entry in self._entries:
                return entry
            if not (frames := await self._next_batch()):
                self.initial_done = True
                return None
            if self._only_keys is not None:
                frames = [frame for frame in frames if self._is_wanted(frame[0])]
            if self._ignore_deletes:
                frames = [
                    frame
                    for frame in frames
                    if frame[2] is None or operation_of(frame[2]) is KeyValueOperation.PUT
                ]
            self._entries = iter(self._form.of_frames(frames))

    def _is_wanted(self, subject: bytes) -> bool:
        key = subject[self._form.start :].decode("utf-8", "surrogateescape")
        return key in (self._only_keys or ()) or any(
            subject_matches(pattern, key) for pattern in self._only_like
        )

    async def _next_batch(self) -> Sequence[Frame]:
        if self._stopped:
            raise StopAsyncIteration
        if self._feed is None:
            await self._start()
        assert self._feed is not None
        try:
            return await self._feed.next_batch()
        except JetSparkError as error:
            if isinstance(error.__cause__, StreamNotFoundError):
                raise bucket_not_found(self.bucket, error.__cause__) from error
            raise

    async def next(self, timeout: float | None = None) -> KeyValueEntry[T] | None:
        """The next entry, or None for the end of the initial data.

        Raises `TimeoutError` if none comes in time, and `IteratorClosedError` after `stop`.
        """
        what = f"bucket {self.bucket!r}: watch: no entry"
        try:
            async with deadline(timeout, what, may_have_taken_effect=False):
                return await self.__anext__()
        except StopAsyncIteration:
            raise IteratorClosedError(f"bucket {self.bucket!r}: watch: it was stopped") from None

    async def stop(self) -> None:
        """End the watch at once; entries that wait are dropped. May be called from anywhere."""
        self._stopped = True
        self._entries = iter(())
        if self._feed is not None:
            await self._feed.stop()

    async def __aenter__(self) -> Self:
        if self._feed is None and not self._stopped:
            await self._start()
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        await self.stop()
