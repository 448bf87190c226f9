"""Watching keys, and what is made of it: lists of keys and histories."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from jetspark import Client, DeliverPolicy, JetStream, KeyValueEntry, KeyValueOperation
from jetspark.errors import (
    BucketNotFoundError,
    FilterError,
    InvalidArgumentError,
    InvalidConsumerConfigError,
    InvalidKeyError,
    InvalidOptionError,
    IteratorClosedError,
    KeyNotFoundError,
    TimeoutError,
)
from jetspark.server import NatsServer
from tests.support.buckets import initial, js, nc, stream_of
from tests.support.clients import Connect, eventually
from tests.support.conformance import conformance
from tests.support.kv import bucket_on, connected, listed, new_bucket

__all__ = ["js", "nc"]

SECTION = "6. Watch, keys, history"
PUT, DELETE, PURGE = KeyValueOperation


@conformance("KV", SECTION, "a watch: the latest of each key with markers, the end, then updates")
async def test_watch(nc: Client) -> None:
    bucket = await new_bucket(nc, history=5)
    for key in ("a", "b", "a", "c"):
        await bucket.put(key, b"old " + key.encode())
    await bucket.delete("c")
    async with bucket.watch() as watcher:
        found = await initial(watcher)
        assert [(entry.key, entry.revision) for entry in found] == [("b", 2), ("a", 3), ("c", 5)]
        assert [entry.operation for entry in found] == [PUT, PUT, DELETE]
        assert [entry.delta for entry in found] == [2, 1, 0]
        assert found[0].value == b"old b"
        assert found[0].created == (await bucket.get("b")).created
        assert watcher.initial_done
        assert watcher.bucket == bucket.name
        await bucket.put("a", b"new")
        await bucket.purge("b")
        for key, operation, value in (("a", PUT, b"new"), ("b", PURGE, b"")):
            entry = await watcher.next(5)
            assert entry is not None
            assert (entry.key, entry.operation, entry.value) == (key, operation, value)


@conformance("KV", SECTION, "with nothing there the end comes at once")
async def test_the_end_of_nothing(nc: Client) -> None:
    bucket = await new_bucket(nc)
    await bucket.put("a", b"1")
    async with bucket.watch("b.*") as watcher:
        assert await watcher.next(5) is None
        with pytest.raises(TimeoutError, match=f"bucket {bucket.name!r}: watch: no entry"):
            await watcher.next(0.05)
        await bucket.put("b.1", b"2")
        entry = await watcher.next(5)
        assert entry is not None
        assert entry.key == "b.1"


@conformance("KV", SECTION, "the end comes exactly once")
async def test_the_end_comes_once(nc: Client) -> None:
    bucket = await new_bucket(nc)
    keys = [f"k.{number}" for number in range(3000)]
    await asyncio.gather(*(bucket.put(key, b"1") for key in keys))
    seen: list[str | None] = []

    async def write() -> None:
        for key in keys:
            await bucket.put(key, b"2")
        await bucket.put("last", b"")

    async with bucket.watch() as watcher, asyncio.TaskGroup() as group:
        group.create_task(write())  # overwrites what is being replayed
        async for entry in watcher:
            seen.append(None if entry is None else entry.key)
            if seen[-1] == "last":
                break
    assert seen.count(None) == 1
    assert set(seen[: seen.index(None)]) >= set(keys)


@conformance("KV", SECTION, "include_history: all revisions first")
async def test_include_history(nc: Client) -> None:
    bucket = await new_bucket(nc, history=2)
    for number in range(3):
        await bucket.put("a", b"%d" % number)
    await bucket.put("b", b"")
    async with bucket.watch(include_history=True) as watcher:
        assert [entry.revision for entry in await initial(watcher)] == [2, 3, 4]


@conformance("KV", SECTION, "updates_only: the end first, then updates")
async def test_updates_only(nc: Client) -> None:
    bucket = await new_bucket(nc)
    await bucket.put("a", b"1")
    async with bucket.watch(updates_only=True) as watcher:
        assert await watcher.next(5) is None
        await bucket.put("a", b"2")
        entry = await watcher.next(5)
        assert entry is not None
        assert entry.value == b"2"


@conformance("KV", SECTION, "ignore_deletes: markers are left out, and count for the end")
async def test_ignore_deletes(nc: Client) -> None:
    bucket = await new_bucket(nc)
    for key in "abc":
        await bucket.put(key, b"1")
    await bucket.delete("b")
    await bucket.purge("c")
    async with bucket.watch(ignore_deletes=True) as watcher:
        assert [entry.key for entry in await initial(watcher)] == ["a"]
        await bucket.delete("a")
        await bucket.put("d", b"")
        entry = await watcher.next(5)
        assert entry is not None
        assert entry.key == "d"


@conformance("KV", "3. Headers", "Nats-Msg-Size: the size of a value that was left out")
@conformance("KV", SECTION, "meta_only: no values, only their sizes")
async def test_meta_only(nc: Client) -> None:
    bucket = await new_bucket(nc)
    await bucket.put("a", bytes(12345))
    await bucket.put("b", b"")
    await bucket.delete("c")
    async with bucket.watch(meta_only=True) as watcher:
        found = await initial(watcher)
    assert [(entry.value, entry.size) for entry in found] == [(b"", 12345), (b"", 0), (b"", 0)]
    assert [entry.operation for entry in found] == [PUT, PUT, DELETE]


@conformance("KV", SECTION, "resume_from_revision: from that revision on, whatever else is said")
@pytest.mark.parametrize("other", [{}, {"updates_only": True}, {"include_history": True}])
async def test_resume(nc: Client, other: dict[str, Any]) -> None:
    bucket = await new_bucket(nc, history=5)
    for key in "abab":
        await bucket.put(key, b"")
    async with bucket.watch(resume_from_revision=2, **other) as watcher:
        assert [entry.revision for entry in await initial(watcher)] == [2, 3, 4]
        await bucket.put("a", b"")
        entry = await watcher.next(5)
        assert entry is not None
        assert entry.revision == 5
    async with bucket.watch("b", resume_from_revision=6, **other) as watcher:
        assert await watcher.next(5) is None
        await bucket.put("b", b"")
        entry = await watcher.next(5)
        assert entry is not None
        assert entry.revision == 6


@conformance("KV", SECTION, "include_history and updates_only exclude each other")
async def test_options_that_make_no_sense(nc: Client) -> None:
    bucket = await new_bucket(nc)
    with pytest.raises(InvalidOptionError, match="include_history and updates_only"):
        bucket.watch(include_history=True, updates_only=True)
    with pytest.raises(InvalidOptionError, match="resume_from_revision"):
        bucket.watch(resume_from_revision=0)
    with pytest.raises(InvalidKeyError, match=r"key filter 'a\*'"):
        bucket.watch("a*")


@conformance("KV", SECTION, "several filters")
async def test_filters(nc: Client) -> None:
    bucket = await new_bucket(nc)
    for key in ("a.1", "a.2", "b.1", "c.1.x", "d"):
        await bucket.put(key, b"")
    for filters, keys in (
        (("a.*",), ["a.1", "a.2"]),
        (("a.*", "b.1", "d"), ["a.1", "a.2", "b.1", "d"]),
        (("*.1", "*.1.>"), ["a.1", "b.1", "c.1.x"]),
        ((">",), ["a.1", "a.2", "b.1", "c.1.x", "d"]),
        (("", "a.1"), ["a.1", "a.2", "b.1", "c.1.x", "d"]),
        (("a.1", "a.*"), ["a.1", "a.2"]),
    ):
        async with bucket.watch(*filters) as watcher:
            assert [entry.key for entry in await initial(watcher)] == keys


@conformance("KV", SECTION, "filters that overlap: 10138")
async def test_filters_that_overlap(nc: Client, js: JetStream) -> None:
    bucket = await new_bucket(nc)
    stream = f"KV_{bucket.name}"
    filters = [f"$KV.{bucket.name}.{pattern}" for pattern in ("a", "*")]
    config = {"name": "c", "ack_policy": "none", "filter_subjects": filters}
    with pytest.raises(FilterError) as caught:
        await js.api.request(
            js.api.subjects.consumer_create(stream, "c"),
            {"stream_name": stream, "config": config},
            context="create",
        )
    assert caught.value.err_code == 10138
    assert caught.value.code == 400
    with pytest.raises(InvalidKeyError, match="overlap"):
        bucket.watch("a.*", "*.b")


@conformance("KV", SECTION, "last_per_subject without a filter: 10094")
async def test_the_last_of_each_needs_a_filter(nc: Client, js: JetStream) -> None:
    bucket = await new_bucket(nc)
    stream = f"KV_{bucket.name}"
    config = {"name": "c", "ack_policy": "none", "deliver_policy": "last_per_subject"}
    with pytest.raises(InvalidConsumerConfigError) as caught:
        await js.api.request(
            js.api.subjects.consumer_create(stream, "c"),
            {"stream_name": stream, "config": config},
            context="create",
        )
    assert caught.value.err_code == 10094


@conformance(
    "KV", SECTION, "a consumer whose filter is outside the bucket is made, and finds nothing"
)
async def test_a_filter_outside_the_bucket(nc: Client, js: JetStream) -> None:
    bucket = await new_bucket(nc)
    await bucket.put("a", b"")
    stream = await stream_of(js, bucket)
    for subject, pending in (("$KV.other.>", 0), ("elsewhere", 0), (f"$KV.{bucket.name}.>", 1)):
        consumer = await stream.create_consumer(filter_subject=subject)
        info = consumer.cached_info
        assert (info.config.filter_subject, info.num_pending) == (subject, pending)


@conformance("KV", SECTION, "with deliver policy new, delivered is the last sequence of the stream")
async def test_where_updates_begin(nc: Client, js: JetStream) -> None:
    bucket = await new_bucket(nc)
    for _ in range(3):
        await bucket.put("a", b"")
    consumer = await (await stream_of(js, bucket)).create_consumer(
        deliver_policy=DeliverPolicy.NEW, filter_subject=f"$KV.{bucket.name}.>"
    )
    assert consumer.cached_info.delivered.stream_seq == 3


async def test_a_watch_is_lazy_and_ends_with_the_block(nc: Client, js: JetStream) -> None:
    bucket = await new_bucket(nc)
    await bucket.put("a", b"")
    stream = await stream_of(js, bucket)

    async def consumers() -> list[Any]:
        return [consumer.cached_info.config async for consumer in stream.consumers()]

    watcher = bucket.watch("a")
    assert await consumers() == []
    async with watcher:
        (config,) = await consumers()
        assert config.filter_subject == f"$KV.{bucket.name}.a"
        assert (config.ack_policy, config.mem_storage, config.num_replicas) == ("none", True, 1)
        assert config.deliver_policy == "last_per_subject"

    async def none() -> bool:
        return await consumers() == []

    await eventually(none)
    with pytest.raises(IteratorClosedError, match="it was stopped"):
        await watcher.next(1)
    assert [entry async for entry in watcher] == []
    await watcher.stop()


@pytest.mark.parametrize("end", ["close", "drain"])
async def test_the_client_takes_the_consumer_along(
    nats_server: NatsServer, connect: Connect, js: JetStream, nc: Client, end: str
) -> None:
    bucket = await new_bucket(nc)
    client = await connect(nats_server.url)
    watcher = (await bucket_on(client, bucket)).watch()
    assert await watcher.next(10) is None
    stream = await stream_of(js, bucket)
    assert (await stream.info()).state.consumer_count == 1
    await getattr(client, end)()

    async def none() -> bool:
        return (await stream.info()).state.consumer_count == 0

    await eventually(none)


async def test_stop_in_the_loop_and_from_elsewhere(nc: Client) -> None:
    bucket = await new_bucket(nc)
    for number in range(10):
        await bucket.put(f"k.{number}", b"")
    watcher = bucket.watch()
    count = 0
    async for _ in watcher:
        count += 1
        if count == 3:
            await watcher.stop()
    assert count == 3
    watcher = bucket.watch()
    task = asyncio.create_task(listed(watcher))
    await eventually(lambda: watcher.initial_done)
    await watcher.stop()
    assert len(await task) == 11
    unstarted = bucket.watch()
    await unstarted.stop()
    assert await listed(unstarted) == []


async def test_two_tasks_take_from_one_watch(nc: Client) -> None:
    bucket = await new_bucket(nc)
    async with bucket.watch(updates_only=True) as watcher:
        assert await watcher.next(5) is None
        task = asyncio.create_task(watcher.next(5))
        await asyncio.sleep(0)
        with pytest.raises(InvalidArgumentError, match="two tasks"):
            await watcher.next(5)
        await bucket.put("a", b"")
        assert await task is not None


async def test_two_tasks_begin_one_watch(nc: Client, js: JetStream) -> None:
    bucket = await new_bucket(nc)
    await bucket.put("a", b"")
    watcher = bucket.watch()
    found = await asyncio.gather(watcher.next(5), watcher.next(5), return_exceptions=True)
    assert [type(each) for each in found] == [KeyValueEntry, InvalidArgumentError]
    assert (await (await stream_of(js, bucket)).info()).state.consumer_count == 1
    assert await watcher.next(5) is None
    await watcher.stop()


async def test_no_such_bucket(nc: Client, js: JetStream) -> None:
    bucket = await new_bucket(nc)
    await js.delete_key_value(bucket.name)
    for call in (
        bucket.watch().next(5),
        bucket.history("a"),
        anext(bucket.keys()),
        bucket.purge_deletes(),
    ):
        with pytest.raises(BucketNotFoundError, match=bucket.name):
            await call


# -- keys and history ------------------------------------------------------------------------------


@conformance("KV", SECTION, "keys: those that are not deleted, each once")
async def test_keys(nc: Client) -> None:
    bucket = await new_bucket(nc, history=3)
    assert await listed(bucket.keys()) == []
    for key in ("a.1", "b", "a.2", "b", "c"):
        await bucket.put(key, b"x")
    await bucket.delete("c")
    assert await listed(bucket.keys()) == ["a.1", "a.2", "b"]


@conformance("KV", SECTION, "filters of keys are patterns that the server applies, no substrings")
async def test_keys_with_filters(nc: Client) -> None:
    bucket = await new_bucket(nc)
    for key in ("a", "a.1", "ba", "b.a", "a.1.x"):
        await bucket.put(key, b"")
    assert await listed(bucket.keys("a")) == ["a"]
    assert await listed(bucket.keys("a.*")) == ["a.1"]
    assert await listed(bucket.keys("a.>")) == ["a.1", "a.1.x"]
    assert await listed(bucket.keys("a", "b.*")) == ["a", "b.a"]
    assert await listed(bucket.keys("none")) == []
    with pytest.raises(InvalidKeyError):
        await listed(bucket.keys("a b"))


async def test_keys_that_are_replaced_before_their_turn(nc: Client) -> None:
    """They come after as many as were counted at the beginning."""
    bucket = await new_bucket(nc)
    names = [f"k.{number}" for number in range(12_000)]  # more than are on order
    await asyncio.gather(*(bucket.put(name, b"") for name in names))
    keys = bucket.keys()
    found = [await anext(keys), await anext(keys)]
    for name in (*found, "k.11999"):  # two of them come again
        await bucket.put(name, b"")
    await bucket.delete("k.11998")
    found += await listed(keys)
    assert sorted(found) == sorted(set(names) - {"k.11998"})


# One answer to `get_many` holds them all, or not so many bytes, or not so many keys.
@pytest.mark.parametrize(("count", "size"), [(50, 0), (1000, 3000), (2000, 0)])
async def test_keys_while_others_write(
    nc: Client, nats_server: NatsServer, count: int, size: int
) -> None:
    bucket = await new_bucket(nc)
    value = bytes(size)
    names = [f"k.{number}" for number in range(count)]
    await asyncio.gather(*(bucket.put(name, value) for name in names))
    written = 0

    async def write(numbers: random.Random) -> None:
        nonlocal written
        while True:
            await theirs.put(numbers.choice(names), value)
            written += 1

    async with connected(nats_server.url) as other:
        theirs = await bucket_on(other, bucket)
        writers = [asyncio.create_task(write(random.Random(seed))) for seed in range(4)]
        try:
            for turn in range(20):
                assert sorted(await listed(bucket.keys())) == sorted(names), f"turn {turn}"
                for wanted in (names, "k.*"):
                    found = await bucket.get_many(wanted)
                    assert sorted(found) == sorted(names), f"turn {turn}"
        finally:
            for writer in writers:
                writer.cancel()
            await asyncio.wait(writers)
    assert written > 20


async def test_initial_data_that_vanish_have_an_end(nc: Client, js: JetStream) -> None:
    """What has expired or was purged before its turn never comes, and nothing else may."""
    bucket = await new_bucket(nc)
    await asyncio.gather(*(bucket.put(f"k.{number}", b"") for number in range(12_000)))
    keys = bucket.keys()
    async with asyncio.timeout(30), bucket.watch() as watcher:
        assert await anext(keys) == "k.0"
        assert await watcher.next() is not None
        assert await (await stream_of(js, bucket)).purge() == 12_000
        assert len(await listed(keys)) < 12_000  # those that had come already
        while await watcher.next() is not None:
            pass
        await bucket.put("new", b"")
        entry = await watcher.next()
        assert entry is not None
        assert entry.key == "new"


async def test_very_many_filters(nc: Client) -> None:
    """They do not fit into a request, so they are looked at here."""
    bucket = await new_bucket(nc)
    names = [f"k.{number}." + "x" * 1000 for number in range(1200)]
    await asyncio.gather(*(bucket.put(name, b"") for name in [*names, "k.other", "o.1"]))
    assert sorted(await listed(bucket.keys(*names, "o.*"))) == sorted([*names, "o.1"])
    assert sorted(await bucket.get_many([*names, "o.*"])) == sorted([*names, "o.1"])


async def test_keys_are_given_up(nc: Client, js: JetStream) -> None:
    bucket = await new_bucket(nc)
    for number in range(10):
        await bucket.put(f"k.{number}", b"")
    keys = bucket.keys()
    assert await anext(keys) == "k.0"
    await keys.aclose()  # type: ignore[attr-defined]

    async def none() -> bool:
        return (await (await stream_of(js, bucket)).info()).state.consumer_count == 0

    await eventually(none)


@conformance("KV", SECTION, "history: oldest first, markers included, KeyNotFound for none")
async def test_history(nc: Client) -> None:
    bucket = await new_bucket(nc, history=3)
    for number in range(3):
        await bucket.put("a", b"%d" % number)
        await bucket.put("a.b", b"")
    await bucket.delete("a")
    found = await bucket.history("a")
    assert [entry.operation for entry in found] == [PUT, PUT, DELETE]
    assert [entry.value for entry in found] == [b"1", b"2", b""]
    assert [entry.delta for entry in found] == [2, 1, 0]
    with pytest.raises(KeyNotFoundError, match="no key 'none'"):
        await bucket.history("none")
