"""Pull consumers: the application asks, the server delivers what was asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from jetspark.errors import InvalidOptionError, JetSparkError, TimeoutError
from jetspark.jetstream.api import ApiClient
from jetspark.jetstream.consumer_config import DeliverPolicy, PriorityPolicy
from jetspark.jetstream.consumer_info import ConsumerInfo
from jetspark.jetstream.message import AckKind, JetStreamMessage
from jetspark.protocol import Frame

from .base import Consumer
from .fetch import FetchedMessages, fetch_frames
from .messages import Consumption, MessageCallback, MessageStream, WarningHandler
from .pull_options import PriorityOptions, PullOptions, StreamOptions

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from .arrow import ArrowStream
else:  # so that annotations can be read where pyarrow is not installed, or not wanted
    RecordBatch = ArrowStream = Any

__all__ = ["PullConsumer"]

ARROW_ROWS = 10_000


class PullConsumer(Consumer):
    """A consumer from which messages are pulled.

    `fetch` and `next` send one request. `messages` and `consume` keep requests on order, which is
    faster and what most applications want. `fetch_arrow` and `arrow_batches` give columns.

    Consumers with priority groups (2.11) need `group`, and take `min_pending` and
    `min_ack_pending` (overflow) or `priority` (prioritized, 2.12). A pinned client is told by the
    server and needs nothing.
    """

    def __init__(self, api: ApiClient, info: ConsumerInfo) -> None:
        super().__init__(api, info)
        self.next_subject = api.subjects.consumer_next(info.stream_name, info.name).encode()
        self._pin_ids: dict[str | None, str] = {}

    # -- one request ----------------------------------------------------------------------------

    async def fetch(
        self,
        max_messages: int | None = None,
        *,
        max_bytes: int | None = None,
        timeout: float | timedelta = 30.0,
        heartbeat: float | timedelta | None = None,
        group: str | None = None,
        min_pending: int | None = None,
        min_ack_pending: int | None = None,
        priority: int | None = None,
    ) -> FetchedMessages:
        """Get up to `max_messages`, or as many as have up to `max_bytes`.

        Returns when there are so many, or after `timeout` with those that came. If it ended early
        for a reason, that is in the `error` of the list, and raised if the list is empty.
        """
        options = self._pull_options(
            max_messages,
            max_bytes,
            timeout,
            heartbeat,
            group,
            min_pending,
            min_ack_pending,
            priority,
        )
        return await self._fetch(options)

    async def fetch_no_wait(
        self,
        max_messages: int | None = None,
        *,
        max_bytes: int | None = None,
        group: str | None = None,
        min_pending: int | None = None,
        min_ack_pending: int | None = None,
        priority: int | None = None,
    ) -> FetchedMessages:
        """Like `fetch`, with only those messages that the consumer has right now."""
        options = self._pull_options(
            max_messages, max_bytes, None, None, group, min_pending, min_ack_pending, priority
        )
        return await self._fetch(options)

    async def next(
        self,
        timeout: float | timedelta = 30.0,
        *,
        heartbeat: float | timedelta | None = None,
        group: str | None = None,
        min_pending: int | None = None,
        min_ack_pending: int | None = None,
        priority: int | None = None,
    ) -> JetStreamMessage:
        """Get one message; raises `TimeoutError` when none comes in time."""
        options = self._pull_options(
            1, None, timeout, heartbeat, group, min_pending, min_ack_pending, priority
        )
        messages = await self._fetch(options)
        if not messages:
            assert options.expires is not None
            raise TimeoutError(
                f"{self.description}: no message in {options.expires.total_seconds():g} s",
                may_have_taken_effect=False,
            )
        return messages[0]

    async def sequence(
        self, batch: int, *, timeout: float | timedelta = 30.0, group: str | None = None
    ) -> AsyncIterator[FetchedMessages]:
        """Fetch again and again; yields the batches that are not empty, without end."""
        options = self._pull_options(batch, None, timeout, None, group, None, None, None)
        while True:
            messages = await self._fetch(options)
            if messages:
                yield messages

    def _pull_options(
        self,
        max_messages: int | None,
        max_bytes: int | None,
        timeout: float | timedelta | None,
        heartbeat: float | timedelta | None,
        group: str | None,
        min_pending: int | None,
        min_ack_pending: int | None,
        priority: int | None,
    ) -> PullOptions:
        priorities = PriorityOptions(group, min_pending, min_ack_pending, priority)
        priorities.check(self.config)
        self._check_max_bytes(max_bytes)
        return PullOptions(
            max_messages=max_messages,
            max_bytes=max_bytes,
            timeout=timeout,
            heartbeat=heartbeat,
            priority=priorities,
        )

    async def _fetch(self, options: PullOptions) -> FetchedMessages:
        frames, error = await self._fetch_frames(options)
        client, no_acks = self.api.client, self.no_acks
        messages = FetchedMessages(
            [
                JetStreamMessage(subject, reply, header, data, client, None, no_acks)
                for subject, reply, header, data in frames
            ]
        )
        messages.error = error
        return messages

    async def _fetch_frames(self, options: PullOptions) -> tuple[list[Frame], JetSparkError | None]:
        return await fetch_frames(self, options)

    # -- endless --------------------------------------------------------------------------------

    def messages(
        self,
        max_messages: int | None = None,
        *,
        max_bytes: int | None = None,
        expires: float | timedelta = 30.0,
        heartbeat: float | timedelta | None = None,
        threshold_messages: int | None = None,
        threshold_bytes: int | None = None,
        stop_after: int | None = None,
        group: str | None = None,
        min_pending: int | None = None,
        min_ack_pending: int | None = None,
        priority: int | None = None,
        on_warning: WarningHandler | None = None,
    ) -> MessageStream:
        """Iterate over the messages of the consumer, without end or until `stop_after`.

        Up to `max_messages` or `max_bytes` are on order or wait locally (default: as much as makes
        up about 16 MiB, and not more than 1000 messages); more is ordered when that falls below
        the threshold (default: half). `expires` is for one request,
        during which the server shows every `heartbeat` that it is there (default: 5 seconds, or
        half of `expires`); after two of them without a sign, it is asked again.
        What goes wrong and passes is given to `on_warning`, by default to the events of the
        connection.
        """
        options = self._stream_options(
            max_messages,
            max_bytes,
            expires,
            heartbeat,
            threshold_messages,
            threshold_bytes,
            stop_after,
            PriorityOptions(group, min_pending, min_ack_pending, priority),
        )
        return self._message_stream(options, on_warning)

    def _message_stream(
        self, options: StreamOptions, on_warning: WarningHandler | None
    ) -> MessageStream:
        return MessageStream(self, options, on_warning)

    async def consume(
        self,
        callback: MessageCallback,
        *,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        expires: float | timedelta = 30.0,
        heartbeat: float | timedelta | None = None,
        threshold_messages: int | None = None,
        threshold_bytes: int | None = None,
        stop_after: int | None = None,
        group: str | None = None,
        min_pending: int | None = None,
        min_ack_pending: int | None = None,
        priority: int | None = None,
        on_warning: WarningHandler | None = None,
    ) -> Consumption:
        """Have a callback (plain or async) called with each message, one after the other.

        The options are those of `messages`. What the callback raises is reported as an event of
        the connection, and the message is not acknowledged.
        """
        stream = self.messages(
            max_messages,
            max_bytes=max_bytes,
            expires=expires,
            heartbeat=heartbeat,
            threshold_messages=threshold_messages,
            threshold_bytes=threshold_bytes,
            stop_after=stop_after,
            group=group,
            min_pending=min_pending,
            min_ack_pending=min_ack_pending,
            priority=priority,
            on_warning=on_warning,
        )
        return Consumption(stream, callback)

    def _stream_options(
        self,
        max_messages: int | None,
        max_bytes: int | None,
        expires: float | timedelta,
        heartbeat: float | timedelta | None,
        threshold_messages: int | None,
        threshold_bytes: int | None,
        stop_after: int | None,
        priority: PriorityOptions,
    ) -> StreamOptions:
        priority.check(self.config)
        self._check_max_bytes(max_bytes)
        return StreamOptions(
            max_messages=max_messages,
            max_bytes=max_bytes,
            expires=expires,
            heartbeat=heartbeat,
            threshold_messages=threshold_messages,
            threshold_bytes=threshold_bytes,
            stop_after=stop_after,
            priority=priority,
        )

    def _check_max_bytes(self, max_bytes: int | None) -> None:
        # Seen up to 2.15: a message that does not fit into the rest of a request is taken off the
        # list of those to deliver, and never comes.
        if max_bytes is not None and self.config.deliver_policy == DeliverPolicy.LAST_PER_SUBJECT:
            raise InvalidOptionError(
                f"{self.description}: with max_bytes the server loses messages of a consumer whose "
                "deliver_policy is last_per_subject; set max_messages instead"
            )

    # -- columns --------------------------------------------------------------------------------

    async def fetch_arrow(
        self,
        max_messages: int | None = None,
        *,
        max_bytes: int | None = None,
        timeout: float | timedelta = 30.0,
        heartbeat: float | timedelta | None = None,
    ) -> RecordBatch:
        """Like `fetch`, with the messages as an Arrow record batch (see `arrow_batches`)."""
        from .arrow import record_batch

        options = self._pull_options(
            max_messages, max_bytes, timeout, heartbeat, None, None, None, None
        )
        frames, _ = await self._fetch_frames(options)
        return record_batch(frames)

    def arrow_batches(
        self,
        *,
        rows: int = ARROW_ROWS,
        linger: float = 0.05,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        expires: float | timedelta = 30.0,
        heartbeat: float | timedelta | None = None,
        stop_after: int | None = None,
        on_warning: WarningHandler | None = None,
    ) -> ArrowStream:
        """Iterate over the messages as Arrow record batches of up to `rows` rows.

        The columns are `stream, subject, sequence, timestamp, headers, data`. A batch is smaller
        when the end of the stream is reached, or when `linger` seconds have passed since its first
        row. Without `max_messages` and `max_bytes`, as much is on order as makes up about 16 MiB.
        Meant for consumers without acknowledgements.
        """
        options = self._stream_options(
            max_messages,
            max_bytes,
            expires,
            heartbeat,
            None,
            None,
            stop_after,
            PriorityOptions(),
        )
        return self._arrow_stream(options, on_warning, rows, linger)

    def _arrow_stream(
        self,
        options: StreamOptions,
        on_warning: WarningHandler | None,
        rows: int,
        linger: float,
    ) -> ArrowStream:
        from .arrow import ArrowStream

        return ArrowStream(self, options, on_warning, rows=rows, linger=linger)

    # -- for the engines ------------------------------------------------------------------------

    @property
    def pinned(self) -> bool:
        """Whether the server pins one client of the group."""
        return self.config.priority_policy == PriorityPolicy.PINNED_CLIENT

    def pin_id(self, group: str | None) -> str | None:
        """The id by which the server knows this client as the pinned one."""
        return self._pin_ids.get(group)

    def pin(self, group: str | None, pin_id: str | None) -> None:
        """Remember that this client is pinned; an empty id says nothing."""
        if pin_id:
            self._pin_ids[group] = pin_id

    def unpin(self, group: str | None) -> None:
        """Forget it."""
        self._pin_ids.pop(group, None)

    def give_back(self, frames: Iterable[Frame]) -> None:
        """Have the server deliver again at once what nobody will see."""
        client = self.api.client
        if self.no_acks or not client.connected:
            return
        for frame in frames:
            if frame[1] is not None:
                client._encoder.publish_trusted(frame[1], AckKind.NAK.value)
