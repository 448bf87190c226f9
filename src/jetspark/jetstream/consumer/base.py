"""What every consumer has: a name, a configuration, and its state on the server."""

from __future__ import annotations

from jetspark.jetstream.api import ApiClient
from jetspark.jetstream.consumer_config import AckPolicy, ConsumerConfig
from jetspark.jetstream.consumer_info import ConsumerInfo

__all__ = ["Consumer"]


class Consumer:
    """A consumer on the server; how messages are got from it is up to the subclasses."""

    def __init__(self, api: ApiClient, info: ConsumerInfo) -> None:
        self.api = api
        self.cached_info = info
        """What the server said when it was last asked."""

    @property
    def name(self) -> str:
        """The name of the consumer."""
        return self.cached_info.name

    @property
    def stream_name(self) -> str:
        """The name of its stream."""
        return self.cached_info.stream_name

    @property
    def config(self) -> ConsumerConfig:
        """Its configuration, as of the last info."""
        return self.cached_info.config

    @property
    def no_acks(self) -> bool:
        """Whether messages need no acknowledgement."""
        return self.config.ack_policy == AckPolicy.NONE

    @property
    def description(self) -> str:
        """How error messages call it."""
        return f"consumer {self.name!r} of stream {self.stream_name!r}"

    async def info(self) -> ConsumerInfo:
        """Ask the server for the state of the consumer."""
        self.cached_info = await self._fetch_info()
        return self.cached_info

    async def _fetch_info(self) -> ConsumerInfo:
        return await self.api.fetch(
            ConsumerInfo,
            self.api.subjects.consumer_info(self.stream_name, self.name),
            context=f"{self.description}: info",
            idempotent=True,
        )

    async def delete(self) -> None:
        """Delete the consumer on the server."""
        await self.api.succeed(
            self.api.subjects.consumer_delete(self.stream_name, self.name),
            context=f"{self.description}: delete",
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of stream {self.stream_name!r}>"
