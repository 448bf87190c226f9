"""Getting objects: piece by piece, whole, in part, into files, and over links."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from jetspark import Client, JetStream, ObjectLink, ObjectStore
from jetspark.errors import (
    BadObjectError,
    BucketNotFoundError,
    DigestMismatchError,
    InvalidBucketNameError,
    IteratorClosedError,
    LinkError,
    MessageNotFoundError,
    ObjectNotFoundError,
    TimeoutError,
)
from jetspark.objects import chunk_feed, feed, reader
from jetspark.server import NatsServer
from tests.support.buckets import js, nc
from tests.support.clients import Connect
from tests.support.conformance import conformance
from tests.support.objects import (
    CHUNK,
    assert_no_consumers,
    backing_stream,
    chunk_subject,
    content,
    digest_of,
    make_store,
    meta_subject,
    raw_meta,
    read,
    store_meta,
)
from tests.support.servers import StartServer

__all__ = ["js", "nc"]

DATA = content(50 * CHUNK + 100)


@pytest_asyncio.fixture
async def store(js: JetStream) -> ObjectStore:
    """A store with an object of 51 chunks."""
    store = await make_store(js)
    await store.put("o", DATA, chunk_size=CHUNK)
    return store


# -- the whole object ---------------------------------------------------------------------------


@conformance("OBJ", "Get", "the chunks come in order, and the digest is compared")
async def test_piece_by_piece(js: JetStream, store: ObjectStore) -> None:
    async with await store.get("o") as chunks:
        assert chunks.info == await store.info("o")
        assert chunks.length == len(DATA)
        found = [chunk async for chunk in chunks]
    assert [len(chunk) for chunk in found] == [CHUNK] * 50 + [100]
    assert b"".join(found) == DATA
    await assert_no_consumers(js, store.name)


async def test_the_rest_of_what_was_begun(store: ObjectStore) -> None:
    chunks = await store.get("o")
    assert await anext(chunks) == DATA[:CHUNK]
    assert await chunks.read() == DATA[CHUNK:]
    assert await chunks.read() == b""
    assert [chunk async for chunk in chunks] == []


@conformance("OBJ", "Get", "an empty object needs no consumer")
async def test_an_empty_object(
    nats_server: NatsServer, connect: Connect, store: ObjectStore
) -> None:
    await store.put("empty", b"")
    other = await connect(nats_server.url)
    created = await other.subscribe(f"$JS.API.CONSUMER.CREATE.OBJ_{store.name}.>")
    await other.flush()
    assert [chunk async for chunk in await store.get("empty")] == []
    assert await read(store, "empty") == b""
    assert await read(store, "o") == DATA
    # The first one that was created is that of the other object.
    subject = chunk_subject(store.name, (await store.info("o")).nuid)
    assert (await created.next(10)).subject.endswith(subject)


@conformance("OBJ", "Get", "an object that is missing or deleted is not found")
async def test_objects_that_are_not_there(store: ObjectStore) -> None:
    with pytest.raises(ObjectNotFoundError, match=r"object 'p' .*: there is none of that name"):
        await store.get("p")
    await store.delete("o")
    with pytest.raises(ObjectNotFoundError, match=r"object 'o' .*: it has been deleted"):
        await store.get("o")


async def test_progress(store: ObjectStore) -> None:
    seen: list[tuple[int, int | None]] = []
    await (await store.get("o", on_progress=lambda *args: seen.append(args))).read()
    assert len(seen) == 51
    assert seen[0] == (CHUNK, len(DATA))
    assert seen[-1] == (len(DATA), len(DATA))
    seen.clear()
    part = await store.get(
        "o", offset=10, length=CHUNK, on_progress=lambda *args: seen.append(args)
    )
    await part.read()
    assert seen == [(CHUNK - 10, CHUNK), (CHUNK, CHUNK)]
    seen.clear()
    await store.put("empty", b"")
    await (await store.get("empty", on_progress=lambda *args: seen.append(args))).read()
    assert seen == []


async def test_two_at_a_time_from_one_store(js: JetStream, store: ObjectStore) -> None:
    await store.put("p", DATA[::-1])
    async with await store.get("o") as one, await store.get("p") as other:
        assert await anext(one) == DATA[:CHUNK]
        rest, whole = await asyncio.gather(one.read(), other.read())
        assert (rest, whole) == (DATA[CHUNK:], DATA[::-1])


@conformance("OBJ", "Get", "a reader that is left early takes its consumer with it")
async def test_giving_up_early(js: JetStream, store: ObjectStore) -> None:
    async with await store.get("o"):
        pass
    async with await store.get("o") as chunks:
        await anext(chunks)
    with pytest.raises(IteratorClosedError, match="reading was stopped"):
        await anext(chunks)
    await (await store.get("o")).stop()
    await assert_no_consumers(js, store.name)


@conformance("OBJ", "Get", "a reader that stalls holds a bounded number of bytes")
async def test_only_so_much_is_on_order(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "WINDOW_BYTES", 10 * CHUNK)
    async with await store.get("o") as chunks:
        assert await anext(chunks) == DATA[:CHUNK]
        await asyncio.sleep(0.1)
        assert chunks._feed is not None
        assert chunks._feed.received < 30, "twice the window, and some statuses"
        assert await chunks.read() == DATA[CHUNK:]


# -- damage -------------------------------------------------------------------------------------


@conformance("OBJ", "Get", "data with another digest are refused at the end")
async def test_another_digest(nc: Client, store: ObjectStore) -> None:
    meta = await raw_meta(nc, store.name, "o")
    await store_meta(nc, store.name, "o", {**meta, "digest": digest_of(b"other")})
    got = []
    with pytest.raises(DigestMismatchError, match=f"object 'o' in store {store.name!r}"):
        async for chunk in await store.get("o"):
            got.append(chunk)  # noqa: PERF401 - to see how far it came
    assert len(b"".join(got)) < len(DATA), "the last of the data are held back"
    await assert_no_consumers(nc, store.name)


@conformance("OBJ", "Get", "an empty object has a digest, too")
async def test_the_digest_of_an_empty_object(nc: Client, store: ObjectStore) -> None:
    await store.put("empty", b"")
    meta = await raw_meta(nc, store.name, "empty")
    await store_meta(nc, store.name, "empty", {**meta, "digest": digest_of(b"other")})
    with pytest.raises(DigestMismatchError):
        await store.get("empty")


@conformance("OBJ", "Get", "missing chunks are noticed at once, from the reply to the create")
@pytest.mark.parametrize("keep", [0, 1, 50])
async def test_chunks_that_are_gone(nc: Client, store: ObjectStore, keep: int) -> None:
    stream = await backing_stream(nc, store.name)
    nuid = (await store.info("o")).nuid
    await stream.purge(subject=chunk_subject(store.name, nuid), keep=keep or None)
    with pytest.raises(BadObjectError, match=f"{51 - keep} of 51 chunks are gone"):
        await store.get("o")
    with pytest.raises(BadObjectError, match="chunks are gone"):
        await store.get("o", offset=45 * CHUNK, length=1)
    await assert_no_consumers(nc, store.name)


@conformance("OBJ", "Get", "the number of bytes and chunks must be those of the description")
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"size": len(DATA) + 1}, "its chunks end after"),
        ({"size": len(DATA) - 1}, "more than"),
        ({"size": 10}, "more than 10 bytes"),
        ({"size": len(DATA) - 100}, "more than"),
        ({"chunks": 50}, "it has 51 chunks instead of 50"),
        ({"chunks": 52}, "1 of 52 chunks are gone"),
        ({"chunks": 0}, "it has 51 chunks instead of 0"),
        ({"nuid": ""}, "which chunks it has"),
        ({"nuid": "other"}, "51 of 51 chunks are gone"),
        ({"digest": "MD5=abc"}, "not a SHA-256 digest"),
        ({"digest": ""}, "not a SHA-256 digest"),
    ],
)
async def test_descriptions_that_do_not_fit(
    nc: Client, store: ObjectStore, changes: dict[str, Any], text: str
) -> None:
    meta = await raw_meta(nc, store.name, "o")
    await store_meta(nc, store.name, "o", {**meta, **changes})
    with pytest.raises(BadObjectError, match=text) as caught:
        await read(store, "o")
    assert "object 'o'" in str(caught.value)
    await assert_no_consumers(nc, store.name)


@conformance("OBJ", "Get", "chunks that are purged while they are read end it at once")
async def test_chunks_that_go_meanwhile(
    nc: Client, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "WINDOW_BYTES", 4 * CHUNK)
    monkeypatch.setattr(feed, "FIRST_LOOK", 0.02)
    stream = await backing_stream(nc, store.name)
    async with await store.get("o") as chunks:
        await anext(chunks)
        await stream.purge(subject=chunk_subject(store.name, chunks.info.nuid))
        with pytest.raises(BadObjectError, match="51 of 51 chunks are gone"):
            await chunks.read()
    await assert_no_consumers(nc, store.name)


async def test_chunks_that_do_not_come(nc: Client, store: ObjectStore) -> None:
    """The server is asked for nothing, so that nothing comes."""
    async with await store.get("o", timeout=0.05) as chunks:
        assert chunks._feed is not None
        chunks._feed._order = lambda: None  # type: ignore[method-assign]
        with pytest.raises(TimeoutError, match=r"no message in 0\.05 s, and 51 are to come"):
            await chunks.read()


async def test_a_server_that_does_not_answer(start_server: StartServer, connect: Connect) -> None:
    """The reader does not wait longer than it was told to, be it asked for what is to come."""
    server = start_server()
    nc = await connect(server.url)
    store = await make_store(nc.jetstream(timeout=600))
    await store.put("o", DATA, chunk_size=CHUNK)
    async with await store.get("o", timeout=0.3) as chunks, asyncio.timeout(30):
        server.pause()
        try:
            with pytest.raises(TimeoutError, match="51 are to come"):
                await chunks.read()
        finally:
            server.resume()


async def test_a_replica_that_does_not_have_the_object_yet(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a cluster a direct get may be answered by such a one."""
    direct_get = store._records._reader.direct_get_last
    await store.put("p", b"old")
    await store.delete("p")
    deleted = await direct_get(meta_subject(store.name, "p"))
    await store.put("p", b"new")

    async def behind(subject: str) -> Any:
        if subject == deleted.subject:
            return deleted
        raise MessageNotFoundError("not yet")

    monkeypatch.setattr(store._records._reader, "direct_get_last", behind)
    assert await read(store, "o") == DATA
    assert await read(store, "p") == b"new"
    await store.add_link("l", "o")
    await store.add_link("m", "p")
    with pytest.raises(ObjectNotFoundError):
        await store.get("q")


