"""Push consumers: the server delivers to a subject, as fast as flow control allows."""

from __future__ import annotations

from .base import Consumer
from .messages import Consumption, MessageCallback, WarningHandler
from .push_feed import PushSubscription

__all__ = ["PushConsumer"]


class PushConsumer(Consumer):
    """A consumer that the server pushes messages from.

    Everybody who listens gets all messages, except with a `deliver_group`, whose members share
    them. What the application has not taken yet waits locally: up to some megabytes if the
    consumer has `flow_control`; without, up to `pending_messages` and `pending_bytes` (those of
    the connection by default), and then newly arriving ones are dropped and counted.
    """

    def messages(
        self,
        *,
        stop_after: int | None = None,
        pending_messages: int | None = None,
        pending_bytes: int | None = None,
        on_warning: WarningHandler | None = None,
    ) -> PushSubscription:
        """Iterate over the messages that the server pushes, without end or until `stop_after`.

        What goes wrong and passes is given to `on_warning`, by default to the events of the
        connection.
        """
        return PushSubscription(
            self,
            stop_after=stop_after,
            pending_messages=pending_messages,
            pending_bytes=pending_bytes,
            on_warning=on_warning,
        )

    async def consume(
        self,
        callback: MessageCallback,
        *,
        stop_after: int | None = None,
        pending_messages: int | None = None,
        pending_bytes: int | None = None,
        on_warning: WarningHandler | None = None,
    ) -> Consumption:
        """Have a callback (plain or async) called with each message, one after the other.

        The options are those of `messages`. What the callback raises is reported as an event of
        the connection, and the message is not acknowledged.
        """
        subscription = self.messages(
            stop_after=stop_after,
            pending_messages=pending_messages,
            pending_bytes=pending_bytes,
            on_warning=on_warning,
        )
        return Consumption(subscription, callback)
