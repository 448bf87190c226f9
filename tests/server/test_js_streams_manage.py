"""The life of a stream: created, found, changed, listed, purged, sealed and deleted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jetspark import (
    Client,
    DiscardPolicy,
    JetStream,
    RetentionPolicy,
    StorageType,
    Stream,
    StreamConfig,
    StreamSource,
)
from jetspark.errors import (
    InvalidOptionError,
    InvalidStreamConfigError,
    InvalidStreamNameError,
    MessageDeleteError,
    MessageNotFoundError,
    NoMatchingStreamError,
    PurgeError,
    StreamNameInUseError,
    StreamNotFoundError,
    StreamSealedError,
    SubjectOverlapError,
)
from tests.support.conformance import conformance
from tests.support.streams import new_name, store


async def new_stream(js: JetStream, *tokens: str, **fields: Any) -> Stream:
    """A stream in memory with the subjects `<name>.<token>`, or `<name>.>`."""
    name = new_name()
    subjects = [f"{name}.{token}" for token in tokens or (">",)]
    return await js.create_stream(name=name, subjects=subjects, storage="memory", **fields)


async def sequences(stream: Stream) -> list[int]:
    """The sequences that are in a stream."""
    state = (await stream.info(deleted_details=True)).state
    gone = set(state.deleted)
    return [n for n in range(state.first_seq, state.last_seq + 1) if n not in gone]


# --- creating


@conformance("RUST", "Stream operations", "create_stream: STREAM.CREATE.<name>")
@conformance("ADR-37", "JetStreamContext", "a stream is added")
async def test_a_stream_is_created_from_a_config(js: JetStream) -> None:
    config = StreamConfig(name=new_name(), subjects=[new_name()], max_msgs=7, max_age=60)
    stream = await js.create_stream(config)
    assert isinstance(stream, Stream)
    assert stream.name == config.name
    assert stream.config.subjects == config.subjects
    assert (stream.config.max_msgs, stream.config.max_age) == (7, config.max_age)
    assert stream.cached_info.created is not None
    assert stream.cached_info.state.messages == 0
    assert repr(stream) == f"<Stream {config.name!r}>"


async def test_a_stream_is_created_from_fields(js: JetStream) -> None:
    name = new_name()
    stream = await js.create_stream(name=name, retention="workqueue", discard="new")
    assert stream.config.subjects == [name]  # its own name, if none are given
    assert stream.config.retention is RetentionPolicy.WORKQUEUE
    assert stream.config.discard is DiscardPolicy.NEW
    assert stream.config.storage is StorageType.FILE


async def test_fields_change_those_of_a_config(js: JetStream) -> None:
    config = StreamConfig(name=new_name(), max_msgs=1, storage="memory")
    stream = await js.create_stream(config, max_msgs=2)
    assert (stream.config.max_msgs, stream.config.storage) == (2, "memory")
    assert config.max_msgs == 1


async def test_creating_the_same_stream_again_does_no_harm(nc: Client, js: JetStream) -> None:
    stream = await new_stream(js, max_msgs=5)
    await store(nc, f"{stream.name}.a")
    config = StreamConfig(
        name=stream.name, subjects=[f"{stream.name}.>"], storage="memory", max_msgs=5
    )
    again = await js.create_stream(config)
    assert again.cached_info.state.messages == 1


async def test_creating_another_stream_of_that_name_is_refused(js: JetStream) -> None:
    stream = await new_stream(js)
    with pytest.raises(StreamNameInUseError, match=stream.name) as caught:
        await js.create_stream(stream.config, max_msgs=3)
    assert caught.value.err_code == 10058
    assert (await stream.info()).config.max_msgs == -1


async def test_a_subject_belongs_to_one_stream_only(js: JetStream) -> None:
    stream = await new_stream(js)
    with pytest.raises(SubjectOverlapError):
        await js.create_stream(name=new_name(), subjects=[f"{stream.name}.a"])


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({}, "name"),
        ({"name": "a.b"}, "stream name"),
        ({"name": ""}, "stream name"),
        ({"name": "A", "subject": "a"}, "did you mean subjects"),
        ({"name": "A", "subjects": "a"}, "subjects"),
        ({"name": "A", "subjects": ["a b"]}, "subjects"),
        ({"name": "A", "max_msgs": "5"}, "max_msgs"),
        ({"name": "A", "max_age": -1}, "max_age"),
        ({"name": "A", "retention": "never"}, "retention"),
        ({"name": "A", "num_replicas": 9}, "num_replicas"),
        ({"name": "A", "mirror": StreamSource(name="B"), "subjects": ["a"]}, "mirror"),
    ],
)
async def test_bad_configs_are_refused_by_name_and_nothing_is_sent(
    nc: Client, js: JetStream, fields: dict[str, Any], named: str
) -> None:
    sent = nc.statistics.messages_out
    for call in (js.create_stream, js.update_stream, js.get_or_create_stream):
        with pytest.raises(InvalidOptionError, match=named):
            await call(**fields)
    with pytest.raises(InvalidOptionError, match=named):
        await js.create_or_update_stream(**fields)
    assert nc.statistics.messages_out == sent


async def test_something_that_is_no_config_is_refused(js: JetStream) -> None:
    with pytest.raises(InvalidOptionError, match="give a StreamConfig"):
        await js.create_stream({"name": "A"})  # type: ignore[arg-type]


# --- finding


@conformance("RUST", "Stream operations", "get_stream: STREAM.INFO.<name>")
@conformance("ADR-37", "JetStreamContext", "a stream is got by its name")
async def test_a_stream_is_got_by_its_name(nc: Client, js: JetStream) -> None:
    stream = await new_stream(js, max_msgs=5)
    await store(nc, f"{stream.name}.a")
    found = await js.get_stream(stream.name)
    assert found.config == stream.config
    assert found.cached_info.state.messages == 1
    assert found.cached_info.cluster is not None


async def test_a_stream_that_is_missing_is_named(js: JetStream) -> None:
    name = new_name()
    with pytest.raises(StreamNotFoundError, match=name) as caught:
        await js.get_stream(name)
    assert (caught.value.code, caught.value.err_code) == (404, 10059)


@pytest.mark.parametrize("name", ["", "a.b", "a b", "a*", ">", "a/b", "x" * 256])
async def test_bad_names_are_refused_and_nothing_is_sent(
    nc: Client, js: JetStream, name: str
) -> None:
    sent = nc.statistics.messages_out
    for call in (js.get_stream, js.delete_stream, js.purge_stream):
        with pytest.raises(InvalidStreamNameError):
            await call(name)
    assert nc.statistics.messages_out == sent


@conformance("RUST", "Stream operations", "get_or_create_stream: STREAM.INFO, then STREAM.CREATE")
async def test_get_or_create(js: JetStream) -> None:
    name = new_name()
    created = await js.get_or_create_stream(name=name, max_msgs=1)
    assert created.config.max_msgs == 1
    found = await js.get_or_create_stream(StreamConfig(name=name, max_msgs=2))
    assert found.config.max_msgs == 1  # as it is


async def test_get_or_create_at_the_same_time(js: JetStream) -> None:
    for _ in range(5):
        name = new_name()
        calls = [js.get_or_create_stream(name=name, max_msgs=n) for n in range(1, 9)]
        streams = await asyncio.gather(*calls)
        assert len({stream.config.max_msgs for stream in streams}) == 1


@conformance("RUST", "Stream operations", "stream_names: STREAM.NAMES, in pages")
async def test_names_of_the_streams_with_a_subject(js: JetStream) -> None:
    one, two = await new_stream(js, "a", "b"), await new_stream(js, "a")
    names = [name async for name in js.stream_names()]
    assert {one.name, two.name} <= set(names)
    assert names == sorted(names)
    assert [name async for name in js.stream_names(subject=f"{one.name}.b")] == [one.name]
    assert [name async for name in js.stream_names(subject=new_name())] == []
    with pytest.raises(InvalidOptionError, match="subject"):
        await anext(aiter(js.stream_names(subject="a b")))


@conformance("RUST", "Stream operations", "streams: STREAM.LIST, in pages")
@conformance("ADR-37", "JetStreamContext", "streams are listed")
async def test_streams_are_listed_with_their_infos(nc: Client, js: JetStream) -> None:
    one, two = await new_stream(js, max_msgs=3), await new_stream(js)
    await store(nc, f"{two.name}.a")
    found = {stream.name: stream async for stream in js.streams()}
    assert found[one.name].config.max_msgs == 3
    assert found[two.name].cached_info.state.messages == 1
    assert (await found[one.name].info()).config.max_msgs == 3
    assert [s.name async for s in js.streams(subject=f"{one.name}.x")] == [one.name]


@conformance("ADR-15", "Stream name", "the one stream of a subject, otherwise an error")
async def test_the_name_of_the_stream_of_a_subject(js: JetStream) -> None:
    stream = await new_stream(js, "a", "b.*")
    assert await js.stream_name_by_subject(f"{stream.name}.a") == stream.name
    assert await js.stream_name_by_subject(f"{stream.name}.b.c") == stream.name
    with pytest.raises(NoMatchingStreamError, match=r"no stream has the subject '.*\.c'"):
        await js.stream_name_by_subject(f"{stream.name}.c")


async def test_a_wildcard_with_several_streams_has_no_one_name(js: JetStream) -> None:
    root = new_name()
    for token in ("a", "b"):
        await js.create_stream(name=f"{root}_{token}", subjects=[f"{root}.{token}"])
    with pytest.raises(NoMatchingStreamError, match=f"{root}_a, {root}_b"):
        await js.stream_name_by_subject(f"{root}.*")


# --- changing


@conformance("RUST", "Stream operations", "update_stream: STREAM.UPDATE.<name>")
@conformance("ADR-37", "JetStreamContext", "a stream is updated")
async def test_an_update_replaces_the_whole_configuration(js: JetStream) -> None:
    stream = await new_stream(js, max_msgs=5, description="one")
    updated = await js.update_stream(
        name=stream.name, subjects=stream.config.subjects, storage="memory", max_bytes=1000
    )
    assert (updated.config.max_msgs, updated.config.max_bytes) == (-1, 1000)
    assert updated.config.description == ""


@conformance("RUST", "Stream operations", "update(config) of a stream: STREAM.UPDATE.<name>")
async def test_a_stream_changes_some_of_its_fields(js: JetStream) -> None:
    stream = await new_stream(js, max_msgs=5, description="one", max_age=12.000_000_1)
    await js.update_stream(stream.config, max_bytes=1000)  # the handle does not know
    info = await stream.update(description="two")
    assert info is stream.cached_info
    assert (info.config.max_msgs, info.config.max_bytes) == (5, 1000)
    assert info.config.description == "two"
    await stream.update(info.config.replace(max_msgs=6))
    assert stream.config.max_msgs == 6


async def test_a_stream_keeps_its_name(js: JetStream) -> None:
    stream = await new_stream(js)
    with pytest.raises(InvalidOptionError, match="name"):
        await stream.update(name="OTHER")


async def test_an_update_that_is_not_allowed(js: JetStream) -> None:
    stream = await new_stream(js)
    with pytest.raises(InvalidStreamConfigError, match="storage"):
        await stream.update(storage="file")
    with pytest.raises(StreamNotFoundError):
        await js.update_stream(name=new_name())


async def test_create_or_update(js: JetStream) -> None:
    name = new_name()
    created = await js.create_or_update_stream(name=name, max_msgs=1)
    updated = await js.create_or_update_stream(StreamConfig(name=name, max_msgs=2))
    assert (created.config.max_msgs, updated.config.max_msgs) == (1, 2)
    assert updated.cached_info.created == created.cached_info.created


async def test_create_or_update_at_the_same_time(js: JetStream) -> None:
    name = new_name()
    calls = [js.create_or_update_stream(name=name, max_msgs=n) for n in range(1, 9)]
    streams = await asyncio.gather(*calls)
    assert (await streams[0].info()).config.max_msgs in range(1, 9)


async def test_a_sealed_stream_changes_no_more(nc: Client, js: JetStream) -> None:
    stream = await new_stream(js, max_age=3600, allow_rollup_hdrs=True)
    await store(nc, f"{stream.name}.a", b"for ever")
    info = await stream.seal()
    assert info.config.sealed
    assert not info.config.max_age
    for call in (stream.purge(), stream.delete_message(1)):
        with pytest.raises(StreamSealedError):
            await call
    assert (await stream.get_message(1)).data == b"for ever"
    with pytest.raises(InvalidStreamConfigError):
        await stream.update(sealed=False)
    await stream.delete()


# --- deleting


@conformance("RUST", "Stream operations", "delete_stream: STREAM.DELETE.<name>")
@conformance("ADR-37", "JetStreamContext", "a stream is deleted")
async def test_a_stream_is_deleted(js: JetStream) -> None:
    one, two = await new_stream(js), await new_stream(js)
    await js.delete_stream(one.name)
    await two.delete()
    for stream in (one, two):
        with pytest.raises(StreamNotFoundError, match=stream.name):
            await stream.info()
        with pytest.raises(StreamNotFoundError, match=stream.name):
            await stream.delete()


@conformance("RUST", "Stream operations", "purge: STREAM.PURGE.<name>")
@conformance("ADR-37", "Stream", "a stream is purged, with options")
@pytest.mark.parametrize(
    ("options", "purged", "left"),
    [
        ({}, 6, []),
        ({"subject": "a"}, 3, [2, 4, 6]),
        ({"subject": "*"}, 6, []),
        ({"subject": "c"}, 0, [1, 2, 3, 4, 5, 6]),
        ({"sequence": 3}, 2, [3, 4, 5, 6]),
        ({"sequence": 1}, 0, [1, 2, 3, 4, 5, 6]),
        ({"keep": 2}, 4, [5, 6]),
        ({"keep": 0}, 6, []),
        ({"subject": "b", "keep": 1}, 2, [1, 3, 5, 6]),
        ({"subject": "b", "sequence": 6}, 2, [1, 3, 5, 6]),
    ],
)
async def test_purge(
    nc: Client, js: JetStream, options: dict[str, Any], purged: int, left: list[int]
) -> None:
    stream = await new_stream(js)
    for token in "ababab":
        await store(nc, f"{stream.name}.{token}")
    if "subject" in options:
        options = {**options, "subject": f"{stream.name}.{options['subject']}"}
    assert await js.purge_stream(stream.name, **options) == purged
    assert await sequences(stream) == left
    assert await stream.purge() == len(left)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"sequence": 0}, "sequence"),
        ({"keep": -1}, "keep"),
        ({"sequence": 2, "keep": 1}, "not both"),
        ({"subject": ""}, "subject"),
    ],
)
async def test_bad_options_of_a_purge_are_refused(
    js: JetStream, options: dict[str, Any], named: str
) -> None:
    stream = await new_stream(js)
    with pytest.raises(InvalidOptionError, match=named):
        await stream.purge(**options)


async def test_a_stream_may_deny_purges_and_deletes(nc: Client, js: JetStream) -> None:
    stream = await new_stream(js, deny_purge=True, deny_delete=True)
    sequence = await store(nc, f"{stream.name}.a")
    with pytest.raises(PurgeError):
        await stream.purge()
    with pytest.raises(MessageDeleteError):
        await stream.delete_message(sequence)


@conformance("RUST", "Stream operations", "delete_message: STREAM.MSG.DELETE.<name>")
@conformance("ADR-37", "Stream", "a message is deleted")
@pytest.mark.parametrize("secure", [False, True])
async def test_a_message_is_deleted(nc: Client, js: JetStream, secure: bool) -> None:
    stream = await js.create_stream(name=new_name())
    for _ in range(3):
        await store(nc, stream.name, b"secret")
    async with await nc.subscribe(js.api.subjects.stream_message_delete(stream.name)) as spy:
        await stream.delete_message(2, secure=secure)
        asked = (await spy.next(5)).data
    assert (b'"no_erase":true' in asked) is not secure  # without it, a server erases securely
    assert await sequences(stream) == [1, 3]
    with pytest.raises(MessageNotFoundError):
        await stream.get_message(2)
    with pytest.raises((MessageNotFoundError, MessageDeleteError)):
        await stream.delete_message(2, secure=secure)
    with pytest.raises(InvalidOptionError, match="seq"):
        await stream.delete_message(0)
