"""The configuration of an object store, and what a server tells about one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import timedelta

from jetspark.errors import BadBucketError, InvalidOptionError
from jetspark.jetstream import (
    Compression,
    DiscardPolicy,
    Placement,
    StorageType,
    StreamConfig,
    StreamInfo,
)
from jetspark.jetstream.codec import NO_DURATION, Config, Duration

from .names import STREAM_PREFIX, check_bucket, store_subjects, stream_name

__all__ = ["ObjectStoreConfig", "ObjectStoreStatus", "check_store"]


class ObjectStoreConfig(Config, frozen=True, kw_only=True):
    """An object store as it is to be.

    >>> ObjectStoreConfig(bucket="photos", max_bytes=10 * 2**30, compression=True).bucket
    'photos'
    """

    bucket: str
    description: str = ""
    ttl: Duration = NO_DURATION  # how long objects are kept; 0: for ever
    max_bytes: int = -1  # of the whole store; a put that does not fit is refused
    storage: StorageType | str = StorageType.FILE
    replicas: int = 1
    placement: Placement | None = None
    compression: bool = False  # 2.10
    metadata: Mapping[str, str] = {}  # 2.10

    def validate(self) -> None:
        """Raise `InvalidOptionError` for what any server would refuse."""
        check_bucket(self.bucket)
        if not 1 <= self.replicas <= 5:
            raise InvalidOptionError(f"replicas must be 1 to 5, not {self.replicas}")
        self.to_stream().validate()

    def to_stream(self) -> StreamConfig:
        """The configuration of the stream."""
        return StreamConfig(
            name=stream_name(self.bucket),
            description=self.description,
            subjects=store_subjects(self.bucket),
            max_age=self.ttl,
            max_bytes=self.max_bytes or -1,
            storage=self.storage,
            num_replicas=self.replicas,
            placement=self.placement,
            compression=Compression.S2 if self.compression else Compression.NONE,
            metadata=self.metadata,
            # A full store refuses what is new, and a new description replaces the old one.
            discard=DiscardPolicy.NEW,
            allow_rollup_hdrs=True,
            allow_direct=True,
        )

    def changed(self, present: StreamConfig) -> StreamConfig:
        """The configuration of a stream that exists, changed to this one.

        Of what a store knows nothing about, nothing changes.
        """
        wanted = self.to_stream()
        return present.replace(**{name: getattr(wanted, name) for name in _CHANGEABLE})

    @classmethod
    def from_stream(cls, config: StreamConfig) -> ObjectStoreConfig:
        """The configuration of the store that a stream is."""
        return cls(
            bucket=config.name.removeprefix(STREAM_PREFIX),
            description=config.description,
            ttl=config.max_age,
            max_bytes=config.max_bytes,
            storage=config.storage,
            replicas=config.num_replicas,
            placement=config.placement,
            compression=config.compression == Compression.S2,
            metadata={k: v for k, v in config.metadata.items() if not k.startswith("_nats.")},
        )


_CHANGEABLE = (
    *("description", "max_age", "duplicate_window", "max_bytes", "storage", "num_replicas"),
    *("placement", "compression", "metadata"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class ObjectStoreStatus:
    """Configuration and state of an object store at a moment."""

    config: ObjectStoreConfig
    stream_info: StreamInfo
    """What the server said about the stream of the store."""

    @classmethod
    def from_stream_info(cls, info: StreamInfo) -> ObjectStoreStatus:
        """The status of the store that a stream is."""
        return cls(ObjectStoreConfig.from_stream(info.config), info)

    @property
    def bucket(self) -> str:
        """The name of the store."""
        return self.config.bucket

    @property
    def description(self) -> str:
        """What it is for."""
        return self.config.description

    @property
    def ttl(self) -> timedelta:
        """How long objects are kept; 0 is for ever."""
        return self.config.ttl

    @property
    def max_bytes(self) -> int:
        """How large it may become; -1 is without a limit."""
        return self.config.max_bytes

    @property
    def storage(self) -> StorageType | str:
        """Where it is kept."""
        return self.config.storage

    @property
    def replicas(self) -> int:
        """How many servers keep it."""
        return self.config.replicas

    @property
    def sealed(self) -> bool:
        """Whether nothing can be changed any more."""
        return self.stream_info.config.sealed

    @property
    def size(self) -> int:
        """How many bytes it takes, descriptions and overhead included."""
        return self.stream_info.state.bytes

    @property
    def compressed(self) -> bool:
        """Whether it is compressed on disk."""
        return self.config.compression

    @property
    def metadata(self) -> Mapping[str, str]:
        """What the application has noted about it."""
        return self.config.metadata

    @property
    def backing_store(self) -> str:
        """What keeps the objects."""
        return "JetStream"


def check_store(config: StreamConfig) -> None:
    """Raise `BadBucketError` if a stream is not an object store, in spite of its name."""
    bucket, mirror = config.name.removeprefix(STREAM_PREFIX), config.mirror
    if mirror is not None:
        if mirror.name != config.name and not mirror.subject_transforms:
            origin = mirror.name.removeprefix(STREAM_PREFIX)
            raise BadBucketError(
                f"stream {config.name!r} is no object store: it mirrors {mirror.name!r}, and has "
                f"its subjects; have the mirror transform $O.{origin}.> to $O.{bucket}.>"
            )
        return
    subjects = store_subjects(bucket)
    if not set(subjects) <= set(config.subjects):
        raise BadBucketError(
            f"stream {config.name!r} is no object store: its subjects are "
            f"{', '.join(config.subjects)} instead of {' and '.join(subjects)}"
        )
