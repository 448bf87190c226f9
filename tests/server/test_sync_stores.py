"""Key-value buckets and object stores through the blocking API."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jetspark.connection.nuid import next_nuid
from jetspark.errors import (
    BadObjectError,
    IteratorClosedError,
    KeyNotFoundError,
    ObjectNotFoundError,
    RevisionMismatchError,
    TimeoutError,
)
from jetspark.sync import Client, JSONCodec, KeyValue, ObjectStore
from jetspark.sync._callbacks import Call
from tests.support.blocking import (
    at_entry_of,
    in_thread,
    interrupt,
    is_waited_for,
    nc,
    no_threads_left,
    until,
)

__all__ = ["nc", "no_threads_left"]


@pytest.fixture
def bucket(nc: Client) -> KeyValue[bytes]:
    return nc.jetstream().create_key_value(bucket=f"b_{next_nuid()}", storage="memory", history=5)


@pytest.fixture
def store(nc: Client) -> ObjectStore:
    return nc.jetstream().create_object_store(bucket=f"o_{next_nuid()}", storage="memory")


# -- buckets ---------------------------------------------------------------------------------------


def test_keys_and_values(bucket: KeyValue[bytes]) -> None:
    first = bucket.put("a", b"1")
    second = bucket.update("a", b"2", first)
    with pytest.raises(RevisionMismatchError):
        bucket.update("a", b"3", first)
    assert bucket.get("a").value == b"2"
    assert bucket.get("a", first).value == b"1"
    assert [entry.revision for entry in bucket.history("a")] == [first, second]
    bucket.create("b", b"x")
    assert sorted(bucket.keys()) == ["a", "b"]
    assert set(bucket.get_many(["a", "b", "c"])) == {"a", "b"}
    bucket.delete("a")
    with pytest.raises(KeyNotFoundError):
        bucket.get("a")
    bucket.purge("b")
    assert list(bucket.keys()) == []
    assert bucket.status().bucket == bucket.name


def test_many_keys(bucket: KeyValue[bytes]) -> None:
    for number in range(700):
        bucket.put(f"k.{number}", b"")
    assert list(bucket.keys("k.*")) == [f"k.{number}" for number in range(700)]


def test_typed_values(nc: Client) -> None:
    js = nc.jetstream()
    bucket = js.create_key_value(bucket=f"b_{next_nuid()}", codec=JSONCodec(list[int]))
    bucket.put("a", [1, 2])
    assert bucket.get("a").value == [1, 2]
    assert bucket.name in [status.bucket for status in js.key_values()]
    js.delete_key_value(bucket.name)


def test_watch(bucket: KeyValue[bytes]) -> None:
    bucket.put("a", b"1")
    bucket.put("b", b"2")
    with bucket.watch() as watcher:
        initial = []
        for entry in watcher:
            if entry is None:
                break
            assert not watcher.initial_done  # although all of it has arrived
            initial.append((entry.key, entry.value))
        assert initial == [("a", b"1"), ("b", b"2")]
        assert watcher.initial_done
        bucket.delete("a")
        marker = watcher.next(5)
        assert marker is not None
        assert (marker.key, marker.deleted) == ("a", True)
        with pytest.raises(TimeoutError):
            watcher.next(0.02)
    with pytest.raises(IteratorClosedError):
        watcher.next()


def test_keys_may_come_from_an_iteration_that_blocks(bucket: KeyValue[bytes]) -> None:
    for key in ("a", "b"):
        bucket.put(key, key.encode())
    assert sorted(bucket.get_many(bucket.keys())) == ["a", "b"]
    assert sorted(bucket.get_many("*")) == ["a", "b"]


def test_a_watch_is_stopped_by_another_thread(bucket: KeyValue[bytes]) -> None:
    watcher = bucket.watch()
    assert next(watcher) is None
    waiting = in_thread(lambda: list(watcher))
    until(is_waited_for(watcher))
    watcher.stop()
    assert waiting.result() == []


def test_a_watch_that_is_interrupted_when_its_block_begins_has_ended(
    nc: Client, bucket: KeyValue[bytes]
) -> None:
    watcher = bucket.watch()
    assert at_entry_of(Call.outcome, interrupt, watcher.__enter__)
    names = nc.jetstream().consumer_names
    until(lambda: not list(names(f"KV_{bucket.name}")))
    assert list(watcher) == []


# -- objects ---------------------------------------------------------------------------------------


def blocks(store: ObjectStore) -> Iterator[bytes]:
    for number in range(10):
        assert store.status().bucket == store.name  # it may block
        yield b"%d" % number * 50_000


SOURCES: dict[str, Any] = {
    "bytes": lambda store: b"".join(blocks(store)),
    "file": lambda store: io.BytesIO(b"".join(blocks(store))),
    "buffered file": lambda store: io.BufferedReader(SOURCES["file"](store)),
    "iterator": blocks,
    "list": lambda store: list(blocks(store)),
}


@pytest.mark.parametrize("source", SOURCES)
def test_put_and_get(store: ObjectStore, source: str) -> None:
    data = b"".join(blocks(store))
    info = store.put("name", SOURCES[source](store))
    assert info.size == len(data)
    assert store.get("name").read() == data
    with store.get("name") as reader:
        assert reader.length == len(data)
        assert b"".join(reader) == data
    assert store.get("name", offset=49_999, length=2).read() == b"01"


def test_an_object_is_copied_from_store_to_store(nc: Client, store: ObjectStore) -> None:
    other = nc.jetstream().create_object_store(bucket=f"o_{next_nuid()}", storage="memory")
    data = bytes(range(256)) * 2000
    store.put("a", data)
    with store.get("a") as reader:
        other.put("b", reader)
    assert other.get("b").read() == data


def test_files(store: ObjectStore, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"x" * 300_000)
    seen: list[int] = []
    store.put_file("f", source, on_progress=lambda done, total: seen.append(done))
    store.get_file("f", target)
    assert target.read_bytes() == source.read_bytes()
    assert seen[-1] == 300_000


def test_the_catalogue(nc: Client, store: ObjectStore) -> None:
    other = nc.jetstream().create_object_store(bucket=f"o_{next_nuid()}", storage="memory")
    info = store.put("a", b"1")
    store.add_link("link", info)
    store.add_bucket_link("all", other)
    assert {each.name for each in store.list()} == {"a", "link", "all"}
    assert store.get("link").read() == b"1"
    store.delete("a")
    with pytest.raises(ObjectNotFoundError):
        store.info("a")
    with store.watch() as watcher:
        found = [watcher.next(5) for _ in range(4)]
        assert found[-1] is None
        assert watcher.initial_done


def test_a_damaged_description_is_told_of_in_its_place(nc: Client, store: ObjectStore) -> None:
    for name in ("a", "b", "c"):
        store.put(name, b"1")
    subject = f"$O.{store.name}.M.Yg=="  # of "b"
    nc.jetstream().publish(subject, b"{broken", headers={"Nats-Rollup": "sub"})
    store.put("d", b"1")
    with store.watch() as watcher:
        assert [info.name for info in (next(watcher), next(watcher)) if info] == ["a", "c"]
        with pytest.raises(BadObjectError):
            next(watcher)
        following = next(watcher)
        assert following is not None
        assert following.name == "d"
        assert next(watcher) is None
