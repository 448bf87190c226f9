"""Stream configurations: what is sent, what comes back, what is refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetspark.errors import InvalidOptionError, InvalidStreamNameError
from jetspark.jetstream.codec import encode
from jetspark.jetstream.stream_config import (
    Compression,
    ConsumerLimits,
    DiscardPolicy,
    ExternalStream,
    PersistMode,
    Placement,
    Republish,
    RetentionPolicy,
    SourceConsumer,
    StorageType,
    StreamConfig,
    StreamSource,
    SubjectTransform,
)

SECOND = 1_000_000_000
START = datetime(2024, 1, 1, tzinfo=UTC)

# As nats-server 2.15.1 answers a create.
FROM_SERVER: dict[str, Any] = {
    "name": "B",
    "description": "d",
    "subjects": ["b.>"],
    "retention": "limits",
    "max_consumers": -1,
    "max_msgs": -1,
    "max_bytes": -1,
    "max_age": 3600 * SECOND,
    "max_msgs_per_subject": -1,
    "max_msg_size": -1,
    "discard": "old",
    "storage": "file",
    "num_replicas": 1,
    "duplicate_window": 120 * SECOND,
    "placement": {},
    "compression": "s2",
    "first_seq": 10,
    "subject_transform": {"src": "b.*", "dest": "b.x.{{wildcard(1)}}"},
    "republish": {"src": "b.>", "dest": "rb.>"},
    "allow_direct": True,
    "mirror_direct": False,
    "sealed": False,
    "deny_delete": False,
    "deny_purge": False,
    "allow_rollup_hdrs": True,
    "consumer_limits": {"inactive_threshold": 100 * SECOND, "max_ack_pending": 50},
    "allow_msg_ttl": True,
    "subject_delete_marker_ttl": SECOND,
    "allow_atomic": True,
    "allow_msg_schedules": True,
    "allow_batched": True,
    "metadata": {"_nats.level": "5", "_nats.req.level": "4", "_nats.ver": "2.15.1", "a": "b"},
}


def test_a_name_is_enough() -> None:
    config = StreamConfig(name="ORDERS")
    config.validate()
    # What the schema of the API requires, and nothing that an old server would not know.
    assert config.to_wire() == {
        "name": "ORDERS",
        "retention": "limits",
        "max_consumers": -1,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": 0,
        "storage": "file",
        "num_replicas": 1,
    }


def test_the_config_of_a_server_survives() -> None:
    config = StreamConfig.from_wire(FROM_SERVER, strict=True)
    config.validate()
    assert config.max_age == timedelta(hours=1)
    assert config.compression is Compression.S2
    assert config.republish == Republish(src="b.>", dest="rb.>")
    assert config.consumer_limits == ConsumerLimits(inactive_threshold=100, max_ack_pending=50)
    wire = config.to_wire()
    assert wire.items() <= FROM_SERVER.items()
    # What is left out is what a server assumes by itself.
    defaults = StreamConfig(name="B")
    for name in FROM_SERVER.keys() - wire.keys():
        assert FROM_SERVER[name] == getattr(defaults, name)


def test_an_update_changes_what_it_names() -> None:
    config = StreamConfig.from_wire({**FROM_SERVER, "of_2_16": {"x": 1}})
    wire = config.replace(description="new", max_age=7).to_wire()
    assert wire["description"] == "new"
    assert wire["max_age"] == 7 * SECOND
    assert wire["of_2_16"] == {"x": 1}
    assert wire["metadata"] == FROM_SERVER["metadata"]


def test_every_field_has_its_wire_form() -> None:
    config = StreamConfig(
        name="ALL",
        description="d",
        subjects=["a.>"],
        retention=RetentionPolicy.INTEREST,
        max_consumers=1,
        max_msgs=2,
        max_bytes=3,
        max_age=timedelta(days=1),
        max_msgs_per_subject=4,
        max_msg_size=5,
        discard=DiscardPolicy.NEW,
        storage=StorageType.MEMORY,
        num_replicas=3,
        no_ack=True,
        duplicate_window=1.5,
        placement=Placement(cluster="c", tags=["t"]),
        mirror=StreamSource(name="UP", opt_start_seq=9),
        sources=[
            StreamSource(
                name="UP",
                opt_start_time=START,
                filter_subject="f",
                external=ExternalStream(api="p.api", deliver="p.deliver"),
            ),
            StreamSource(
                name="UP",
                subject_transforms=[SubjectTransform(src="x", dest="y"), SubjectTransform(src="z")],
                consumer=SourceConsumer(name="c", deliver_subject="d"),
            ),
        ],
        compression="s2",
        first_seq=2**64 - 1,
        subject_transform=SubjectTransform(src="s", dest="t"),
        republish=Republish(src="q", dest="r", headers_only=True),
        allow_direct=True,
        mirror_direct=True,
        discard_new_per_subject=True,
        sealed=True,
        deny_delete=True,
        deny_purge=True,
        allow_rollup_hdrs=True,
        consumer_limits=ConsumerLimits(inactive_threshold=60, max_ack_pending=7),
        metadata={"k": "v"},
        allow_msg_ttl=True,
        subject_delete_marker_ttl=2,
        allow_msg_counter=True,
        allow_atomic=True,
        allow_msg_schedules=True,
        persist_mode=PersistMode.ASYNC,
        allow_batched=True,
    )
    assert config.to_wire() == {
        "name": "ALL",
        "description": "d",
        "subjects": ["a.>"],
        "retention": "interest",
        "max_consumers": 1,
        "max_msgs": 2,
        "max_bytes": 3,
        "max_age": 86400 * SECOND,
        "max_msgs_per_subject": 4,
        "max_msg_size": 5,
        "discard": "new",
        "storage": "memory",
        "num_replicas": 3,
        "no_ack": True,
        "duplicate_window": 1_500_000_000,
        "placement": {"cluster": "c", "tags": ["t"]},
        "mirror": {"name": "UP", "opt_start_seq": 9},
        "sources": [
            {
                "name": "UP",
                "opt_start_time": "2024-01-01T00:00:00Z",
                "filter_subject": "f",
                "external": {"api": "p.api", "deliver": "p.deliver"},
            },
            {
                "name": "UP",
                "subject_transforms": [{"src": "x", "dest": "y"}, {"src": "z", "dest": ""}],
                "consumer": {"name": "c", "deliver_subject": "d"},
            },
        ],
        "compression": "s2",
        "first_seq": 2**64 - 1,
        "subject_transform": {"src": "s", "dest": "t"},
        "republish": {"src": "q", "dest": "r", "headers_only": True},
        "allow_direct": True,
        "mirror_direct": True,
        "discard_new_per_subject": True,
        "sealed": True,
        "deny_delete": True,
        "deny_purge": True,
        "allow_rollup_hdrs": True,
        "consumer_limits": {"inactive_threshold": 60 * SECOND, "max_ack_pending": 7},
        "metadata": {"k": "v"},
        "allow_msg_ttl": True,
        "subject_delete_marker_ttl": 2 * SECOND,
        "allow_msg_counter": True,
        "allow_atomic": True,
        "allow_msg_schedules": True,
        "persist_mode": "async",
        "allow_batched": True,
    }
    assert StreamConfig.from_wire(json.loads(encode(config)), strict=True) == config
    # Nothing was forgotten above.
    assert {"extra", *config.to_wire()} == set(config.__struct_fields__)


def test_a_domain_is_short_for_its_api() -> None:
    source = StreamSource(name="UP", domain="hub")
    source.validate()
    assert source.to_wire() == {"name": "UP", "external": {"api": "$JS.hub.API"}}
    config = StreamConfig(name="M", mirror=source)
    assert config.to_wire()["mirror"]["external"] == {"api": "$JS.hub.API"}
    assert source.replace(domain="spoke").to_wire()["external"] == {"api": "$JS.spoke.API"}


def test_a_wrong_field_is_named() -> None:
    wrong: dict[str, Any] = {"name": "S", "replicas": 3}
    with pytest.raises(InvalidOptionError, match="num_replicas"):
        StreamConfig(**wrong)


UP = StreamSource(name="UP")

GOOD: list[dict[str, Any]] = [
    {"subjects": ["a.*", "b.>", "c"]},
    {"subjects": ["*"]},
    {"subjects": ["foo*.>bar"]},
    {"subjects": ["$JS.EVENT.>"]},
    {"subjects": [">"], "no_ack": True},
    {"subjects": ["$JS.API.>"], "no_ack": True},
    {"max_msgs": 0, "max_bytes": 0, "max_msg_size": 0, "max_consumers": 0, "num_replicas": 0},
    {"max_age": 0.1, "duplicate_window": 0.1},
    {"duplicate_window": 1000},
    {"max_age": 10, "duplicate_window": 10},
    {"discard": "new", "discard_new_per_subject": True, "max_msgs_per_subject": 1},
    {"compression": "s2", "storage": "memory"},
    {"persist_mode": "async"},
    {"persist_mode": "async", "allow_batched": True},
    {"subject_delete_marker_ttl": 1},
    {"allow_msg_counter": True, "subject_delete_marker_ttl": 1},
    {"deny_purge": True, "allow_msg_ttl": True},
    {"sealed": True},
    {"mirror": UP, "mirror_direct": True, "duplicate_window": 1, "allow_rollup_hdrs": True},
    {"mirror": UP.replace(opt_start_seq=1, opt_start_time=START)},
    {"mirror": UP.replace(external=ExternalStream(api="$JS.hub.API"))},
    {"mirror": UP.replace(external=ExternalStream(api=""))},
    {"sources": [UP, UP.replace(filter_subject="a")]},
    {"sources": [UP, UP.replace(domain="hub")]},
    {"sources": [UP], "subjects": ["x"]},
    {"sources": [UP.replace(subject_transforms=[{"src": "a.b.*"}, {"src": "a.*.c"}])]},
    {"sources": [UP.replace(subject_transforms=[{"dest": "x.>"}, {"dest": "y.>"}])]},
    {"sources": [UP.replace(consumer=SourceConsumer(name="c", deliver_subject="d"))]},
    {"republish": Republish(dest="copy.>"), "subjects": ["a.>"]},
    {
        "republish": Republish(dest=">"),
        "subjects": ["a.>"],
        "subject_transform": SubjectTransform(src="a.>", dest="b.>"),
    },
    {"republish": Republish(dest="S"), "sources": [UP]},
    {"subject_transform": SubjectTransform()},
    {"placement": Placement(cluster="c", tags=["t"])},
    {"description": "x" * 4096},
    {"metadata": {"k": "x" * (128 * 1024 - 1)}},
    {"consumer_limits": ConsumerLimits(max_ack_pending=-1)},
]


@pytest.mark.parametrize("fields", GOOD, ids=repr)
def test_what_a_server_takes_is_not_refused(fields: dict[str, Any]) -> None:
    StreamConfig(name="S", **fields).validate()


BAD: list[tuple[str, dict[str, Any]]] = [
    (r"subjects\[1\] is empty", {"subjects": ["a", ""]}),
    (r"subjects\[0\].*empty token", {"subjects": ["a..b"]}),
    (r"subjects\[0\].*white space", {"subjects": ["a b"]}),
    (r"subjects\[0\].*last token", {"subjects": ["a.>.b"]}),
    ("subjects overlap: 'a' and 'a'", {"subjects": ["a", "a"]}),
    (r"subjects overlap: 'a\.\*' and '\*\.b'", {"subjects": ["a.*", "*.b"]}),
    ("no_ack", {"subjects": [">"]}),
    ("no_ack", {"subjects": ["$JS.API.x"]}),
    ("max_msgs must be -1", {"max_msgs": -2}),
    ("max_msgs must be -1", {"max_msgs": 2**63}),
    ("max_bytes", {"max_bytes": -2}),
    ("max_consumers", {"max_consumers": -2}),
    ("max_msgs_per_subject", {"max_msgs_per_subject": -2}),
    ("max_msg_size", {"max_msg_size": 2**31}),
    ("first_seq", {"first_seq": -1}),
    ("first_seq", {"first_seq": 2**64}),
    ("num_replicas", {"num_replicas": 6}),
    ("num_replicas", {"num_replicas": -1}),
    ("max_age must be at least 0.1 s, not 0.05 s", {"max_age": 0.05}),
    ("max_age", {"max_age": -1}),
    ("duplicate_window must be at least", {"duplicate_window": 0.05}),
    ("duplicate_window .* must not exceed max_age", {"max_age": 5, "duplicate_window": 6}),
    ("subject_delete_marker_ttl", {"subject_delete_marker_ttl": 0.5}),
    ("discard='new'", {"discard_new_per_subject": True, "max_msgs_per_subject": 1}),
    ("max_msgs_per_subject > 0", {"discard_new_per_subject": True, "discard": "new"}),
    ("deny_purge", {"deny_purge": True, "allow_rollup_hdrs": True}),
    ("deny_purge", {"deny_purge": True, "subject_delete_marker_ttl": 1}),
    ("deny_purge", {"deny_purge": True, "allow_msg_schedules": True}),
    ("retention='limits'", {"allow_msg_counter": True, "retention": "workqueue"}),
    ("discard='old'", {"allow_msg_counter": True, "discard": "new"}),
    ("allow_msg_ttl", {"allow_msg_counter": True, "allow_msg_ttl": True}),
    ("allow_msg_schedules", {"allow_msg_counter": True, "allow_msg_schedules": True}),
    ("discard='old'", {"allow_msg_schedules": True, "discard": "new"}),
    ("sources", {"allow_msg_schedules": True, "sources": [UP]}),
    ("file storage", {"persist_mode": "async", "storage": "memory"}),
    ("one replica", {"persist_mode": "async", "num_replicas": 3}),
    ("allow_atomic", {"persist_mode": "async", "allow_atomic": True}),
    ("mirror and subjects", {"mirror": UP, "subjects": ["a"]}),
    ("mirror and sources", {"mirror": UP, "sources": [UP]}),
    ("mirror and first_seq", {"mirror": UP, "first_seq": 5}),
    ("mirror and allow_msg_counter", {"mirror": UP, "allow_msg_counter": True}),
    ("mirror and allow_atomic", {"mirror": UP, "allow_atomic": True}),
    ("mirror and allow_batched", {"mirror": UP, "allow_batched": True}),
    ("mirror and allow_msg_schedules", {"mirror": UP, "allow_msg_schedules": True}),
    ("mirror and subject_delete", {"mirror": UP, "subject_delete_marker_ttl": 1}),
    ("mirror_direct needs a mirror", {"mirror_direct": True}),
    (r"mirror\.name", {"mirror": StreamSource(name="a.b")}),
    (r"sources\[0\]\.name", {"sources": [StreamSource(name="")]}),
    (r"sources\[1\] is there twice", {"sources": [UP, UP.replace(opt_start_seq=4)]}),
    ("opt_start_seq", {"sources": [UP.replace(opt_start_seq=-1)]}),
    (r"mirror\.filter_subject", {"mirror": UP.replace(filter_subject="a..b")}),
    (
        "filter_subject or subject_transforms",
        {"mirror": UP.replace(filter_subject="a", subject_transforms=[{"src": "b"}])},
    ),
    (
        r"sources\[0\]\.subject_transforms overlap",
        {"sources": [UP.replace(subject_transforms=[{"src": "a.b"}, {"src": "a.*"}])]},
    ),
    (r"transforms\[0\]\.src", {"mirror": UP.replace(subject_transforms=[{"src": "a..b"}])}),
    ("domain 'a.b'", {"mirror": UP.replace(domain="a.b")}),
    (
        "domain or external",
        {"mirror": UP.replace(domain="hub", external=ExternalStream(api="x"))},
    ),
    (r"mirror\.external\.api must not", {"mirror": UP.replace(external={"api": "$JS.API"})}),
    (r"mirror\.external\.api", {"mirror": UP.replace(external={"api": "a.*"})}),
    (r"external\.deliver", {"mirror": UP.replace(external={"api": "a", "deliver": "d.*"})}),
    (
        r"mirror\.consumer\.deliver_subject",
        {"mirror": UP.replace(consumer={"name": "c", "deliver_subject": ""})},
    ),
    (
        r"mirror\.consumer\.name",
        {"mirror": UP.replace(consumer={"name": "c.d", "deliver_subject": "d"})},
    ),
    (
        "filter_subject belongs to the consumer 'c'",
        {"mirror": UP.replace(filter_subject="a", consumer={"name": "c", "deliver_subject": "d"})},
    ),
    ("republish.dest is empty", {"republish": Republish(dest="")}),
    ("own subject 'a.>'", {"republish": Republish(dest="a.b"), "subjects": ["a.>"]}),
    ("own subject 'S'", {"republish": Republish(dest="S")}),
    (
        "own subject 'a.>'",
        {
            "republish": Republish(dest=">"),
            "subjects": ["a.>", "c"],
            "subject_transform": SubjectTransform(src="a.>", dest="b.>"),
        },
    ),
    ("subject_transform.src", {"subject_transform": SubjectTransform(src="a..b")}),
    ("placement.preferred", {"placement": Placement(preferred="n1")}),
    ("description", {"description": "x" * 4097}),
    ("metadata has", {"metadata": {"k": "x" * 128 * 1024}}),
]


@pytest.mark.parametrize(("message", "fields"), BAD, ids=lambda value: str(value)[:60])
def test_what_a_server_refuses_is_refused_before(message: str, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        StreamConfig(name="S", **fields).validate()


@pytest.mark.parametrize("name", ["", "a.b", "a b", "a*", ">", "a/b", "a\\b", "x" * 256])
def test_bad_names(name: str) -> None:
    with pytest.raises(InvalidStreamNameError):
        StreamConfig(name=name).validate()


durations = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=100_000))
sources = st.builds(
    StreamSource,
    name=st.text(),
    opt_start_seq=st.integers(0, 2**64 - 1),
    opt_start_time=st.none() | st.datetimes(datetime(1970, 1, 1), timezones=st.just(UTC)),
    subject_transforms=st.lists(st.builds(SubjectTransform, src=st.text(), dest=st.text())),
    external=st.none() | st.builds(ExternalStream, api=st.text(), deliver=st.text()),
)


@settings(deadline=None)
@given(
    st.builds(
        StreamConfig,
        name=st.text(),
        subjects=st.lists(st.text()),
        retention=st.sampled_from(RetentionPolicy),
        max_msgs=st.integers(-(2**63), 2**63 - 1),
        max_age=durations,
        duplicate_window=durations,
        storage=st.sampled_from(StorageType),
        mirror=st.none() | sources,
        sources=st.lists(sources),
        first_seq=st.integers(0, 2**64 - 1),
        consumer_limits=st.none() | st.builds(ConsumerLimits, inactive_threshold=durations),
        metadata=st.dictionaries(st.text(), st.text()),
        sealed=st.booleans(),
    )
)
def test_any_config_survives_a_round_trip(config: StreamConfig) -> None:
    assert StreamConfig.from_wire(json.loads(encode(config)), strict=True) == config
