"""NATS JetStream for Python and for Spark.

>>> import jetspark
>>> nc = await jetspark.connect("nats://localhost:4222")  # doctest: +SKIP

Everything that an application needs is here; exceptions are in `jetspark.errors`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import errors
    from .client import Client, connect
    from .connection import (
        Backoff,
        ConnectionEvent,
        ConnectionState,
        ConnectOptions,
        EventKind,
        Message,
        MessageCallback,
        Statistics,
        Subscription,
    )
    from .context import JetStream
    from .jetstream import (
        AccountInfo,
        AccountLimits,
        AccountTier,
        AckKind,
        AckPolicy,
        APIStats,
        AtomicBatch,
        ClusterInfo,
        Compression,
        ConsumerConfig,
        ConsumerInfo,
        ConsumerLimits,
        ConsumerPause,
        Consumption,
        CounterValue,
        DeliverPolicy,
        DiscardPolicy,
        ExternalStream,
        FastIngest,
        FetchedMessages,
        JetStreamMessage,
        LostMessages,
        MessageOptions,
        MessageStream,
        Metadata,
        OrderedConsumer,
        OrderedOptions,
        OrderedPushConsumer,
        PeerInfo,
        PersistMode,
        Placement,
        PriorityGroupState,
        PriorityPolicy,
        PublishAck,
        PublishAckFuture,
        PublishOptions,
        PullConsumer,
        PullSubscription,
        PushConsumer,
        PushSubscription,
        ReplayPolicy,
        Republish,
        RetentionPolicy,
        Schedule,
        SequenceInfo,
        SourceConsumer,
        StorageType,
        StoredMessage,
        Stream,
        StreamAlternate,
        StreamConfig,
        StreamInfo,
        StreamSource,
        StreamSourceInfo,
        StreamState,
        SubjectTransform,
    )
    from .kv import (
        Base64KeyCodec,
        JSONCodec,
        KeyCodec,
        KeyCodecChain,
        KeyValue,
        KeyValueConfig,
        KeyValueEntry,
        KeyValueOperation,
        KeyValueStatus,
        KeyValueWatcher,
        PathKeyCodec,
        ValueCodec,
    )
    from .objects import (
        ObjectInfo,
        ObjectLink,
        ObjectMeta,
        ObjectOptions,
        ObjectReader,
        ObjectStore,
        ObjectStoreConfig,
        ObjectStoreStatus,
        ObjectWatcher,
    )
    from .protocol import Headers, HeadersLike, ServerInfo

__all__ = [
    "APIStats",
    "AccountInfo",
    "AccountLimits",
    "AccountTier",
    "AckKind",
    "AckPolicy",
    "AtomicBatch",
    "Backoff",
    "Base64KeyCodec",
    "Client",
    "ClusterInfo",
    "Compression",
    "ConnectOptions",
    "ConnectionEvent",
    "ConnectionState",
    "ConsumerConfig",
    "ConsumerInfo",
    "ConsumerLimits",
    "ConsumerPause",
    "Consumption",
    "CounterValue",
    "DeliverPolicy",
    "DiscardPolicy",
    "EventKind",
    "ExternalStream",
    "FastIngest",
    "FetchedMessages",
    "Headers",
    "HeadersLike",
    "JSONCodec",
    "JetStream",
    "JetStreamMessage",
    "KeyCodec",
    "KeyCodecChain",
    "KeyValue",
    "KeyValueConfig",
    "KeyValueEntry",
    "KeyValueOperation",
    "KeyValueStatus",
    "KeyValueWatcher",
    "LostMessages",
    "Message",
    "MessageCallback",
    "MessageOptions",
    "MessageStream",
    "Metadata",
    "ObjectInfo",
    "ObjectLink",
    "ObjectMeta",
    "ObjectOptions",
    "ObjectReader",
    "ObjectStore",
    "ObjectStoreConfig",
    "ObjectStoreStatus",
    "ObjectWatcher",
    "OrderedConsumer",
    "OrderedOptions",
    "OrderedPushConsumer",
    "PathKeyCodec",
    "PeerInfo",
    "PersistMode",
    "Placement",
    "PriorityGroupState",
    "PriorityPolicy",
    "PublishAck",
    "PublishAckFuture",
    "PublishOptions",
    "PullConsumer",
    "PullSubscription",
    "PushConsumer",
    "PushSubscription",
    "ReplayPolicy",
    "Republish",
    "RetentionPolicy",
    "Schedule",
    "SequenceInfo",
    "ServerInfo",
    "SourceConsumer",
    "Statistics",
    "StorageType",
    "StoredMessage",
    "Stream",
    "StreamAlternate",
    "StreamConfig",
    "StreamInfo",
    "StreamSource",
    "StreamSourceInfo",
    "StreamState",
    "SubjectTransform",
    "Subscription",
    "ValueCodec",
    "connect",
    "errors",
]


_CORE = ("client", "connection", "protocol")
_JETSTREAM = ("context", "jetstream", "kv", "objects")


def __getattr__(name: str) -> Any:
    """Import what a name needs when it is first used: core NATS, or JetStream as well.

    The command line is below this package, and shows its help without a client.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "errors":
        return import_module(".errors", __name__)
    for module in map(_module, (*_CORE, *_JETSTREAM)):
        if name in module.__all__:
            value = globals()[name] = getattr(module, name)
            return value
    raise AssertionError(f"{name!r} is promised and nowhere to be found")


def _module(name: str) -> Any:
    return import_module(f".{name}", __name__)
