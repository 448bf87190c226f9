"""Key-value buckets, on top of streams (ADR-8)."""

from .bucket import KeyValue
from .codecs import (
    Base64KeyCodec,
    JSONCodec,
    KeyCodec,
    KeyCodecChain,
    PathKeyCodec,
    ValueCodec,
)
from .config import KeyValueConfig
from .entry import KeyValueEntry, KeyValueOperation
from .management import KeyValues
from .status import KeyValueStatus
from .watcher import KeyValueWatcher

__all__ = [
    "Base64KeyCodec",
    "JSONCodec",
    "KeyCodec",
    "KeyCodecChain",
    "KeyValue",
    "KeyValueConfig",
    "KeyValueEntry",
    "KeyValueOperation",
    "KeyValueStatus",
    "KeyValueWatcher",
    "KeyValues",
    "PathKeyCodec",
    "ValueCodec",
]
