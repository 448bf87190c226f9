"""The calls that manage the consumers of a stream; how messages are got is in `consumer`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, overload

from jetspark.connection.nuid import next_nuid
from jetspark.errors import (
    ConsumerExistsError,
    ConsumerNameInUseError,
    ConsumerNotFoundError,
    InvalidOptionError,
    NotPullConsumerError,
    NotPushConsumerError,
)

from .api import ApiClient
from .base import ContextBase
from .checks import UINT64, check_range
from .codec import to_timedelta
from .consumer import PullConsumer, PushConsumer, consumer_from_info
from .consumer_config import ConsumerConfig
from .consumer_info import ConsumerInfo, ConsumerPause
from .features import API_LEVELS, api_level, configure, not_supported, send_config
from .listing import list_infos, list_names
from .names import check_priority_group

__all__ = ["ConsumerManager"]

_GENERATED_NAME = 8  # characters, as many as a server gives


class ConsumerManager(ContextBase):
    """Creates, finds and controls consumers.

    A configuration is given as a `ConsumerConfig`, as its fields by name, or as both: the fields
    then change those of the object. One that has no name gets one. With a `deliver_subject` it is
    a `PushConsumer`, without a `PullConsumer`; a type checker knows which where no object is given.
    """

    @overload
    async def create_consumer(
        self, stream: str, *, deliver_subject: str, **fields: Any
    ) -> PushConsumer: ...

    @overload
    async def create_consumer(self, stream: str, **fields: Any) -> PullConsumer: ...

    @overload
    async def create_consumer(
        self, stream: str, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer: ...

    async def create_consumer(
        self, stream: str, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer:
        """Create a consumer; one that exists with the same configuration is returned.

        Raises `ConsumerExistsError` if it exists with another one.
        """
        return await self._send_consumer(
            stream, configure(ConsumerConfig, config, fields), "create"
        )

    @overload
    async def update_consumer(
        self, stream: str, *, deliver_subject: str, **fields: Any
    ) -> PushConsumer: ...

    @overload
    async def update_consumer(self, stream: str, **fields: Any) -> PullConsumer: ...

    @overload
    async def update_consumer(
        self, stream: str, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer: ...

    async def update_consumer(
        self, stream: str, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer:
        """Change a consumer: the configuration replaces the present one as a whole.

        Raises `ConsumerDoesNotExistError` if there is none of that name, and
        `ConsumerCreateError` for a change that the server does not allow.
        """
        config = configure(ConsumerConfig, config, fields)
        if not (config.name or config.durable_name):
            raise InvalidOptionError("name is not set; say which consumer to update")
        return await self._send_consumer(stream, config, "update")

    @overload
    async def create_or_update_consumer(
        self, stream: str, *, deliver_subject: str, **fields: Any
    ) -> PushConsumer: ...

    @overload
    async def create_or_update_consumer(self, stream: str, **fields: Any) -> PullConsumer: ...

    @overload
    async def create_or_update_consumer(
        self, stream: str, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer: ...

    async def create_or_update_consumer(
        self, stream: str, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer:
        """Create a consumer, or replace the configuration of the one of that name."""
        return await self._send_consumer(stream, configure(ConsumerConfig, config, fields), None)

    @overload
    async def get_consumer(
        self, stream: str, name: str, *, push: Literal[False] = False
    ) -> PullConsumer: ...

    @overload
    async def get_consumer(
        self, stream: str, name: str, *, push: Literal[True]
    ) -> PushConsumer: ...

    async def get_consumer(
        self, stream: str, name: str, *, push: bool = False
    ) -> PullConsumer | PushConsumer:
        """The consumer of that name, which pulls, or with `push` one that pushes.

        Raises `ConsumerNotFoundError` if there is none, and `NotPullConsumerError` or
        `NotPushConsumerError` if it is of the other kind.
        """
        return await self._get_consumer(stream, name, push)

    @overload
    async def get_or_create_consumer(
        self, stream: str, *, deliver_subject: str, **fields: Any
    ) -> PushConsumer: ...

    @overload
    async def get_or_create_consumer(self, stream: str, **fields: Any) -> PullConsumer: ...

    @overload
    async def get_or_create_consumer(
        self, stream: str, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer: ...

    async def get_or_create_consumer(
        self, stream: str, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer:
        """The consumer of that name as it is, or a new one with this configuration.

        Raises `NotPullConsumerError` or `NotPushConsumerError` if it is of the other kind.
        """
        config = configure(ConsumerConfig, config, fields)
        name = config.name or config.durable_name
        if not name:
            return await self._send_consumer(stream, config, "create")
        config.validate()
        push = bool(config.deliver_subject)
        try:
            return await self._get_consumer(stream, name, push)
        except ConsumerNotFoundError:
            pass
        try:
            return await self._send_consumer(stream, config, "create")
        except ConsumerNameInUseError:  # someone else was faster
            return await self._get_consumer(stream, name, push)

    async def delete_consumer(self, stream: str, name: str) -> None:
        """Delete a consumer; raises `ConsumerNotFoundError` if there is none."""
        await self.api.succeed(
            self.api.subjects.consumer_delete(stream, name),
            context=_context(stream, name, "delete"),
        )

    async def consumers(self, stream: str) -> AsyncIterator[PullConsumer | PushConsumer]:
        """Iterate over the consumers of a stream, in the order of their names.

        Raises `OfflineError` at the end if some do not answer; `consumer_names` has them.
        """
        subjects = self.api.subjects
        infos = list_infos(
            self.api,
            ConsumerInfo,
            subjects.consumer_list(stream),
            "consumers",
            lambda name: subjects.consumer_info(stream, name),
            context=f"stream {stream!r}: list consumers",
        )
        async for info in infos:
            yield consumer_from_info(self.api, info)

    async def consumer_names(self, stream: str) -> AsyncIterator[str]:
        """Iterate over the names of the consumers of a stream, in order."""
        names = list_names(
            self.api,
            self.api.subjects.consumer_names(stream),
            "consumers",
            context=f"stream {stream!r}: names of consumers",
        )
        async for name in names:
            yield name

    async def pause_consumer(
        self, stream: str, name: str, until: datetime | timedelta | float
    ) -> ConsumerPause:
        """Have a consumer deliver nothing until a time, or for so many seconds (2.11)."""
        if not isinstance(until, datetime):
            try:
                until = datetime.now(UTC) + to_timedelta(until)
            except (TypeError, ValueError, OverflowError) as error:
                raise InvalidOptionError(f"until: {error}") from None
        if until.tzinfo is None:
            raise InvalidOptionError(f"until must have a tzinfo, not {until!r}")
        return await self._pause(stream, name, {"pause_until": until}, "pause")

    async def resume_consumer(self, stream: str, name: str) -> ConsumerPause:
        """Let a paused consumer go on (2.11)."""
        return await self._pause(stream, name, None, "resume")

    async def unpin_consumer(self, stream: str, name: str, group: str) -> None:
        """Unpin the client that a priority group is pinned to, so that another one gets its turn.

        Raises `InvalidConsumerConfigError` if the consumer has no such group (2.11).
        """
        check_priority_group(group)
        context = _context(stream, name, "unpin")
        await self._require_level(stream, name, 1, context)
        await self.api.request(
            self.api.subjects.consumer_unpin(stream, name), {"group": group}, context=context
        )

    async def reset_consumer(self, stream: str, name: str, seq: int | None = None) -> ConsumerInfo:
        """Have a consumer begin again at a sequence, or at its first unacknowledged message.

        What was delivered and not acknowledged counts as new (2.14). Raises `ConsumerResetError`
        if the deliver policy of the consumer does not allow the sequence.
        """
        if seq is not None:
            check_range("seq", seq, 1, UINT64)
        context = _context(stream, name, "reset")
        # A server says nothing at all about a consumer that does not exist.
        await self._require_level(stream, name, 4, context)
        return await self.api.fetch(
            ConsumerInfo,
            self.api.subjects.consumer_reset(stream, name),
            None if seq is None else {"seq": seq},
            context=context,
        )

    async def _get_consumer(
        self, stream: str, name: str, push: bool
    ) -> PullConsumer | PushConsumer:
        consumer = consumer_from_info(self.api, await self._consumer_info(stream, name))
        if isinstance(consumer, PushConsumer) == push:
            return consumer
        if push:
            raise NotPushConsumerError(f"{consumer.description} pulls: get it without push=True")
        raise NotPullConsumerError(f"{consumer.description} pushes: get it with push=True")

    async def _consumer_info(self, stream: str, name: str) -> ConsumerInfo:
        return await self.api.fetch(
            ConsumerInfo,
            self.api.subjects.consumer_info(stream, name),
            context=_context(stream, name, "info"),
            idempotent=True,
        )

    async def _require_level(self, stream: str, name: str, level: int, context: str) -> None:
        """Refuse what an old server would not even answer."""
        info = await self._consumer_info(stream, name)
        if api_level(info.config.metadata) < level:
            version = info.config.metadata.get("_nats.ver")
            what = f"this needs a server of version {API_LEVELS[level]}"
            raise not_supported(self.api, context, what, version)

    async def _pause(
        self, stream: str, name: str, body: dict[str, Any] | None, verb: str
    ) -> ConsumerPause:
        context = _context(stream, name, verb)
        await self._require_level(stream, name, 1, context)
        subject = self.api.subjects.consumer_pause(stream, name)
        return await self.api.fetch(ConsumerPause, subject, body, context=context, idempotent=True)

    async def _send_consumer(
        self, stream: str, config: ConsumerConfig, action: Literal["create", "update"] | None
    ) -> PullConsumer | PushConsumer:
        config.validate()
        # The name is ours from the start, so that a request that is repeated makes no second one.
        name = config.name or config.durable_name or next_nuid()[-_GENERATED_NAME:]
        config = config.replace(name=name)
        if len(config.filter_subjects) == 1:
            config = config.replace(filter_subject=config.filter_subjects[0], filter_subjects=[])
        subject = _create_subject(self.api, stream, name, config.filter_subject)
        body = {"stream_name": stream, "config": config.to_wire(), "action": action}
        context = _context(stream, name, action or "create or update")
        try:
            info = await send_config(self.api, ConsumerInfo, subject, body, context=context)
        except ConsumerExistsError:
            # A server sets the threshold of an ephemeral consumer, and then takes the same request
            # for another consumer. It is repeated with what the server has set.
            if config.durable_name or config.inactive_threshold:
                raise
            threshold = (await self._consumer_info(stream, name)).config.inactive_threshold
            if not threshold:
                raise
            config = config.replace(inactive_threshold=threshold)
            return await self._send_consumer(stream, config, action)
        return consumer_from_info(self.api, info)


def _context(stream: str, consumer: str, verb: str) -> str:
    return f"consumer {consumer!r} of stream {stream!r}: {verb}"


def _create_subject(api: ApiClient, stream: str, name: str, filter_subject: str) -> str:
    """Where to ask for a consumer: with its filter, which permissions can then see."""
    plain = api.subjects.consumer_create(stream, name)
    if not filter_subject:
        return plain
    subject = api.subjects.consumer_create(stream, name, filter_subject)
    return subject if api.client._encoder.trust_subject(subject) else plain
