"""What a server tells about a stream: its state, its replicas, where it gets messages from.

The first server version stands beside a field where it is not 2.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import ClassVar

from jetspark.jetstream.codec import ErrorDetail, Wire
from jetspark.jetstream.stream_config import (
    ExternalStream,
    Placement,
    RetentionPolicy,
    StreamConfig,
    SubjectTransform,
)

__all__ = [
    "ClusterInfo",
    "DesiredCluster",
    "DesiredClusterOrigin",
    "DesiredClusterStatus",
    "LostMessages",
    "PeerInfo",
    "StreamAlternate",
    "StreamInfo",
    "StreamSourceInfo",
    "StreamState",
]


class LostMessages(Wire, frozen=True, kw_only=True):
    """Messages that a server lost, for example by a damaged disk."""

    msgs: Sequence[int] = []
    bytes: int = 0


class StreamState(Wire, frozen=True, kw_only=True):
    """What is in a stream."""

    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    first_ts: datetime | None = None
    last_seq: int = 0
    last_ts: datetime | None = None
    consumer_count: int = 0
    num_subjects: int = 0  # 2.7.2
    subjects: Mapping[str, int] = {}  # 2.7.2; messages by subject, if asked for
    num_deleted: int = 0  # 2.2.2
    deleted: Sequence[int] = []  # sequences, if asked for
    lost: LostMessages | None = None


class PeerInfo(Wire, frozen=True, kw_only=True):
    """A replica."""

    name: str = ""
    current: bool = False  # seen lately and up to date
    offline: bool = False
    active: timedelta = timedelta(0)  # ns; since it was seen
    lag: int = 0  # operations behind
    peer: str = ""  # 2.9.1
    pending: bool = False  # 2.15; assigned and not yet a member


class DesiredClusterOrigin(Wire, frozen=True, kw_only=True):
    """What a stream had before it began to change (2.15)."""

    replicas: int = 0
    placement: Placement | None = None
    retention: RetentionPolicy | str | None = None


class DesiredClusterStatus(Wire, frozen=True, kw_only=True):
    """How far the change is (2.15)."""

    description: str = ""
    type: str = ""
    err: str = ""


class DesiredCluster(Wire, frozen=True, kw_only=True):
    """The servers that a stream or consumer is moving to (2.15)."""

    created: datetime | None = None
    name: str = ""
    replicas: Sequence[PeerInfo] = []
    origin: DesiredClusterOrigin | None = None
    status: DesiredClusterStatus | None = None


class ClusterInfo(Wire, frozen=True, kw_only=True):
    """The servers that keep a stream or consumer; one alone has only a leader."""

    name: str = ""
    raft_group: str = ""  # 2.10.4
    leader: str = ""
    leader_since: datetime | None = None  # 2.11.9
    system_account: bool = False  # 2.11.9
    traffic_account: str = ""  # 2.11.9
    replicas: Sequence[PeerInfo] = []
    desired: DesiredCluster | None = None  # 2.15


class StreamSourceInfo(Wire, frozen=True, kw_only=True):
    """How a mirror or source keeps up."""

    name: str = ""
    lag: int = 0  # messages behind
    seq: int = 0  # 2.15; the last message that was taken from a source, by its sequence there
    active: timedelta | None = None  # ns; since something came, None if nothing ever did
    error: ErrorDetail | None = None
    external: ExternalStream | None = None  # 2.2.4
    filter_subject: str = ""  # 2.10
    subject_transforms: Sequence[SubjectTransform] = []  # 2.10


class StreamAlternate(Wire, frozen=True, kw_only=True):
    """A mirror that could be read instead, the nearest first (2.8)."""

    name: str = ""
    domain: str = ""
    cluster: str = ""


class StreamInfo(Wire, frozen=True, kw_only=True):
    """Configuration and state of a stream at a moment."""

    config: StreamConfig
    created: datetime | None = None
    state: StreamState
    domain: str = ""  # 2.6
    cluster: ClusterInfo | None = None  # absent from the reply to a create
    mirror: StreamSourceInfo | None = None
    sources: Sequence[StreamSourceInfo] = []
    alternates: Sequence[StreamAlternate] = []  # 2.8
    ts: datetime | None = None  # 2.10; when this was true

    _envelope: ClassVar[frozenset[str]] = frozenset(
        {"type", "did_create", "total", "offset", "limit"}
    )
