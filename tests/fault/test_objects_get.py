"""Gets of damaged, vanishing and endless objects, and readers that stall or go away.

A get ends with the whole object or with an error; it never waits for chunks that will not come,
and never takes more memory than its window.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from jetspark import Client
from jetspark.errors import (
    BadObjectError,
    BucketNotFoundError,
    ConnectionClosedError,
    DigestMismatchError,
    JetSparkError,
    LinkError,
    ObjectNotFoundError,
)
from jetspark.objects import ObjectStore
from jetspark.server import NatsServer
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
    chunk_subject,
    connected,
    content,
    digest_of,
    make_store,
    meta_subject,
    raw_meta,
    read,
    store_meta,
)
from tests.support.proxy import Proxy

MIB = 2**20
DATA = content(20 * CHUNK + 7, 2)


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


async def damage(nc: Client, store: ObjectStore, **changes: Any) -> None:
    """Change the description of the object behind the back of the store."""
    meta = {**await raw_meta(nc, store.name, "o"), **changes}
    await store_meta(nc, store.name, "o", {k: v for k, v in meta.items() if v is not None})


async def assert_fails(store: ObjectStore, error: type[JetSparkError]) -> None:
    """Both ways of reading fail, soon, and the message names the object."""
    async with asyncio.timeout(GUARD):
        with pytest.raises(error) as caught:
            await read(store, "o")
        assert "'o'" in str(caught.value)
        with pytest.raises(error):
            async with await store.get("o") as chunks:
                async for _ in chunks:
                    pass


# -- damage -------------------------------------------------------------------------------------


@conformance("OBJ", "Get", "a digest that does not match is an error at the end")
async def test_another_digest(nc: Client, store: ObjectStore) -> None:
    await damage(nc, store, digest=digest_of(b"something else"))
    await assert_fails(store, DigestMismatchError)
    await assert_no_consumers(nc, store.name)


async def test_data_changed(nc: Client, store: ObjectStore) -> None:
    """A chunk of the same size in the place of the last one."""
    stream = await backing_stream(nc, store.name)
    subject = chunk_subject(store.name, (await store.info("o")).nuid)
    last = await stream.get_last_message(subject)
    await stream.delete_message(last.sequence)
    await nc.jetstream().publish(subject, bytes(len(last.data)))
    await assert_fails(store, DigestMismatchError)


@conformance("OBJ", "Get", "algorithms are named in any case, and digests are compared as bytes")
async def test_digests_written_differently(nc: Client, store: ObjectStore) -> None:
    digest = digest_of(DATA)
    # The last character has two bits that mean nothing: "A" and "B" are the same there.
    first, last = digest[:-2], ord(digest[-2])
    respelled = f"{first}{chr(last + 1)}="
    assert base64.urlsafe_b64decode(respelled[8:]) == base64.urlsafe_b64decode(digest[8:])
    for same in (digest.replace("SHA-256", "sha-256"), respelled):
        assert same != digest
        await damage(nc, store, digest=same)
        assert await read(store, "o") == DATA


@pytest.mark.parametrize("digest", ["MD5=abcd", "SHA-256=short", "nonsense", "SHA-256="])
async def test_digests_that_are_none(nc: Client, store: ObjectStore, digest: str) -> None:
    await damage(nc, store, digest=digest)
    await assert_fails(store, BadObjectError)


@pytest.mark.parametrize("which", [0, 10, 20])
@conformance("OBJ", "Get", "a missing chunk is an error")
async def test_a_missing_chunk(nc: Client, store: ObjectStore, which: int) -> None:
    stream = await backing_stream(nc, store.name)
    await stream.delete_message(1 + which)
    await assert_fails(store, BadObjectError)
    await assert_no_consumers(nc, store.name)


@conformance("OBJ", "Get", "purged chunks are an error at once: the create reply has none pending")
async def test_all_chunks_are_gone(nc: Client, store: ObjectStore) -> None:
    subject = chunk_subject(store.name, (await store.info("o")).nuid)
    await (await backing_stream(nc, store.name)).purge(subject=subject)
    await assert_fails(store, BadObjectError)
    await assert_no_consumers(nc, store.name)


async def test_one_chunk_too_many(nc: Client, store: ObjectStore) -> None:
    subject = chunk_subject(store.name, (await store.info("o")).nuid)
    await nc.jetstream().publish(subject, b"more")
    await assert_fails(store, BadObjectError)


@pytest.mark.parametrize(
    "changes",
    [
        {"size": len(DATA) - 1},
        {"size": len(DATA) + 1},
        {"size": 10 * len(DATA)},
        {"chunks": 20},
        {"chunks": 22},
        {"nuid": None},
        {"nuid": ""},
        {"size": -1},
        {"size": "large"},
        {"name": None},
    ],
    ids=lambda changes: json.dumps(changes),
)
async def test_descriptions_that_are_wrong(
    nc: Client, store: ObjectStore, changes: dict[str, Any]
) -> None:
    await damage(nc, store, **changes)
    async with asyncio.timeout(GUARD):
        with pytest.raises(BadObjectError):
            await read(store, "o")


@pytest.mark.parametrize("meta", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'"text"', b"{}"])
@conformance("OBJ", "Other operations", "info: a description that is no JSON is an error")
async def test_descriptions_that_are_none(nc: Client, store: ObjectStore, meta: bytes) -> None:
    await store_meta(nc, store.name, "o", meta)
    for call in (store.info, store.get, store.delete):
        with pytest.raises(BadObjectError):
            await call("o")
    # The rest of the store is as good as before.
    await store.put("other", b"1")
    assert await read(store, "other") == b"1"


# -- gone meanwhile -----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["purged", "replaced", "deleted", "store deleted"])
@conformance("OBJ", "Get", "chunks that are taken away during a get end it with an error")
async def test_chunks_taken_away_meanwhile(nc: Client, how: str) -> None:
    store = await make_store(nc)
    data = content(64 * MIB)
    await store.put("o", data, chunk_size=131072)
    info = await store.info("o")
    async with asyncio.timeout(GUARD):
        async with await store.get("o") as chunks:
            first = await anext(chunks)
            if how == "purged":
                stream = await backing_stream(nc, store.name)
                await stream.purge(subject=chunk_subject(store.name, info.nuid))
            elif how == "replaced":
                await store.put("o", b"new")
            elif how == "deleted":
                await store.delete("o")
            else:
                await nc.jetstream().delete_object_store(store.name)
            with pytest.raises(JetSparkError) as caught:
                async for _ in chunks:
                    pass
        assert data.startswith(first)
        if how == "store deleted":
            return
        assert isinstance(caught.value, BadObjectError)
        if how == "replaced":
            assert await read(store, "o") == b"new"
            await assert_tidy(nc, store, "o")
        await assert_no_consumers(nc, store.name)


# -- readers ------------------------------------------------------------------------------------


@conformance("OBJ", "Get", "a reader that stalls is not sent the whole object")
async def test_a_reader_that_stalls(nats_server: NatsServer, nc: Client) -> None:
    store = await make_store(nc)
    data = content(96 * MIB)
    await store.put("o", data)
    async with Proxy(nats_server.host, nats_server.port) as proxy, connected(proxy.url) as far:
        theirs = await far.jetstream().object_store(store.name)
        async with await theirs.get("o") as chunks:
            seen = bytearray(await anext(chunks))

            async def received() -> int:
                return proxy.bytes_down

            assert await settled(received) < 24 * MIB
            async for chunk in chunks:
                seen += chunk
        assert seen == data


async def test_a_stalled_reader_does_not_hold_up_others(nc: Client) -> None:
    store = await make_store(nc)
    await store.put("large", content(64 * MIB))
    await store.put("o", DATA, chunk_size=CHUNK)
    async with await store.get("large") as stalled:
        await anext(stalled)
        assert await read(store, "o") == DATA
        assert await read(store, "large") == content(64 * MIB)


@conformance("OBJ", "Get", "a reader that is closed early takes its consumer with it")
async def test_readers_that_leave_early(nc: Client, store: ObjectStore) -> None:
    for taken in (0, 1, 10):
        async with await store.get("o") as chunks:
            for _ in range(taken):
                await anext(chunks)
    await assert_no_consumers(nc, store.name)
    assert await read(store, "o") == DATA
    with pytest.raises(RuntimeError):
        async with await store.get("o") as chunks:
            async for _ in chunks:
                raise RuntimeError("the reader fails")
    await assert_no_consumers(nc, store.name)


async def test_a_reader_that_nobody_reads(nc: Client, store: ObjectStore) -> None:
    """What was never begun takes nothing here; the server forgets its consumer by itself."""
    routes = len(nc._routes)
    for _ in range(5):
        await store.get("o")
    gc.collect()
    await nc.flush()
    assert len(nc._routes) == routes
    async for consumer in (await backing_stream(nc, store.name)).consumers():
        assert consumer.config.inactive_threshold


async def test_a_read_that_is_repeated(nc: Client, store: ObjectStore) -> None:
    reader = await store.get("o")
    assert await reader.read() == DATA
    assert await reader.read() == b"", "there is nothing more"
    await assert_no_consumers(nc, store.name)


async def test_the_client_is_closed_meanwhile(nats_server: NatsServer, nc: Client) -> None:
    store = await make_store(nc)
    await store.put("o", content(64 * MIB))
    async with connected(nats_server.url) as other:
        theirs = await other.jetstream().object_store(store.name)
        async with await theirs.get("o") as chunks:
            await anext(chunks)
            await other.close()
            with pytest.raises(ConnectionClosedError):
                async for _ in chunks:
                    pass


@conformance("OBJ", "Get", "a get can be cancelled at every await")
async def test_cancelled_at_every_await(nc: Client, store: ObjectStore) -> None:
    data = content(4 * MIB)
    await store.put("o", data, chunk_size=CHUNK)
    routes = len(nc._routes)
    for turn in range(1, 200):
        call = CancelledAt(read(store, "o"), turn)
        try:
            assert await asyncio.create_task(call.run()) == data
        except asyncio.CancelledError:
            assert call.waits >= turn
        await until(lambda: len(nc._routes) <= routes + 1)  # the answers to requests
        if call.waits < turn:
            break
    else:
        pytest.fail("it never came to its end")
    assert turn > 2
    await assert_consumers_expire(nc, store.name)


async def test_a_progress_callback_that_fails(nc: Client, store: ObjectStore) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("the window was closed")

    with pytest.raises(RuntimeError, match="the window was closed"):
        await (await store.get("o", on_progress=fail)).read()
    await assert_no_consumers(nc, store.name)


# -- links --------------------------------------------------------------------------------------


async def link(nc: Client, store: ObjectStore, name: str, target: tuple[str, str]) -> None:
    """Make a link by hand, which `add_link` would refuse."""
    bucket, other = target
    options = {"link": {"bucket": bucket, "name": other}}
    meta = {"name": name, "bucket": store.name, "nuid": f"N{name}", "size": 0, "chunks": 0}
    await store_meta(nc, store.name, name, {**meta, "options": options})


@pytest.mark.parametrize("length", [1, 2, 3, 30])
@conformance("OBJ", "Get", "links in a circle are found out")
async def test_links_in_a_circle(nc: Client, length: int) -> None:
    stores = [await make_store(nc) for _ in range(min(length, 3))]
    for number in range(length):
        following = (number + 1) % length
        target = (stores[following % len(stores)].name, f"l{following}")
        await link(nc, stores[number % len(stores)], f"l{number}", target)
    async with asyncio.timeout(GUARD):
        with pytest.raises(LinkError) as caught:
            await stores[0].get("l0")
    assert "'l0'" in str(caught.value)
    assert not caught.value.retryable


async def test_links_that_lead_nowhere(nc: Client, store: ObjectStore) -> None:
    await link(nc, store, "no-store", ("no_such_store", "o"))
    await link(nc, store, "no-object", (store.name, "missing"))
    await link(nc, store, "bad-store", ("a.b", "o"))
    with pytest.raises(BucketNotFoundError):
        await store.get("no-store")
    with pytest.raises(ObjectNotFoundError):
        await store.get("no-object")
    with pytest.raises(JetSparkError):
        await store.get("bad-store")
    await store.add_link("link", await store.info("o"))
    await store.delete("o")
    with pytest.raises(ObjectNotFoundError):
        await store.get("link")


async def test_the_target_becomes_a_link(nc: Client, store: ObjectStore) -> None:
    await store.add_link("link", await store.info("o"))
    await store.put("p", b"data of p")
    await link(nc, store, "o", (store.name, "p"))
    assert await read(store, "link") == b"data of p"


# -- watching damaged stores --------------------------------------------------------------------


async def test_a_list_with_a_damaged_description(nc: Client, store: ObjectStore) -> None:
    """One bad description is an error that names it, not a loss of the others without a word."""
    await nc.jetstream().publish(meta_subject(store.name, "bad"), b"{")
    async with asyncio.timeout(GUARD):
        with pytest.raises(BadObjectError):
            [info async for info in store.list()]
    await assert_no_consumers(nc, store.name)
