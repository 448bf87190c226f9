"""What a stream can be configured to do, each on a real server and on servers too old for it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jetspark import (
    Client,
    Compression,
    ConsumerLimits,
    ExternalStream,
    HeadersLike,
    JetStream,
    PersistMode,
    Placement,
    Republish,
    SourceConsumer,
    Stream,
    StreamConfig,
    StreamSource,
    SubjectTransform,
)
from jetspark.errors import (
    APIError,
    InvalidOptionError,
    InvalidStreamConfigError,
    LimitReachedError,
    MessageNotFoundError,
)
from jetspark.server import NatsServer
from jetspark.server.config import LOCALHOST
from jetspark.server.ports import ReservedPort
from tests.support.clients import Connect, eventually
from tests.support.servers import StartServer
from tests.support.streams import has_messages, if_supported, new_name, store, version_of


async def err_code(
    nc: Client, subject: str, data: bytes = b"", headers: HeadersLike | None = None
) -> int:
    """What the stream says against a message."""
    answer = json.loads((await nc.request(subject, data, headers=headers)).data)
    code: int = answer["error"]["err_code"]
    return code


async def contents(stream: Stream) -> list[tuple[str, bytes]]:
    """Subjects and data of all messages, in order."""
    state = (await stream.info(deleted_details=True)).state
    kept = set(range(state.first_seq, state.last_seq + 1)) - set(state.deleted)
    messages = [await stream.get_message(sequence) for sequence in sorted(kept)]
    return [(message.subject, message.data) for message in messages]


# --- fields that come back as they were given

FIELDS: list[tuple[tuple[int, int], dict[str, Any]]] = [
    ((2, 2), {"description": "orders, and what becomes of them"}),
    ((2, 2), {"retention": "interest"}),
    ((2, 2), {"max_consumers": 3}),
    ((2, 2), {"max_msgs": 3, "max_bytes": 4000, "max_msg_size": 500, "discard": "new"}),
    ((2, 2), {"max_age": timedelta(days=400, microseconds=1)}),
    ((2, 2), {"duplicate_window": timedelta(seconds=0.5)}),
    ((2, 2), {"no_ack": True}),
    ((2, 2), {"max_msgs_per_subject": 5, "discard": "new", "discard_new_per_subject": True}),
    ((2, 2), {"allow_direct": True}),
    ((2, 2), {"allow_rollup_hdrs": True}),
    ((2, 2), {"deny_delete": True, "deny_purge": True}),
    ((2, 2), {"republish": Republish(src=">", dest="copy.>", headers_only=True)}),
    ((2, 10), {"compression": Compression.S2, "storage": "file"}),
    ((2, 10), {"first_seq": 2**40}),
    ((2, 10), {"subject_transform": SubjectTransform(src=">", dest="x.>")}),
    ((2, 10), {"consumer_limits": ConsumerLimits(inactive_threshold=60, max_ack_pending=50)}),
    ((2, 10), {"metadata": {"team": "a", "größe": "€"}}),
    ((2, 11), {"allow_msg_ttl": True}),
    ((2, 11), {"subject_delete_marker_ttl": timedelta(hours=1)}),
    ((2, 12), {"allow_msg_counter": True}),
    ((2, 12), {"allow_atomic": True}),
    ((2, 12), {"allow_msg_schedules": True}),
    ((2, 12), {"persist_mode": PersistMode.ASYNC, "storage": "file"}),
    ((2, 14), {"allow_batched": True}),
]


@pytest.mark.parametrize(("since", "fields"), FIELDS, ids=lambda value: str(value)[:40])
async def test_the_server_takes_a_field_or_is_too_old_for_it(
    nats_server: NatsServer, js: JetStream, since: tuple[int, int], fields: dict[str, Any]
) -> None:
    name = new_name()
    config = StreamConfig(name=name, **{"storage": "memory", **fields})
    newest = next(iter(fields))
    stream = await if_supported(nats_server, since, js.create_stream(config), newest)
    if stream is None:
        return
    for info in (stream.cached_info, await stream.info(), (await js.get_stream(name)).cached_info):
        for field, value in fields.items():
            if field == "metadata":
                assert value.items() <= info.config.metadata.items()
            else:
                assert getattr(info.config, field) == value
    # What came back can be sent again, and is then the same to the server.
    await js.create_stream(stream.config)
    await stream.update(description="changed")
    assert stream.config.description == "changed"
    await stream.delete()


async def test_an_update_to_what_the_server_is_too_old_for(
    nats_server: NatsServer, js: JetStream
) -> None:
    stream = await js.create_stream(name=new_name(), storage="memory")
    call = stream.update(allow_msg_ttl=True, allow_batched=True)
    info = await if_supported(nats_server, (2, 14), call, "allow_batched")
    assert info is None or (info.config.allow_msg_ttl and info.config.allow_batched)
    if version_of(nats_server) < (2, 11):
        await if_supported(
            nats_server, (2, 11), stream.update(allow_msg_ttl=True), "allow_msg_ttl", "of 2.11"
        )


# --- limits


async def test_a_full_stream_discards_old_messages_or_new_ones(nc: Client, js: JetStream) -> None:
    stream = await js.create_stream(name=new_name(), max_msgs=2, storage="memory")
    for data in (b"1", b"2", b"3"):
        await store(nc, stream.name, data)
    assert [data for _, data in await contents(stream)] == [b"2", b"3"]
    await stream.update(discard="new")
    assert await err_code(nc, stream.name) == 10077


async def test_limits_of_subjects_ages_and_sizes(nc: Client, js: JetStream) -> None:
    name = new_name()
    stream = await js.create_stream(
        name=name, subjects=[f"{name}.*"], max_msgs_per_subject=1, max_msg_size=10
    )
    for token in "aab":
        await store(nc, f"{name}.{token}", b"x")
    assert [subject for subject, _ in await contents(stream)] == [f"{name}.a", f"{name}.b"]
    assert await err_code(nc, f"{name}.a", b"x" * 11) == 10054
    await stream.update(max_age=0.1, duplicate_window=0.1)
    await eventually(lambda: has_messages(stream, 0))


async def test_max_consumers(js: JetStream) -> None:
    stream = await js.create_stream(name=new_name(), max_consumers=1, storage="memory")
    await stream.create_consumer()
    with pytest.raises(LimitReachedError):
        await stream.create_consumer()


async def test_consumer_limits_are_defaults_and_caps(js: JetStream) -> None:
    stream = await js.create_stream(
        name=new_name(),
        storage="memory",
        consumer_limits=ConsumerLimits(inactive_threshold=60, max_ack_pending=50),
    )
    consumer = await stream.create_consumer()
    assert consumer.config.max_ack_pending == 50
    assert consumer.config.inactive_threshold == timedelta(seconds=60)
    with pytest.raises(APIError, match=r"(?i)max ack pending"):
        await stream.create_consumer(max_ack_pending=51)


async def test_what_needs_a_cluster_is_refused_without_one(js: JetStream) -> None:
    with pytest.raises(InvalidStreamConfigError, match=r"(?i)replicas"):
        await js.create_stream(name=new_name(), num_replicas=3)
    name = new_name()
    with pytest.raises(InvalidOptionError, match="preferred"):
        await js.create_stream(name=name, placement=Placement(preferred="a"))
    # A server by itself has no use for a placement; it takes a stream as if none were given.
    placement = Placement(cluster="elsewhere", tags=["ssd"])
    stream = await js.create_stream(name=name, placement=placement)
    assert stream.config.placement == placement


# --- mirrors and sources


async def upstream(nc: Client, js: JetStream, tokens: str, **fields: Any) -> Stream:
    """A stream with a message on `<name>.<token>` for each of the tokens."""
    name = new_name("UP")
    stream = await js.create_stream(name=name, subjects=[f"{name}.>"], storage="memory", **fields)
    for token in tokens:
        await store(nc, f"{name}.{token}", token.encode())
    return stream


async def test_a_mirror_has_the_same_messages(nc: Client, js: JetStream) -> None:
    origin = await upstream(nc, js, "abc", allow_direct=True)
    mirror = await js.create_stream(
        name=new_name(),
        mirror=StreamSource(name=origin.name, opt_start_seq=2),
        mirror_direct=True,
    )
    await eventually(lambda: has_messages(mirror, 2))
    assert await contents(mirror) == (await contents(origin))[1:]
    assert (await mirror.get_message(2)).timestamp == (await origin.get_message(2)).timestamp
    info = await mirror.info()
    assert info.mirror is not None
    assert (info.mirror.name, info.mirror.lag, info.mirror.error) == (origin.name, 0, None)
    assert info.config.subjects == []
    # Both answer direct gets for the origin.
    assert (await origin.direct_get(3)).stream in (origin.name, mirror.name)


async def test_a_mirror_becomes_a_stream_of_its_own(
    nats_server: NatsServer, nc: Client, js: JetStream
) -> None:
    origin = await upstream(nc, js, "ab")
    mirror = await js.create_stream(name=new_name(), mirror=StreamSource(name=origin.name))
    await eventually(lambda: has_messages(mirror, 2))
    with pytest.raises(InvalidStreamConfigError):
        await mirror.update(mirror=StreamSource(name="OTHER"))
    if version_of(nats_server) < (2, 12):
        with pytest.raises(InvalidStreamConfigError):
            await mirror.update(mirror=None)
        return
    await mirror.update(mirror=None, subjects=[mirror.name])
    assert await store(nc, mirror.name, b"own") == 3


async def test_a_stream_with_sources(nc: Client, js: JetStream) -> None:
    one, two = await upstream(nc, js, "abc"), await upstream(nc, js, "xy")
    name = new_name()
    stream = await js.create_stream(
        name=name,
        subjects=[f"{name}.own"],
        sources=[
            StreamSource(name=one.name, filter_subject=f"{one.name}.b"),
            StreamSource(name=one.name, filter_subject=f"{one.name}.c"),
            StreamSource(name=two.name, opt_start_seq=2),
        ],
    )
    await eventually(lambda: has_messages(stream, 3))
    await store(nc, f"{name}.own", b"own")
    found = dict(await contents(stream))
    assert sorted(found.values()) == [b"b", b"c", b"own", b"y"]
    sequence = (await stream.get_last_message(f"{one.name}.b")).sequence
    source = (await stream.get_message(sequence)).headers["Nats-Stream-Source"]
    assert source.split()[:2] == [one.name, "2"]
    infos = (await stream.info()).sources
    assert sorted(info.name for info in infos) == sorted([one.name, one.name, two.name])


async def test_a_source_from_a_time_on(nc: Client, js: JetStream) -> None:
    origin = await upstream(nc, js, "ab")
    first, second = [await origin.get_message(sequence) for sequence in (1, 2)]
    source = StreamSource(name=origin.name, opt_start_time=second.timestamp)
    stream = await js.create_stream(name=new_name(), sources=[source])
    # Times are cut to microseconds here, so that one may be that of the first message, too.
    expected = 2 if first.timestamp == second.timestamp else 1
    await eventually(lambda: has_messages(stream, expected))


async def test_sources_with_transforms(nc: Client, js: JetStream) -> None:
    origin = await upstream(nc, js, "abc")
    transforms = [
        SubjectTransform(src=f"{origin.name}.a", dest="moved.a"),
        SubjectTransform(src=f"{origin.name}.b", dest=""),  # as it is
    ]
    source = StreamSource(name=origin.name, subject_transforms=transforms)
    stream = await js.create_stream(name=new_name(), sources=[source])
    await eventually(lambda: has_messages(stream, 2))
    assert [subject for subject, _ in await contents(stream)] == ["moved.a", f"{origin.name}.b"]
    assert stream.config.sources[0].subject_transforms == transforms
    await stream.delete()


async def test_a_source_in_another_domain(start_server: StartServer, connect: Connect) -> None:
    port = ReservedPort(LOCALHOST)
    listen = {"host": LOCALHOST, "port": port.number}
    hub = start_server(domain="hub", config={"leafnodes": listen})
    remotes = [{"url": f"nats://{LOCALHOST}:{port.number}"}]
    leaf = start_server(domain="leaf", config={"leafnodes": {"remotes": remotes}})
    nc = await connect(hub.url)
    origin = await upstream(nc, nc.jetstream(domain="hub", strict=True), "ab")
    js = (await connect(leaf.url)).jetstream(domain="leaf", strict=True)
    external = ExternalStream(api="$JS.hub.API")
    stream = await js.create_stream(
        name=new_name(), sources=[StreamSource(name=origin.name, domain="hub")]
    )
    mirror = await js.create_stream(
        name=new_name(), mirror=StreamSource(name=origin.name, external=external)
    )
    assert stream.config.sources[0].external == external
    assert (await stream.info()).domain == "leaf"
    await eventually(lambda: has_messages(stream, 2))
    await eventually(lambda: has_messages(mirror, 2))
    port.close()


async def test_a_source_through_a_consumer_made_beforehand(
    nats_server: NatsServer, nc: Client, js: JetStream
) -> None:
    origin = await upstream(nc, js, "ab")
    deliver = new_name("deliver")
    if version_of(nats_server) >= (2, 14):
        await origin.create_consumer(
            durable_name="feed",
            deliver_subject=deliver,
            ack_policy="flow_control",
            flow_control=True,
            idle_heartbeat=1,
            max_ack_pending=100,
        )
    source = StreamSource(
        name=origin.name, consumer=SourceConsumer(name="feed", deliver_subject=deliver)
    )
    call = js.create_stream(name=new_name(), sources=[source])
    stream = await if_supported(nats_server, (2, 14), call, "sources[0].consumer")
    if stream is not None:
        await eventually(lambda: has_messages(stream, 2))
        assert stream.config.sources[0].consumer == source.consumer
    call = js.create_stream(name=new_name(), mirror=source)
    await if_supported(nats_server, (2, 14), call, "mirror.consumer")


async def test_a_source_that_cannot_be_found_is_reported(js: JetStream) -> None:
    missing = new_name()
    stream = await js.create_stream(name=new_name(), mirror=StreamSource(name=missing))

    async def failed() -> bool:
        mirror = (await stream.info()).mirror
        return mirror is not None and mirror.error is not None

    await eventually(failed)


# --- subjects


async def test_copies_for_core_subscribers(nc: Client, js: JetStream) -> None:
    name = new_name()
    republish = Republish(src=f"{name}.*", dest=f"copy.{name}.{{{{wildcard(1)}}}}")
    stream = await js.create_stream(name=name, subjects=[f"{name}.*"], republish=republish)
    async with await nc.subscribe(f"copy.{name}.>") as copies:
        await store(nc, f"{name}.a", b"1")
        copy = await copies.next(5)
        assert (copy.subject, copy.data) == (f"copy.{name}.a", b"1")
        assert copy.headers["Nats-Stream"] == name
        assert copy.headers["Nats-Sequence"] == "1"
        await stream.update(republish=republish.replace(headers_only=True))
        await store(nc, f"{name}.a", b"22")
        copy = await copies.next(5)
        assert (copy.data, copy.headers["Nats-Msg-Size"]) == (b"", "2")
    with pytest.raises(InvalidOptionError, match=r"republish\.dest"):
        await stream.update(republish=Republish(dest=f"{name}.b"))


async def test_messages_are_stored_under_another_subject(nc: Client, js: JetStream) -> None:
    name = new_name()
    transform = SubjectTransform(src=f"{name}.*.*", dest=f"{name}.{{{{wildcard(2)}}}}")
    stream = await js.create_stream(name=name, subjects=[f"{name}.>"], subject_transform=transform)
    await store(nc, f"{name}.a.b")
    await store(nc, f"{name}.a")
    assert [subject for subject, _ in await contents(stream)] == [f"{name}.b", f"{name}.a"]


async def test_the_first_sequence(nc: Client, js: JetStream) -> None:
    stream = await js.create_stream(name=new_name(), first_seq=1000)
    assert await store(nc, stream.name) == 1000
    state = (await stream.info()).state
    assert (state.first_seq, state.last_seq) == (1000, 1000)


# --- messages with a life of their own


async def test_messages_with_a_ttl_go_one_by_one(
    nats_server: NatsServer, nc: Client, js: JetStream
) -> None:
    call = js.create_stream(name=new_name(), allow_msg_ttl=True, storage="memory")
    stream = await if_supported(nats_server, (2, 11), call, "allow_msg_ttl")
    if stream is None:
        return
    await store(nc, stream.name, b"short", {"Nats-TTL": "1s"})
    await store(nc, stream.name, b"long")
    await eventually(lambda: has_messages(stream, 1))
    assert await contents(stream) == [(stream.name, b"long")]


async def test_what_expires_leaves_a_marker(
    nats_server: NatsServer, nc: Client, js: JetStream
) -> None:
    call = js.create_stream(name=new_name(), subject_delete_marker_ttl=60, max_age=0.2)
    stream = await if_supported(nats_server, (2, 11), call, "subject_delete_marker_ttl")
    if stream is None:
        return
    assert stream.config.allow_msg_ttl
    assert stream.config.allow_rollup_hdrs
    await store(nc, stream.name, b"short")

    async def marked() -> bool:
        try:
            message = await stream.get_message(2)
        except MessageNotFoundError:
            return False
        return message.headers.get("Nats-Marker-Reason") == "MaxAge"

    await eventually(marked)
    with pytest.raises(MessageNotFoundError):
        await stream.get_message(1)


async def test_a_scheduled_message(nats_server: NatsServer, nc: Client, js: JetStream) -> None:
    name = new_name()
    call = js.create_stream(name=name, subjects=[f"{name}.>"], allow_msg_schedules=True)
    stream = await if_supported(nats_server, (2, 12), call, "allow_msg_schedules")
    if stream is None:
        return
    at = (datetime.now(UTC) + timedelta(seconds=0.2)).isoformat().replace("+00:00", "Z")
    headers = {"Nats-Schedule": f"@at {at}", "Nats-Schedule-Target": f"{name}.target"}
    await store(nc, f"{name}.plan", b"later", headers)

    async def moved() -> bool:
        return (await stream.info(subjects_filter=">")).state.subjects == {f"{name}.target": 1}

    await eventually(moved)
    message = await stream.get_last_message(f"{name}.target")
    assert (message.data, message.headers["Nats-Scheduler"]) == (b"later", f"{name}.plan")


async def test_a_rollup_replaces_what_came_before(nc: Client, js: JetStream) -> None:
    stream = await js.create_stream(name=new_name(), allow_rollup_hdrs=True)
    for data in (b"1", b"2"):
        await store(nc, stream.name, data)
    await store(nc, stream.name, b"sum", {"Nats-Rollup": "all"})
    assert [data for _, data in await contents(stream)] == [b"sum"]
