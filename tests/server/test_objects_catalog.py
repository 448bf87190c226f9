"""Descriptions of objects: info, list, delete, update_meta, renaming and links."""

from __future__ import annotations

import asyncio
from typing import Any

import nats
import pytest
import pytest_asyncio
from nats.js.api import ObjectMeta as NatsPyMeta
from nats.js.errors import ObjectAlreadyExists as NatsPyObjectExists

from jetspark import Client, JetStream, ObjectInfo, ObjectLink, ObjectMeta, ObjectStore
from jetspark.errors import (
    BadObjectError,
    ConflictError,
    InvalidArgumentError,
    InvalidBucketNameError,
    InvalidNameError,
    LinkError,
    MessageNotFoundError,
    ObjectExistsError,
    ObjectNotFoundError,
)
from jetspark.server import NatsServer
from tests.support.buckets import js, nc
from tests.support.conformance import conformance
from tests.support.objects import (
    assert_no_consumers,
    assert_tidy,
    backing_stream,
    chunks_by_key,
    make_store,
    meta_subject,
    raw_meta,
    read,
    store_meta,
)

__all__ = ["js", "nc"]


@pytest_asyncio.fixture
async def store(js: JetStream) -> ObjectStore:
    store = await make_store(js)
    await store.put("o", b"data", description="d", metadata={"k": "v"}, headers={"H": "1"})
    return store


# -- info and list ------------------------------------------------------------------------------


@conformance("OBJ", "Other operations", "info: 404 is ObjectNotFound, as is a deleted object")
async def test_info(store: ObjectStore) -> None:
    assert (await store.info("o")).size == 4
    with pytest.raises(ObjectNotFoundError, match=f"object 'p' in store {store.name!r}") as caught:
        await store.info("p")
    assert isinstance(caught.value, MessageNotFoundError)
    with pytest.raises(ObjectNotFoundError):
        await store.info("p", show_deleted=True)
    await store.delete("o")
    with pytest.raises(ObjectNotFoundError, match="it has been deleted"):
        await store.info("o")
    assert (await store.info("o", show_deleted=True)).deleted


@conformance("OBJ", "Other operations", "info works without direct gets, too")
async def test_a_store_without_direct_gets(js: JetStream, store: ObjectStore) -> None:
    """Stores of old clients have no `allow_direct`."""
    await (await backing_stream(js, store.name)).update(allow_direct=False)
    again = await js.object_store(store.name)
    for bound in (store, again):  # the one does not know of it yet
        assert (await bound.info("o")).description == "d"
        assert await read(bound, "o") == b"data"
        with pytest.raises(ObjectNotFoundError):
            await bound.info("p")


@conformance("OBJ", "Other operations", "info: bad JSON is an error of its own")
async def test_a_damaged_description(nc: Client, store: ObjectStore) -> None:
    await store_meta(nc, store.name, "o", b"{")
    for call in (store.info("o"), store.get("o"), store.delete("o")):
        with pytest.raises(BadObjectError, match=f"object 'o' in store {store.name!r}: .*damaged"):
            await call
    with pytest.raises(BadObjectError, match=f"message 3 of store {store.name!r}"):
        [info async for info in store.list()]
    await assert_no_consumers(nc, store.name)


@conformance("OBJ", "Meta message", "a missing nuid is an error of get and delete")
@pytest.mark.parametrize("nuid", [None, "", ">", "*", "a.b"])
async def test_a_description_without_nuid(nc: Client, store: ObjectStore, nuid: str | None) -> None:
    """A wildcard must not purge the chunks of others."""
    await store.put("p", b"other")
    meta = await raw_meta(nc, store.name, "o")
    await store_meta(nc, store.name, "o", {**meta, "nuid": nuid})
    assert (await store.info("o")).nuid == (nuid or "")
    for call in (store.get("o"), store.delete("o")):
        with pytest.raises(BadObjectError, match="nuid"):
            await call
    await store.put("o", b"new")
    assert await read(store, "o") == b"new"
    assert await read(store, "p") == b"other"


