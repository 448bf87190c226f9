"""The older way to consume: `subscribe` and `pull_subscribe` find or create the consumer (ADR-15).

New code creates its consumer first and reads from that, which leaves less to guess. What may be
asked for, and which consumers suit it, is checked in `subscribe_checks`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from jetspark.connection.nuid import next_nuid
from jetspark.errors import (
    ConsumerNameInUseError,
    ConsumerNotFoundError,
    JetStreamNotEnabledError,
    PermissionsError,
    TimeoutError,
)

from .consumer import OrderedPushConsumer, PullConsumer, PushConsumer
from .consumer.messages import MessageCallback, WarningHandler
from .consumer.ordered_push import OrderedPushSubscription
from .consumer.push_feed import PushSubscription
from .consumer_config import ConsumerConfig
from .consumer_info import ConsumerInfo
from .management import StreamManager
from .pull_subscription import PullSubscription
from .subscribe_checks import Wanted, check_found, ordered_fields, wanted_pull, wanted_push

__all__ = ["Subscriber"]


class Subscriber(StreamManager):
    """Subscribes to streams by subject."""

    async def subscribe(
        self,
        subject: str | None = None,
        *,
        queue: str | None = None,
        durable: str | None = None,
        stream: str | None = None,
        consumer: str | None = None,
        bind: bool = False,
        ordered: bool = False,
        config: ConsumerConfig | None = None,
        callback: MessageCallback | None = None,
        manual_ack: bool = False,
        pending_messages: int | None = None,
        pending_bytes: int | None = None,
        on_warning: WarningHandler | None = None,
        **fields: Any,
    ) -> PushSubscription:
        """Subscribe to a subject of a stream with a push consumer.

        The consumer called `consumer` must exist; so must the one called `durable` with `bind`,
        and is created otherwise. Without a name, a consumer is created for this subscription.
        One that was created is deleted by `unsubscribe` and after `drain`. The members of a
        `queue` share a consumer, by default one with the name of the queue. With `ordered`, the
        messages come in order and without gaps, and need no acknowledgement.

        A callback is called with each message, one after the other, and the message is then
        acknowledged, unless it raised or `manual_ack` is set. Without a callback, iterate.

        `config` and further fields of it by name are for a consumer that is created; one that
        exists must agree with what is set there.
        """
        wanted = wanted_push(
            subject,
            queue=queue,
            durable=durable,
            stream=stream,
            consumer=consumer,
            bind=bind,
            config=config,
            fields=fields,
        )
        if ordered:
            return await self._subscribe_ordered(wanted, callback, on_warning)

        def make(info: ConsumerInfo, owns_consumer: bool) -> PushSubscription:
            subscription = PushSubscription(
                PushConsumer(self.api, info),
                callback=callback,
                auto_ack=not manual_ack,
                on_warning=on_warning,
                pending_messages=pending_messages,
                pending_bytes=pending_bytes,
                owns_consumer=owns_consumer,
            )
            subscription._start()
            return subscription

        wanted = await self._with_stream(wanted)
        info = await self._find(wanted)
        if info is None:
            return await self._subscribe_new(wanted, make)
        check_found(wanted, info)
        return make(info, False)

    async def pull_subscribe(
        self,
        subject: str | None = None,
        *,
        durable: str | None = None,
        stream: str | None = None,
        consumer: str | None = None,
        bind: bool = False,
        config: ConsumerConfig | None = None,
        **fields: Any,
    ) -> PullSubscription:
        """Subscribe to a subject of a stream with a pull consumer, to `fetch` from it.

        The consumer is found or created as by `subscribe`.
        """
        wanted = wanted_pull(
            subject,
            durable=durable,
            stream=stream,
            consumer=consumer,
            bind=bind,
            config=config,
            fields=fields,
        )
        wanted = await self._with_stream(wanted)
        try:
            info = await self._find(wanted)
        except (JetStreamNotEnabledError, PermissionsError, TimeoutError):
            if not wanted.bind:
                raise
            # Whoever may pull need not be allowed to look.
            return PullSubscription(PullConsumer(self.api, _expected(wanted)), owns_consumer=False)
        if info is not None:
            check_found(wanted, info)
            return PullSubscription(PullConsumer(self.api, info), owns_consumer=False)
        expected = _expected(wanted)
        try:
            created = await self.create_consumer(expected.stream_name, expected.config)
        except ConsumerNameInUseError:  # someone else was faster
            info = await self._consumer_info(expected.stream_name, expected.name)
            check_found(wanted, info)
            return PullSubscription(PullConsumer(self.api, info), owns_consumer=False)
        return PullSubscription(PullConsumer(self.api, created.cached_info), owns_consumer=True)

    async def _with_stream(self, wanted: Wanted) -> Wanted:
        if wanted.stream is not None:
            return wanted
        return replace(wanted, stream=await self.stream_name_by_subject(wanted.subject))

    async def _find(self, wanted: Wanted) -> ConsumerInfo | None:
        """The consumer if it exists; None if it is to be created."""
        if wanted.name is None:
            return None
        assert wanted.stream is not None
        try:
            return await self._consumer_info(wanted.stream, wanted.name)
        except ConsumerNotFoundError:
            if wanted.bind:
                raise
            return None

    async def _subscribe_new(
        self, wanted: Wanted, make: Callable[[ConsumerInfo, bool], PushSubscription]
    ) -> PushSubscription:
        expected = _expected(wanted, self.client.new_inbox())
        expected.config.validate()
        # The server must see that somebody listens: so it knows that a durable is in use.
        subscription = make(expected, True)
        try:
            created = await self.create_consumer(expected.stream_name, expected.config)
        except BaseException as error:
            subscription._owns_consumer = False
            await subscription.unsubscribe()
            if not isinstance(error, ConsumerNameInUseError):
                raise
        else:
            subscription.consumer.cached_info = created.cached_info
            return subscription
        # Someone else was faster.
        info = await self._consumer_info(expected.stream_name, expected.name)
        check_found(wanted, info)
        return make(info, False)

    async def _subscribe_ordered(
        self,
        wanted: Wanted,
        callback: MessageCallback | None,
        on_warning: WarningHandler | None,
    ) -> PushSubscription:
        fields = ordered_fields(wanted)
        stream = (await self._with_stream(wanted)).stream
        assert stream is not None
        consumer = await OrderedPushConsumer.create(self, stream, **fields)
        subscription = OrderedPushSubscription(consumer, callback=callback, on_warning=on_warning)
        subscription._start()
        return subscription


def _expected(wanted: Wanted, inbox: str = "") -> ConsumerInfo:
    """What is known of a consumer before the server has said anything about it."""
    assert wanted.stream is not None
    name = wanted.name or next_nuid()[-8:]
    config = wanted.config.replace(name=name)
    if inbox and not config.deliver_subject:
        config = config.replace(deliver_subject=inbox)
    return ConsumerInfo(stream_name=wanted.stream, name=name, config=config)
