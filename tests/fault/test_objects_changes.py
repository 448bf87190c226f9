"""Deletions, new names, links and watches that are cancelled, collide or are left alone.

An object never loses its last name together with its data, and a watcher is told of everything.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from jetspark import Client
from jetspark.errors import (
    BadObjectError,
    BucketNotFoundError,
    ConflictError,
    IteratorClosedError,
    JetSparkError,
    ObjectExistsError,
    ObjectNotFoundError,
    TimeoutError,
)
from jetspark.objects import ObjectStore
from jetspark.server import NatsServer
from tests.support.clients import eventually
from tests.support.conformance import conformance
from tests.support.js import settled
from tests.support.leaks import GUARD, no_leaks, until
from tests.support.objects import (
    CHUNK,
    CancelledAt,
    assert_consumers_expire,
    assert_no_consumers,
    assert_tidy,
    backing_stream,
    chunks_by_key,
    connected,
    content,
    make_store,
    meta_subject,
    read,
)
from tests.support.proxy import Proxy

DATA = content(5 * CHUNK)
MIB = 2**20
Call = Callable[[ObjectStore], Coroutine[Any, Any, Any]]


@pytest.fixture(autouse=True)
async def nothing_left() -> AsyncIterator[None]:
    async with no_leaks():
        yield


@pytest.fixture
async def nc(nats_server: NatsServer, nothing_left: None) -> AsyncIterator[Client]:
    async with connected(nats_server.url) as client:
        yield client


@pytest.fixture
async def store(nc: Client) -> ObjectStore:
    """A store with an object `o` in it."""
    store = await make_store(nc)
    await store.put("o", DATA, chunk_size=CHUNK)
    return store


async def names(store: ObjectStore) -> list[str]:
    return sorted([info.name async for info in store.list()])


# -- cancelled ----------------------------------------------------------------------------------

CALLS: dict[str, tuple[Call, set[tuple[str, ...]]]] = {
    "delete": (lambda store: store.delete("o"), {("o",), ()}),
    "describe": (lambda store: store.update_meta("o", description="new"), {("o",)}),
    "rename": (lambda store: store.update_meta("o", name="p"), {("o",), ("p",)}),
    "link": (lambda store: store.add_link("l", "o"), {("o",), ("l", "o")}),
    "put": (lambda store: store.put("o", DATA), {("o",)}),
    "put empty": (lambda store: store.put("e", b""), {("o",), ("e", "o")}),
    "list": (names, {("o",)}),
    "info": (lambda store: store.info("o"), {("o",)}),
    "status": (lambda store: store.status(), {("o",)}),
}


@pytest.mark.parametrize("call", CALLS)
@conformance("OBJ", "Other operations", "calls can be cancelled at every await")
async def test_cancelled_at_every_await(nc: Client, call: str) -> None:
    make, allowed = CALLS[call]
    for turn in range(1, 100):
        store = await make_store(nc)
        await store.put("o", DATA, chunk_size=CHUNK)
        attempt = CancelledAt(make(store), turn)
        try:
            await asyncio.create_task(attempt.run())
        except asyncio.CancelledError:
            assert attempt.waits >= turn
        there = tuple(await names(store))
        assert there in allowed, f"await {turn} of {attempt.waits}"
        await assert_tidy(nc, store, *there)
        for name in set(there) - {"e"}:
            assert await read(store, name) == DATA
        await assert_consumers_expire(nc, store.name)
        await nc.jetstream().delete_object_store(store.name)
        if attempt.waits < turn:
            return
    pytest.fail("it never came to its end")


# -- at once ------------------------------------------------------------------------------------


async def at_once(*calls: Coroutine[Any, Any, Any]) -> list[type[BaseException] | None]:
    """Run them together; the types of their errors."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    return [type(result) if isinstance(result, BaseException) else None for result in results]


@pytest.fixture
async def twin(nats_server: NatsServer, store: ObjectStore) -> AsyncIterator[ObjectStore]:
    """The same store over another connection."""
    async with connected(nats_server.url) as other:
        yield await other.jetstream().object_store(store.name)