@conformance("OBJ", "Other operations", "list leaves deleted objects out; an empty store is empty")
async def test_list(js: JetStream, store: ObjectStore) -> None:
    for name in ("a", "b", "c"):
        await store.put(name, name.encode())
    await store.delete("b")
    await store.add_link("l", "a")
    listed = [info async for info in store.list()]
    assert [info.name for info in listed] == ["o", "a", "c", "l"]
    assert listed[0] == await store.info("o")
    with_deleted = [(info.name, info.deleted) async for info in store.list(show_deleted=True)]
    assert with_deleted == [("o", False), ("a", False), ("c", False), ("b", True), ("l", False)]
    empty = await make_store(js)
    assert [info async for info in empty.list()] == []
    async for _ in store.list():
        break
    await assert_no_consumers(js, store.name)


async def test_a_list_of_objects_that_are_replaced_before_their_turn(js: JetStream) -> None:
    """They come after as many as were counted at the beginning."""
    store = await make_store(js)
    names = [f"o{number}" for number in range(1000)]
    long = "d" * 40_000  # so that not all are on order at a time
    await asyncio.gather(*(store.put(name, b"", description=long) for name in names))
    infos = store.list()
    found = [await anext(infos), await anext(infos)]
    for name in (found[0].name, found[1].name, "o999"):  # two of them come again
        await store.put(name, b"new")
    await store.delete("o998")
    found += [info async for info in infos]
    assert sorted(info.name for info in found) == sorted(set(names) - {"o998"})
    assert {info.name: info.size for info in found}["o999"] == 3


async def test_a_list_of_an_object_that_gets_the_name_of_a_deleted_one(js: JetStream) -> None:
    """That there was none of that name has been seen by then; it comes with one of its names."""
    store = await make_store(js)
    await store.put("gone", b"")
    await store.delete("gone")
    names = [f"o{number}" for number in range(400)]
    long = "d" * 100_000  # so that not all are on order at a time
    await asyncio.gather(*(store.put(name, b"", description=long) for name in names))
    infos = store.list()
    found = [(await anext(infos)).name for _ in range(50)]
    for name in found:  # they come again, and after as many as were counted the list is at its end
        await store.update_meta(name, metadata={"changed": "yes"})
    await store.update_meta("o399", name="gone")
    found += [info.name async for info in infos]
    assert len(found) == 400
    assert set(found) - {"gone", "o399"} == set(names[:399])


async def test_a_long_list(store: ObjectStore) -> None:
    await asyncio.gather(*(store.put(f"n{number}", b"") for number in range(3000)))
    names = {info.name async for info in store.list()}
    assert names == {"o", *(f"n{number}" for number in range(3000))}


# -- delete -------------------------------------------------------------------------------------


@conformance("OBJ", "Other operations", "delete leaves a description without data, same nuid")
async def test_delete(js: JetStream, store: ObjectStore) -> None:
    before = await store.info("o")
    await store.delete("o")
    meta = await raw_meta(js, store.name, "o")
    assert (meta["deleted"], meta["size"], meta["chunks"]) == (True, 0, 0)
    assert meta["nuid"] == before.nuid
    assert "digest" not in meta
    assert "mtime" not in meta
    assert await chunks_by_key(js, store.name) == {}
    messages = (await (await backing_stream(js, store.name)).info()).state.messages
    await store.delete("o")  # once more changes nothing
    assert (await (await backing_stream(js, store.name)).info()).state.messages == messages == 1


async def test_delete_what_never_was(store: ObjectStore) -> None:
    with pytest.raises(ObjectNotFoundError, match="object 'p'"):
        await store.delete("p")


async def test_delete_a_link(store: ObjectStore) -> None:
    await store.add_link("l", "o")
    await store.delete("l")
    with pytest.raises(ObjectNotFoundError):
        await store.info("l")
    assert await read(store, "o") == b"data"


async def test_puts_and_deletes_at_the_same_time(js: JetStream, store: ObjectStore) -> None:
    calls: list[Any] = [store.put("o", b"x" * number) for number in range(1, 9)]
    await asyncio.gather(*calls, *(store.delete("o") for _ in range(8)))
    info = await store.info("o", show_deleted=True)
    await assert_tidy(js, store, *([] if info.deleted else ["o"]))
    if not info.deleted:
        assert await read(store, "o") == b"x" * info.size


# -- update_meta --------------------------------------------------------------------------------


