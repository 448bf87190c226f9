"""The JetStream context: everything that an application does with JetStream begins here.

Its parts are in modules of their own: streams and consumers (`management`), publishing
(`publisher`), and the older way to subscribe (`subscribe`).
"""

from __future__ import annotations

from jetspark.connection import Client

from .publisher import Publisher
from .subscribe import Subscriber

__all__ = ["JetStream"]


class JetStream(Subscriber, Publisher):
    """JetStream over one connection, made by `Client.jetstream`."""

    def __init__(
        self,
        client: Client,
        *,
        domain: str | None = None,
        prefix: str | None = None,
        timeout: float = 5.0,
        max_ack_pending: int = 4000,
        backpressure: bool = True,
        strict: bool = False,
    ) -> None:
        super().__init__(
            client,
            domain=domain,
            prefix=prefix,
            timeout=timeout,
            max_ack_pending=max_ack_pending,
            backpressure=backpressure,
            strict=strict,
        )
