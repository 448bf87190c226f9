"""A stream on the server: its state, its messages and its consumers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, Unpack, overload

from jetspark.errors import InvalidOptionError, InvalidResponseError

from .api import ApiClient
from .checks import INT64, UINT64, check_filter, check_literal, check_range
from .consumer import (
    OrderedConsumer,
    OrderedOptions,
    OrderedPushConsumer,
    PullConsumer,
    PushConsumer,
)
from .consumer_config import ConsumerConfig
from .consumer_info import ConsumerInfo, ConsumerPause
from .consumer_management import ConsumerManager
from .counters import CounterValue, counter_value
from .features import configure, send_config
from .reading import SUBJECTS_AT_A_TIME, StreamReader
from .stream_config import StreamConfig
from .stream_info import StreamInfo

__all__ = ["Stream", "purge", "subjects_since"]


class Stream(StreamReader):
    """A stream, made by the calls of the context; `cached_info` is what was last heard of it.

    >>> stream = await js.create_stream(name="ORDERS", subjects=["orders.>"])  # doctest: +SKIP
    >>> (await stream.get_last_message("orders.new")).data  # doctest: +SKIP
    b'...'
    """

    def __init__(self, context: ConsumerManager, info: StreamInfo) -> None:
        super().__init__(context.api, info.config.name)
        self._context = context
        self.cached_info = info
        """What the server said when it was last asked."""

    @property
    def config(self) -> StreamConfig:
        """Its configuration, as of the last info."""
        return self.cached_info.config

    def __repr__(self) -> str:
        return f"<Stream {self.name!r}>"

    # -- the stream itself ----------------------------------------------------------------------

    async def info(
        self, *, subjects_filter: str | None = None, deleted_details: bool = False
    ) -> StreamInfo:
        """Ask the server for the state of the stream.

        With a `subjects_filter` (`>` is all), `state.subjects` has the number of messages of each
        subject that matches; with `deleted_details`, `state.deleted` the deleted sequences.
        """
        body: dict[str, Any] = {"deleted_details": deleted_details or None}
        endpoint = self.api.subjects.stream_info(self.name)
        context = f"stream {self.name!r}: info"
        if subjects_filter is None:
            response = await self.api.request(endpoint, body, context=context, idempotent=True)
        else:
            check_filter("subjects_filter", subjects_filter)
            body["subjects_filter"] = subjects_filter
            pages = self.api.pages(endpoint, _subjects, body, context=context)
            response, _ = await anext(pages)
            async for page, _ in pages:  # a server lists 100,000 subjects at a time
                _subjects(response).update(_subjects(page))
        self.cached_info = self.api.decode(StreamInfo, response)
        return self.cached_info

    async def update(self, config: StreamConfig | None = None, **fields: Any) -> StreamInfo:
        """Change the configuration: as a whole, or some fields of the present one.

        >>> await stream.update(max_age=3600, max_msgs=1_000_000)  # doctest: +SKIP
        """
        if config is None:
            config = (await self.info()).config
        config = configure(StreamConfig, config, fields)
        if config.name != self.name:
            raise InvalidOptionError(
                f"name: the stream {self.name!r} cannot become {config.name!r}"
            )
        config.validate()
        self.cached_info = await send_config(
            self.api,
            StreamInfo,
            self.api.subjects.stream_update(self.name),
            config.to_wire(),
            context=f"stream {self.name!r}: update",
        )
        return self.cached_info

    async def seal(self) -> StreamInfo:
        """Forbid every change of the messages, for ever."""
        return await self.update(sealed=True)

    async def purge(
        self,
        *,
        subject: str | None = None,
        sequence: int | None = None,
        keep: int | None = None,
    ) -> int:
        """Remove messages and return how many.

        All of them, or those of a `subject` (which may have wildcards); of these, those before a
        `sequence`, or all but the newest `keep`.
        """
        return await purge(self.api, self.name, subject, sequence, keep)

    async def delete(self) -> None:
        """Delete the stream with its messages and consumers."""
        await self.api.succeed(
            self.api.subjects.stream_delete(self.name), context=f"stream {self.name!r}: delete"
        )

    # -- messages; reading is in the base class --------------------------------------------------

    async def delete_message(self, seq: int, *, secure: bool = False) -> None:
        """Delete a message; `secure` overwrites it with random bytes first, which is slower.

        Raises `MessageNotFoundError` or `MessageDeleteError`.
        """
        check_range("seq", seq, 1, UINT64)
        await self.api.succeed(
            self.api.subjects.stream_message_delete(self.name),
            # A server that is told nothing erases securely.
            {"seq": seq, "no_erase": None if secure else True},
            context=f"stream {self.name!r}: delete message {seq}",
        )

    async def get_counter(self, subject: str) -> CounterValue:
        """The value of a counter (2.12); raises `MessageNotFoundError` if it was never counted."""
        check_literal("subject", subject)
        read = self.direct_get_last if self.config.allow_direct else self.get_last_message
        return counter_value(await read(subject))

    async def get_counters(self, subjects: str | Sequence[str]) -> AsyncIterator[CounterValue]:
        """Iterate over the values of the counters that match (2.12); needs `allow_direct`."""
        subjects = [subjects] if isinstance(subjects, str) else list(subjects)
        for start in range(0, len(subjects), SUBJECTS_AT_A_TIME):
            # Not all from one moment: counters that go on by then would be left out.
            async for message in self.direct_get_last_many(
                subjects[start : start + SUBJECTS_AT_A_TIME]
            ):
                yield counter_value(message)

    # -- consumers ------------------------------------------------------------------------------

    @overload
    async def create_consumer(self, *, deliver_subject: str, **fields: Any) -> PushConsumer: ...

    @overload
    async def create_consumer(self, **fields: Any) -> PullConsumer: ...

    @overload
    async def create_consumer(
        self, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer: ...

    async def create_consumer(
        self, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer:
        """Create a consumer; one that exists with the same configuration is returned.

        Raises `ConsumerExistsError` if it exists with another one.
        """
        return await self._context.create_consumer(
            self.name, configure(ConsumerConfig, config, fields)
        )

    @overload
    async def update_consumer(self, *, deliver_subject: str, **fields: Any) -> PushConsumer: ...

    @overload
    async def update_consumer(self, **fields: Any) -> PullConsumer: ...

    @overload
    async def update_consumer(
        self, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer: ...

    async def update_consumer(
        self, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer:
        """Change a consumer: the configuration replaces the present one as a whole."""
        return await self._context.update_consumer(
            self.name, configure(ConsumerConfig, config, fields)
        )

    @overload
    async def create_or_update_consumer(
        self, *, deliver_subject: str, **fields: Any
    ) -> PushConsumer: ...

    @overload
    async def create_or_update_consumer(self, **fields: Any) -> PullConsumer: ...

    @overload
    async def create_or_update_consumer(
        self, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer: ...

    async def create_or_update_consumer(
        self, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer:
        """Create a consumer, or replace the configuration of the one of that name."""
        return await self._context.create_or_update_consumer(
            self.name, configure(ConsumerConfig, config, fields)
        )

    @overload
    async def get_consumer(self, name: str, *, push: Literal[False] = False) -> PullConsumer: ...

    @overload
    async def get_consumer(self, name: str, *, push: Literal[True]) -> PushConsumer: ...

    async def get_consumer(self, name: str, *, push: bool = False) -> PullConsumer | PushConsumer:
        """The consumer of that name, which pulls, or with `push` one that pushes.

        Raises `ConsumerNotFoundError` if there is none, and `NotPullConsumerError` or
        `NotPushConsumerError` if it is of the other kind.
        """
        return await self._context._get_consumer(self.name, name, push)

    @overload
    async def get_or_create_consumer(
        self, *, deliver_subject: str, **fields: Any
    ) -> PushConsumer: ...

    @overload
    async def get_or_create_consumer(self, **fields: Any) -> PullConsumer: ...

    @overload
    async def get_or_create_consumer(
        self, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer: ...

    async def get_or_create_consumer(
        self, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer:
        """The consumer of that name as it is, or a new one with this configuration."""
        return await self._context.get_or_create_consumer(
            self.name, configure(ConsumerConfig, config, fields)
        )

    async def delete_consumer(self, name: str) -> None:
        """Delete a consumer."""
        await self._context.delete_consumer(self.name, name)

    def consumers(self) -> AsyncIterator[PullConsumer | PushConsumer]:
        """Iterate over the consumers, in the order of their names."""
        return self._context.consumers(self.name)

    def consumer_names(self) -> AsyncIterator[str]:
        """Iterate over the names of the consumers, in order."""
        return self._context.consumer_names(self.name)

    async def pause_consumer(self, name: str, until: datetime | timedelta | float) -> ConsumerPause:
        """Have a consumer deliver nothing until a time, or for so many seconds (2.11)."""
        return await self._context.pause_consumer(self.name, name, until)

    async def resume_consumer(self, name: str) -> ConsumerPause:
        """Let a paused consumer go on (2.11)."""
        return await self._context.resume_consumer(self.name, name)

    async def unpin_consumer(self, name: str, group: str) -> None:
        """Unpin the client that a priority group is pinned to (2.11)."""
        await self._context.unpin_consumer(self.name, name, group)

    async def reset_consumer(self, name: str, seq: int | None = None) -> ConsumerInfo:
        """Have a consumer begin again at a sequence, or at its first unacknowledged message."""
        return await self._context.reset_consumer(self.name, name, seq)

    @overload
    async def ordered_consumer(
        self, *, push: Literal[False] = False, **options: Unpack[OrderedOptions]
    ) -> OrderedConsumer: ...

    @overload
    async def ordered_consumer(
        self, *, push: Literal[True], **options: Unpack[OrderedOptions]
    ) -> OrderedPushConsumer: ...

    async def ordered_consumer(
        self, *, push: bool = False, **options: Unpack[OrderedOptions]
    ) -> OrderedConsumer | OrderedPushConsumer:
        """Create a consumer that delivers each message once and in order, whatever gets lost.

        It pulls, or with `push` has the server push. See `OrderedOptions` for what can be set.
        """
        kind = OrderedPushConsumer if push else OrderedConsumer
        return await kind.create(self._context, self.name, **options)


def _subjects(response: dict[str, Any]) -> dict[str, int]:
    subjects: dict[str, int] = (response.get("state") or {}).get("subjects") or {}
    return subjects


async def subjects_since(stream: Stream, filters: Iterable[str], last: int) -> set[str]:
    """The subjects that match, if anything has come after a sequence; else none.

    For whoever reads the last message of each subject with a consumer. It passes over a message
    that is replaced before its turn, and the new one may come after as many as were counted at the
    beginning, or when nothing seemed to be pending. So if `stream` was looked up after the last
    one had come, only these subjects can have been missed. They are from the leader.
    """
    subjects: set[str] = set()
    if stream.cached_info.state.last_seq > last:
        for pattern in filters:
            if "*" in pattern or ">" in pattern:
                subjects.update((await stream.info(subjects_filter=pattern)).state.subjects)
            else:
                subjects.add(pattern)
    return subjects


async def purge(
    api: ApiClient, name: str, subject: str | None, sequence: int | None, keep: int | None
) -> int:
    """Remove messages from a stream and return how many."""
    if subject is not None:
        check_filter("subject", subject)
    if sequence is not None:
        # 0 would be no limit to a server, and the stream empty.
        check_range("sequence", sequence, 1, UINT64)
        if keep is not None:
            raise InvalidOptionError("set sequence or keep, not both")
    if keep is not None:
        check_range("keep", keep, 0, INT64)
    response = await api.succeed(
        api.subjects.stream_purge(name),
        {"filter": subject, "seq": sequence, "keep": keep or None},
        context=f"stream {name!r}: purge",
    )
    purged = response.get("purged", 0)
    if not isinstance(purged, int):
        raise InvalidResponseError(f"stream {name!r}: purge: not a count: {purged!r}")
    return purged