@conformance("OBJ", "Other operations", "update_meta changes what the owner says and nothing else")
async def test_update_meta(js: JetStream, store: ObjectStore) -> None:
    before = await store.info("o")
    info = await store.update_meta(
        "o", description="new", headers={"A": ["1", "2"]}, metadata={"x": "y"}
    )
    assert (info.description, info.headers, info.metadata) == (
        "new",
        {"A": ["1", "2"]},
        {"x": "y"},
    )
    assert (info.nuid, info.digest, info.size) == (before.nuid, before.digest, before.size)
    assert info.options == before.options
    found = await store.info("o")
    assert found.replace(modified=info.modified) == info
    again = await store.update_meta("o", description="again")
    assert (again.description, again.metadata) == ("again", {"x": "y"})
    assert await read(store, "o") == b"data"
    await assert_tidy(js, store, "o")


async def test_update_meta_as_a_whole(store: ObjectStore) -> None:
    info = await store.update_meta("o", ObjectMeta(name="o", description="new"))
    assert (info.description, info.headers, info.metadata) == ("new", {}, {})
    renamed = await store.update_meta("o", info.replace(name="p"), metadata={"a": "b"})
    assert (renamed.name, renamed.metadata) == ("p", {"a": "b"})
    with pytest.raises(InvalidArgumentError, match="must be an ObjectMeta"):
        await store.update_meta("p", {"name": "q"})  # type: ignore[arg-type]


@conformance("OBJ", "Other operations", "unknown fields and link options survive an update")
async def test_update_meta_of_a_link_and_of_the_unknown(nc: Client, store: ObjectStore) -> None:
    meta = await raw_meta(nc, store.name, "o")
    await store_meta(nc, store.name, "o", {**meta, "future": [1], "mtime": ""})
    await store.update_meta("o", description="new")
    assert (await raw_meta(nc, store.name, "o"))["future"] == [1]
    assert "mtime" not in await raw_meta(nc, store.name, "o")
    await store.add_link("l", "o")
    link = await store.update_meta("l", description="a link", name="k")
    assert (link.name, link.link) == ("k", ObjectLink(bucket=store.name, name="o"))
    assert await read(store, "k") == b"data"


@conformance("OBJ", "Other operations", "update_meta of what is missing or deleted is refused")
async def test_update_meta_of_what_is_not_there(store: ObjectStore) -> None:
    with pytest.raises(ObjectNotFoundError, match="object 'p'"):
        await store.update_meta("p", description="new")
    await store.delete("o")
    with pytest.raises(ObjectNotFoundError, match="it has been deleted"):
        await store.update_meta("o", name="p")
    with pytest.raises(InvalidNameError):
        await store.update_meta("o", name="")


@conformance("OBJ", "Other operations", "a rename keeps the chunks and removes the old name")
async def test_rename(js: JetStream, store: ObjectStore) -> None:
    before = await store.info("o")
    info = await store.update_meta("o", name="p", description="renamed")
    assert (info.name, info.description, info.nuid) == ("p", "renamed", before.nuid)
    assert await read(store, "p") == b"data"
    with pytest.raises(ObjectNotFoundError):
        await store.info("o", show_deleted=True)
    stream = await backing_stream(js, store.name)
    with pytest.raises(MessageNotFoundError):
        await stream.get_last_message(meta_subject(store.name, "o"))
    await assert_tidy(js, store, "p")
    await store.put("o", b"another")
    assert await read(store, "p") == b"data"


@conformance("OBJ", "Other operations", "a rename does not replace an object, unless it is deleted")
async def test_rename_to_a_name_that_is_taken(js: JetStream, store: ObjectStore) -> None:
    await store.put("p", b"other")
    await store.add_link("l", "p")
    for name in ("p", "l"):
        with pytest.raises(ObjectExistsError, match=f"object {name!r} .* exists"):
            await store.update_meta("o", name=name)
    await store.delete("p")
    await store.update_meta("o", name="p")
    assert await read(store, "p") == b"data"
    await store.delete("l")
    await assert_tidy(js, store, "p")


@conformance("OBJ", "Other operations", "nats-py cannot rename: it finds the old name taken")
async def test_what_nats_py_cannot_rename(
    nats_server: NatsServer, js: JetStream, store: ObjectStore
) -> None:
    client = await nats.connect(nats_server.url)
    theirs = await client.jetstream().object_store(store.name)
    with pytest.raises(NatsPyObjectExists):
        await theirs.update_meta("o", NatsPyMeta(name="p"))
    await store.update_meta("o", name="p")
    assert (await theirs.get("p")).data == b"data"
    await client.close()


