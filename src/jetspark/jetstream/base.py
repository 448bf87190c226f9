"""What the parts of the JetStream context have in common."""

from __future__ import annotations

from jetspark.connection import Client

from .api import ApiClient
from .subjects import API

__all__ = ["ContextBase"]


class ContextBase:
    """A connection and the JetStream API behind it."""

    def __init__(
        self,
        client: Client,
        *,
        domain: str | None = None,
        prefix: str | None = None,
        timeout: float = 5.0,
        strict: bool = False,
    ) -> None:
        self.client = client
        self.api = ApiClient(
            client, API(prefix=prefix, domain=domain), timeout=timeout, strict=strict
        )
