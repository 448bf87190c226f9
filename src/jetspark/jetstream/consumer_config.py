"""The configuration of a consumer, and what can be said about it without asking a server.

Fields have their names on the wire. Beside each stands its unit on the wire where that differs
from what Python sees, and the first server version that knows it where that is not 2.2.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import ClassVar

from jetspark.errors import InvalidOptionError
from jetspark.jetstream.checks import (
    INT64,
    UINT64,
    check_description,
    check_duration,
    check_filter,
    check_literal,
    check_metadata,
    check_range,
)
from jetspark.jetstream.codec import NO_DURATION, NO_DURATIONS, Config, Duration, Durations
from jetspark.jetstream.names import check_consumer_name, check_priority_group
from jetspark.protocol.subjects import subject_is_subset

__all__ = ["AckPolicy", "ConsumerConfig", "DeliverPolicy", "PriorityPolicy", "ReplayPolicy"]

_MAX_REPLICAS = 5
_SAMPLE_FREQ = re.compile(r"[+]?[0-9]+%?")
_SHORTEST_HEARTBEAT = timedelta(milliseconds=100)
_SHORTEST_EXPIRES = timedelta(milliseconds=1)


class DeliverPolicy(enum.StrEnum):
    """Where in the stream a consumer starts."""

    ALL = "all"
    LAST = "last"
    NEW = "new"
    BY_START_SEQUENCE = "by_start_sequence"  # needs opt_start_seq
    BY_START_TIME = "by_start_time"  # needs opt_start_time
    LAST_PER_SUBJECT = "last_per_subject"  # needs a filter


class AckPolicy(enum.StrEnum):
    """What has to be acknowledged."""

    NONE = "none"
    ALL = "all"  # an ack covers all messages before it
    EXPLICIT = "explicit"
    FLOW_CONTROL = "flow_control"  # 2.14; for mirrors and sources


class ReplayPolicy(enum.StrEnum):
    """How fast stored messages are delivered."""

    INSTANT = "instant"
    ORIGINAL = "original"  # as slowly as they were published


class PriorityPolicy(enum.StrEnum):
    """How the clients of a priority group share the messages (2.11)."""

    NONE = "none"
    OVERFLOW = "overflow"
    PINNED_CLIENT = "pinned_client"
    PRIORITIZED = "prioritized"  # 2.12


class ConsumerConfig(Config, frozen=True, kw_only=True):
    """What a consumer delivers, and how.

    With `deliver_subject` the server pushes; without, clients pull. With `durable_name` the
    consumer stays; without, it goes when nobody has used it for `inactive_threshold`.
    """

    durable_name: str = ""
    name: str = ""  # 2.9
    description: str = ""  # 2.3.3; at most 4 KiB
    deliver_policy: DeliverPolicy | str = DeliverPolicy.ALL
    opt_start_seq: int = 0
    opt_start_time: datetime | None = None  # RFC 3339
    # A server takes a missing policy for "none", so this one is always sent.
    ack_policy: AckPolicy | str = AckPolicy.EXPLICIT
    ack_wait: Duration = NO_DURATION  # ns; 0 is 30 s, or the first backoff
    max_deliver: int = -1
    backoff: Durations = NO_DURATIONS  # ns, 2.7.1; waits before redelivery, the last one repeats
    filter_subject: str = ""
    filter_subjects: Sequence[str] = []  # 2.10
    replay_policy: ReplayPolicy | str = ReplayPolicy.INSTANT
    rate_limit_bps: int = 0  # bits a second; push
    sample_freq: str = ""  # percent of acks that are reported, "50" or "50%"
    max_waiting: int = 0  # pull; 0 is 512
    max_ack_pending: int = 0  # 0 is 1000 or the limit, -1 is unlimited
    headers_only: bool = False  # 2.6.2
    max_batch: int = 0  # 2.7; pull
    max_expires: Duration = NO_DURATION  # ns, 2.7; pull
    max_bytes: int = 0  # 2.8.3; pull
    deliver_subject: str = ""  # push
    deliver_group: str = ""  # 2.4; push
    flow_control: bool = False  # push; needs idle_heartbeat
    idle_heartbeat: Duration = NO_DURATION  # ns; push
    inactive_threshold: Duration = NO_DURATION  # ns, 2.7; 0 is 5 s, or never if durable
    num_replicas: int = 0  # 2.8.3; 0 is as many as the stream has
    mem_storage: bool = False  # 2.8.3
    metadata: Mapping[str, str] = {}  # 2.10; the server adds keys that begin with "_nats."
    pause_until: datetime | None = None  # RFC 3339, 2.11; an update does not change it
    priority_groups: Sequence[str] = []  # 2.11
    priority_policy: PriorityPolicy | str = PriorityPolicy.NONE  # 2.11
    priority_timeout: Duration = NO_DURATION  # ns, 2.11; 0 is two minutes if pinned
    direct: bool = False  # of the server's own consumers
    sourcing: bool = False  # 2.14; of the server's own consumers

    _always: ClassVar[frozenset[str]] = frozenset({"ack_policy", "deliver_policy", "replay_policy"})

    def validate(self) -> None:
        """Raise `InvalidOptionError` for what any server would refuse, or quietly change.

        What depends on the server, its version or the stream is left to the server.
        """
        self._validate_names()
        self._validate_start()
        self._validate_filters()
        self._validate_acks()
        if self.deliver_subject:
            self._validate_push()
        else:
            self._validate_pull()
        self._validate_priority()
        check_range("num_replicas", self.num_replicas, 0, _MAX_REPLICAS)
        check_duration("inactive_threshold", self.inactive_threshold)
        if self.sample_freq and not _SAMPLE_FREQ.fullmatch(self.sample_freq):
            raise InvalidOptionError(
                f"sample_freq must be a percentage like '50%', not {self.sample_freq!r}"
            )

    def _validate_names(self) -> None:
        if self.name:
            check_consumer_name(self.name, "name")
        if self.durable_name:
            check_consumer_name(self.durable_name, "durable_name")
            if self.name and self.name != self.durable_name:
                raise InvalidOptionError(
                    f"durable_name {self.durable_name!r} and name {self.name!r} must be equal; "
                    "one of them is enough"
                )
        check_description(self.description)
        check_metadata(self.metadata)

    def _validate_start(self) -> None:
        check_range("opt_start_seq", self.opt_start_seq, 0, UINT64)
        policies = {
            "opt_start_seq": DeliverPolicy.BY_START_SEQUENCE,
            "opt_start_time": DeliverPolicy.BY_START_TIME,
        }
        for name, policy in policies.items():
            if getattr(self, name) and self.deliver_policy != policy:
                raise InvalidOptionError(f"{name} needs deliver_policy={policy.value!r}")
            if self.deliver_policy == policy and not getattr(self, name):
                raise InvalidOptionError(f"deliver_policy={policy.value!r} needs {name}")
        filtered = self.filter_subject or self.filter_subjects
        if self.deliver_policy == DeliverPolicy.LAST_PER_SUBJECT and not filtered:
            raise InvalidOptionError(
                "deliver_policy='last_per_subject' needs filter_subject; '>' is all subjects"
            )

    def _validate_filters(self) -> None:
        if self.filter_subject:
            check_filter("filter_subject", self.filter_subject)
            if self.filter_subjects:
                raise InvalidOptionError("set filter_subject or filter_subjects, not both")
        known: dict[str, None] = {}
        wide: list[str] = []  # of those
        for index, subject in enumerate(self.filter_subjects):
            check_filter(f"filter_subjects[{index}]", subject)
            is_wide = "*" in subject or ">" in subject
            # There may be many without wildcards, which overlap only if they are the same.
            others = known if is_wide or subject in known else wide
            for other in others:
                if subject_is_subset(subject, other) or subject_is_subset(other, subject):
                    raise InvalidOptionError(
                        f"filter_subjects overlap: {other!r} and {subject!r}; keep the wider one"
                    )
            known[subject] = None
            if is_wide:
                wide.append(subject)

    def _validate_acks(self) -> None:
        check_duration("ack_wait", self.ack_wait)
        for index, wait in enumerate(self.backoff):
            check_duration(f"backoff[{index}]", wait)
        check_range("max_deliver", self.max_deliver, -1, INT64)
        check_range("max_ack_pending", self.max_ack_pending, -1, INT64)
        if 0 < self.max_deliver < len(self.backoff):
            raise InvalidOptionError(
                f"backoff has {len(self.backoff)} steps, more than max_deliver "
                f"({self.max_deliver}) deliveries; shorten it, or raise max_deliver"
            )
        if self.ack_policy == AckPolicy.FLOW_CONTROL:
            if not self.deliver_subject:
                raise InvalidOptionError("ack_policy='flow_control' needs deliver_subject")
            for name, is_set in (
                ("ack_wait", self.ack_wait),
                ("backoff", self.backoff),
                ("max_deliver", self.max_deliver > 0),
                ("max_ack_pending=-1", self.max_ack_pending < 0),
            ):
                if is_set:
                    raise InvalidOptionError(f"ack_policy='flow_control' excludes {name}")

    def _validate_push(self) -> None:
        check_literal("deliver_subject", self.deliver_subject)
        if self.max_waiting:
            raise InvalidOptionError("max_waiting is only for pull consumers; unset it")
        check_range("rate_limit_bps", self.rate_limit_bps, 0, UINT64)
        check_duration("idle_heartbeat", self.idle_heartbeat, _SHORTEST_HEARTBEAT)
        # A server of 2.14 or newer sets the heartbeat of that policy itself.
        own_heartbeat = self.ack_policy == AckPolicy.FLOW_CONTROL
        if self.flow_control and not self.idle_heartbeat and not own_heartbeat:
            raise InvalidOptionError("flow_control needs idle_heartbeat")
        if self.max_ack_pending > 0 and self.ack_policy == AckPolicy.NONE:
            raise InvalidOptionError("max_ack_pending needs an ack_policy other than 'none'")

    def _validate_pull(self) -> None:
        for name in ("rate_limit_bps", "idle_heartbeat", "flow_control"):
            if getattr(self, name):
                raise InvalidOptionError(
                    f"{name} is only for push consumers; unset it, or set deliver_subject"
                )
        for name in ("max_waiting", "max_batch", "max_bytes"):
            check_range(name, getattr(self, name), 0, INT64)
        check_duration("max_expires", self.max_expires, _SHORTEST_EXPIRES)

    def _validate_priority(self) -> None:
        check_duration("priority_timeout", self.priority_timeout)
        if self.priority_policy == PriorityPolicy.NONE:
            for name in ("priority_groups", "priority_timeout"):
                if getattr(self, name):
                    raise InvalidOptionError(f"{name} needs a priority_policy")
            return
        if self.deliver_subject:
            raise InvalidOptionError("priority_policy is only for pull consumers; unset it")
        if not self.priority_groups:
            raise InvalidOptionError("priority_policy needs priority_groups")
        for group in self.priority_groups:
            check_priority_group(group)