@conformance("OBJ", "Meta message", "nats-py writes an empty mtime when it deletes")
async def test_what_nats_py_deletes(
    nats_server: NatsServer, js: JetStream, store: ObjectStore
) -> None:
    client = await nats.connect(nats_server.url)
    theirs = await client.jetstream().object_store(store.name)
    await theirs.delete("o")
    await client.close()
    assert (await raw_meta(js, store.name, "o"))["mtime"] == ""
    info = await store.info("o", show_deleted=True)
    assert info.deleted
    assert info.modified.year > 2000


async def test_rename_what_is_replaced_meanwhile(
    js: JetStream, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever replaces it removes the chunks, so the new name would lead to nothing."""
    change = store._records.change

    async def slow(name: str, *args: Any) -> Any:
        replaced = await change(name, *args)
        if name == "p":
            monkeypatch.undo()
            await store.put("o", b"new")
        return replaced

    monkeypatch.setattr(store._records, "change", slow)
    with pytest.raises(ConflictError, match=r"object 'o' .* was changed") as caught:
        await store.update_meta("o", name="p")
    assert caught.value.retryable
    assert await read(store, "o") == b"new"
    await assert_tidy(js, store, "o")


# -- links --------------------------------------------------------------------------------------


@conformance("OBJ", "Links", "a link has a nuid of its own, and neither data nor digest")
async def test_what_a_link_is(js: JetStream, store: ObjectStore) -> None:
    target = await store.info("o")
    info = await store.add_link("l", target)
    meta = await raw_meta(js, store.name, "l")
    assert meta == {
        "name": "l",
        "bucket": store.name,
        "nuid": info.nuid,
        "size": 0,
        "chunks": 0,
        "options": {"link": {"bucket": store.name, "name": "o"}},
    }
    assert len(info.nuid) == 22
    assert info.nuid != target.nuid
    assert (await store.info("l")).link == ObjectLink(bucket=store.name, name="o")
    whole = await store.add_bucket_link("b", store)
    assert whole.link == ObjectLink(bucket=store.name)
    assert (await raw_meta(js, store.name, "b"))["options"] == {"link": {"bucket": store.name}}


@conformance("OBJ", "Links", "a link must have a name and lead to a live object that is no link")
async def test_links_that_are_refused(store: ObjectStore) -> None:
    target = await store.info("o")
    link = await store.add_link("l", target)
    for wrong, text in (
        (None, "needs an object"),
        (ObjectInfo(name="x"), "needs an object"),
        (ObjectInfo(name="", bucket="b"), "needs an object"),
        (target.replace(deleted=True), "which is deleted"),
        (link, "which is a link itself"),
        ("l", "which is a link itself"),
    ):
        with pytest.raises(LinkError, match=text):
            await store.add_link("new", wrong)  # type: ignore[arg-type]
    with pytest.raises(ObjectNotFoundError):
        await store.add_link("new", "missing")
    with pytest.raises(InvalidNameError, match="empty"):
        await store.add_link("", target)
    with pytest.raises(InvalidNameError, match="empty"):
        await store.add_bucket_link("", "b")
    with pytest.raises(InvalidBucketNameError):
        await store.add_bucket_link("new", "a.b")


@conformance("OBJ", "Links", "a link replaces links and deleted objects, but no object")
async def test_the_names_of_links(js: JetStream, store: ObjectStore) -> None:
    await store.put("p", b"other")
    with pytest.raises(ObjectExistsError, match=r"object 'p' .* is no link"):
        await store.add_link("p", "o")
    with pytest.raises(ObjectExistsError, match="object 'p'"):
        await store.add_bucket_link("p", "b")
    await store.add_link("l", "o")
    await store.add_link("l", "p")
    assert await read(store, "l") == b"other"
    await store.add_bucket_link("l", "b")
    await store.add_link("l", "o")
    assert await read(store, "l") == b"data"
    await store.delete("p")
    await store.add_link("p", "o")
    assert await read(store, "p") == b"data"
    await assert_tidy(js, store, "o", "l", "p")


@conformance("OBJ", "Links", "a link does not follow its target when that gets another name")
async def test_a_link_goes_stale(store: ObjectStore) -> None:
    await store.add_link("l", "o")
    await store.update_meta("o", name="p")
    assert (await store.info("l")).link == ObjectLink(bucket=store.name, name="o")
    with pytest.raises(ObjectNotFoundError, match="object 'o'"):
        await store.get("l")
