"""Consumer configurations: what is sent, what comes back, what is refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetspark.errors import InvalidConsumerNameError, InvalidOptionError
from jetspark.jetstream.codec import encode
from jetspark.jetstream.consumer_config import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    PriorityPolicy,
    ReplayPolicy,
)

SECOND = 1_000_000_000
START = datetime(2024, 1, 1, tzinfo=UTC)

# As nats-server 2.15.1 answers a create; the start time came from another client.
FROM_SERVER: dict[str, Any] = {
    "name": "c2",
    "deliver_policy": "by_start_time",
    "opt_start_time": "2024-01-01T00:00:00.123456789Z",
    "ack_policy": "explicit",
    "ack_wait": SECOND,
    "max_deliver": 5,
    "backoff": [SECOND, 2 * SECOND],
    "replay_policy": "instant",
    "max_waiting": 512,
    "max_ack_pending": 50,
    "inactive_threshold": 100 * SECOND,
    "num_replicas": 0,
    "metadata": {"_nats.level": "5", "_nats.req.level": "1", "_nats.ver": "2.15.1"},
    "pause_until": "2099-01-01T00:00:00Z",
    "priority_groups": ["g"],
    "priority_policy": "pinned_client",
    "priority_timeout": 120 * SECOND,
}


def test_the_ack_policy_is_always_sent() -> None:
    # A server would take a missing one for "none" and lose messages.
    assert ConsumerConfig().to_wire() == {
        "ack_policy": "explicit",
        "deliver_policy": "all",
        "replay_policy": "instant",
    }
    ConsumerConfig().validate()


def test_the_config_of_a_server_survives() -> None:
    config = ConsumerConfig.from_wire(FROM_SERVER, strict=True)
    config.validate()
    assert config.backoff == [timedelta(seconds=1), timedelta(seconds=2)]
    assert config.priority_policy is PriorityPolicy.PINNED_CLIENT
    assert config.pause_until == datetime(2099, 1, 1, tzinfo=UTC)
    wire = config.to_wire()
    assert wire.items() <= FROM_SERVER.items()
    defaults = ConsumerConfig()
    for name in FROM_SERVER.keys() - wire.keys():
        assert FROM_SERVER[name] == getattr(defaults, name)


def test_an_update_keeps_the_start_time_to_the_nanosecond() -> None:
    # Otherwise a server answers that the start time can not be updated.
    config = ConsumerConfig.from_wire(FROM_SERVER)
    assert config.opt_start_time == datetime(2024, 1, 1, 0, 0, 0, 123_456, tzinfo=UTC)
    assert config.replace(description="x").to_wire()["opt_start_time"] == (
        "2024-01-01T00:00:00.123456789Z"
    )


def test_every_field_has_its_wire_form() -> None:
    config = ConsumerConfig(
        durable_name="d",
        name="d",
        description="text",
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
        opt_start_seq=5,
        opt_start_time=START,
        ack_policy=AckPolicy.ALL,
        ack_wait=30,
        max_deliver=3,
        backoff=[0.5, timedelta(seconds=1)],
        filter_subject="f",
        filter_subjects=["g", "h"],
        replay_policy=ReplayPolicy.ORIGINAL,
        rate_limit_bps=1000,
        sample_freq="50%",
        max_waiting=10,
        max_ack_pending=-1,
        headers_only=True,
        max_batch=11,
        max_expires=12,
        max_bytes=13,
        deliver_subject="push",
        deliver_group="group",
        flow_control=True,
        idle_heartbeat=5,
        inactive_threshold=60,
        num_replicas=1,
        mem_storage=True,
        metadata={"k": "v"},
        pause_until=START,
        priority_groups=["p"],
        priority_policy="overflow",
        priority_timeout=2,
        direct=True,
        sourcing=True,
    )
    assert config.to_wire() == {
        "durable_name": "d",
        "name": "d",
        "description": "text",
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": 5,
        "opt_start_time": "2024-01-01T00:00:00Z",
        "ack_policy": "all",
        "ack_wait": 30 * SECOND,
        "max_deliver": 3,
        "backoff": [500_000_000, SECOND],
        "filter_subject": "f",
        "filter_subjects": ["g", "h"],
        "replay_policy": "original",
        "rate_limit_bps": 1000,
        "sample_freq": "50%",
        "max_waiting": 10,
        "max_ack_pending": -1,
        "headers_only": True,
        "max_batch": 11,
        "max_expires": 12 * SECOND,
        "max_bytes": 13,
        "deliver_subject": "push",
        "deliver_group": "group",
        "flow_control": True,
        "idle_heartbeat": 5 * SECOND,
        "inactive_threshold": 60 * SECOND,
        "num_replicas": 1,
        "mem_storage": True,
        "metadata": {"k": "v"},
        "pause_until": "2024-01-01T00:00:00Z",
        "priority_groups": ["p"],
        "priority_policy": "overflow",
        "priority_timeout": 2 * SECOND,
        "direct": True,
        "sourcing": True,
    }
    assert ConsumerConfig.from_wire(json.loads(encode(config)), strict=True) == config
    assert {"extra", *config.to_wire()} == set(config.__struct_fields__)


def test_a_wrong_field_is_named() -> None:
    wrong: dict[str, Any] = {"durable": "d"}
    with pytest.raises(InvalidOptionError, match="durable_name"):
        ConsumerConfig(**wrong)


PUSH = {"deliver_subject": "push"}

GOOD: list[dict[str, Any]] = [
    {"durable_name": "d"},
    {"durable_name": "d", "name": "d"},
    {"deliver_policy": "last"},
    {"deliver_policy": "by_start_sequence", "opt_start_seq": 1},
    {"deliver_policy": "by_start_time", "opt_start_time": START},
    {"deliver_policy": "last_per_subject", "filter_subject": ">"},
    {"deliver_policy": "last_per_subject", "filter_subjects": ["a", "b"]},
    {"filter_subjects": ["a.b.*", "a.*.c"]},
    {"backoff": [1, 2, 3]},
    {"backoff": [1, 2, 3], "max_deliver": 3},
    {"backoff": [0, 1], "max_deliver": 0},
    {"backoff": [1], "ack_policy": "none"},
    {"ack_policy": "none", "max_ack_pending": 5},
    {"max_ack_pending": -1},
    {"max_waiting": 5, "max_batch": 5, "max_bytes": 5, "max_expires": 0.001},
    {"sample_freq": "100"},
    {"sample_freq": "150%"},
    {"deliver_group": "g"},
    {**PUSH, "rate_limit_bps": 100, "deliver_group": "g"},
    {**PUSH, "flow_control": True, "idle_heartbeat": 0.1},
    {**PUSH, "max_batch": 5},
    {**PUSH, "ack_policy": "flow_control"},
    {
        **PUSH,
        "ack_policy": "flow_control",
        "flow_control": True,
        "idle_heartbeat": 1,
        "max_ack_pending": 5,
    },
    {"priority_policy": "overflow", "priority_groups": ["a", "b"], "priority_timeout": 1},
    {"priority_policy": "prioritized", "priority_groups": ["A-Z/_=09"], "ack_policy": "none"},
    {"pause_until": START},
    {**PUSH, "direct": True, "ack_policy": "none"},
    {"num_replicas": 5, "mem_storage": True},
]


@pytest.mark.parametrize("fields", GOOD, ids=repr)
def test_what_a_server_takes_is_not_refused(fields: dict[str, Any]) -> None:
    ConsumerConfig(**fields).validate()


BAD: list[tuple[str, dict[str, Any]]] = [
    ("must be equal", {"durable_name": "a", "name": "b"}),
    ("opt_start_seq needs deliver_policy='by_start_sequence'", {"opt_start_seq": 1}),
    ("opt_start_time needs", {"opt_start_time": START}),
    ("needs opt_start_seq", {"deliver_policy": "by_start_sequence"}),
    ("needs opt_start_time", {"deliver_policy": "by_start_time"}),
    (
        "opt_start_seq needs",
        {"deliver_policy": "by_start_time", "opt_start_time": START, "opt_start_seq": 1},
    ),
    ("opt_start_seq must be", {"deliver_policy": "by_start_sequence", "opt_start_seq": -1}),
    ("needs filter_subject", {"deliver_policy": "last_per_subject"}),
    ("filter_subject 'a..b'", {"filter_subject": "a..b"}),
    ("not both", {"filter_subject": "a", "filter_subjects": ["b"]}),
    (r"filter_subjects\[1\] is empty", {"filter_subjects": ["a", ""]}),
    ("overlap: 'a' and 'a'", {"filter_subjects": ["a", "a"]}),
    (r"overlap: 'a\.b' and 'a\.\*'", {"filter_subjects": ["a.b", "a.*"]}),
    ("ack_wait", {"ack_wait": -1}),
    (r"backoff\[1\]", {"backoff": [1, -1]}),
    ("backoff has 3 steps", {"backoff": [1, 2, 3], "max_deliver": 2}),
    ("max_deliver must be", {"max_deliver": -2}),
    ("max_ack_pending must be", {"max_ack_pending": -2}),
    ("needs deliver_subject", {"ack_policy": "flow_control"}),
    ("excludes ack_wait", {**PUSH, "ack_policy": "flow_control", "ack_wait": 1}),
    ("excludes backoff", {**PUSH, "ack_policy": "flow_control", "backoff": [1]}),
    ("excludes max_deliver", {**PUSH, "ack_policy": "flow_control", "max_deliver": 1}),
    ("excludes max_ack_pending", {**PUSH, "ack_policy": "flow_control", "max_ack_pending": -1}),
    ("deliver_subject.*wildcard", {"deliver_subject": "a.*"}),
    ("deliver_subject.*empty token", {"deliver_subject": "a..b"}),
    ("max_waiting is only for pull", {**PUSH, "max_waiting": 5}),
    ("rate_limit_bps", {**PUSH, "rate_limit_bps": -1}),
    ("idle_heartbeat must be at least 0.1 s", {**PUSH, "idle_heartbeat": 0.01}),
    ("flow_control needs idle_heartbeat", {**PUSH, "flow_control": True}),
    ("max_ack_pending needs", {**PUSH, "ack_policy": "none", "max_ack_pending": 5}),
    ("idle_heartbeat is only for push", {"idle_heartbeat": 1}),
    ("flow_control is only for push", {"flow_control": True}),
    ("rate_limit_bps is only for push", {"rate_limit_bps": 1}),
    ("max_waiting must be", {"max_waiting": -1}),
    ("max_batch must be", {"max_batch": -1}),
    ("max_bytes must be", {"max_bytes": -1}),
    ("max_expires must be at least 0.001 s", {"max_expires": 0.0005}),
    ("inactive_threshold", {"inactive_threshold": -1}),
    ("num_replicas", {"num_replicas": 6}),
    ("sample_freq", {"sample_freq": "5.5"}),
    ("sample_freq", {"sample_freq": "-5"}),
    ("sample_freq", {"sample_freq": "half"}),
    ("priority_groups needs a priority_policy", {"priority_groups": ["g"]}),
    ("priority_timeout needs a priority_policy", {"priority_timeout": 1}),
    ("needs priority_groups", {"priority_policy": "overflow"}),
    (
        "only for pull",
        {**PUSH, "priority_policy": "overflow", "priority_groups": ["g"]},
    ),
    ("priority group 'a b'", {"priority_policy": "overflow", "priority_groups": ["a b"]}),
    ("priority group ''", {"priority_policy": "overflow", "priority_groups": [""]}),
    ("16 letters", {"priority_policy": "overflow", "priority_groups": ["x" * 17]}),
    ("priority_timeout must", {"priority_timeout": -1}),
    ("description", {"description": "x" * 4097}),
    ("metadata", {"metadata": {"k": "x" * 128 * 1024}}),
]


@pytest.mark.parametrize(("message", "fields"), BAD, ids=lambda value: str(value)[:60])
def test_what_a_server_refuses_is_refused_before(message: str, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        ConsumerConfig(**fields).validate()


@pytest.mark.parametrize("name", ["a.b", "a b", "a*", ">", "a/b", "a\\b", "x" * 256])
@pytest.mark.parametrize("field", ["name", "durable_name"])
def test_bad_names(field: str, name: str) -> None:
    fields: dict[str, Any] = {field: name}
    with pytest.raises(InvalidConsumerNameError, match=field):
        ConsumerConfig(**fields).validate()


durations = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=100_000))
times = st.none() | st.datetimes(datetime(1970, 1, 1), timezones=st.just(UTC))


@settings(deadline=None)
@given(
    st.builds(
        ConsumerConfig,
        name=st.text(),
        deliver_policy=st.sampled_from(DeliverPolicy),
        ack_policy=st.sampled_from(AckPolicy),
        opt_start_seq=st.integers(0, 2**64 - 1),
        opt_start_time=times,
        ack_wait=durations,
        max_deliver=st.integers(-(2**63), 2**63 - 1),
        backoff=st.lists(durations),
        filter_subjects=st.lists(st.text()),
        pause_until=times,
        priority_policy=st.sampled_from(PriorityPolicy),
        flow_control=st.booleans(),
        metadata=st.dictionaries(st.text(), st.text()),
    )
)
def test_any_config_survives_a_round_trip(config: ConsumerConfig) -> None:
    assert ConsumerConfig.from_wire(json.loads(encode(config)), strict=True) == config
