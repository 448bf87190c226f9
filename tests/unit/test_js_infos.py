"""What servers tell about streams, consumers and accounts."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jetspark.errors import APIError, InvalidConsumerConfigError, InvalidResponseError
from jetspark.jetstream.account_info import AccountInfo, AccountLimits, AccountTier
from jetspark.jetstream.consumer_config import AckPolicy
from jetspark.jetstream.consumer_info import ConsumerInfo, ConsumerPause, PriorityGroupState
from jetspark.jetstream.stream_config import RetentionPolicy
from jetspark.jetstream.stream_info import (
    PeerInfo,
    StreamAlternate,
    StreamInfo,
    StreamState,
)

# Replies of nats-server 2.15.1, as they came, with shorter configurations.
STREAM: dict[str, Any] = {
    "type": "io.nats.jetstream.api.v1.stream_info_response",
    "total": 1,
    "offset": 0,
    "limit": 100000,
    "config": {"name": "S", "retention": "limits", "max_age": 0, "num_replicas": 3},
    "created": "2026-08-01T18:02:15.230153660Z",
    "state": {
        "messages": 4,
        "bytes": 128,
        "first_seq": 1,
        "first_ts": "2026-08-01T18:02:16.5Z",
        "last_seq": 5,
        "last_ts": "2026-08-01T18:02:17Z",
        "num_subjects": 1,
        "subjects": {"S": 4},
        "num_deleted": 1,
        "deleted": [2],
        "lost": {"msgs": [3], "bytes": 32},
        "consumer_count": 2,
    },
    "domain": "hub",
    "cluster": {
        "name": "c1",
        "raft_group": "S-R3F-4GImKJvH",
        "leader": "n0",
        "leader_since": "2026-08-01T18:02:14.326069538Z",
        "system_account": True,
        "traffic_account": "$SYS",
        "replicas": [
            {"name": "n1", "current": True, "active": 1588088175, "peer": "fjFyEjc1"},
            {"name": "n2", "current": False, "offline": True, "active": 0, "lag": 7, "peer": "x"},
        ],
        "desired": {
            "created": "2026-08-01T18:02:15.927665251Z",
            "name": "c1",
            "replicas": [
                {"name": "n3", "current": False, "active": 0, "peer": "y", "pending": True}
            ],
            "origin": {"replicas": 3, "placement": {"tags": ["a"]}, "retention": "interest"},
            "status": {"description": "waiting", "type": "catchup", "err": "slow"},
        },
    },
    "mirror": {"name": "UP", "lag": 0, "active": -1, "filter_subject": "a"},
    "sources": [
        {"name": "A", "lag": 0, "seq": 3, "active": 501525382},
        {
            "name": "B",
            "lag": 9,
            "active": -1,
            "error": {"code": 400, "err_code": 10082, "description": "needs an ack policy"},
            "external": {"api": "$JS.hub.API", "deliver": ""},
            "subject_transforms": [{"src": "b.x", "dest": ""}],
        },
    ],
    "alternates": [{"name": "S", "domain": "hub", "cluster": "c1"}],
    "ts": "2026-08-01T18:02:18.541638398Z",
}

CONSUMER: dict[str, Any] = {
    "type": "io.nats.jetstream.api.v1.consumer_reset_response",
    "stream_name": "S",
    "name": "c",
    "created": "2026-08-01T18:02:15.545816799Z",
    "config": {"name": "c", "ack_policy": "none", "deliver_policy": "all"},
    "delivered": {"consumer_seq": 2, "stream_seq": 9, "last_active": "2026-08-01T18:02:16Z"},
    "ack_floor": {"consumer_seq": 1, "stream_seq": 8},
    "num_ack_pending": 1,
    "num_redelivered": 2,
    "num_waiting": 3,
    "num_pending": 2**63,
    "cluster": {"leader": "n0"},
    "push_bound": True,
    "paused": True,
    "pause_remaining": 2276137049577278664,
    "ts": "2026-08-01T18:02:18.546177588Z",
    "priority_groups": [{"group": "g", "pinned_ts": "0001-01-01T00:00:00Z"}],
    "reset_seq": 10,
}

ACCOUNT: dict[str, Any] = {
    "type": "io.nats.jetstream.api.v1.account_info_response",
    "memory": 57,
    "storage": 560,
    "reserved_memory": 0,
    "reserved_storage": 1000,
    "streams": 10,
    "consumers": 9,
    "limits": {
        "max_memory": -1,
        "max_storage": -1,
        "max_streams": -1,
        "max_consumers": -1,
        "max_ack_pending": -1,
        "memory_max_stream_bytes": -1,
        "storage_max_stream_bytes": -1,
        "max_bytes_required": True,
    },
    "domain": "hub",
    "api": {"level": 5, "total": 58, "errors": 1, "inflight": 2},
}


def test_stream_info() -> None:
    info = StreamInfo.from_wire(STREAM, strict=True)
    assert info.config.name == "S"
    assert info.created == datetime(2026, 8, 1, 18, 2, 15, 230153, tzinfo=UTC)
    assert info.state == StreamState.from_wire(STREAM["state"])
    assert info.state.messages == 4
    assert info.state.first_ts == datetime(2026, 8, 1, 18, 2, 16, 500_000, tzinfo=UTC)
    assert info.state.subjects == {"S": 4}
    assert info.state.deleted == [2]
    assert info.state.lost is not None
    assert info.state.lost.msgs == [3]
    assert info.alternates == [StreamAlternate(name="S", domain="hub", cluster="c1")]
    assert pickle.loads(pickle.dumps(info)) == info


def test_cluster_info() -> None:
    cluster = StreamInfo.from_wire(STREAM).cluster
    assert cluster is not None
    assert cluster.leader == "n0"
    assert cluster.replicas[0] == PeerInfo(
        name="n1", current=True, active=timedelta(microseconds=1588088), peer="fjFyEjc1"
    )
    assert (cluster.replicas[1].offline, cluster.replicas[1].lag) == (True, 7)
    assert cluster.desired is not None
    assert cluster.desired.replicas[0].pending
    assert cluster.desired.origin is not None
    assert cluster.desired.origin.retention is RetentionPolicy.INTEREST
    assert cluster.desired.status is not None
    assert cluster.desired.status.type == "catchup"


def test_upstreams_of_a_stream() -> None:
    info = StreamInfo.from_wire(STREAM)
    assert info.mirror is not None
    assert info.mirror.active is None
    first, second = info.sources
    assert first.active == timedelta(microseconds=501525)
    assert first.seq == 3
    assert second.external is not None
    assert second.error is not None
    error = APIError.from_response(second.error, context="source 'B'")
    assert isinstance(error, InvalidConsumerConfigError)


def test_an_empty_stream_has_no_times() -> None:
    state = StreamState.from_wire(
        {"first_ts": "0001-01-01T00:00:00Z", "last_ts": "0001-01-01T00:00:00Z"}, strict=True
    )
    assert (state.first_ts, state.last_ts) == (None, None)


def test_consumer_info() -> None:
    info = ConsumerInfo.from_wire(CONSUMER, strict=True)
    assert info.config.ack_policy is AckPolicy.NONE
    assert info.delivered.last_active == datetime(2026, 8, 1, 18, 2, 16, tzinfo=UTC)
    assert info.ack_floor.last_active is None
    assert info.num_pending == 2**63
    assert info.pause_remaining == timedelta(microseconds=2276137049577278)
    assert info.priority_groups == [PriorityGroupState(group="g")]
    assert pickle.loads(pickle.dumps(info)) == info


def test_a_consumer_of_an_old_server() -> None:
    info = ConsumerInfo.from_wire(
        {"stream_name": "S", "name": "c", "config": {"durable_name": "c"}}, strict=True
    )
    assert info.delivered.stream_seq == 0
    assert not info.paused


def test_consumer_pause() -> None:
    pause = ConsumerPause.from_wire(
        {
            "type": "io.nats.jetstream.api.v1.consumer_pause_response",
            "paused": True,
            "pause_until": "2099-01-01T00:00:00Z",
            "pause_remaining": 1_500_000_000,
        },
        strict=True,
    )
    assert pause.pause_until == datetime(2099, 1, 1, tzinfo=UTC)
    assert pause.pause_remaining == timedelta(seconds=1.5)


def test_account_info() -> None:
    info = AccountInfo.from_wire(ACCOUNT, strict=True)
    assert (info.streams, info.storage, info.domain) == (10, 560, "hub")
    assert info.limits.max_bytes_required
    assert info.api.level == 5
    assert info.tiers == {}


def test_account_info_with_tiers() -> None:
    tier = {"memory": 0, "storage": 5, "streams": 1, "consumers": 2, "limits": {"max_streams": 3}}
    info = AccountInfo.from_wire({"storage": 5, "tiers": {"R1": tier}, "api": {}}, strict=True)
    assert info.limits == AccountLimits()
    assert info.tiers["R1"] == AccountTier(
        storage=5, streams=1, consumers=2, limits=AccountLimits(max_streams=3)
    )


def test_fields_of_newer_servers_are_kept_at_every_depth() -> None:
    raw = {**STREAM, "new": 1, "state": {**STREAM["state"], "newer": [2]}}
    raw["config"] = {**STREAM["config"], "newest": True}
    info = StreamInfo.from_wire(raw)
    assert info.extra == {"new": 1}
    assert info.state.extra == {"newer": [2]}
    assert info.config.to_wire()["newest"] is True
    with pytest.raises(InvalidResponseError) as caught:
        StreamInfo.from_wire(raw, strict=True)
    for name in ("StreamInfo.new", "StreamInfo.state.newer", "StreamInfo.config.newest"):
        assert name in str(caught.value)


@pytest.mark.parametrize("raw", [{}, {"config": {}}, {"config": {"name": "S"}}, None, "x"])
def test_an_incomplete_info_is_refused(raw: object) -> None:
    with pytest.raises(InvalidResponseError, match="not a StreamInfo"):
        StreamInfo.from_wire(raw)
