"""Putting objects: what is stored, what replaces what, and what is refused."""

from __future__ import annotations

import asyncio
import io
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from jetspark import Client, JetStream, ObjectLink, ObjectMeta, ObjectOptions, ObjectStore
from jetspark.errors import (
    BadObjectError,
    BucketNotFoundError,
    InvalidArgumentError,
    InvalidNameError,
    InvalidOptionError,
    LinkError,
    MaxPayloadError,
    MessageTooLargeError,
    StoreFailedError,
    WrongLastSequenceError,
)
from jetspark.objects import records, upload
from tests.support.buckets import js, nc
from tests.support.clients import Connect, Events
from tests.support.conformance import conformance
from tests.support.objects import (
    CHUNK,
    Gate,
    assert_tidy,
    backing_stream,
    chunk_subject,
    chunks_by_key,
    content,
    digest_of,
    make_store,
    meta_subject,
    pieces,
    raw_meta,
    read,
)
from tests.support.servers import StartServer

__all__ = ["js", "nc"]

DATA = content(300_000)


@pytest_asyncio.fixture
async def store(js: JetStream) -> ObjectStore:
    return await make_store(js)


# -- what is stored -----------------------------------------------------------------------------


@conformance("OBJ", "Put", "the chunks are on one subject without headers, and 131072 bytes long")
async def test_the_messages_of_an_object(js: JetStream, store: ObjectStore) -> None:
    info = await store.put("o", DATA)
    stream = await backing_stream(js, store.name)
    messages = [await stream.get_message(sequence) for sequence in (1, 2, 3)]
    assert {message.subject for message in messages} == {chunk_subject(store.name, info.nuid)}
    assert [len(message.data) for message in messages] == [131072, 131072, 300_000 - 2 * 131072]
    assert b"".join(message.data for message in messages) == DATA
    assert all(message.raw_headers is None for message in messages)
    meta = await stream.get_message(4)
    assert meta.subject == meta_subject(store.name, "o")
    assert meta.headers["Nats-Rollup"] == "sub"
    assert (await stream.info()).state.messages == 4
    assert len(info.nuid) == 22


@conformance("OBJ", "Meta message", "the fields of the description")
async def test_the_description(js: JetStream, store: ObjectStore) -> None:
    before = datetime.now(UTC) - timedelta(seconds=5)
    info = await store.put(
        "o",
        DATA,
        description="a photo",
        headers={"Type": "image", "Tags": ["a", "b"]},
        metadata={"by": "me"},
        chunk_size=100_000,
    )
    assert await raw_meta(js, store.name, "o") == {
        "name": "o",
        "description": "a photo",
        "headers": {"Type": ["image"], "Tags": ["a", "b"]},
        "metadata": {"by": "me"},
        "options": {"max_chunk_size": 100_000},
        "bucket": store.name,
        "nuid": info.nuid,
        "size": 300_000,
        "chunks": 3,
        "digest": digest_of(DATA),
    }
    assert before < info.modified <= datetime.now(UTC)
    assert (info.bucket, info.size, info.chunks, info.chunk_size) == (store.name, 300_000, 3, 10**5)
    assert (info.deleted, info.link) == (False, None)
    found = await store.info("o")
    assert found.replace(modified=info.modified) == info


@conformance("OBJ", "Put", "an empty object has the digest of nothing and no chunks")
async def test_an_empty_object(js: JetStream, store: ObjectStore) -> None:
    info = await store.put("o", b"")
    assert (info.size, info.chunks) == (0, 0)
    assert info.digest == "SHA-256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU="
    assert (await (await backing_stream(js, store.name)).info()).state.messages == 1
    assert await read(store, "o") == b""


