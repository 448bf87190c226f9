"""JetStream: streams, publishing and consumers, on top of a connection."""

from .account_info import AccountInfo, AccountLimits, AccountTier, APIStats
from .ack_future import PublishAckFuture
from .atomic_batch import AtomicBatch
from .consumer import (
    OrderedConsumer,
    OrderedOptions,
    OrderedPushConsumer,
    PullConsumer,
    PushConsumer,
)
from .consumer.fetch import FetchedMessages
from .consumer.messages import Consumption, MessageStream
from .consumer.push_feed import PushSubscription
from .consumer_config import AckPolicy, ConsumerConfig, DeliverPolicy, PriorityPolicy, ReplayPolicy
from .consumer_info import ConsumerInfo, ConsumerPause, PriorityGroupState, SequenceInfo
from .counters import CounterValue
from .fast_ingest import FastIngest
from .message import AckKind, JetStreamMessage, Metadata
from .publish_ack import PublishAck
from .publish_headers import MessageOptions, PublishOptions, Schedule
from .publisher import Publisher
from .pull_subscription import PullSubscription
from .reading import StoredMessage
from .stream import Stream
from .stream_config import (
    Compression,
    ConsumerLimits,
    DiscardPolicy,
    ExternalStream,
    PersistMode,
    Placement,
    Republish,
    RetentionPolicy,
    SourceConsumer,
    StorageType,
    StreamConfig,
    StreamSource,
    SubjectTransform,
)
from .stream_info import (
    ClusterInfo,
    LostMessages,
    PeerInfo,
    StreamAlternate,
    StreamInfo,
    StreamSourceInfo,
    StreamState,
)
from .subscribe import Subscriber

__all__ = [
    "APIStats",
    "AccountInfo",
    "AccountLimits",
    "AccountTier",
    "AckKind",
    "AckPolicy",
    "AtomicBatch",
    "ClusterInfo",
    "Compression",
    "ConsumerConfig",
    "ConsumerInfo",
    "ConsumerLimits",
    "ConsumerPause",
    "Consumption",
    "CounterValue",
    "DeliverPolicy",
    "DiscardPolicy",
    "ExternalStream",
    "FastIngest",
    "FetchedMessages",
    "JetStreamMessage",
    "LostMessages",
    "MessageOptions",
    "MessageStream",
    "Metadata",
    "OrderedConsumer",
    "OrderedOptions",
    "OrderedPushConsumer",
    "PeerInfo",
    "PersistMode",
    "Placement",
    "PriorityGroupState",
    "PriorityPolicy",
    "PublishAck",
    "PublishAckFuture",
    "PublishOptions",
    "Publisher",
    "PullConsumer",
    "PullSubscription",
    "PushConsumer",
    "PushSubscription",
    "ReplayPolicy",
    "Republish",
    "RetentionPolicy",
    "Schedule",
    "SequenceInfo",
    "SourceConsumer",
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
    "Subscriber",
]
