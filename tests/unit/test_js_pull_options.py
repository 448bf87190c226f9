"""The options of a pull: refused with the option named, and the body of the request."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from jetspark.errors import InvalidOptionError
from jetspark.jetstream.consumer.pull_options import PriorityOptions, PullOptions, StreamOptions
from jetspark.jetstream.consumer_config import ConsumerConfig
from tests.support.conformance import conformance

PLAIN = PriorityOptions()


def pull(**changes: Any) -> PullOptions:
    options: dict[str, Any] = {
        "max_messages": 10,
        "max_bytes": None,
        "timeout": 5.0,
        "heartbeat": None,
        "priority": PLAIN,
    }
    return PullOptions(**{**options, **changes})


def endless(**changes: Any) -> StreamOptions:
    options: dict[str, Any] = {
        "max_messages": None,
        "max_bytes": None,
        "expires": 30.0,
        "heartbeat": None,
        "threshold_messages": None,
        "threshold_bytes": None,
        "stop_after": None,
        "priority": PLAIN,
    }
    return StreamOptions(**{**options, **changes})


@conformance("ADR-13", "Request", "the body has batch and expires in nanoseconds")
def test_fetch_body() -> None:
    assert json.loads(pull().body(None)) == {"batch": 10, "expires": 5_000_000_000}


@conformance("ADR-13", "Request", "no_wait is sent instead of expires")
def test_no_wait_body() -> None:
    assert json.loads(pull(timeout=None).body(None)) == {"batch": 10, "no_wait": True}


def test_fetch_by_bytes_asks_for_many_messages() -> None:
    body = json.loads(pull(max_messages=None, max_bytes=1024).body(None))
    assert body == {"batch": 1_000_000, "max_bytes": 1024, "expires": 5_000_000_000}


@conformance("ADR-37", "Fetch", "long fetches have a heartbeat by default")
def test_fetch_heartbeat_default() -> None:
    assert pull(timeout=9.9).heartbeat is None
    assert pull(timeout=10).heartbeat == timedelta(seconds=5)
    assert json.loads(pull(timeout=30).body(None))["idle_heartbeat"] == 5_000_000_000


def test_pin_id_and_priority_in_the_body() -> None:
    body = json.loads(pull(priority=PriorityOptions("g", 1, 2, 3)).body("pin"))
    assert body["id"] == "pin"
    assert (body["group"], body["min_pending"], body["min_ack_pending"]) == ("g", 1, 2)
    assert body["priority"] == 3


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"max_messages": 0}, "max_messages"),
        ({"max_messages": None}, "max_messages"),
        ({"max_bytes": -1}, "max_bytes"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": -1.0}, "timeout"),
        ({"timeout": "soon"}, "timeout"),
        ({"heartbeat": 3}, "heartbeat"),
        ({"heartbeat": 0}, "heartbeat"),
        ({"timeout": None, "heartbeat": 1}, "heartbeat"),
    ],
)
def test_fetch_options_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidOptionError, match=named):
        pull(**changes)


@conformance("ADR-37", "Consume: options", "defaults: 500 messages, 30 s, a heartbeat of 5 s")
def test_endless_defaults() -> None:
    options = endless()
    assert options.max_messages == 1000
    assert options.threshold_messages == 500
    assert options.heartbeat == timedelta(seconds=5)
    assert json.loads(options.body(500, 0, None)) == {
        "batch": 500,
        "expires": 30_000_000_000,
        "idle_heartbeat": 5_000_000_000,
    }


@conformance("ADR-37", "Consume: options", "the heartbeat is half of expires, within limits")
def test_heartbeat_clamped() -> None:
    assert endless(expires=1).heartbeat == timedelta(milliseconds=500)
    assert endless(expires=8).heartbeat == timedelta(seconds=4)
    assert endless(expires=600).heartbeat == timedelta(seconds=5)
    assert endless(expires=60, heartbeat=30).heartbeat == timedelta(seconds=30)


@conformance("ADR-37", "Consume: options", "thresholds default to half, rounded up")
def test_thresholds() -> None:
    assert endless(max_messages=5).threshold_messages == 3
    assert endless(max_messages=1).threshold_messages == 1
    assert endless(max_bytes=1001).threshold_bytes == 501
    assert endless(max_bytes=10, threshold_bytes=2).threshold_bytes == 2


@conformance("ADR-37", "Consume: options", "max_messages and max_bytes exclude each other")
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"max_messages": 1, "max_bytes": 1}, "max_bytes"),
        ({"max_messages": 0}, "max_messages"),
        ({"max_bytes": 0}, "max_bytes"),
        ({"max_messages": 5, "threshold_messages": 6}, "threshold_messages"),
        ({"max_bytes": 5, "threshold_bytes": 6}, "threshold_bytes"),
        ({"threshold_bytes": 6}, "threshold_bytes"),
        ({"max_bytes": 5, "threshold_messages": 1}, "threshold_messages"),
        ({"expires": 0.5}, "expires"),
        ({"heartbeat": 16}, "heartbeat"),
        ({"heartbeat": -1}, "heartbeat"),
        ({"stop_after": 0}, "stop_after"),
    ],
)
def test_endless_options_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidOptionError, match=named):
        endless(**changes)


GROUPED = ConsumerConfig(durable_name="c", priority_groups=["a", "b"], priority_policy="overflow")


@pytest.mark.parametrize(
    ("options", "config", "named"),
    [
        (PriorityOptions("a"), ConsumerConfig(durable_name="c"), "group"),
        (PriorityOptions(priority=1), ConsumerConfig(durable_name="c"), "priority"),
        (PriorityOptions(), GROUPED, "group"),
        (PriorityOptions("x"), GROUPED, "group"),
        (PriorityOptions("not valid"), GROUPED, "not valid"),
        (PriorityOptions("a", priority=1), GROUPED, "priority"),
        (
            PriorityOptions("a", min_pending=1),
            GROUPED.replace(priority_policy="pinned_client"),
            "min_pending",
        ),
        (
            PriorityOptions("a", priority=10),
            GROUPED.replace(priority_policy="prioritized"),
            "priority",
        ),
    ],
)
def test_priority_options_refused(
    options: PriorityOptions, config: ConsumerConfig, named: str
) -> None:
    with pytest.raises(InvalidOptionError, match=named):
        options.check(config)


def test_priority_options_accepted() -> None:
    PriorityOptions().check(ConsumerConfig(durable_name="c"))
    PriorityOptions("a", min_pending=1, min_ack_pending=2).check(GROUPED)
    PriorityOptions("b", priority=0).check(GROUPED.replace(priority_policy="prioritized"))
