"""Watching the objects of a store."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
import pytest_asyncio

from jetspark import Client, JetStream, ObjectInfo, ObjectStore, ObjectWatcher
from jetspark.errors import (
    BucketNotFoundError,
    InvalidArgumentError,
    InvalidOptionError,
    IteratorClosedError,
    TimeoutError,
)
from jetspark.objects import feed
from jetspark.server import NatsServer
from tests.support.clients import Connect
from tests.support.conformance import conformance
from tests.support.objects import (
    FAST,
    assert_no_consumers,
    backing_stream,
    make_store,
    meta_subject,
)


@pytest_asyncio.fixture
async def nc(nats_server: NatsServer, connect: Connect) -> Client:
    return await connect(nats_server.url, **FAST)


@pytest.fixture
def js(nc: Client) -> JetStream:
    return nc.jetstream(strict=True)


@pytest_asyncio.fixture
async def store(js: JetStream) -> ObjectStore:
    """A store with the objects a and c, and a deleted one, b."""
    store = await make_store(js)
    for name in "abc":
        await store.put(name, name.encode())
    await store.delete("b")
    return store


def brief(info: ObjectInfo | None) -> str | None:
    """The name, with a minus in front if it is deleted."""
    return None if info is None else f"{'-' * info.deleted}{info.name}"


async def take(watcher: ObjectWatcher, count: int) -> list[str | None]:
    return [brief(await watcher.next(10)) for _ in range(count)]


@conformance("OBJ", "Other operations", "watch: what is there, the end marker, then the changes")
async def test_what_is_there_and_what_changes(js: JetStream, store: ObjectStore) -> None:
    async with store.watch() as watcher:
        assert watcher.bucket == store.name
        first = await watcher.next(10)
        assert first == await store.info("a")
        done = [watcher.initial_done]
        assert await take(watcher, 3) == ["c", "-b", None]
        assert [*done, watcher.initial_done] == [False, True]
        await store.put("d", b"d")
        await store.delete("a")
        await store.add_link("l", "c")
        await store.update_meta("c", description="new")
        assert await take(watcher, 4) == ["d", "-a", "l", "c"]
        with pytest.raises(TimeoutError, match="no object"):
            await watcher.next(0.05)
    await assert_no_consumers(js, store.name)


async def test_without_a_block(store: ObjectStore) -> None:
    watcher = store.watch()
    seen: list[str | None] = []
    async for info in watcher:
        seen.append(brief(info))
        if info is None:
            await watcher.stop()
    assert seen == ["a", "c", "-b", None]


@conformance("OBJ", "Other operations", "watch: an empty store has its end marker at once")
async def test_an_empty_store(js: JetStream) -> None:
    store = await make_store(js)
    async with store.watch() as watcher:
        assert await watcher.next(10) is None
        await store.put("o", b"1")
        assert await take(watcher, 1) == ["o"]


@conformance("OBJ", "Other operations", "watch: updates_only begins with what is new")
async def test_updates_only(store: ObjectStore) -> None:
    async with store.watch(updates_only=True) as watcher:
        await store.put("new", b"1")
        assert await take(watcher, 2) == [None, "new"]


@conformance("OBJ", "Other operations", "watch: ignore_deletes leaves deleted objects out")
async def test_ignore_deletes(js: JetStream, store: ObjectStore) -> None:
    async with store.watch(ignore_deletes=True) as watcher:
        assert await take(watcher, 3) == ["a", "c", None]
        await store.delete("a")
        await store.put("d", b"d")
        assert await take(watcher, 1) == ["d"]
    only_deleted = await make_store(js)
    await only_deleted.put("o", b"1")
    await only_deleted.delete("o")
    async with only_deleted.watch(ignore_deletes=True) as watcher:
        assert await watcher.next(10) is None


@conformance("OBJ", "Other operations", "watch: the history of a name is what rollups leave of it")
async def test_include_history(nc: Client, store: ObjectStore) -> None:
    await store.put("a", b"again")
    async with store.watch(include_history=True) as watcher:
        assert await take(watcher, 4) == ["c", "-b", "a", None]
    with pytest.raises(InvalidOptionError, match="exclude each other"):
        store.watch(include_history=True, updates_only=True)


@conformance("OBJ", "Other operations", "watch: include_history gives what no rollup has removed")
async def test_descriptions_without_a_rollup(js: JetStream) -> None:
    store = await make_store(js)
    for description in ("first", "last"):
        meta = ObjectInfo(name="o", bucket=store.name, nuid="N", description=description)
        await js.publish(meta_subject(store.name, "o"), meta.encode())
    for include_history, wanted in ((True, ["first", "last"]), (False, ["last"])):
        async with store.watch(include_history=include_history) as watcher:
            found = []
            while (info := await watcher.next(10)) is not None:
                found.append(info.description)
        assert found == wanted


@conformance("OBJ", "Other operations", "watch: a rename shows up as the new name only")
async def test_a_rename(store: ObjectStore) -> None:
    async with store.watch(updates_only=True) as watcher:
        assert await watcher.next(10) is None
        await store.update_meta("a", name="z")
        await store.put("end", b"")
        assert await take(watcher, 2) == ["z", "end"]


async def test_an_object_is_as_it_was_stored(store: ObjectStore) -> None:
    async with store.watch() as watcher:
        for name in "ac":
            assert await watcher.next(10) == await store.info(name)


@conformance("OBJ", "Other operations", "watch: the end marker comes although objects went")
async def test_objects_that_go_before_they_come(
    js: JetStream, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "FIRST_LOOK", 0.02)
    # What was counted is taken out before the server has been asked for it.
    monkeypatch.setattr(feed.Feed, "_order", lambda self: None)
    watcher = store.watch()
    assert (await watcher._start()).pending == 3
    await (await backing_stream(js, store.name)).purge()
    assert await watcher.next(10) is None
    await watcher.stop()


async def test_many_changes_while_the_first_are_taken(js: JetStream) -> None:
    store = await make_store(js)
    await asyncio.gather(*(store.put(f"o{number}", b"") for number in range(500)))
    seen: list[str | None] = []
    async with store.watch() as watcher:
        changes = asyncio.gather(*(store.put(f"n{number}", b"") for number in range(500)))
        while len(seen) < 1001:
            seen.append(brief(await watcher.next(10)))
        await changes
    assert seen.count(None) == 1
    assert seen.index(None) >= 500
    assert set(seen) == {None, *(f"{kind}{n}" for kind in "on" for n in range(500))}


# -- the end ------------------------------------------------------------------------------------


async def test_two_tasks_begin_it(js: JetStream, store: ObjectStore) -> None:
    watcher = store.watch()
    first = asyncio.ensure_future(watcher.next(5))
    await asyncio.sleep(0)
    with pytest.raises(InvalidArgumentError, match="two tasks begin it"):
        await watcher.next(5)
    assert await first is not None
    stream = await backing_stream(js, store.name)
    assert len([name async for name in stream.consumer_names()]) == 1
    await watcher.stop()


async def test_stop_while_somebody_waits(js: JetStream, store: ObjectStore) -> None:
    watcher = store.watch(updates_only=True)
    assert await watcher.next(10) is None
    waiting = asyncio.create_task(anext(watcher))
    await asyncio.sleep(0.01)
    await watcher.stop()
    with pytest.raises(StopAsyncIteration):
        await waiting
    with pytest.raises(IteratorClosedError, match=f"{store.name!r}: watch: it was stopped"):
        await watcher.next(1)
    await watcher.stop()
    await assert_no_consumers(js, store.name)


async def test_the_client_takes_the_consumers_along(
    nats_server: NatsServer, connect: Connect, js: JetStream, store: ObjectStore
) -> None:
    await store.put("big", bytes(1_000_000))
    client = await connect(nats_server.url)
    others = await client.jetstream().object_store(store.name)
    watcher = others.watch()
    assert await watcher.next(10) is not None
    reader = await others.get("big")
    assert await anext(reader)
    stream = await backing_stream(js, store.name)
    assert (await stream.info()).state.consumer_count == 2
    await client.close()
    await assert_no_consumers(js, store.name)


async def test_stop_before_and_during_the_start(js: JetStream, store: ObjectStore) -> None:
    watcher = store.watch()
    await watcher.stop()
    assert [info async for info in watcher] == []
    async with watcher:
        pass
    watcher = store.watch()
    waiting = asyncio.create_task(anext(watcher))
    await asyncio.sleep(0)
    await watcher.stop()
    with contextlib.suppress(StopAsyncIteration):
        await waiting
    await assert_no_consumers(js, store.name)


async def test_cancelled_waits_lose_nothing(store: ObjectStore) -> None:
    async with store.watch(updates_only=True) as watcher:
        assert await watcher.next(10) is None
        seen: list[str | None] = []
        for number in range(20):
            with contextlib.suppress(TimeoutError):
                seen += [brief(await watcher.next(0.0005 * (number % 4)))]
            await store.put(f"o{number}", b"")
        seen += await take(watcher, 20 - len(seen))
        assert seen == [f"o{number}" for number in range(20)]


@conformance("OBJ", "Other operations", "watch: it ends with an error when the store is deleted")
async def test_the_store_is_deleted(js: JetStream, store: ObjectStore) -> None:
    warnings: list[Any] = []
    async with store.watch(on_warning=warnings.append) as watcher:
        assert await take(watcher, 4) == ["a", "c", "-b", None]
        await js.delete_object_store(store.name)
        with pytest.raises(BucketNotFoundError, match=repr(store.name)):
            await watcher.next(10)
    assert warnings


async def test_the_client_is_closed(
    nats_server: NatsServer, connect: Connect, store: ObjectStore
) -> None:
    client = await connect(nats_server.url)
    theirs = await client.jetstream().object_store(store.name)
    watcher = theirs.watch()
    assert await take(watcher, 4) == ["a", "c", "-b", None]
    waiting = asyncio.create_task(anext(watcher))
    await asyncio.sleep(0.01)
    await client.close()
    with pytest.raises(StopAsyncIteration):
        await waiting


@conformance("OBJ", "Other operations", "watch: nothing is lost over a reconnect")
@pytest.mark.parametrize("seen_before", [0, 1, 4, 6])
async def test_a_reconnect(
    nats_server: NatsServer, connect: Connect, store: ObjectStore, seen_before: int
) -> None:
    client = await connect(nats_server.url, **FAST)
    theirs = await client.jetstream().object_store(store.name)
    async with theirs.watch() as watcher:
        if seen_before > 4:
            await store.put("x", b"")
            await store.put("y", b"")
        seen = await take(watcher, seen_before)
        await client.force_reconnect()
        await store.put("d", b"")
        await store.put("e", b"")
        while not {"d", "e"} <= set(seen) or None not in seen:
            seen.append(brief(await watcher.next(10)))
    assert seen.count(None) == 1
    names = [name for name in seen if name is not None]
    assert {"a", "c", "-b", "d", "e"} <= set(names)
    assert len(names) == len(set(names))
