"""What a server tells about a consumer: how far it is, and what is in flight.

The first server version stands beside a field where it is not 2.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import ClassVar

from jetspark.jetstream.codec import Wire
from jetspark.jetstream.consumer_config import ConsumerConfig
from jetspark.jetstream.stream_info import ClusterInfo

__all__ = ["ConsumerInfo", "ConsumerPause", "PriorityGroupState", "SequenceInfo"]


class SequenceInfo(Wire, frozen=True, kw_only=True):
    """A position, in the deliveries of the consumer and in the stream."""

    consumer_seq: int = 0
    stream_seq: int = 0
    last_active: datetime | None = None


class PriorityGroupState(Wire, frozen=True, kw_only=True):
    """Who is pinned in a priority group (2.11)."""

    group: str = ""
    pinned_client_id: str = ""
    pinned_ts: datetime | None = None


class ConsumerInfo(Wire, frozen=True, kw_only=True):
    """Configuration and state of a consumer at a moment."""

    stream_name: str
    name: str
    created: datetime | None = None
    config: ConsumerConfig
    delivered: SequenceInfo = SequenceInfo()
    ack_floor: SequenceInfo = SequenceInfo()
    num_ack_pending: int = 0
    num_redelivered: int = 0  # always 0 with max_deliver=1
    num_waiting: int = 0  # pull requests
    num_pending: int = 0  # messages that were not yet delivered
    cluster: ClusterInfo | None = None
    push_bound: bool = False  # 2.4; someone listens to deliver_subject
    paused: bool = False  # 2.11
    pause_remaining: timedelta = timedelta(0)  # ns, 2.11
    ts: datetime | None = None  # 2.10; when this was true
    priority_groups: Sequence[PriorityGroupState] = []  # 2.11; only the first group

    _envelope: ClassVar[frozenset[str]] = frozenset({"type", "reset_seq"})


class ConsumerPause(Wire, frozen=True, kw_only=True):
    """The reply to a pause or its end (2.11)."""

    paused: bool = False
    pause_until: datetime | None = None
    pause_remaining: timedelta = timedelta(0)  # ns

    _envelope: ClassVar[frozenset[str]] = frozenset({"type"})
