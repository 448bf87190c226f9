"""What an ordered consumer asks of the server: its options, and the configurations made of them.

Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict

from jetspark.connection.nuid import next_nuid
from jetspark.errors import InvalidOptionError
from jetspark.jetstream.consumer_config import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    ReplayPolicy,
)
from jetspark.jetstream.names import check_consumer_name

__all__ = ["PUSH_FIELDS", "OrderedOptions", "OrderedPlan"]

INACTIVE_THRESHOLD = timedelta(minutes=5)
HEARTBEAT = timedelta(seconds=5)

# Nothing is acknowledged and nothing is kept: what breaks is made again (ADR-17, ADR-37).
_FIELDS: Mapping[str, Any] = {
    "ack_policy": AckPolicy.NONE,
    "mem_storage": True,
    "num_replicas": 1,
}
PUSH_FIELDS: Mapping[str, Any] = {
    **_FIELDS,
    "max_deliver": 1,
    "flow_control": True,
    "ack_wait": timedelta(hours=22),
}
"""What the server must be told for an ordered push consumer, apart from the heartbeat."""


class OrderedOptions(TypedDict, total=False):
    """The options of an ordered consumer, all of them optional."""

    filter_subject: str
    filter_subjects: Sequence[str]  # 2.10
    deliver_policy: DeliverPolicy | str  # by default all, or what fits the next two
    opt_start_seq: int
    opt_start_time: datetime
    replay_policy: ReplayPolicy | str
    headers_only: bool
    inactive_threshold: float | timedelta  # 5 minutes; how long the server keeps it if we vanish
    idle_heartbeat: float | timedelta  # 5 seconds; push only, others set it where they read
    max_reset_attempts: int | None  # None: try for ever
    name_prefix: str  # of the names of the consumers on the server
    metadata: Mapping[str, str]  # 2.10


class OrderedPlan:
    """The consumers to create, one after the other."""

    def __init__(
        self,
        *,
        push: bool,
        max_reset_attempts: int | None = None,
        name_prefix: str | None = None,
        idle_heartbeat: float | timedelta | None = None,
        **fields: Any,
    ) -> None:
        if max_reset_attempts is not None and max_reset_attempts < 1:
            raise InvalidOptionError(
                "option 'max_reset_attempts' must be at least 1; None means no limit"
            )
        if name_prefix is not None:
            check_consumer_name(name_prefix, "option 'name_prefix'")
        if push:
            fields |= PUSH_FIELDS
            fields["idle_heartbeat"] = HEARTBEAT if idle_heartbeat is None else idle_heartbeat
        else:
            fields |= _FIELDS
            if idle_heartbeat is not None:
                raise InvalidOptionError(
                    "option 'idle_heartbeat' needs push=True; else give a heartbeat to messages()"
                )
        fields.setdefault("inactive_threshold", INACTIVE_THRESHOLD)
        if "deliver_policy" not in fields:
            if fields.get("opt_start_seq"):
                fields["deliver_policy"] = DeliverPolicy.BY_START_SEQUENCE
            elif fields.get("opt_start_time"):
                fields["deliver_policy"] = DeliverPolicy.BY_START_TIME
        config = ConsumerConfig(**fields)
        filtered = config.filter_subject or config.filter_subjects
        if config.deliver_policy == DeliverPolicy.LAST_PER_SUBJECT and not filtered:
            config = config.replace(filter_subject=">")
        self.config = config
        self.max_attempts = max_reset_attempts
        self.prefix = name_prefix or next_nuid()
        self.serial = 0

    def next_name(self) -> str:
        """The name of the next consumer; late messages of the others can be told by theirs."""
        self.serial += 1
        return f"{self.prefix}_{self.serial}"

    def config_for(self, name: str, start: int | None, deliver_subject: str = "") -> ConsumerConfig:
        """The configuration of a consumer that begins at a sequence; None: as the user said."""
        changes: dict[str, Any] = {"name": name, "deliver_subject": deliver_subject}
        if start is not None:
            changes |= {
                "deliver_policy": DeliverPolicy.BY_START_SEQUENCE,
                "opt_start_seq": start,
                "opt_start_time": None,
            }
        return self.config.replace(**changes)
