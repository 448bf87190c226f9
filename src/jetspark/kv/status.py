"""What a server tells about a bucket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from jetspark.jetstream import StreamInfo

from .config import KeyValueConfig

__all__ = ["KeyValueStatus"]


@dataclass(frozen=True, slots=True)
class KeyValueStatus:
    """Configuration and state of a bucket at a moment."""

    config: KeyValueConfig
    stream_info: StreamInfo
    """What the server said about the stream of the bucket."""

    @classmethod
    def from_stream_info(cls, info: StreamInfo) -> KeyValueStatus:
        """The status of the bucket that a stream is."""
        return cls(KeyValueConfig.from_stream(info.config), info)

    @property
    def bucket(self) -> str:
        """The name of the bucket."""
        return self.config.bucket

    @property
    def values(self) -> int:
        """How many revisions there are, markers of deleted keys included."""
        return self.stream_info.state.messages

    @property
    def bytes(self) -> int:
        """What they take."""
        return self.stream_info.state.bytes

    @property
    def history(self) -> int:
        """How many revisions of a key are kept."""
        return self.config.history

    @property
    def ttl(self) -> timedelta:
        """How long a revision lives; 0 is for ever."""
        return self.config.ttl

    @property
    def limit_marker_ttl(self) -> timedelta:
        """How long the marker of an expired key lives; 0: there are none."""
        return self.config.limit_marker_ttl

    @property
    def compressed(self) -> bool:
        """Whether the values are compressed on disk."""
        return self.config.compression

    @property
    def metadata(self) -> Mapping[str, str]:
        """What the application has noted about the bucket."""
        return self.config.metadata

    @property
    def backing_store(self) -> str:
        """What keeps the values."""
        return "JetStream"
