"""Helpers for tests of buckets: new ones, watchers in the background, and puts without loss."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from jetspark import Backoff, Client, KeyValue, KeyValueEntry, connect
from jetspark.connection.nuid import next_nuid
from jetspark.errors import JetSparkError, KeyExistsError
from tests.support.leaks import until

__all__ = ["Watching", "bucket_on", "connected", "listed", "new_bucket", "put_all", "stream_name"]

T = TypeVar("T")

FAST: dict[str, Any] = {"reconnect_delay": Backoff(initial=0.01, maximum=0.1)}


@asynccontextmanager
async def connected(urls: str | list[str], **options: Any) -> AsyncIterator[Client]:
    """A client that reconnects soon."""
    client = await connect(urls, **{**FAST, **options})
    try:
        yield client
    finally:
        await client.close()


async def new_bucket(nc: Client, **config: Any) -> KeyValue[bytes]:
    """A bucket that no other test uses, in memory unless the configuration says otherwise."""
    fields = {"bucket": f"B_{next_nuid()}", "storage": "memory", **config}
    return await nc.jetstream().create_key_value(**fields)


async def bucket_on(nc: Client, bucket: KeyValue[bytes]) -> KeyValue[bytes]:
    """The same bucket over another connection."""
    return await nc.jetstream().key_value(bucket.name)


def stream_name(bucket: KeyValue[bytes]) -> str:
    """The stream under a bucket."""
    return f"KV_{bucket.name}"


async def put_all(
    bucket: KeyValue[bytes], count: int, *, start: int = 0, size: int = 0, pause: float = 0.0
) -> None:
    """Put numbers, each under a key of its own, whatever it takes."""
    for number in range(start, start + count):
        while True:
            try:
                # Not put: a second attempt after a lost ack must not become a second entry.
                await bucket.create(f"k.{number}", (b"%d" % number).ljust(size))
                break
            except KeyExistsError:
                break
            except JetSparkError:
                await asyncio.sleep(0.05)
        await asyncio.sleep(pause)


async def listed(items: AsyncIterator[T]) -> list[T]:
    """All that an iterator gives."""
    return [item async for item in items]


class Watching:
    """Watches a bucket in the background and keeps what came."""

    def __init__(
        self, bucket: KeyValue[bytes], *filters: str, pause: float = 0.0, **options: Any
    ) -> None:
        self.seen: list[KeyValueEntry[bytes]] = []
        self.markers: list[int] = []
        """How many entries had come before each end of the initial data."""
        self._bucket = bucket
        self._filters = filters
        self._options = options
        self._task: asyncio.Task[None] | None = None
        self._may_fail = False

    async def __aenter__(self) -> Watching:
        self._task = asyncio.create_task(self._read(), name="watching")
        return self

    async def __aexit__(self, *failure: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled() and not self._may_fail and failure[0] is None:
            self._task.result()

    async def _read(self) -> None:
        async with self._bucket.watch(*self._filters, **self._options) as watcher:
            async for entry in watcher:
                if entry is None:
                    self.markers.append(len(self.seen))
                else:
                    self.seen.append(entry)

    @property
    def done(self) -> bool:
        assert self._task is not None
        return self._task.done()

    @property
    def revisions(self) -> list[int]:
        return [entry.revision for entry in self.seen]

    async def until(self, count: int) -> None:
        """Wait until so many entries have come, or the watch has ended."""
        await until(lambda: len(self.seen) >= count or self.done)
        assert len(self.seen) >= count or self._failure() is None, self._failure()

    async def marked(self) -> None:
        """Wait for the end of the initial data."""
        await until(lambda: self.markers or self.done)
        assert self.markers, self._failure()

    async def ended(self) -> BaseException | None:
        """Wait until the watch ends by itself; returns the error that it ends with."""
        self._may_fail = True
        await until(lambda: self.done)
        return self._failure()

    def check(self, count: int) -> None:
        """Each of the numbers has come once, in order, and one end of the initial data."""
        assert [int(entry.value) for entry in self.seen] == list(range(count))
        assert [entry.key for entry in self.seen] == [f"k.{n}" for n in range(count)]
        assert self.revisions == sorted(set(self.revisions))
        assert len(self.markers) == 1, self.markers

    def _failure(self) -> BaseException | None:
        assert self._task is not None
        return self._task.exception() if self._task.done() else None
