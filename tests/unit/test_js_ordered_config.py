"""What ordered consumers ask of a server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jetspark.errors import InvalidConsumerNameError, InvalidOptionError
from jetspark.jetstream import AckPolicy, ConsumerConfig, DeliverPolicy
from jetspark.jetstream.consumer.ordered_config import OrderedPlan
from jetspark.jetstream.consumer.ordered_route import RESET_BACKOFF
from tests.support.conformance import conformance

TIME = datetime(2026, 1, 2, 3, tzinfo=UTC)


def first(*, push: bool = False, **options: Any) -> ConsumerConfig:
    plan = OrderedPlan(push=push, **options)
    return plan.config_for(plan.next_name(), None, "inbox" if push else "")


@conformance("ADR-17", "Pull", "ack none, in memory, one replica, gone after 5 minutes of silence")
def test_the_pull_flavour() -> None:
    config = first()
    config.validate()
    assert config.ack_policy == AckPolicy.NONE
    assert (config.mem_storage, config.num_replicas) == (True, 1)
    assert config.inactive_threshold == timedelta(minutes=5)
    assert (config.deliver_subject, config.durable_name) == ("", "")


@conformance(
    "ADR-17", "Push", "ack none, max_deliver 1, flow control, heartbeat 5 s, ack_wait 22 h, memory"
)
def test_the_push_flavour() -> None:
    config = first(push=True)
    config.validate()
    assert (config.ack_policy, config.max_deliver) == (AckPolicy.NONE, 1)
    assert (config.flow_control, config.idle_heartbeat) == (True, timedelta(seconds=5))
    assert config.ack_wait == timedelta(hours=22)
    assert (config.mem_storage, config.num_replicas) == (True, 1)
    assert (config.deliver_subject, config.durable_name) == ("inbox", "")
    assert first(push=True, idle_heartbeat=0.5).idle_heartbeat == timedelta(seconds=0.5)


def test_options() -> None:
    options: dict[str, Any] = {
        "filter_subjects": ["a", "b"],
        "replay_policy": "original",
        "headers_only": True,
        "inactive_threshold": 30,
        "metadata": {"k": "v"},
    }
    config = first(**options)
    assert config.filter_subjects == ["a", "b"]
    assert config.headers_only
    assert config.inactive_threshold == timedelta(seconds=30)
    assert config.metadata == {"k": "v"}
    assert str(config.replay_policy) == "original"


@pytest.mark.parametrize(
    ("options", "policy"),
    [
        ({}, DeliverPolicy.ALL),
        ({"opt_start_seq": 5}, DeliverPolicy.BY_START_SEQUENCE),
        ({"opt_start_time": TIME}, DeliverPolicy.BY_START_TIME),
        ({"deliver_policy": "new"}, DeliverPolicy.NEW),
        ({"deliver_policy": "last"}, DeliverPolicy.LAST),
    ],
)
def test_where_it_begins(options: dict[str, Any], policy: DeliverPolicy) -> None:
    config = first(**options)
    config.validate()
    assert config.deliver_policy == policy


@conformance("ADR-17", "Pull", "last_per_subject without a filter is for all subjects")
@pytest.mark.parametrize(
    ("options", "expected"), [({}, ">"), ({"filter_subject": "a"}, "a")], ids=["none", "one"]
)
def test_last_per_subject_needs_a_filter(options: dict[str, Any], expected: str) -> None:
    config = first(deliver_policy="last_per_subject", **options)
    config.validate()
    assert config.filter_subject == expected


@conformance("ADR-17", "Pull", "the name is a prefix and a serial")
def test_names_have_a_serial() -> None:
    plan = OrderedPlan(push=False, name_prefix="mine")
    assert [plan.next_name() for _ in range(3)] == ["mine_1", "mine_2", "mine_3"]
    prefixes = {OrderedPlan(push=False).prefix for _ in range(10)}
    assert len(prefixes) == 10


@conformance("ADR-17", "Reset", "the next one begins after the last sequence, whatever was asked")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"deliver_policy": "new"},
        {"opt_start_time": TIME},
        {"opt_start_seq": 3},
        {"deliver_policy": "last_per_subject", "filter_subject": "a.*"},
    ],
)
def test_the_next_one_begins_at_a_sequence(options: dict[str, Any]) -> None:
    plan = OrderedPlan(push=False, **options)
    config = plan.config_for("x_2", 43)
    config.validate()
    assert config.name == "x_2"
    assert (config.deliver_policy, config.opt_start_seq) == (DeliverPolicy.BY_START_SEQUENCE, 43)
    assert config.opt_start_time is None
    assert config.filter_subject == options.get("filter_subject", "")


@conformance(
    "ADR-17", "Reset", "before the first message, the deliver policy stays as it was asked"
)
def test_before_the_first_message_the_policy_stays() -> None:
    plan = OrderedPlan(push=False, opt_start_time=TIME)
    config = plan.config_for("x_2", None)
    assert (config.deliver_policy, config.opt_start_time) == (DeliverPolicy.BY_START_TIME, TIME)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_reset_attempts": 0}, "max_reset_attempts"),
        ({"idle_heartbeat": 5}, "idle_heartbeat"),
        ({"deliver_policy": "sometimes"}, "deliver_policy"),
        ({"filter": "a"}, "filter"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidOptionError, match=text):
        OrderedPlan(push=False, **options)


def test_a_prefix_must_be_a_name() -> None:
    with pytest.raises(InvalidConsumerNameError, match="name_prefix"):
        OrderedPlan(push=False, name_prefix="a.b")


@conformance("ADR-17", "Reset", "attempts wait 1, 2, 4, 8, then 10 seconds")
def test_the_waits_between_attempts() -> None:
    waits = [RESET_BACKOFF.delay(failures, 0.0) for failures in range(1, 7)]
    assert waits == [1, 2, 4, 8, 10, 10]
