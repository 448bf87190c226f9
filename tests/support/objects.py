"""Helpers for tests of object stores: content, what is in the stream, calls cancelled inside."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import random
from collections.abc import AsyncIterator, Coroutine, Generator
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

from jetspark import Backoff, Client, JetStream, Stream, connect
from jetspark.connection.nuid import next_nuid
from jetspark.objects import ObjectStore
from tests.support.clients import eventually

__all__ = [
    "CHUNK",
    "FAST",
    "CancelledAt",
    "Gate",
    "assert_consumers_expire",
    "assert_no_consumers",
    "assert_tidy",
    "backing_stream",
    "chunk_subject",
    "chunks_by_key",
    "connected",
    "content",
    "digest_of",
    "make_store",
    "meta_subject",
    "new_bucket",
    "pieces",
    "raw_meta",
    "read",
    "store_meta",
]

T = TypeVar("T")
FAST: dict[str, Any] = {"reconnect_delay": Backoff(initial=0.01, maximum=0.1)}
CHUNK = 4096
"""A chunk size for objects of many chunks that are not large."""


def new_bucket(prefix: str = "b") -> str:
    """The name of a bucket that no other test uses."""
    return f"{prefix}_{next_nuid()}"


async def make_store(client: Client | JetStream, **config: Any) -> ObjectStore:
    """A store in memory, unless the configuration says otherwise."""
    js = client.jetstream() if isinstance(client, Client) else client
    return await js.create_object_store(**{"bucket": new_bucket(), "storage": "memory", **config})


def content(size: int, seed: int = 0) -> bytes:
    """Bytes that are the same for the same seed, and nothing else's."""
    return random.Random(seed).randbytes(size)


def digest_of(data: bytes) -> str:
    """The digest as it is written into the description of an object."""
    return "SHA-256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()


async def pieces(data: bytes, size: int = CHUNK) -> AsyncIterator[bytes]:
    """The data as an asynchronous source, in pieces."""
    for first in range(0, len(data), size):
        yield data[first : first + size]


async def read(store: ObjectStore, name: str) -> bytes:
    """The whole object."""
    return await (await store.get(name)).read()


class Gate:
    """A source that stops after some chunks until it is opened."""

    def __init__(self, data: bytes, after: int, size: int = CHUNK) -> None:
        self.reached = asyncio.Event()
        self.closed = False
        self._opened = asyncio.Event()
        self._data = data
        self._after = after
        self._size = size

    def open(self) -> None:
        self._opened.set()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        number = 0
        try:
            async for piece in pieces(self._data, self._size):
                if number == self._after:
                    self.reached.set()
                    await self._opened.wait()
                number += 1
                yield piece
        finally:
            self.closed = True


@asynccontextmanager
async def connected(urls: str | list[str], **options: Any) -> AsyncIterator[Client]:
    """A client that does not wait long before it connects again."""
    client = await connect(urls, **{**FAST, **options})
    try:
        yield client
    finally:
        await client.close()


def meta_subject(bucket: str, name: str) -> str:
    return f"$O.{bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"


def chunk_subject(bucket: str, nuid: str) -> str:
    return f"$O.{bucket}.C.{nuid}"


async def backing_stream(client: Client | JetStream, bucket: str) -> Stream:
    js = client.jetstream() if isinstance(client, Client) else client
    return await js.get_stream(f"OBJ_{bucket}")


async def raw_meta(client: Client | JetStream, bucket: str, name: str) -> dict[str, Any]:
    """The description of an object as it is in the stream."""
    stream = await backing_stream(client, bucket)
    message = await stream.get_last_message(meta_subject(bucket, name))
    return dict(json.loads(message.data))


async def store_meta(client: Client, bucket: str, name: str, meta: Any) -> None:
    """Write the description of an object by hand, be it nonsense."""
    data = meta if isinstance(meta, bytes) else json.dumps(meta).encode()
    subject = meta_subject(bucket, name)
    await client.jetstream().publish(subject, data, headers={"Nats-Rollup": "sub"})


async def chunks_by_key(client: Client | JetStream, bucket: str) -> dict[str, int]:
    """How many chunks there are under each chunk key."""
    stream = await backing_stream(client, bucket)
    prefix = chunk_subject(bucket, "")
    info = await stream.info(subjects_filter=f"{prefix}>")
    return {subject.removeprefix(prefix): n for subject, n in (info.state.subjects or {}).items()}


async def assert_tidy(client: Client | JetStream, store: ObjectStore, *names: str) -> None:
    """Assert that these are all objects, and that there are their chunks and no others."""
    infos = [info async for info in store.list()]
    assert sorted(info.name for info in infos) == sorted(names)
    wanted = {info.nuid: info.chunks for info in infos if info.chunks}
    assert await chunks_by_key(client, store.name) == wanted


async def assert_no_consumers(client: Client | JetStream, bucket: str) -> None:
    """Assert that readers and watchers have taken their consumers with them."""
    stream = await backing_stream(client, bucket)

    async def none_left() -> bool:
        return [name async for name in stream.consumer_names()] == []

    await eventually(none_left)


async def assert_consumers_expire(client: Client | JetStream, bucket: str) -> None:
    """Assert the same after a cancellation while a consumer was created.

    A server may take up the deletion before the creation: then one is left, which nobody waits
    at, and which it forgets by itself.
    """
    stream = await backing_stream(client, bucket)

    async def none_waited_for() -> bool:
        left = [consumer.cached_info async for consumer in stream.consumers()]
        return len(left) <= 1 and all(
            info.num_waiting == 0 and info.config.inactive_threshold for info in left
        )

    await eventually(none_waited_for)


class CancelledAt(Generic[T]):
    """Awaits a coroutine, and cancels the task when the coroutine waits for the nth time.

    `waits` is how often it has waited: a call is cancelled at every await by raising n until
    `waits` stays below it.
    """

    def __init__(self, call: Coroutine[Any, Any, T], turn: int) -> None:
        self.waits = 0
        self._call = call
        self._turn = turn

    async def run(self) -> T:
        return await self

    def __await__(self) -> Generator[Any, Any, T]:
        task = asyncio.current_task()
        assert task is not None
        steps = self._call.__await__()
        error: BaseException | None = None
        while True:
            try:
                waited_for = next(steps) if error is None else steps.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            self.waits += 1
            if self.waits == self._turn:
                task.cancel()
            error = None
            try:
                yield waited_for
            except BaseException as thrown:  # it goes on to the coroutine
                error = thrown
