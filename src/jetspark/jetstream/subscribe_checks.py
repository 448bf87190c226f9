"""What a subscription may ask for, and which consumers suit it (ADR-15).

Pure: the first checks need no server, the others compare with what a server said about a consumer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jetspark.errors import (
    ConsumerAlreadyActiveError,
    ConsumerMismatchError,
    InvalidArgumentError,
    InvalidOptionError,
    NotPullConsumerError,
    NotPushConsumerError,
)

from .checks import check_filter
from .consumer.ordered_config import PUSH_FIELDS
from .consumer_config import AckPolicy, ConsumerConfig
from .consumer_info import ConsumerInfo
from .features import configure
from .names import check_consumer_name, check_stream_name

__all__ = ["Wanted", "check_found", "ordered_fields", "wanted_pull", "wanted_push"]

# Compared by rules of their own, or not changed by a subscription.
_NOT_COMPARED = frozenset(
    {"durable_name", "name", "filter_subject", "filter_subjects", "deliver_group", "pause_until"}
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a subscription asks for, complete and without contradictions."""

    subject: str  # empty: all of the stream
    stream: str | None  # None: the one that has the subject
    name: str | None  # of the consumer; None: a new one without a durable name
    bind: bool  # the consumer must exist
    pull: bool
    queue: str | None
    config: ConsumerConfig  # for a new consumer
    given: frozenset[str]  # the fields of it that the user has set


def wanted_push(
    subject: str | None,
    *,
    queue: str | None,
    durable: str | None,
    stream: str | None,
    consumer: str | None,
    bind: bool,
    config: ConsumerConfig | None,
    fields: Mapping[str, Any],
) -> Wanted:
    """Check a push subscription."""
    full, given = _configure(config, fields)
    if full.deliver_group:
        if queue is not None and queue != full.deliver_group:
            raise InvalidOptionError(
                f"queue {queue!r} and deliver_group {full.deliver_group!r} must be equal; one of "
                "them is enough"
            )
        queue = full.deliver_group
    if queue is not None:
        for field in ("idle_heartbeat", "flow_control"):
            if getattr(full, field):
                raise InvalidOptionError(
                    f"{field} does not go with a queue: only one of its members would get them"
                )
    name, durable = _names(full, durable, consumer)
    if queue is not None and name is None:
        # Without a common consumer each member would get all messages.
        check_consumer_name(queue, "queue, which also becomes the durable name,")
        name = durable = queue
    full = full.replace(deliver_group=queue or "")
    return _wanted(subject, stream, name, durable, consumer, bind, False, queue, full, given)


def wanted_pull(
    subject: str | None,
    *,
    durable: str | None,
    stream: str | None,
    consumer: str | None,
    bind: bool,
    config: ConsumerConfig | None,
    fields: Mapping[str, Any],
) -> Wanted:
    """Check a pull subscription."""
    full, given = _configure(config, fields)
    for name in ("deliver_subject", "deliver_group"):
        if getattr(full, name):
            raise InvalidOptionError(f"{name} is only for push consumers: use subscribe")
    if "ack_policy" in given and full.ack_policy != AckPolicy.EXPLICIT:
        raise InvalidOptionError(
            f"ack_policy must be 'explicit' for a pull subscription, not {str(full.ack_policy)!r}"
        )
    found, durable = _names(full, durable, consumer)
    return _wanted(subject, stream, found, durable, consumer, bind, True, None, full, given)


def _configure(
    config: ConsumerConfig | None, fields: Mapping[str, Any]
) -> tuple[ConsumerConfig, frozenset[str]]:
    """The configuration, and which of its fields were set by the user."""
    full = configure(ConsumerConfig, config, fields)
    default = ConsumerConfig()
    given = {
        name
        for name in ConsumerConfig.__struct_fields__
        if name != "extra" and getattr(full, name) != getattr(default, name)
    }
    return full, frozenset(given | fields.keys())


def _names(
    config: ConsumerConfig, durable: str | None, consumer: str | None
) -> tuple[str | None, str | None]:
    """The name of the consumer and its durable name, each if there is one."""
    durable = durable or config.durable_name or None
    names = {"consumer": consumer, "durable": durable, "name": config.name or None}
    found = {name: value for name, value in names.items() if value is not None}
    for what, value in found.items():
        check_consumer_name(value, what)
    if len(set(found.values())) > 1:
        text = " and ".join(f"{what} {value!r}" for what, value in found.items())
        raise InvalidOptionError(f"{text} name different consumers; one of them is enough")
    return next(iter(found.values()), None), durable