async def test_two_objects_get_the_same_name(
    nc: Client, store: ObjectStore, twin: ObjectStore
) -> None:
    await store.delete("o")
    for number in range(10):
        await store.put("a", content(CHUNK, 1))
        await store.put("b", content(CHUNK, 2))
        target = f"t{number}"
        errors = await at_once(
            store.update_meta("a", name=target), twin.update_meta("b", name=target)
        )
        assert sorted(map(str, errors)) == sorted(map(str, [None, ObjectExistsError]))
        left = "b" if errors[0] is None else "a"
        assert await read(store, target) == content(CHUNK, 1 if left == "b" else 2)
        await assert_tidy(nc, store, left, target)
        await store.delete("a" if left == "a" else "b")
        await store.delete(target)


async def test_one_object_gets_two_names(nc: Client, store: ObjectStore, twin: ObjectStore) -> None:
    for number in range(10):
        before = (await names(store))[0]
        targets = [f"x{number}", f"y{number}"]
        errors = await at_once(
            store.update_meta(before, name=targets[0]), twin.update_meta(before, name=targets[1])
        )
        assert errors.count(None) == 1
        assert {error for error in errors if error} <= {ConflictError, ObjectNotFoundError}
        [winner] = await names(store)
        assert winner == targets[errors.index(None)]
        assert await read(store, winner) == DATA
        await assert_tidy(nc, store, winner)


@pytest.mark.parametrize("other", ["put", "delete"])
async def test_a_new_name_while_the_object_changes(
    nc: Client, store: ObjectStore, twin: ObjectStore, other: str
) -> None:
    for number in range(15):
        old, new = f"old{number}", f"new{number}"
        await store.put(old, DATA, chunk_size=CHUNK)
        call = twin.put(old, b"changed") if other == "put" else twin.delete(old)
        errors = await at_once(store.update_meta(old, name=new), call)
        there = await names(store)
        # Whoever is there has its data.
        for name in set(there) & {old, new}:
            assert await read(store, name) in (DATA, b"changed"), (errors, there)
        if errors[0] is None:
            assert new in there
        await assert_tidy(nc, store, *there)
        for name in set(there) & {old, new}:
            await store.delete(name)


async def test_descriptions_changed_at_once_add_up(
    nc: Client, store: ObjectStore, twin: ObjectStore
) -> None:
    """Each changes another field, and no change is lost."""
    for number in range(15):
        errors = await at_once(
            store.update_meta("o", description=f"d{number}"),
            twin.update_meta("o", metadata={"n": f"{number}"}),
            twin.update_meta("o", headers={"N": f"{number}"}),
        )
        assert errors == [None, None, None]
        info = await store.info("o")
        assert info.description == f"d{number}"
        assert info.metadata == {"n": f"{number}"}
        assert info.headers == {"N": [f"{number}"]}
    assert await read(store, "o") == DATA
    await assert_tidy(nc, store, "o")


async def test_deletions_at_once(nc: Client, store: ObjectStore, twin: ObjectStore) -> None:
    errors = await at_once(*(s.delete("o") for s in (store, twin) for _ in range(5)))
    assert errors == [None] * 10
    assert await names(store) == []
    assert await chunks_by_key(nc, store.name) == {}
    assert (await (await backing_stream(nc, store.name)).info()).state.messages == 1


async def test_a_get_while_the_object_is_replaced_again_and_again(
    nc: Client, store: ObjectStore, twin: ObjectStore
) -> None:
    """Each get gives one version, whole, or says that it is gone."""
    versions = {content(30 * CHUNK, number) for number in range(5)}
    attempts = 0

    async def replace() -> None:
        while attempts < 5:  # a get that is cut short may wait longer than all puts take
            for version in versions:
                await twin.put("o", version, chunk_size=CHUNK)

    replacing = asyncio.create_task(replace())
    while not replacing.done():
        attempts += 1
        try:
            assert await read(store, "o") in versions | {DATA}
        except BadObjectError:
            pass  # it was replaced while it was read
    await replacing
    assert await read(store, "o") in versions
    await assert_tidy(nc, store, "o")


# -- answers that are lost ----------------------------------------------------------------------


async def last_sequence(client: Client, bucket: str) -> int:
    return (await (await backing_stream(client, bucket)).info()).state.last_seq


