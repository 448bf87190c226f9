"""The configuration of a bucket and the stream that it becomes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from jetspark import (
    ExternalStream,
    KeyValueConfig,
    Placement,
    Republish,
    StreamConfig,
    StreamSource,
    SubjectTransform,
)
from jetspark.errors import InvalidBucketNameError, InvalidOptionError
from tests.support.conformance import conformance

SECTION = "2. Bucket -> stream config"
MIRRORS = "8. Mirrors, sources, republish"


def stream(**fields: Any) -> dict[str, Any]:
    config = KeyValueConfig(bucket="b", **fields)
    config.validate()
    return config.to_stream().to_wire()


@conformance("KV", SECTION, "the fixed fields and the defaults of a bucket")
def test_the_plainest_bucket() -> None:
    assert stream() == {
        "name": "KV_b",
        "subjects": ["$KV.b.>"],
        "retention": "limits",
        "max_consumers": -1,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": 0,
        "max_msgs_per_subject": 1,
        "storage": "file",
        "num_replicas": 1,
        "discard": "new",
        "allow_direct": True,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
    }


@conformance("KV", SECTION, "every option of a bucket has its field of the stream")
@pytest.mark.parametrize(
    ("field", "value", "wire"),
    [
        ("description", "d", {"description": "d"}),
        ("metadata", {"a": "b"}, {"metadata": {"a": "b"}}),
        ("history", 64, {"max_msgs_per_subject": 64}),
        ("ttl", 10, {"max_age": 10**10, "duplicate_window": 10**10}),
        ("ttl", timedelta(hours=1), {"max_age": 3600 * 10**9, "duplicate_window": 120 * 10**9}),
        ("max_value_size", 5, {"max_msg_size": 5}),
        ("max_value_size", 0, {}),
        ("max_bytes", 5, {"max_bytes": 5}),
        ("max_bytes", 0, {}),
        ("storage", "memory", {"storage": "memory"}),
        ("replicas", 3, {"num_replicas": 3}),
        ("placement", Placement(cluster="c"), {"placement": {"cluster": "c"}}),
        ("republish", Republish(dest="d.>"), {"republish": {"dest": "d.>"}}),
        ("compression", True, {"compression": "s2"}),
        (
            "limit_marker_ttl",
            1,
            {"allow_msg_ttl": True, "subject_delete_marker_ttl": 10**9},
        ),
    ],
)
def test_options(field: str, value: Any, wire: dict[str, Any]) -> None:
    found = stream(**{field: value})
    assert found == {**stream(), **wire}


def test_a_configuration_is_found_again_in_its_stream() -> None:
    config = KeyValueConfig(
        bucket="b",
        description="d",
        history=3,
        ttl=300,
        max_value_size=10,
        max_bytes=1000,
        storage="memory",
        replicas=3,
        placement=Placement(cluster="c"),
        republish=Republish(dest="d.>"),
        compression=True,
        limit_marker_ttl=5,
        metadata={"a": "b"},
    )
    assert KeyValueConfig.from_stream(config.to_stream()) == config


@conformance("KV", SECTION, "metadata that the server adds are not those of the bucket")
def test_metadata_of_the_server() -> None:
    metadata = {"a": "b", "_nats.ver": "2.15.1", "_nats.level": "1", "_nats.req.level": "0"}
    config = StreamConfig(name="KV_b", max_msgs_per_subject=1, metadata=metadata)
    assert KeyValueConfig.from_stream(config).metadata == {"a": "b"}


@conformance("KV", SECTION, "history is 1 to 64, which only clients check")
@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"history": 0}, "history must be 1 to 64"),
        ({"history": 65}, "history must be 1 to 64"),
        ({"ttl": -1}, "ttl"),
        ({"ttl": 0.01}, "ttl must be at least 0.1 s"),
        ({"limit_marker_ttl": 0.5}, "limit_marker_ttl must be at least 1 s"),
        ({"max_value_size": -2}, "max_value_size"),
        ({"max_bytes": -2}, "max_bytes"),
        ({"replicas": 6}, "num_replicas"),
        ({"mirror": StreamSource(name="a"), "sources": [StreamSource(name="c")]}, "sources"),
        ({"mirror": StreamSource(name="a"), "limit_marker_ttl": 1}, "limit_marker_ttl"),
        ({"sources": [StreamSource(name="a", filter_subject="x")]}, r"sources\[0\].*transforms"),
        ({"histroy": 1}, "did you mean history"),
    ],
)
def test_what_cannot_be_a_bucket(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidOptionError, match=named):
        stream(**fields)


def test_a_bad_name() -> None:
    with pytest.raises(InvalidBucketNameError):
        KeyValueConfig(bucket="a.b").validate()


@conformance("KV", MIRRORS, "a mirror: KV_ before the name, mirror_direct, no subjects")
@pytest.mark.parametrize("name", ["a", "KV_a"])
def test_a_mirror(name: str) -> None:
    wire = stream(mirror=StreamSource(name=name), ttl=60)
    assert wire["mirror"] == {"name": "KV_a"}
    assert wire["mirror_direct"] is True
    assert "subjects" not in wire
    assert "duplicate_window" not in wire


@conformance("KV", MIRRORS, "the domain of a mirror becomes the prefix of its API")
def test_a_mirror_in_a_domain() -> None:
    wire = stream(mirror=StreamSource(name="a", domain="hub"))
    assert wire["mirror"] == {"name": "KV_a", "external": {"api": "$JS.hub.API"}}


TRANSFORM = {"src": "$KV.a.>", "dest": "$KV.b.>"}


@conformance("KV", MIRRORS, "a source without transforms gets KV_ and a transform")
@pytest.mark.parametrize("name", ["a", "KV_a"])
def test_a_source(name: str) -> None:
    source = StreamSource(name=name)
    wire = stream(sources=[source])
    assert wire["sources"] == [{"name": "KV_a", "subject_transforms": [TRANSFORM]}]
    assert wire["subjects"] == ["$KV.b.>"]
    assert source == StreamSource(name=name)


@conformance("KV", MIRRORS, "an external source of the same bucket needs no transform")
@pytest.mark.parametrize(
    "external", [{"domain": "hub"}, {"external": ExternalStream(api="$JS.hub.API")}]
)
def test_external_sources(external: dict[str, Any]) -> None:
    same, other = stream(
        sources=[StreamSource(name="b", **external), StreamSource(name="a", **external)]
    )["sources"]
    assert same == {"name": "KV_b", "external": {"api": "$JS.hub.API"}}
    assert other["subject_transforms"] == [TRANSFORM]


@conformance("KV", MIRRORS, "a source with transforms is left as it is")
def test_a_source_that_is_no_bucket() -> None:
    transform = SubjectTransform(src="orders.>", dest="$KV.b.>")
    source = StreamSource(name="ORDERS", subject_transforms=[transform])
    assert stream(sources=[source])["sources"] == [source.to_wire()]


def test_a_change_leaves_alone_what_is_not_of_the_bucket() -> None:
    present = KeyValueConfig(bucket="b", limit_marker_ttl=5).to_stream()
    present = present.replace(max_msgs=7, extra={"new_field": 1})
    changed = KeyValueConfig(bucket="b", history=2).changed(present)
    assert changed.max_msgs == 7
    assert changed.extra == {"new_field": 1}
    assert changed.max_msgs_per_subject == 2
    assert changed.allow_msg_ttl  # which no server takes back
    assert not changed.subject_delete_marker_ttl