async def test_a_link_to_what_only_a_replica_still_has(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = await store._records._reader.direct_get_last(meta_subject(store.name, "o"))
    await store.delete("o")

    async def behind(subject: str) -> Any:
        return there

    monkeypatch.setattr(store._records._reader, "direct_get_last", behind)
    with pytest.raises(ObjectNotFoundError, match="it has been deleted"):
        await store.add_link("l", "o")


@conformance("OBJ", "Get", "an object that is replaced in between is read as the new one")
async def test_a_description_that_is_too_old(
    nc: Client, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A direct get may be answered by a replica that does not know of the last put yet."""
    old = await store.info("o")
    await store.put("o", b"new")
    find = store._records.find
    answers: list[Any] = [old]

    async def stale(name: str) -> Any:
        return answers.pop() if answers else await find(name)

    monkeypatch.setattr(store._records, "find", stale)
    assert await read(store, "o") == b"new"
    answers.append(old)
    await store.delete("o")
    with pytest.raises(ObjectNotFoundError):
        await store.get("o")


@conformance("OBJ", "Get", "a consumer that does not have all chunks yet is waited for")
async def test_a_replica_that_is_behind(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a cluster the consumer may be on a server that lags; here it only says so."""
    monkeypatch.setattr(feed, "FIRST_LOOK", 0.01)
    looked: list[int] = []
    look = reader.ObjectReader._look_for_more

    async def count(self: reader.ObjectReader, feed: feed.Feed) -> None:
        await look(self, feed)
        looked.append(feed.pending)

    monkeypatch.setattr(reader.ObjectReader, "_look_for_more", count)
    monkeypatch.setattr(reader, "WINDOW_BYTES", 4 * CHUNK)
    chunks = await store.get("o")
    assert chunks._feed is not None
    assert await anext(chunks) == DATA[:CHUNK]
    chunks._feed.pending = 0
    assert await chunks.read() == DATA[CHUNK:]
    await store.put("p", DATA, chunk_size=CHUNK)
    open_feed = chunk_feed.ChunkFeed.open

    async def behind(*args: Any, **options: Any) -> chunk_feed.ChunkFeed:
        opened = await open_feed(*args, **options)
        opened.pending = 7
        return opened

    monkeypatch.setattr(chunk_feed.ChunkFeed, "open", behind)
    assert await read(store, "p") == DATA
    assert looked[-1] == 51


# -- parts --------------------------------------------------------------------------------------

PARTS = [
    (0, 0),
    (0, 1),
    (0, CHUNK),
    (0, len(DATA)),
    (0, 10**9),
    (1, None),
    (CHUNK - 1, 2),
    (CHUNK, CHUNK),
    (3 * CHUNK + 5, 10 * CHUNK),
    (50 * CHUNK, None),
    (50 * CHUNK - 1, 3),
    (len(DATA) - 1, None),
    (len(DATA), None),
    (len(DATA) + 10, 10),
]


@pytest.mark.parametrize("scan_from", [0, 10 * CHUNK, 10**9])
@pytest.mark.parametrize(("offset", "length"), PARTS)
async def test_parts(
    js: JetStream,
    store: ObjectStore,
    offset: int,
    length: int | None,
    scan_from: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reader, "SCAN_FROM", scan_from)
    part = await store.get("o", offset=offset, length=length)
    expected = DATA[offset:] if length is None else DATA[offset : offset + length]
    assert part.length == len(expected)
    assert await part.read() == expected
    await assert_no_consumers(js, store.name)


@pytest.mark.parametrize("scan_from", [0, 10**9])
async def test_parts_of_an_object_with_uneven_chunks(
    nc: Client, store: ObjectStore, scan_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other clients store what a read gave them: only the sum of the sizes is known."""
    monkeypatch.setattr(reader, "SCAN_FROM", scan_from)
    js = nc.jetstream()
    sizes = [10, 1, 500, 99, 400, 400]
    data = content(sum(sizes))
    position = 0
    for size in sizes:
        await js.publish(chunk_subject(store.name, "N"), data[position : position + size])
        await js.publish(chunk_subject(store.name, "OTHER"), b"in between")
        position += size
    meta = {"name": "u", "nuid": "N", "bucket": store.name, "size": len(data), "chunks": len(sizes)}
    meta |= {"digest": digest_of(data), "options": {"max_chunk_size": 500}}
    await store_meta(nc, store.name, "u", meta)
    for offset in (0, 5, 10, 11, 12, 511, 700, 1011, 1409):
        assert (
            await (await store.get("u", offset=offset, length=450)).read()
            == (data[offset : offset + 450])
        )


async def test_a_part_of_an_object_that_is_shorter_than_it_says(
    nc: Client, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "SCAN_FROM", 0)
    meta = await raw_meta(nc, store.name, "o")
    await store_meta(nc, store.name, "o", {**meta, "size": 10**9})
    with pytest.raises(BadObjectError, match="its chunks end after"):
        await store.get("o", offset=10**8)
    await assert_no_consumers(nc, store.name)


# -- files --------------------------------------------------------------------------------------


@conformance("OBJ", "Get", "a file gets a temporary name first, and is renamed when it is whole")
async def test_files(nc: Client, store: ObjectStore, tmp_path: Path) -> None:
    target = tmp_path / "file"
    names: set[str] = set()
    info = await store.get_file(
        "o", target, on_progress=lambda *_: names.update(os.listdir(tmp_path))
    )
    assert info.name == "o"
    assert target.read_bytes() == DATA
    assert len(names) == 1
    assert names != {"file"}, "it had another name"
    assert os.listdir(tmp_path) == ["file"]
    meta = await raw_meta(nc, store.name, "o")
    await store_meta(nc, store.name, "o", {**meta, "digest": digest_of(b"other")})
    target.write_bytes(b"old")
    with pytest.raises(DigestMismatchError):
        await store.get_file("o", str(target))
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


# -- links --------------------------------------------------------------------------------------


@conformance("OBJ", "Get", "links are followed, also into other stores")
async def test_links_are_followed(js: JetStream, store: ObjectStore, tmp_path: Path) -> None:
    other = await make_store(js)
    await store.add_link("near", "o")
    await other.add_link("far", await store.info("o"))
    for link in (await store.get("near"), await other.get("far")):
        assert link.info == await store.info("o")
        assert await link.read() == DATA
    assert await (await other.get("far", offset=CHUNK, length=5)).read() == DATA[CHUNK:][:5]
    await other.get_file("far", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == DATA


@conformance("OBJ", "Get", "a link to a whole store has no data")
async def test_a_link_to_a_store(store: ObjectStore) -> None:
    await store.add_bucket_link("store", "somewhere")
    with pytest.raises(LinkError, match="link to the whole store 'somewhere'"):
        await store.get("store")


@conformance("OBJ", "Get", "links that lead nowhere are errors")
async def test_links_that_lead_nowhere(js: JetStream, store: ObjectStore) -> None:
    other = await make_store(js)
    info = await other.put("o", b"1")
    await store.add_link("l", info)
    await other.delete("o")
    with pytest.raises(ObjectNotFoundError, match=f"object 'o' in store {other.name!r}"):
        await store.get("l")
    await js.delete_object_store(other.name)
    with pytest.raises(BucketNotFoundError, match=repr(other.name)):
        await store.get("l")


@conformance("OBJ", "Get", "links in a circle are found out")
async def test_links_in_a_circle(nc: Client, store: ObjectStore) -> None:
    for name, target in (("a", "b"), ("b", "c"), ("c", "a"), ("self", "self")):
        link = ObjectLink(bucket=store.name, name=target)
        meta: dict[str, Any] = {
            "name": name,
            "nuid": name,
            "bucket": store.name,
            "size": 0,
            "chunks": 0,
        }
        meta["options"] = {"link": link.to_wire()}
        await store_meta(nc, store.name, name, meta)
    with pytest.raises(LinkError, match=r"object 'a' .*/a -> .*/b -> .*/c -> .*/a; delete one"):
        await store.get("a")
    with pytest.raises(LinkError, match="object 'self'"):
        await store.get("self")


async def test_a_link_to_a_store_that_cannot_be(nc: Client, store: ObjectStore) -> None:
    for bucket, error in (("a.b", InvalidBucketNameError), ("missing", BucketNotFoundError)):
        options = {"link": {"bucket": bucket, "name": "o"}}
        await store_meta(
            nc,
            store.name,
            "l",
            {"name": "l", "bucket": store.name, "nuid": "N", "options": options},
        )
        with pytest.raises(error, match=f"object 'l' in store {store.name!r}"):
            await store.get("l")