class Far:
    """A store over a connection that loses the next answer to a change."""

    def __init__(self, near: Client, store: ObjectStore, proxy: Proxy) -> None:
        self.store = store
        self.proxy = proxy
        self._near = near

    def lose_answer(self, other: Call, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have something else happen before it is noticed that the answer does not come."""
        publish = self.store._records._publish

        async def without_answer(*args: Any) -> Any:
            monkeypatch.undo()
            name = self.store.name
            before = await last_sequence(self._near, name)
            self.proxy.stall("down")
            publishing = asyncio.create_task(publish(*args))

            async def stored() -> bool:
                return await last_sequence(self._near, name) > before

            await eventually(stored)
            await other(await self._near.jetstream().object_store(name))
            await self.proxy.cut()
            self.proxy.unstall("down")
            return await publishing

        monkeypatch.setattr(self.store._records, "_publish", without_answer)


@pytest.fixture
async def far(nats_server: NatsServer, nc: Client, store: ObjectStore) -> AsyncIterator[Far]:
    async with (
        Proxy(nats_server.host, nats_server.port) as proxy,
        connected(proxy.url, on_event=lambda event: None) as client,
    ):
        yield Far(nc, await client.jetstream().object_store(store.name), proxy)


async def nothing(store: ObjectStore) -> None:
    pass


NEW, OTHER = content(3 * CHUNK, 1), content(2 * CHUNK, 2)
TO_PUT: Call = lambda store: store.put("o", NEW, chunk_size=CHUNK)  # noqa: E731
TO_RENAME: Call = lambda store: store.update_meta("o", name="p")  # noqa: E731
TO_DELETE: Call = lambda store: store.delete("o")  # noqa: E731
LOST: dict[str, tuple[Call, Call, dict[str, bytes]]] = {
    "put": (TO_PUT, nothing, {"o": NEW}),
    "put, put": (TO_PUT, lambda store: store.put("o", OTHER), {"o": OTHER}),
    "put, delete": (TO_PUT, TO_DELETE, {}),
    "put, rename": (TO_PUT, TO_RENAME, {"p": NEW}),
    "put, describe": (TO_PUT, lambda store: store.update_meta("o", description="d"), {"o": NEW}),
    "rename": (TO_RENAME, nothing, {"p": DATA}),
    "rename, rename": (TO_RENAME, lambda store: store.update_meta("p", name="q"), {"q": DATA}),
    "rename, same": (TO_RENAME, TO_RENAME, {"p": DATA}),
    "delete": (TO_DELETE, nothing, {}),
    "delete, delete": (TO_DELETE, TO_DELETE, {}),
    "delete, put": (TO_DELETE, lambda store: store.put("o", OTHER), {"o": OTHER}),
}


@pytest.mark.parametrize("case", LOST)
async def test_others_change_what_is_stored_without_an_answer(
    nc: Client, store: ObjectStore, far: Far, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It happens once, before what the others do: nothing that they have stored is lost."""
    call, other, left = LOST[case]
    far.lose_answer(other, monkeypatch)
    await call(far.store)
    assert {name: await read(store, name) for name in await names(store)} == left
    await assert_tidy(nc, store, *left)


async def test_a_rename_without_an_answer_and_then_deleted(
    nc: Client, store: ObjectStore, far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    far.lose_answer(lambda store: store.delete("p"), monkeypatch)
    with pytest.raises(ConflictError):
        await TO_RENAME(far.store)
    await assert_tidy(nc, store)


@pytest.mark.parametrize("other", [nothing, LOST["put, describe"][1]])
async def test_a_put_without_an_answer_in_a_stream_that_soon_forgets(
    nc: Client, store: ObjectStore, far: Far, other: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there names the chunks, so the put was stored."""
    await (await backing_stream(nc, store.name)).update(duplicate_window=0.1)

    async def later(store: ObjectStore) -> None:
        await other(store)
        await asyncio.sleep(0.5)  # until the ids of messages are forgotten

    far.lose_answer(later, monkeypatch)
    await TO_PUT(far.store)
    assert await read(store, "o") == NEW
    await assert_tidy(nc, store, "o")


async def test_a_request_to_remove_chunks_is_lost(
    nc: Client, store: ObjectStore, far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is sent again: a put leaves nothing of what it has replaced."""
    change = far.store._records.change
    cutting: list[asyncio.Task[None]] = []

    async def cut() -> None:
        await asyncio.sleep(0.1)  # until the request is on its way
        await far.proxy.cut()
        far.proxy.unstall("up")

    async def before_a_cut(*args: Any) -> Any:
        monkeypatch.undo()
        replaced = await change(*args)
        far.proxy.stall("up")
        cutting.append(asyncio.create_task(cut()))
        return replaced

    monkeypatch.setattr(far.store._records, "change", before_a_cut)
    await TO_PUT(far.store)
    await cutting[0]
    assert await read(store, "o") == NEW
    await assert_tidy(nc, store, "o")


# -- watchers -----------------------------------------------------------------------------------


@conformance("OBJ", "Other operations", "watch: ends with an error when the store is deleted")
async def test_the_store_is_deleted(nc: Client, store: ObjectStore) -> None:
    async with store.watch() as watcher:
        assert (await watcher.next(5)) is not None
        assert (await watcher.next(5)) is None
        await nc.jetstream().delete_object_store(store.name)
        async with asyncio.timeout(GUARD):
            with pytest.raises(BucketNotFoundError):
                await anext(watcher)
    with pytest.raises(BucketNotFoundError):
        async with store.watch():
            pass
    with pytest.raises(BucketNotFoundError):
        await names(store)


async def test_a_watcher_that_is_stopped(nc: Client, store: ObjectStore) -> None:
    watcher = store.watch()
    assert (await watcher.next(5)) is not None
    assert (await watcher.next(5)) is None
    waiting = asyncio.create_task(watcher.next(GUARD))
    await asyncio.sleep(0.05)
    await watcher.stop()
    with pytest.raises(IteratorClosedError):
        await waiting
    await watcher.stop()
    assert [info async for info in watcher] == []
    await assert_no_consumers(nc, store.name)


async def test_watchers_that_are_cancelled(nc: Client, store: ObjectStore) -> None:
    """A wait that is given up loses nothing."""
    async with store.watch(updates_only=True) as watcher:
        assert (await watcher.next(5)) is None
        for number in range(20):
            with pytest.raises(TimeoutError):
                await watcher.next(0.001)
            await store.put("o", b"%d" % number)
            info = await watcher.next(5)
            assert info is not None
            assert info.size == len(b"%d" % number)
    await assert_no_consumers(nc, store.name)


@pytest.mark.parametrize("turn", range(1, 8))
async def test_a_watch_cancelled_while_it_begins(nc: Client, store: ObjectStore, turn: int) -> None:
    async def watch() -> None:
        async with store.watch() as watcher:
            async for info in watcher:
                if info is None:
                    return

    routes = len(nc._routes)
    call = CancelledAt(watch(), turn)
    try:
        await asyncio.create_task(call.run())
    except asyncio.CancelledError:
        assert call.waits >= turn
    await until(lambda: len(nc._routes) <= routes + 1)
    await assert_consumers_expire(nc, store.name)


async def test_the_client_is_closed(nats_server: NatsServer, store: ObjectStore) -> None:
    async with connected(nats_server.url) as other:
        theirs = await other.jetstream().object_store(store.name)
        async with theirs.watch() as watcher:
            assert (await watcher.next(5)) is not None
            assert (await watcher.next(5)) is None
            waiting = asyncio.create_task(watcher.next(GUARD))
            await asyncio.sleep(0.05)
            await other.close()
            with pytest.raises(JetSparkError):
                await waiting
    with pytest.raises(JetSparkError):
        await theirs.info("o")


@conformance("OBJ", "Other operations", "watch: a reader that stalls holds the server back")
async def test_a_watcher_that_stalls(nats_server: NatsServer, nc: Client) -> None:
    store = await make_store(nc)
    count, filler = 2000, "d" * 10_000
    js = nc.jetstream()
    for number in range(count):
        meta = b'{"name":"o%d","bucket":"b","nuid":"N","size":0,"chunks":0,"description":"%b"}'
        await js.publish_async(
            meta_subject(store.name, f"o{number}"), meta % (number, filler.encode())
        )
    await js.publish_async_complete()
    async with Proxy(nats_server.host, nats_server.port) as proxy, connected(proxy.url) as far:
        theirs = await far.jetstream().object_store(store.name)
        async with theirs.watch() as watcher:
            first = await watcher.next(5)
            assert first is not None

            async def received() -> int:
                return proxy.bytes_down

            assert await settled(received) < 12 * MIB
            seen = [first.name]
            async for info in watcher:
                if info is None:
                    break
                seen.append(info.name)
        assert seen == [f"o{number}" for number in range(count)]


async def test_lists_that_are_left_early(nc: Client, store: ObjectStore) -> None:
    for number in range(20):
        await store.put(f"n{number}", b"1")
    listing = store.list()
    await anext(listing)
    await listing.aclose()  # type: ignore[attr-defined]
    await assert_no_consumers(nc, store.name)
    async for _ in store.list():
        break
    gc.collect()
    await assert_no_consumers(nc, store.name)