def _wanted(
    subject: str | None,
    stream: str | None,
    name: str | None,
    durable: str | None,
    consumer: str | None,
    bind: bool,
    pull: bool,
    queue: str | None,
    config: ConsumerConfig,
    given: frozenset[str],
) -> Wanted:
    filters = list(config.filter_subjects) or [config.filter_subject]
    if subject is None and len(filters) == 1:
        subject = filters[0]
    elif subject and config.filter_subjects:
        raise InvalidOptionError("set a subject or filter_subjects, not both")
    elif subject and filters not in ([subject], [""]):
        raise InvalidOptionError(
            f"subject {subject!r} and filter_subject {filters[0]!r} must be equal; one of them is "
            "enough"
        )
    if subject:
        check_filter("subject", subject)
    elif stream is None:
        raise InvalidArgumentError("no subject and no stream: one of them must say what is wanted")
    if stream is not None:
        check_stream_name(stream)
    if bind and name is None:
        raise InvalidOptionError("bind needs the name of a consumer: set consumer or durable")
    if durable is not None:
        config = config.replace(durable_name=durable)
    if subject:
        config = config.replace(filter_subject=subject, filter_subjects=[])
    # Who names a consumer wants one that exists; a durable one is created if need be.
    return Wanted(
        subject or "", stream, name, bind or consumer is not None, pull, queue, config, given
    )


# --- consumers that exist


def check_found(wanted: Wanted, info: ConsumerInfo) -> None:
    """Raise if a consumer that exists does not suit the subscription."""
    consumer = f"consumer {info.name!r} of stream {info.stream_name!r}"
    config = info.config
    filters = [name for name in (config.filter_subject, *config.filter_subjects) if name]
    if wanted.subject and filters and filters != [wanted.subject]:
        raise ConsumerMismatchError(
            f"{consumer} delivers {', '.join(filters)}, not {wanted.subject!r}; subscribe to that, "
            "or use another consumer"
        )
    if wanted.pull:
        if config.deliver_subject:
            raise NotPullConsumerError(f"{consumer} pushes: use subscribe, not pull_subscribe")
    else:
        if not config.deliver_subject:
            raise NotPushConsumerError(
                f"{consumer} is to be pulled from: use pull_subscribe, not subscribe"
            )
        _check_queue(wanted, info, consumer)
    _check_config(wanted, config, consumer)


def _check_queue(wanted: Wanted, info: ConsumerInfo, consumer: str) -> None:
    config, queue = info.config, wanted.queue
    if not config.deliver_group:
        if queue is not None:
            raise ConsumerMismatchError(
                f"{consumer} has no deliver_group, so it cannot serve the queue {queue!r}"
            )
        if info.push_bound:
            raise ConsumerAlreadyActiveError(
                f"{consumer} is bound to another subscription; a second one would get the same "
                "messages: use a queue, or another consumer"
            )
        return
    if queue != config.deliver_group:
        asked = f"the queue {queue!r} does" if queue is not None else "a subscription without does"
        raise ConsumerMismatchError(
            f"{consumer} is for the queue {config.deliver_group!r}, and {asked} not fit it"
        )
    for name in ("flow_control", "idle_heartbeat"):
        if getattr(config, name):
            raise ConsumerMismatchError(f"{consumer} has {name}, which does not go with a queue")


def _check_config(wanted: Wanted, config: ConsumerConfig, consumer: str) -> None:
    """Refuse changes: a subscription does not make any to a consumer that exists."""
    differences = []
    for name in sorted(wanted.given - _NOT_COMPARED):
        asked, found = getattr(wanted.config, name), getattr(config, name)
        if name == "metadata":  # the server adds its own
            found = {key: found.get(key) for key in asked}
        elif name == "sample_freq":
            asked, found = asked.removesuffix("%"), found.removesuffix("%")
        elif not asked and not isinstance(asked, bool):
            continue  # as the server likes
        if asked != found:
            differences.append(f"{name} is {found!r}, not {asked!r}")
    if differences:
        raise ConsumerMismatchError(
            f"{consumer} is configured differently: {'; '.join(differences)}; update the consumer, "
            "or leave these out"
        )


# --- ordered


def ordered_fields(wanted: Wanted) -> dict[str, Any]:
    """The fields that an ordered consumer can take over; raises for those that it cannot."""
    if wanted.queue is not None:
        raise InvalidOptionError("ordered does not go with a queue: its members share the messages")
    if wanted.name is not None or wanted.bind:
        raise InvalidOptionError(
            "ordered does not go with durable, consumer, name or bind: it has a consumer of its own"
        )
    if wanted.config.deliver_subject:
        raise InvalidOptionError("ordered does not go with deliver_subject: it has its own")
    fields = {name: getattr(wanted.config, name) for name in wanted.given}
    for name, value in PUSH_FIELDS.items():
        if name in fields and fields.pop(name) != value:
            raise InvalidOptionError(f"{name} of an ordered consumer is always {value!r}")
    if wanted.subject:
        fields["filter_subject"] = wanted.subject
    return fields
