"""The client that applications use: core NATS, and the way into JetStream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetspark.connection import Client as CoreClient
from jetspark.connection import ConnectOptions, connector

if TYPE_CHECKING:
    from jetspark.context import JetStream

__all__ = ["Client", "connect"]


class Client(CoreClient):
    """A connection to a NATS system, made by `connect`."""

    def jetstream(
        self,
        *,
        domain: str | None = None,
        prefix: str | None = None,
        timeout: float = 5.0,
        max_ack_pending: int = 4000,
        backpressure: bool = True,
        strict: bool = False,
    ) -> JetStream:
        """The JetStream of the account, of a `domain`, or behind an API `prefix`.

        `timeout` is for each request, in seconds. Up to `max_ack_pending` messages of
        `publish_async` may wait for their acknowledgement; then `publish_async` waits
        (`backpressure`) or raises `PublishStalledError`. With `strict`, fields that this version
        does not know are errors (for tests).
        """
        from jetspark.context import JetStream  # when it is first used, see __init__.py

        return JetStream(
            self,
            domain=domain,
            prefix=prefix,
            timeout=timeout,
            max_ack_pending=max_ack_pending,
            backpressure=backpressure,
            strict=strict,
        )


connect = connector(Client, ConnectOptions)
