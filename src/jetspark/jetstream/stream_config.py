"""The configuration of a stream, and what can be said about it without asking a server.

Fields have their names on the wire. Beside each stands its unit on the wire where that differs
from what Python sees, and the first server version that knows it where that is not 2.2.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar

from jetspark.errors import InvalidOptionError
from jetspark.jetstream.checks import (
    INT32,
    INT64,
    UINT64,
    check_description,
    check_duration,
    check_filter,
    check_literal,
    check_metadata,
    check_range,
)
from jetspark.jetstream.codec import NO_DURATION, Config, Duration
from jetspark.jetstream.names import check_consumer_name, check_domain, check_stream_name
from jetspark.jetstream.subjects import DEFAULT_PREFIX, domain_prefix
from jetspark.protocol.subjects import subject_is_subset, subjects_collide

__all__ = [
    "Compression",
    "ConsumerLimits",
    "DiscardPolicy",
    "ExternalStream",
    "PersistMode",
    "Placement",
    "Republish",
    "RetentionPolicy",
    "SourceConsumer",
    "StorageType",
    "StreamConfig",
    "StreamSource",
    "SubjectTransform",
]

_MAX_REPLICAS = 5
_SHORTEST_AGE = timedelta(milliseconds=100)
_SHORTEST_MARKER_TTL = timedelta(seconds=1)


class RetentionPolicy(enum.StrEnum):
    """When a stream drops a message."""

    LIMITS = "limits"  # when a limit is reached
    INTEREST = "interest"  # when all consumers have acknowledged it
    WORKQUEUE = "workqueue"  # when its one consumer has acknowledged it


class StorageType(enum.StrEnum):
    """Where a stream keeps its messages."""

    FILE = "file"
    MEMORY = "memory"


class DiscardPolicy(enum.StrEnum):
    """Which messages a full stream does without."""

    OLD = "old"
    NEW = "new"


class Compression(enum.StrEnum):
    """How the blocks on disk are compressed."""

    NONE = "none"
    S2 = "s2"


class PersistMode(enum.StrEnum):
    """Whether a message is acknowledged before it is on disk."""

    DEFAULT = "default"
    ASYNC = "async"


class Placement(Config, frozen=True, kw_only=True):
    """Which servers are to keep a stream."""

    cluster: str = ""
    tags: Sequence[str] = []
    preferred: str = ""  # 2.11; only when a leader is to step down, refused in a configuration


class SubjectTransform(Config, frozen=True, kw_only=True):
    """Another subject for matching messages (2.10)."""

    src: str = ""
    dest: str = ""

    _always: ClassVar[frozenset[str]] = frozenset({"src", "dest"})


class Republish(Config, frozen=True, kw_only=True):
    """A copy of each stored message for core subscribers (2.9)."""

    src: str = ""  # empty means all
    dest: str
    headers_only: bool = False


class ConsumerLimits(Config, frozen=True, kw_only=True):
    """Defaults and upper limits for the consumers of a stream (2.10)."""

    inactive_threshold: Duration = NO_DURATION  # ns
    max_ack_pending: int = 0


class ExternalStream(Config, frozen=True, kw_only=True):
    """How to reach a stream in another account or domain."""

    api: str  # the prefix that the API of the other side is imported with
    deliver: str = ""  # the prefix for delivered messages

    def validate(self, field: str = "external") -> None:
        """Raise `InvalidOptionError` for what any server would refuse."""
        if self.api:
            check_literal(f"{field}.api", self.api)
            if subjects_collide(self.api, DEFAULT_PREFIX):
                raise InvalidOptionError(
                    f"{field}.api must not be {DEFAULT_PREFIX}, the API of this account itself"
                )
        if self.deliver:
            check_literal(f"{field}.deliver", self.deliver)


class SourceConsumer(Config, frozen=True, kw_only=True):
    """A durable consumer that was made beforehand for a mirror or source (2.14)."""

    name: str
    deliver_subject: str


class StreamSource(Config, frozen=True, kw_only=True):
    """A stream that is mirrored, or that messages are sourced from."""

    name: str
    opt_start_seq: int = 0
    opt_start_time: datetime | None = None  # RFC 3339
    filter_subject: str = ""
    subject_transforms: Sequence[SubjectTransform] = []  # 2.10; an empty dest only filters
    external: ExternalStream | None = None
    consumer: SourceConsumer | None = None  # 2.14
    # Not on the wire: short for external=ExternalStream(api="$JS.<domain>.API").
    domain: str = ""

    _local: ClassVar[frozenset[str]] = frozenset({"domain"})

    def to_wire(self) -> dict[str, Any]:
        """The object as JSON would have it, the domain as the prefix of its API."""
        wire = super().to_wire()
        if self.domain:
            wire["external"] = {"api": domain_prefix(self.domain)}
        return wire

    def validate(self, field: str = "source") -> None:
        """Raise `InvalidOptionError` for what any server would refuse."""
        check_stream_name(self.name, f"{field}.name")
        check_range(f"{field}.opt_start_seq", self.opt_start_seq, 0, UINT64)
        if self.filter_subject:
            check_filter(f"{field}.filter_subject", self.filter_subject)
            if self.subject_transforms:
                raise InvalidOptionError(
                    f"{field}: set filter_subject or subject_transforms, not both"
                )
        self._validate_transforms(field)
        if self.domain:
            check_domain(self.domain)
            if self.external is not None:
                raise InvalidOptionError(f"{field}: set domain or external, not both")
        if self.external is not None:
            self.external.validate(f"{field}.external")
        if self.consumer is not None:
            self._validate_consumer(self.consumer, field)

    def _validate_transforms(self, field: str) -> None:
        seen: list[str] = []
        for index, transform in enumerate(self.subject_transforms):
            src = transform.src
            if not src:
                continue
            check_filter(f"{field}.subject_transforms[{index}].src", src)
            for other in seen:
                if subject_is_subset(src, other) or subject_is_subset(other, src):
                    raise InvalidOptionError(
                        f"{field}.subject_transforms overlap: {other!r} and {src!r}"
                    )
            seen.append(src)

    def _validate_consumer(self, consumer: SourceConsumer, field: str) -> None:
        check_consumer_name(consumer.name, f"{field}.consumer.name")
        check_literal(f"{field}.consumer.deliver_subject", consumer.deliver_subject)
        for name in ("opt_start_seq", "opt_start_time", "filter_subject"):
            if getattr(self, name):
                raise InvalidOptionError(
                    f"{field}.{name} belongs to the consumer {consumer.name!r}; leave it unset"
                )


class StreamConfig(Config, frozen=True, kw_only=True):
    """What a stream captures, keeps and allows.

    Only `name` is needed; a stream without subjects captures the subject of its own name. An
    update takes the whole configuration, so start from that of an info: `config.replace(...)`.
    """

    name: str
    description: str = ""  # 2.3.3; at most 4 KiB
    subjects: Sequence[str] = []
    retention: RetentionPolicy | str = RetentionPolicy.LIMITS
    max_consumers: int = -1
    max_msgs: int = -1
    max_bytes: int = -1
    max_age: Duration = NO_DURATION  # ns; 0 is for ever
    max_msgs_per_subject: int = -1  # 2.3
    max_msg_size: int = -1  # headers and payload
    discard: DiscardPolicy | str = DiscardPolicy.OLD
    storage: StorageType | str = StorageType.FILE
    num_replicas: int = 1
    no_ack: bool = False  # nothing is acknowledged: publish without waiting for an ack
    duplicate_window: Duration = NO_DURATION  # ns; 0 is two minutes, or max_age if shorter
    placement: Placement | None = None
    mirror: StreamSource | None = None
    sources: Sequence[StreamSource] = []
    compression: Compression | str = Compression.NONE  # 2.10
    first_seq: int = 0  # 2.10; the sequence of the first message
    subject_transform: SubjectTransform | None = None  # 2.10
    republish: Republish | None = None  # 2.9
    allow_direct: bool = False  # 2.9
    mirror_direct: bool = False  # 2.9; follows allow_direct of the mirrored stream
    discard_new_per_subject: bool = False  # 2.9.1
    sealed: bool = False  # 2.6.2; only by an update, and for ever
    deny_delete: bool = False  # 2.6.2; for ever
    deny_purge: bool = False  # 2.6.2; for ever
    allow_rollup_hdrs: bool = False  # 2.6.2
    consumer_limits: ConsumerLimits | None = None  # 2.10
    metadata: Mapping[str, str] = {}  # 2.10; the server adds keys that begin with "_nats."
    allow_msg_ttl: bool = False  # 2.11; for ever
    subject_delete_marker_ttl: Duration = NO_DURATION  # ns, 2.11; implies TTLs and rollups
    allow_msg_counter: bool = False  # 2.12; from the start or never
    allow_atomic: bool = False  # 2.12
    allow_msg_schedules: bool = False  # 2.12; for ever; implies rollups
    persist_mode: PersistMode | str = PersistMode.DEFAULT  # 2.12
    allow_batched: bool = False  # 2.14

    # The fields that the schema of the API requires.
    _always: ClassVar[frozenset[str]] = frozenset(
        {
            *("name", "retention", "max_consumers", "max_msgs", "max_bytes"),
            *("max_age", "storage", "num_replicas"),
        }
    )

    def validate(self) -> None:
        """Raise `InvalidOptionError` for what any server would refuse, or quietly change.

        What depends on the server, its version or its other streams is left to the server.
        """
        check_stream_name(self.name)
        check_description(self.description)
        check_metadata(self.metadata)
        self._validate_limits()
        self._validate_subjects()
        self._validate_features()
        self._validate_upstreams()
        if self.republish is not None:
            self._validate_republish(self.republish)
        if self.subject_transform is not None and self.subject_transform.src:
            check_filter("subject_transform.src", self.subject_transform.src)
        if self.placement is not None and self.placement.preferred:
            raise InvalidOptionError("placement.preferred is only for a leader stepdown; unset it")

    def _validate_limits(self) -> None:
        for name in ("max_consumers", "max_msgs", "max_bytes", "max_msgs_per_subject"):
            check_range(name, getattr(self, name), -1, INT64)
        check_range("max_msg_size", self.max_msg_size, -1, INT32)
        check_range("first_seq", self.first_seq, 0, UINT64)
        check_range("num_replicas", self.num_replicas, 0, _MAX_REPLICAS)
        check_duration("max_age", self.max_age, _SHORTEST_AGE)
        check_duration("duplicate_window", self.duplicate_window, _SHORTEST_AGE)
        if self.max_age and self.duplicate_window > self.max_age:
            raise InvalidOptionError(
                f"duplicate_window ({self.duplicate_window}) must not exceed "
                f"max_age ({self.max_age})"
            )
        if self.discard_new_per_subject:
            if self.discard != DiscardPolicy.NEW:
                raise InvalidOptionError("discard_new_per_subject needs discard='new'")
            if self.max_msgs_per_subject <= 0:
                raise InvalidOptionError("discard_new_per_subject needs max_msgs_per_subject > 0")

    def _validate_subjects(self) -> None:
        for index, subject in enumerate(self.subjects):
            check_filter(f"subjects[{index}]", subject)
            for other in self.subjects[:index]:
                if subjects_collide(subject, other):
                    raise InvalidOptionError(
                        f"subjects overlap: {other!r} and {subject!r}; keep one of them"
                    )
            if subjects_collide(subject, f"{DEFAULT_PREFIX}.>") and not self.no_ack:
                raise InvalidOptionError(
                    f"subject {subject!r} captures the JetStream API; narrow it, or set no_ack"
                )

    def _validate_features(self) -> None:
        check_duration(
            "subject_delete_marker_ttl", self.subject_delete_marker_ttl, _SHORTEST_MARKER_TTL
        )
        # A server that gets one of the last two turns deny_purge off without a word.
        for name in ("allow_rollup_hdrs", "subject_delete_marker_ttl", "allow_msg_schedules"):
            if self.deny_purge and getattr(self, name):
                raise InvalidOptionError(f"{name} purges messages, so it excludes deny_purge")
        if self.allow_msg_counter and self.retention != RetentionPolicy.LIMITS:
            raise InvalidOptionError("allow_msg_counter needs retention='limits'")
        for name in ("allow_msg_counter", "allow_msg_schedules"):
            if getattr(self, name) and self.discard == DiscardPolicy.NEW:
                raise InvalidOptionError(f"{name} needs discard='old'")
        if self.allow_msg_counter:
            self._exclude("allow_msg_counter", "allow_msg_ttl", "allow_msg_schedules")
        if self.allow_msg_schedules:
            self._exclude("allow_msg_schedules", "sources")
        if self.persist_mode == PersistMode.ASYNC:
            self._exclude("persist_mode='async'", "allow_atomic")
            if self.storage != StorageType.FILE or self.num_replicas > 1:
                raise InvalidOptionError("persist_mode='async' needs file storage and one replica")

    def _exclude(self, what: str, *names: str) -> None:
        for name in names:
            if getattr(self, name):
                raise InvalidOptionError(f"{what} and {name} exclude each other; unset one")

    def _validate_upstreams(self) -> None:
        if self.mirror is not None:
            self._exclude("mirror", "subjects", "sources", "first_seq", "allow_msg_counter")
            self._exclude("mirror", "allow_atomic", "allow_batched", "allow_msg_schedules")
            self._exclude("mirror", "subject_delete_marker_ttl")
            self.mirror.validate("mirror")
        elif self.mirror_direct:
            raise InvalidOptionError("mirror_direct needs a mirror")
        seen: list[StreamSource] = []
        for index, source in enumerate(self.sources):
            source.validate(f"sources[{index}]")
            # Where to start does not make it another source.
            identity = source.replace(opt_start_seq=0, opt_start_time=None)
            if identity in seen:
                raise InvalidOptionError(
                    f"sources[{index}] is there twice; stream {source.name!r} can be a source "
                    "again only with another filter or other transforms"
                )
            seen.append(identity)

    def _validate_republish(self, republish: Republish) -> None:
        if not republish.dest:
            raise InvalidOptionError("republish.dest is empty; say where the copies go")
        has_upstream = self.mirror is not None or self.sources
        subjects = self.subjects or ([] if has_upstream else [self.name])
        transform = self.subject_transform
        if transform and republish.dest == ">" and [*subjects] == [transform.src]:
            return  # the copies go to the transformed subjects
        for subject in subjects:
            if subjects_collide(republish.dest, subject):
                raise InvalidOptionError(
                    f"republish.dest {republish.dest!r} would feed the stream's own subject "
                    f"{subject!r}; choose another"
                )
