"""The configuration of a bucket, and that of the stream which it becomes.

Beside each field stands the first server version that knows it, where that is not 2.6.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from jetspark.errors import InvalidOptionError
from jetspark.jetstream.checks import INT32, INT64, check_duration, check_range
from jetspark.jetstream.codec import NO_DURATION, Config, Duration
from jetspark.jetstream.stream_config import (
    Compression,
    DiscardPolicy,
    Placement,
    Republish,
    StorageType,
    StreamConfig,
    StreamSource,
    SubjectTransform,
)

from .names import STREAM_PREFIX, SUBJECT_PREFIX, check_bucket, stream_of

__all__ = ["MAX_HISTORY", "KeyValueConfig"]

MAX_HISTORY = 64
_SHORTEST_TTL = timedelta(milliseconds=100)
_SHORTEST_MARKER_TTL = timedelta(seconds=1)
_DUPLICATE_WINDOW = timedelta(minutes=2)


class KeyValueConfig(Config, frozen=True, kw_only=True):
    """What a bucket keeps, and where; only `bucket` is needed."""

    bucket: str
    description: str = ""
    history: int = 1  # revisions of a key that are kept, 1 to 64
    ttl: Duration = NO_DURATION  # how long a revision lives; 0 is for ever
    max_value_size: int = -1  # bytes, those of the headers included
    max_bytes: int = -1  # of the whole bucket; when it is full, nothing more is taken
    storage: StorageType | str = StorageType.FILE
    replicas: int = 1
    placement: Placement | None = None
    republish: Republish | None = None  # 2.9
    compression: bool = False  # 2.10
    # 2.11; at least a second: allows TTLs of single keys, and has the server leave a marker, which
    # lives so long, where a key has expired. The former cannot be undone.
    limit_marker_ttl: Duration = NO_DURATION
    mirror: StreamSource | None = None  # of the bucket of this name
    sources: Sequence[StreamSource] = []  # buckets; or any streams, with subject_transforms
    metadata: Mapping[str, str] = {}  # 2.10

    def validate(self) -> None:
        """Raise `InvalidOptionError` for what cannot be a bucket."""
        check_bucket(self.bucket)
        check_range("history", self.history, 1, MAX_HISTORY)
        check_range("max_value_size", self.max_value_size, -1, INT32)
        check_range("max_bytes", self.max_bytes, -1, INT64)
        check_duration("ttl", self.ttl, _SHORTEST_TTL)
        check_duration("limit_marker_ttl", self.limit_marker_ttl, _SHORTEST_MARKER_TTL)
        if self.mirror is not None:
            for name in ("sources", "limit_marker_ttl"):
                if getattr(self, name):
                    raise InvalidOptionError(f"a mirror cannot have {name}; its origin may")
            if self.mirror.subject_transforms:
                raise InvalidOptionError(
                    "mirror.subject_transforms: a mirror has the keys of its origin; for others, "
                    "make a bucket with sources"
                )
        for source in (self.mirror, *self.sources):
            if source is not None and not source.name:
                raise InvalidOptionError("mirror and sources need the name of a bucket")
        for index, source in enumerate(self.sources):
            if source.filter_subject:
                raise InvalidOptionError(
                    f"sources[{index}].filter_subject: say with subject_transforms which keys to "
                    "take and what they become"
                )
        self.to_stream().validate()

    def to_stream(self) -> StreamConfig:
        """The configuration of the stream."""
        mirror = self.mirror
        if mirror is not None:
            mirror = mirror.replace(name=_prefixed(mirror.name))
        window = min(self.ttl, _DUPLICATE_WINDOW) if mirror is None else timedelta(0)
        return StreamConfig(
            name=stream_of(self.bucket),
            description=self.description,
            subjects=[] if mirror else [f"{SUBJECT_PREFIX}{self.bucket}.>"],
            max_msgs_per_subject=self.history,
            max_age=self.ttl,
            duplicate_window=window,
            max_msg_size=self.max_value_size or -1,
            max_bytes=self.max_bytes or -1,
            storage=self.storage,
            num_replicas=self.replicas,
            placement=self.placement,
            republish=self.republish,
            compression=Compression.S2 if self.compression else Compression.NONE,
            allow_msg_ttl=bool(self.limit_marker_ttl),
            subject_delete_marker_ttl=self.limit_marker_ttl,
            mirror=mirror,
            mirror_direct=mirror is not None,
            sources=[self._source(source) for source in self.sources],
            metadata=self.metadata,
            allow_rollup_hdrs=True,
            deny_delete=True,
            allow_direct=True,
            discard=DiscardPolicy.NEW,
        )

    def _source(self, source: StreamSource) -> StreamSource:
        if source.subject_transforms:  # then it need not even be a bucket
            return source
        name = _prefixed(source.name)
        bucket = name.removeprefix(STREAM_PREFIX)
        source = source.replace(name=name)
        if bucket == self.bucket and (source.external is not None or source.domain):
            return source  # the keys have their subjects already
        transform = SubjectTransform(
            src=f"{SUBJECT_PREFIX}{bucket}.>", dest=f"{SUBJECT_PREFIX}{self.bucket}.>"
        )
        return source.replace(subject_transforms=[transform])

    def changed(self, present: StreamConfig) -> StreamConfig:
        """The configuration of a stream that exists, changed to this one.

        Of what a bucket knows nothing about, nothing changes. TTLs stay allowed: a server refuses
        to forbid them again.
        """
        wanted = self.to_stream()
        fields: dict[str, Any] = {
            name: getattr(wanted, name) for name in wanted.__struct_fields__ if name in _FIELDS
        }
        fields["allow_msg_ttl"] = wanted.allow_msg_ttl or present.allow_msg_ttl
        return present.replace(**fields)

    def describes(self, present: StreamConfig) -> bool:
        """Whether a stream is this bucket, but for what a bucket does not decide about.

        Older clients had another `discard`, and no `allow_direct`; both do not count.
        """
        wanted = self.changed(present)
        return KeyValueConfig.from_stream(present) == KeyValueConfig.from_stream(wanted) and all(
            getattr(present, name) == getattr(wanted, name)
            for name in ("subjects", "mirror_direct", "allow_rollup_hdrs", "deny_purge")
        )

    @classmethod
    def from_stream(cls, config: StreamConfig) -> KeyValueConfig:
        """The configuration of the bucket that a stream is."""
        return cls(
            bucket=config.name.removeprefix(STREAM_PREFIX),
            description=config.description,
            history=config.max_msgs_per_subject,
            ttl=config.max_age,
            max_value_size=config.max_msg_size,
            max_bytes=config.max_bytes,
            storage=config.storage,
            replicas=config.num_replicas,
            placement=config.placement,
            republish=config.republish,
            compression=config.compression != Compression.NONE,
            limit_marker_ttl=config.subject_delete_marker_ttl,
            mirror=config.mirror,
            sources=config.sources,
            metadata={k: v for k, v in config.metadata.items() if not k.startswith("_nats.")},
        )


_FIELDS = frozenset(
    {
        *("description", "subjects", "max_msgs_per_subject", "max_age", "duplicate_window"),
        *("max_msg_size", "max_bytes", "storage", "num_replicas", "placement", "republish"),
        *("compression", "subject_delete_marker_ttl", "mirror", "mirror_direct", "sources"),
        *("metadata", "allow_rollup_hdrs", "deny_delete", "deny_purge", "allow_direct", "discard"),
    }
)
"""The fields of a stream that a bucket decides about."""


def _prefixed(name: str) -> str:
    return name if name.startswith(STREAM_PREFIX) else STREAM_PREFIX + name
