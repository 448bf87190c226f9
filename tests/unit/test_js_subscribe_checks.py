"""What a subscription may ask for, and which consumers suit it, without a server."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from jetspark.errors import (
    ConsumerAlreadyActiveError,
    ConsumerMismatchError,
    InvalidArgumentError,
    InvalidConsumerNameError,
    InvalidOptionError,
    JetSparkError,
    NotPullConsumerError,
    NotPushConsumerError,
)
from jetspark.jetstream import ConsumerConfig, ConsumerInfo
from jetspark.jetstream.subscribe_checks import (
    Wanted,
    check_found,
    ordered_fields,
    wanted_pull,
    wanted_push,
)
from tests.support.conformance import conformance


def push(subject: str | None = "orders.new", **options: Any) -> Wanted:
    known: dict[str, Any] = {
        "queue": None,
        "durable": None,
        "stream": None,
        "consumer": None,
        "bind": False,
        "config": None,
    }
    fields = {name: options.pop(name) for name in options.keys() - known.keys()}
    return wanted_push(subject, **{**known, **options}, fields=fields)


def pull(subject: str | None = "orders.new", **options: Any) -> Wanted:
    known: dict[str, Any] = {
        "durable": None,
        "stream": None,
        "consumer": None,
        "bind": False,
        "config": None,
    }
    fields = {name: options.pop(name) for name in options.keys() - known.keys()}
    return wanted_pull(subject, **{**known, **options}, fields=fields)


def found(*, bound: bool = False, **config: Any) -> ConsumerInfo:
    """A push consumer, unless the configuration says otherwise."""
    config = {"durable_name": "d", "name": "d", "deliver_subject": "inbox", **config}
    return ConsumerInfo(
        stream_name="S", name="d", config=ConsumerConfig(**config), push_bound=bound
    )


# -- what is asked for --------------------------------------------------------------------------


@conformance("ADR-15", "Creating the JS Consumer", "the filter is the subject")
@conformance("ADR-15", "Creating the JS Consumer", "the ack policy is set, explicit by default")
def test_a_plain_subscription() -> None:
    wanted = push()
    assert (wanted.subject, wanted.stream, wanted.name) == ("orders.new", None, None)
    assert (wanted.bind, wanted.pull) == (False, False)
    assert wanted.config.filter_subject == "orders.new"
    assert wanted.config.to_wire()["ack_policy"] == "explicit"
    assert wanted.given == frozenset()


@conformance("ADR-15", "Creating the JS Consumer", "deliver_group is the name of the queue")
@conformance("ADR-15", "Queue name", "without a consumer name, the queue is the durable name")
def test_a_queue_becomes_the_durable_name() -> None:
    wanted = push(queue="workers")
    assert wanted.name == "workers"
    assert wanted.config.durable_name == wanted.config.deliver_group == "workers"
    assert not wanted.bind


@conformance("ADR-15", "Queue name", "a consumer name or durable goes before the queue name")
def test_a_queue_with_a_name() -> None:
    assert push(queue="workers", durable="d").config.durable_name == "d"
    assert push(queue="workers", consumer="c").name == "c"
    assert push(queue="workers", name="n").name == "n"


def test_a_queue_that_is_no_name() -> None:
    with pytest.raises(InvalidConsumerNameError, match="queue"):
        push(queue="a.b")
    assert push(queue="a.b", durable="d").queue == "a.b"


def test_the_queue_may_be_in_the_configuration() -> None:
    assert push(deliver_group="workers").queue == "workers"
    assert push(deliver_group="workers", queue="workers").queue == "workers"
    with pytest.raises(InvalidOptionError, match="deliver_group"):
        push(deliver_group="workers", queue="others")


@conformance("ADR-15", "Configuration", "heartbeat or flow control with a queue is refused")
@pytest.mark.parametrize(
    "fields", [{"idle_heartbeat": 1}, {"idle_heartbeat": 1, "flow_control": True}]
)
def test_a_queue_has_no_heartbeats(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError, match="queue"):
        push(queue="workers", **fields)
    with pytest.raises(InvalidOptionError, match="queue"):
        push(queue="workers", config=ConsumerConfig(**fields))
    assert push(**fields).queue is None


@conformance("ADR-15", "Configuration", "no subject and no stream is refused")
@pytest.mark.parametrize("want", [push, pull])
def test_something_must_be_asked_for(want: Any) -> None:
    for subject in (None, ""):
        with pytest.raises(InvalidArgumentError, match="subject"):
            want(subject)
        with pytest.raises(InvalidArgumentError, match="subject"):
            want(subject, durable="d")
        assert want(subject, stream="S").subject == ""
    assert want(None, filter_subject="a").subject == "a"
    assert want(None, filter_subjects=["a"]).subject == "a"
    assert want(None, stream="S", filter_subjects=["a", "b"]).subject == ""


@pytest.mark.parametrize("want", [push, pull])
@pytest.mark.parametrize("fields", [{"filter_subject": "b"}, {"filter_subjects": ["a", "b"]}])
def test_two_different_subjects(want: Any, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError, match="subject"):
        want("a", **fields)
    assert want("b", filter_subject="b").subject == "b"


@pytest.mark.parametrize("want", [push, pull])
def test_names(want: Any) -> None:
    assert (want(durable="d").name, want(durable="d").bind) == ("d", False)
    assert want(config=ConsumerConfig(durable_name="d")).name == "d"
    assert want(durable="d", bind=True).bind
    wanted = want(consumer="c")
    assert (wanted.name, wanted.bind) == ("c", True)
    assert want(consumer="c", durable="c").name == "c"
    with pytest.raises(InvalidOptionError, match="consumer 'c' and durable 'd'"):
        want(consumer="c", durable="d")
    with pytest.raises(InvalidOptionError, match="durable 'd' and name 'n'"):
        want(durable="d", name="n")
    with pytest.raises(InvalidOptionError, match="bind"):
        want(bind=True)
    with pytest.raises(InvalidConsumerNameError):
        want(durable="a b")
    with pytest.raises(JetSparkError):
        want(stream="a.b")
    with pytest.raises(InvalidOptionError):
        want("a b")


def test_fields_change_the_object() -> None:
    wanted = push(config=ConsumerConfig(ack_wait=10, max_deliver=3), max_deliver=4)
    assert wanted.config.ack_wait == timedelta(seconds=10)
    assert wanted.config.max_deliver == 4
    assert wanted.given == {"ack_wait", "max_deliver"}


@conformance("ADR-15", "Creating the JS Consumer", "a pull consumer has no deliver subject")
@pytest.mark.parametrize("name", ["deliver_subject", "deliver_group"])
def test_pulling_needs_no_deliver_subject(name: str) -> None:
    with pytest.raises(InvalidOptionError, match=name):
        pull(**{name: "x"})


@conformance("ADR-15", "Configuration", "ack policy none or all is refused for pull subscriptions")
@pytest.mark.parametrize("policy", ["none", "all"])
def test_pulling_needs_acks(policy: str) -> None:
    with pytest.raises(InvalidOptionError, match="ack_policy"):
        pull(ack_policy=policy)
    with pytest.raises(InvalidOptionError, match="ack_policy"):
        pull(config=ConsumerConfig(ack_policy=policy))
    assert pull(ack_policy="explicit").pull
    assert push(ack_policy=policy).given == {"ack_policy"}


# -- what exists --------------------------------------------------------------------------------


@conformance("ADR-15", "Other checks", "a filter that is not the subject is a mismatch")
@conformance("ADR-15", "Stream name", "the filter of a consumer that exists must match the subject")
def test_the_filter_must_be_the_subject() -> None:
    for config in ({"filter_subject": "orders.old"}, {"filter_subjects": ["orders.new", "b"]}):
        with pytest.raises(ConsumerMismatchError, match=r"orders\.new"):
            check_found(push(), found(**config))
    check_found(push(), found(filter_subject="orders.new"))
    check_found(push(), found(filter_subjects=["orders.new"]))
    check_found(push(), found())  # an empty filter suits every subject
    check_found(push(None, stream="S"), found(filter_subject="orders.old"))


@conformance("ADR-15", "Other checks", "a pull subscription does not fit a push consumer")
def test_pull_from_a_push_consumer() -> None:
    with pytest.raises(NotPullConsumerError, match="use subscribe"):
        check_found(pull(), found())
    check_found(pull(), found(deliver_subject=""))


@conformance("ADR-15", "Other checks", "a push subscription does not fit a pull consumer")
def test_push_from_a_pull_consumer() -> None:
    with pytest.raises(NotPushConsumerError, match="pull_subscribe"):
        check_found(push(), found(deliver_subject=""))


@conformance("ADR-15", "Push bound", "a second subscription without a queue is a duplicate")
def test_bound_already() -> None:
    with pytest.raises(ConsumerAlreadyActiveError, match="bound"):
        check_found(push(), found(bound=True))
    check_found(push(), found(bound=False))
    check_found(push(queue="q", durable="d"), found(bound=True, deliver_group="q"))


@conformance("ADR-15", "Push bound", "no queue, and the consumer is for one: refused")
@conformance("ADR-15", "Push bound", "a queue, and the consumer is for another one: refused")
@conformance("ADR-15", "Push bound", "a queue, and the consumer is for none: refused")
@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize(
    ("queue", "group"), [(None, "workers"), ("others", "workers"), ("workers", "")]
)
def test_queues_must_agree(queue: str | None, group: str, bound: bool) -> None:
    with pytest.raises(ConsumerMismatchError, match="queue"):
        check_found(push(queue=queue, durable="d"), found(deliver_group=group, bound=bound))


@conformance("ADR-15", "Other checks", "flow control on the consumer does not go with a queue")
@conformance("ADR-15", "Other checks", "heartbeats on the consumer do not go with a queue")
@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"idle_heartbeat": 1}, "idle_heartbeat"),
        ({"idle_heartbeat": 1, "flow_control": True}, "flow_control"),
    ],
)
def test_a_consumer_for_a_queue_has_no_heartbeats(config: dict[str, Any], name: str) -> None:
    with pytest.raises(ConsumerMismatchError, match=name):
        check_found(push(queue="q", durable="d"), found(deliver_group="q", **config))


@conformance("ADR-15", "Other checks", "a configuration that differs is a mismatch")
@pytest.mark.parametrize(
    ("asked", "config"),
    [
        ({"ack_policy": "explicit"}, {"ack_policy": "none"}),
        ({"ack_wait": 10}, {"ack_wait": 30}),
        ({"max_deliver": 5}, {}),
        ({"deliver_policy": "new"}, {"deliver_policy": "all"}),
        ({"opt_start_seq": 5, "deliver_policy": "by_start_sequence"}, {}),
        ({"replay_policy": "original"}, {"replay_policy": "instant"}),
        ({"rate_limit_bps": 1000}, {"rate_limit_bps": 2000}),
        ({"sample_freq": "50%"}, {"sample_freq": "40%"}),
        ({"max_ack_pending": 10}, {"max_ack_pending": 1000}),
        ({"headers_only": True}, {}),
        ({"flow_control": False}, {"flow_control": True, "idle_heartbeat": 1}),
        ({"idle_heartbeat": 2}, {"idle_heartbeat": 1}),
        ({"deliver_subject": "mine"}, {"deliver_subject": "theirs"}),
        ({"description": "mine"}, {"description": "theirs"}),
        ({"metadata": {"a": "1"}}, {"metadata": {"a": "2"}}),
        ({"backoff": [1, 2], "max_deliver": 5}, {"backoff": [1], "max_deliver": 5}),
    ],
)
def test_another_configuration(asked: dict[str, Any], config: dict[str, Any]) -> None:
    wanted = push(durable="d", **asked)
    with pytest.raises(ConsumerMismatchError, match=next(iter(asked))):
        check_found(wanted, found(**config))
    check_found(wanted, found(**{**config, **asked}))


def test_only_what_was_set_is_compared() -> None:
    check_found(
        push(durable="d", ack_wait=0),
        found(
            ack_wait=12, max_deliver=7, ack_policy="none", headers_only=True, metadata={"a": "b"}
        ),
    )
    check_found(push(sample_freq="50%"), found(sample_freq="50"))
    check_found(push(metadata={"a": "1"}), found(metadata={"a": "1", "_nats.ver": "2.15.1"}))


def test_all_differences_are_named() -> None:
    with pytest.raises(ConsumerMismatchError) as caught:
        check_found(push(ack_wait=5, max_deliver=2), found())
    assert "ack_wait" in str(caught.value)
    assert "max_deliver is -1, not 2" in str(caught.value)


@conformance(
    "ADR-15", "Creating the JS Consumer", "after a race the checks of a push are not for pull"
)
def test_pull_is_not_checked_for_queues() -> None:
    check_found(pull(durable="d"), found(deliver_subject="", bound=True))


# -- ordered ------------------------------------------------------------------------------------


@conformance("ADR-17", "Push", "no durable, no name, no bind, no queue, no deliver subject")
@pytest.mark.parametrize(
    "options",
    [
        {"durable": "d"},
        {"consumer": "c"},
        {"name": "n"},
        {"queue": "q"},
        {"deliver_group": "q"},
        {"deliver_subject": "d"},
        {"durable": "d", "bind": True},
    ],
)
def test_ordered_has_its_own_consumer(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError, match="ordered"):
        ordered_fields(push(**options))


@conformance("ADR-17", "Push", "values that conflict with its own are refused")
@pytest.mark.parametrize(
    "fields",
    [
        {"ack_policy": "explicit"},
        {"ack_policy": "all"},
        {"max_deliver": 2},
        {"flow_control": False},
        {"ack_wait": 5},
        {"mem_storage": False},
        {"num_replicas": 3},
    ],
)
def test_what_ordered_decides_itself(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError, match=next(iter(fields))):
        ordered_fields(push(**fields))


def test_what_ordered_takes_over() -> None:
    fields = ordered_fields(
        push(ack_policy="none", max_deliver=1, idle_heartbeat=2, headers_only=True, opt_start_seq=7)
    )
    assert fields == {
        "filter_subject": "orders.new",
        "idle_heartbeat": timedelta(seconds=2),
        "headers_only": True,
        "opt_start_seq": 7,
    }
    assert ordered_fields(push(None, stream="S")) == {}
