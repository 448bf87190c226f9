"""The JetStream context: everything that an application does with JetStream begins here.

Its parts are in modules of their own: streams and consumers (`jetstream.management`), publishing
(`jetstream.publisher`), the older way to subscribe (`jetstream.subscribe`), key-value buckets
(`kv.management`) and object stores (`objects.management`).
"""

from __future__ import annotations

from jetspark.connection import Client
from jetspark.jetstream import Publisher, Subscriber
from jetspark.kv import KeyValues
from jetspark.objects import ObjectStores

__all__ = ["JetStream"]


class JetStream(KeyValues, ObjectStores, Subscriber, Publisher):
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