@pytest.mark.parametrize("kind", ["bytes", "file object", "path", "iterator", "async iterator"])
async def test_every_kind_of_data(store: ObjectStore, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    sources: dict[str, Any] = {
        "bytes": memoryview(DATA),
        "file object": io.BytesIO(DATA),
        "path": path,
        "iterator": (DATA[start : start + 777] for start in range(0, len(DATA), 777)),
        "async iterator": pieces(DATA, 5555),
    }
    info = await store.put("o", sources[kind])
    assert (info.size, info.chunks, info.digest) == (300_000, 3, digest_of(DATA))
    assert await read(store, "o") == DATA


async def test_files(store: ObjectStore, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    info = await store.put_file("o", str(path), description="d", chunk_size=1000)
    assert (info.size, info.chunks, info.description) == (300_000, 300, "d")
    with path.open("rb") as file:
        assert (await store.put("o", file)).digest == info.digest
    assert await read(store, "o") == DATA


async def test_a_copy_from_another_store(js: JetStream, store: ObjectStore) -> None:
    await store.put("o", DATA, description="d")
    other = await make_store(js)
    reader = await store.get("o")
    copy = await other.put(reader.info, reader, metadata={"copied": "yes"})
    assert (copy.name, copy.description, copy.bucket) == ("o", "d", other.name)
    assert copy.metadata == {"copied": "yes"}
    assert copy.digest == reader.info.digest
    assert copy.nuid != reader.info.nuid


@pytest.mark.parametrize("name", ["a b", "dir/file.txt", "*", ">", "$O.x", "Grüße", "x" * 2000])
async def test_names(js: JetStream, store: ObjectStore, name: str) -> None:
    await store.put(name, name.encode())
    assert await read(store, name) == name.encode()
    assert (await store.info(name)).name == name
    assert [info.name async for info in store.list()] == [name]


async def test_progress(store: ObjectStore, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    await store.put("o", DATA, chunk_size=100_000, on_progress=lambda *args: seen.append(args))
    assert seen == [(100_000, 300_000), (200_000, 300_000), (300_000, 300_000)]
    seen.clear()
    await store.put("o", [DATA], chunk_size=200_000, on_progress=lambda *args: seen.append(args))
    assert seen == [(200_000, None), (300_000, None)]
    seen.clear()
    (tmp_path / "file").write_bytes(DATA)
    await store.put_file("o", tmp_path / "file", on_progress=lambda *args: seen.append(args))
    assert seen[-1] == (300_000, 300_000)
    seen.clear()
    await store.put("o", b"", on_progress=lambda *args: seen.append(args))
    assert seen == []


@conformance("OBJ", "Put", "chunks have the size of the options, or 131072 bytes if that is 0")
@pytest.mark.parametrize(
    ("argument", "option", "size"),
    [
        (0, 0, 131072),
        (None, 0, 131072),
        (0, 110_000, 110_000),
        (None, 110_000, 110_000),
        (90_000, 110_000, 90_000),
    ],
)
async def test_the_size_of_the_chunks(
    js: JetStream, store: ObjectStore, argument: int | None, option: int, size: int
) -> None:
    meta = ObjectMeta(name="o", options=ObjectOptions(max_chunk_size=option))
    info = await store.put(meta, DATA, chunk_size=argument)
    stream = await backing_stream(js, store.name)
    full, rest = divmod(len(DATA), size)
    sizes = [len((await stream.get_message(1 + number)).data) for number in range(info.chunks)]
    assert sizes == [size] * full + [rest]
    assert info.options == (await store.info("o")).options == ObjectOptions(max_chunk_size=size)


async def test_many_small_chunks(store: ObjectStore) -> None:
    info = await store.put("o", DATA[:20_000], chunk_size=3)
    assert info.chunks == 6667
    assert await read(store, "o") == DATA[:20_000]


# -- replacing ----------------------------------------------------------------------------------


@conformance("OBJ", "Put", "the chunks of the old object are purged after the new one is there")
async def test_an_object_is_replaced(js: JetStream, store: ObjectStore) -> None:
    old = await store.put("o", DATA, description="old")
    new = await store.put("o", b"new")
    assert old.nuid != new.nuid
    assert (await store.info("o")).description == ""
    assert await read(store, "o") == b"new"
    await assert_tidy(js, store, "o")


@conformance("OBJ", "Put", "a put holds although the old chunks cannot be purged, which is told")
@conformance(
    "OBJ", "Other operations", "a delete holds although its chunks cannot be purged, which is told"
)
async def test_old_chunks_that_cannot_be_purged(
    start_server: StartServer, connect: Connect
) -> None:
    account = {
        "jetstream": "enabled",
        "users": [{"user": "u", "password": "p"}],
        "mappings": {"$JS.API.STREAM.PURGE.>": "nobody.listens.>"},
    }
    events = Events()
    server = start_server(accounts={"a": account})
    nc = await connect(server.url, user="u", password="p", on_event=events)
    store = await make_store(nc)
    old = await store.put("o", DATA, chunk_size=100_000)
    new = await store.put("o", b"new")
    assert await read(store, "o") == b"new"
    assert await chunks_by_key(nc, store.name) == {old.nuid: 3, new.nuid: 1}
    await store.delete("o")
    assert (await store.info("o", show_deleted=True)).deleted
    assert await chunks_by_key(nc, store.name) == {old.nuid: 3, new.nuid: 1}
    for error, info in zip(events.errors, (old, new), strict=True):
        assert f"remove the chunks {info.nuid!r}" in str(error)


@conformance("OBJ", "Put", "a deleted object and a link are replaced")
async def test_a_deleted_object_and_a_link_are_replaced(js: JetStream, store: ObjectStore) -> None:
    await store.put("o", DATA)
    await store.add_link("l", "o")
    await store.put("l", b"no link")
    await store.delete("o")
    await store.put("o", b"again")
    assert await read(store, "o") == b"again"
    assert await read(store, "l") == b"no link"
    await assert_tidy(js, store, "o", "l")


@conformance("OBJ", "Put", "concurrent puts of one name: one wins, and no chunks are left")
async def test_puts_of_one_name_at_the_same_time(js: JetStream, store: ObjectStore) -> None:
    contents = [content(20 * CHUNK, seed) for seed in range(8)]
    infos = await asyncio.gather(
        *(store.put("o", pieces(data), chunk_size=CHUNK) for data in contents)
    )
    winner = await store.info("o")
    assert winner.nuid in {info.nuid for info in infos}
    assert await read(store, "o") in contents
    await assert_tidy(js, store, "o")


async def test_a_put_that_takes_longer_than_another(js: JetStream, store: ObjectStore) -> None:
    await store.put("o", b"old")
    gate = Gate(DATA, 10)
    slow = asyncio.create_task(store.put("o", gate, chunk_size=CHUNK))
    await gate.reached.wait()
    await store.put("o", b"quick")
    await store.update_meta("o", description="changed")
    assert await read(store, "o") == b"quick"
    gate.open()
    await slow
    assert await read(store, "o") == DATA
    await assert_tidy(js, store, "o")


async def test_others_can_always_be_faster(
    store: ObjectStore, js: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "PATIENCE", 0.0)
    await store.put("o", b"old")
    gate = Gate(DATA, 3)
    slow = asyncio.create_task(store.put("o", gate, chunk_size=CHUNK))
    await gate.reached.wait()
    await store.put("o", b"quick")
    gate.open()
    with pytest.raises(WrongLastSequenceError, match=f"object 'o' in store {store.name!r}"):
        await slow
    assert await read(store, "o") == b"quick"
    await assert_tidy(js, store, "o")


# -- what is refused ----------------------------------------------------------------------------


@conformance("OBJ", "Put", "an empty name, a link, and too large chunks are refused at once")
async def test_what_is_refused_before_anything_is_sent(nc: Client, store: ObjectStore) -> None:
    before = nc.statistics.messages_out
    link = ObjectOptions(link=ObjectLink(bucket="b", name="o"))
    calls: list[tuple[type[Exception], str, Any]] = [
        (InvalidNameError, "empty", store.put("", DATA)),
        (InvalidNameError, "must be a str", store.put(5, DATA)),  # type: ignore[arg-type]
        (LinkError, "'o'", store.put(ObjectMeta(name="o", options=link), DATA)),
        (InvalidOptionError, "chunk_size", store.put("o", DATA, chunk_size=-1)),
        (InvalidOptionError, "max_payload", store.put("o", DATA, chunk_size=nc.max_payload + 1)),
        (InvalidOptionError, "metadata", store.put("o", DATA, metadata={"a": 1})),  # type: ignore[dict-item]
        (InvalidArgumentError, "headers", store.put("o", DATA, headers=["a"])),  # type: ignore[arg-type]
        (InvalidOptionError, "headers", store.put("o", DATA, headers={"a": 1})),  # type: ignore[dict-item]
        (InvalidArgumentError, "description", store.put("o", DATA, description="\ud800")),
        (InvalidArgumentError, "headers", store.put("o", DATA, headers={"a": "\ud800"})),
        (InvalidArgumentError, "on_progress", store.put("o", DATA, on_progress=5)),  # type: ignore[arg-type]
        (InvalidArgumentError, "on_progress", store.put("o", DATA, on_progress=read)),  # type: ignore[arg-type]
        (FileNotFoundError, "missing", store.put_file("o", "/missing")),
        (MaxPayloadError, "object 'o'", store.put("o", DATA, description="d" * nc.max_payload)),
        (InvalidNameError, "empty", store.get("")),
        (InvalidNameError, "empty", store.info("")),
        (InvalidNameError, "empty", store.delete("")),
        (InvalidOptionError, "offset", store.get("o", offset=-1)),
        (InvalidOptionError, "length", store.get("o", length=1.5)),  # type: ignore[arg-type]
    ]
    for kind, text, call in calls:
        with pytest.raises(kind, match=text):
            await call
    assert nc.statistics.messages_out == before


async def test_what_is_no_data(js: JetStream, store: ObjectStore) -> None:
    for wrong in ("text", [b"good" * CHUNK, "text"], 5):
        with pytest.raises(InvalidArgumentError, match=r"object 'o' in store .* are bytes, not"):
            await store.put("o", wrong, chunk_size=CHUNK)  # type: ignore[arg-type]
    await assert_tidy(js, store)


@conformance("OBJ", "Put", "a chunk may be as large as max_payload")
async def test_the_largest_chunks(nc: Client, store: ObjectStore) -> None:
    data = content(nc.max_payload + 5)
    assert (await store.put("o", data, chunk_size=nc.max_payload)).chunks == 2
    assert await read(store, "o") == data


async def test_chunks_fit_a_small_server_by_themselves(
    start_server: StartServer, connect: Connect
) -> None:
    nc = await connect(start_server(max_payload=50_000).url)
    store = await make_store(nc)
    info = await store.put("o", DATA)
    assert (info.chunk_size, info.chunks) == (50_000, 6)
    assert await read(store, "o") == DATA


@conformance("OBJ", "Put", "a full store: 10077, code 503, maximum bytes exceeded")
async def test_a_full_store(js: JetStream) -> None:
    store = await make_store(js, max_bytes=400_000)
    await store.put("o", DATA)
    with pytest.raises(StoreFailedError, match=r"object 'p'.*maximum bytes exceeded") as caught:
        await store.put("p", DATA)
    assert (caught.value.err_code, caught.value.code) == (10077, 503)
    with pytest.raises(StoreFailedError, match="object 'o'"):
        await store.put("o", DATA)
    assert await read(store, "o") == DATA
    await assert_tidy(js, store, "o")


async def test_a_full_store_says_what_to_do_and_lets_objects_go(js: JetStream) -> None:
    store = await make_store(js)
    await store.put("o", DATA)
    await store.put("p", b"other")
    status = await store.status()
    await js.update_object_store(status.config.replace(max_bytes=status.size + 10))
    with pytest.raises(StoreFailedError, match="delete something, or give it more max_bytes"):
        await store.update_meta("o", description="new")
    await store.delete("o")
    assert (await store.info("o", show_deleted=True)).deleted
    await assert_tidy(js, store, "p")
    await store.put("o", DATA[:10])
    await assert_tidy(js, store, "o", "p")


@conformance("OBJ", "Put", "a chunk over max_msg_size: 10054")
async def test_a_stream_with_smaller_messages(js: JetStream, store: ObjectStore) -> None:
    await (await backing_stream(js, store.name)).update(max_msg_size=10_000)
    await store.put("o", b"small")
    with pytest.raises(MessageTooLargeError, match="object 'o'") as caught:
        await store.put("o", DATA)
    assert caught.value.err_code == 10054
    assert await read(store, "o") == b"small"
    await assert_tidy(js, store, "o")


@conformance("OBJ", "Put", "what fails is purged, and the old object stays")
async def test_a_source_that_fails(js: JetStream, store: ObjectStore) -> None:
    await store.put("o", b"old")

    async def failing() -> Any:
        for _ in range(600):
            yield content(CHUNK)
        raise RuntimeError("the source fails")

    with pytest.raises(RuntimeError, match="the source fails"):
        await store.put("o", failing(), chunk_size=CHUNK)
    assert await read(store, "o") == b"old"
    await assert_tidy(js, store, "o")


@conformance("OBJ", "Put", "what fails and cannot be purged stays, and the error says so")
async def test_a_put_that_fails_and_may_not_purge(
    connect: Connect, start_server: StartServer
) -> None:
    permissions = {"publish": {"deny": ["$JS.API.STREAM.PURGE.>"]}}
    users = [{"user": "few", "password": "p", "permissions": permissions}]
    server = start_server(config={"authorization": {"users": users}})
    nc = await connect(server.url, user="few", password="p", on_event=lambda event: None)
    store = await make_store(nc)
    old = await store.put("o", b"old")

    async def failing() -> Any:
        yield content(2 * CHUNK)
        raise RuntimeError("the source fails")

    with pytest.raises(RuntimeError, match="the source fails") as caught:
        await store.put("o", failing(), chunk_size=CHUNK)
    assert await read(store, "o") == b"old"
    chunks = await chunks_by_key(nc, store.name)
    assert chunks.pop(old.nuid) == 1
    assert list(chunks.values()) == [2]
    (note,) = caught.value.__notes__
    assert "Chunks of the object are left in the store: Permissions Violation" in note
    assert f"purge the subject {chunk_subject(store.name, *chunks)} of stream OBJ_" in note


@conformance("OBJ", "Put", "a cancelled put is purged, shielded from the cancellation")
async def test_a_put_is_cancelled(js: JetStream, store: ObjectStore) -> None:
    await store.put("o", b"old")
    gate = Gate(DATA, 20)
    putting = asyncio.create_task(store.put("o", gate, chunk_size=CHUNK))
    await gate.reached.wait()
    assert sum((await chunks_by_key(js, store.name)).values()) > 1
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert await read(store, "o") == b"old"
    await assert_tidy(js, store, "o")


async def test_a_timeout_around_a_put(js: JetStream, store: ObjectStore) -> None:
    gate = Gate(DATA, 20)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await store.put("o", gate, chunk_size=CHUNK)
    await assert_tidy(js, store)


async def test_chunks_that_are_not_in_order(
    js: JetStream, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot be brought about on purpose, so the put is made to believe it."""
    original = upload.Upload.__init__

    def init(self: upload.Upload, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self._last_sequence = 10**6

    monkeypatch.setattr(upload.Upload, "__init__", init)
    with pytest.raises(BadObjectError, match=r"object 'o' .* not behind the one before"):
        await store.put("o", DATA)
    await assert_tidy(js, store)


# -- no stream takes it -------------------------------------------------------------------------


@pytest.mark.parametrize("pause_after", [0, 30])
async def test_chunks_that_nobody_takes_for_a_while(
    js: JetStream, store: ObjectStore, pause_after: int
) -> None:
    """As while a leader is elected: without its subjects the stream does not hear of them."""
    stream = await backing_stream(js, store.name)
    subjects = stream.config.subjects
    gate = Gate(DATA, pause_after)
    putting = asyncio.create_task(store.put("o", gate, chunk_size=CHUNK))
    await gate.reached.wait()
    await stream.update(subjects=["nothing.of.the.kind." + store.name])
    gate.open()
    await asyncio.sleep(0.4)
    await stream.update(subjects=subjects)
    await putting
    assert await read(store, "o") == DATA
    await assert_tidy(js, store, "o")


async def test_a_store_that_is_deleted_meanwhile(js: JetStream, store: ObjectStore) -> None:
    gate = Gate(DATA, 30)
    putting = asyncio.create_task(store.put("o", gate, chunk_size=CHUNK))
    await gate.reached.wait()
    await js.delete_object_store(store.name)
    gate.open()
    with pytest.raises(BucketNotFoundError, match=f"object 'o' in store {store.name!r}"):
        await putting
