"""New names for objects: what others do at the same time, and renames that broke off."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from jetspark import Client, JetStream, ObjectStore
from jetspark.errors import ConflictError, ObjectExistsError, ObjectNotFoundError
from jetspark.objects import catalog
from tests.support.buckets import js, nc
from tests.support.clients import Connect
from tests.support.objects import (
    assert_tidy,
    chunks_by_key,
    make_store,
    raw_meta,
    read,
    store_meta,
)
from tests.support.servers import StartServer

__all__ = ["js", "nc"]

Action = Callable[[], Awaitable[Any]]


@pytest_asyncio.fixture
async def store(js: JetStream) -> ObjectStore:
    store = await make_store(js)
    await store.put("o", b"data", description="d")
    return store


@pytest_asyncio.fixture
async def twin(js: JetStream, store: ObjectStore) -> ObjectStore:
    return await js.object_store(store.name)


def before_change(store: ObjectStore, action: Action, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have something happen once, before the store writes a description."""
    change = store._records.change

    async def late(*args: Any) -> Any:
        monkeypatch.undo()
        await action()
        return await change(*args)

    monkeypatch.setattr(store._records, "change", late)


def after_change(store: ObjectStore, action: Action, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have something happen once, after the store has written a description."""
    change = store._records.change

    async def early(*args: Any) -> Any:
        monkeypatch.undo()
        replaced = await change(*args)
        await action()
        return replaced

    monkeypatch.setattr(store._records, "change", early)


# -- at the same time ---------------------------------------------------------------------------


@pytest.mark.parametrize("when", [before_change, after_change])
async def test_the_same_new_name_twice(
    js: JetStream,
    store: ObjectStore,
    twin: ObjectStore,
    when: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    when(store, lambda: twin.update_meta("o", name="p"), monkeypatch)
    info = await store.update_meta("o", name="p")
    assert info.name == "p"
    assert await read(store, "p") == b"data"
    await assert_tidy(js, store, "p")


async def test_two_new_names(
    js: JetStream, store: ObjectStore, twin: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_change(store, lambda: twin.update_meta("o", name="q"), monkeypatch)
    with pytest.raises(ConflictError):
        await store.update_meta("o", name="p")
    assert await read(store, "q") == b"data"
    await assert_tidy(js, store, "q")


async def test_a_new_description_of_the_old_name(
    js: JetStream, store: ObjectStore, twin: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_change(store, lambda: twin.update_meta("o", description="new"), monkeypatch)
    with pytest.raises(ConflictError, match=r"object 'o' .* was changed"):
        await store.update_meta("o", name="p")
    assert (await store.info("o")).description == "new"
    assert await read(store, "o") == b"data"
    await assert_tidy(js, store, "o")
    await store.update_meta("o", name="p")
    await assert_tidy(js, store, "p")


@pytest.mark.parametrize("other", ["put", "delete"])
async def test_the_data_go_while_the_new_name_changes(
    js: JetStream,
    store: ObjectStore,
    twin: ObjectStore,
    other: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No name without data stays."""

    async def change() -> None:
        await (twin.put("o", b"new") if other == "put" else twin.delete("o"))
        await twin.update_meta("p", description="changed")

    after_change(store, change, monkeypatch)
    with pytest.raises(ConflictError):
        await store.update_meta("o", name="p")
    await assert_tidy(js, store, *(["o"] if other == "put" else []))


async def test_a_new_object_after_the_other_rename(
    js: JetStream, store: ObjectStore, twin: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data are not those of the old name any more, so both names are right."""

    async def change() -> None:
        await twin.update_meta("o", name="p")
        await twin.put("o", b"new")

    after_change(store, change, monkeypatch)
    patience = pytest.MonkeyPatch()
    patience.setattr(catalog, "REMOVAL_PATIENCE", 0.01)
    try:
        assert (await store.update_meta("o", name="p")).name == "p"
    finally:
        patience.undo()
    assert await read(store, "p") == b"data"
    assert await read(store, "o") == b"new"
    await assert_tidy(js, store, "o", "p")


async def test_the_new_name_goes_meanwhile(
    js: JetStream, store: ObjectStore, twin: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def change() -> None:
        await twin.update_meta("o", name="p")
        await twin.delete("p")

    after_change(store, change, monkeypatch)
    with pytest.raises(ConflictError):
        await store.update_meta("o", name="p")
    await assert_tidy(js, store)


async def test_deleted_under_the_new_name_before_it_is_written(
    js: JetStream, store: ObjectStore, twin: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is free, but there is nothing left that could have it."""

    async def change() -> None:
        await twin.update_meta("o", name="p")
        await twin.delete("p")

    before_change(store, change, monkeypatch)
    with pytest.raises(ConflictError):
        await store.update_meta("o", name="p")
    await assert_tidy(js, store)


# -- broken off ---------------------------------------------------------------------------------


@pytest.fixture
async def broken_off(nc: Client, store: ObjectStore) -> None:
    """The object has both names."""
    await store_meta(nc, store.name, "p", {**await raw_meta(nc, store.name, "o"), "name": "p"})


async def test_a_rename_is_finished(js: JetStream, store: ObjectStore, broken_off: None) -> None:
    info = await store.update_meta("o", name="p", description="new")
    assert (info.name, info.description) == ("p", "new")
    assert await read(store, "p") == b"data"
    with pytest.raises(ObjectNotFoundError):
        await store.info("o", show_deleted=True)
    await assert_tidy(js, store, "p")


async def test_a_rename_is_taken_back(js: JetStream, store: ObjectStore, broken_off: None) -> None:
    await store.update_meta("p", name="o")
    assert await read(store, "o") == b"data"
    await assert_tidy(js, store, "o")


async def test_it_is_deleted_under_one_of_its_names(
    js: JetStream, store: ObjectStore, broken_off: None
) -> None:
    await store.delete("p")
    with pytest.raises(ConflictError):
        await store.update_meta("o", name="p")
    await assert_tidy(js, store)


async def test_an_empty_object_is_deleted_under_one_of_its_names(
    nc: Client, js: JetStream, store: ObjectStore
) -> None:
    """It has no data that could be gone."""
    await store.put("e", b"")
    await store_meta(nc, store.name, "f", {**await raw_meta(nc, store.name, "e"), "name": "f"})
    await store.delete("f")
    await store.update_meta("e", name="f")
    assert await read(store, "f") == b""
    await assert_tidy(js, store, "f", "o")


async def test_another_object_is_in_the_way(
    js: JetStream, store: ObjectStore, broken_off: None
) -> None:
    await store.put("p", b"other")
    with pytest.raises(ObjectExistsError):
        await store.update_meta("o", name="p")
    assert await read(store, "p") == b"other"


async def test_objects_without_chunk_names_are_not_the_same(nc: Client, store: ObjectStore) -> None:
    for name in ("o", "p"):
        meta = await raw_meta(nc, store.name, "o")
        await store_meta(nc, store.name, name, {**meta, "name": name, "nuid": ""})
    with pytest.raises(ObjectExistsError):
        await store.update_meta("o", name="p")


async def test_a_rename_that_may_not_purge(connect: Connect, start_server: StartServer) -> None:
    """The error says how to go on without a loss."""
    permissions = {"publish": {"deny": ["$JS.API.STREAM.PURGE.>"]}}
    users = [
        {"user": "all", "password": "p"},
        {"user": "few", "password": "p", "permissions": permissions},
    ]
    server = start_server(config={"authorization": {"users": users}})
    nc = await connect(server.url, user="all", password="p")
    few = await connect(server.url, user="few", password="p", on_event=lambda event: None)
    store = await make_store(nc)
    await store.put("o", b"data")
    with pytest.raises(Exception, match="Permissions Violation") as caught:
        await (await few.jetstream(timeout=1).object_store(store.name)).update_meta("o", name="p")
    assert "Give it the new name again" in caught.value.__notes__[0]
    await store.update_meta("o", name="p")
    assert await read(store, "p") == b"data"
    await assert_tidy(nc, store, "p")


async def test_a_list_has_each_object_once(
    nc: Client, js: JetStream, store: ObjectStore, broken_off: None
) -> None:
    await store.add_link("l", "o")
    assert [info.name async for info in store.list()] == ["o", "l"]
    listed = [info.name async for info in store.list(show_deleted=True)]
    assert listed == ["o", "p", "l"]
    assert len(await chunks_by_key(js, store.name)) == 1
