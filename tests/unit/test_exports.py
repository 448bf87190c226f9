"""What `import jetspark` offers, and what it leaves alone."""

from __future__ import annotations

import subprocess
import sys
import typing
from importlib.resources import files
from typing import Any

import pytest

import jetspark

# A name added here is a promise to users; a name removed breaks them.
PUBLIC = [
    "ObjectInfo",
    "ObjectLink",
    "ObjectMeta",
    "ObjectOptions",
    "ObjectReader",
    "ObjectStore",
    "ObjectStoreConfig",
    "ObjectStoreStatus",
    "ObjectWatcher",
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
    "PathKeyCodec",
    "ValueCodec",
    "PullConsumer",
    "Metadata",
    "MessageStream",
    "FetchedMessages",
    "Consumption",
    "AckKind",
    "APIStats",
    "AccountInfo",
    "AccountLimits",
    "AccountTier",
    "AckPolicy",
    "AtomicBatch",
    "Backoff",
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
    "CounterValue",
    "DeliverPolicy",
    "DiscardPolicy",
    "EventKind",
    "ExternalStream",
    "FastIngest",
    "Headers",
    "HeadersLike",
    "JetStream",
    "JetStreamMessage",
    "LostMessages",
    "Message",
    "MessageCallback",
    "MessageOptions",
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
    "connect",
    "errors",
]

# Installed only with an extra, or slow to import.
OPTIONAL = {"nkeys", "pandas", "pyarrow", "pyspark", "rich", "typer", "uvloop", "websockets"}


def test_the_public_names() -> None:
    assert sorted(jetspark.__all__) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_each_of_them_is_there(name: str) -> None:
    assert getattr(jetspark, name) is not None


def test_star_import() -> None:
    namespace: dict[str, object] = {}
    exec("from jetspark import *", namespace)
    assert set(namespace) - {"__builtins__"} == set(PUBLIC)


@pytest.mark.parametrize(
    "signature",
    [
        jetspark.Client.publish,
        jetspark.Client.request_many,
        jetspark.Message.respond,
        jetspark.MessageOptions,
        jetspark.PublishOptions,
        jetspark.PullConsumer.arrow_batches,
        jetspark.PullConsumer.fetch_arrow,
    ],
)
def test_types_can_be_read(signature: Any) -> None:
    assert typing.get_type_hints(signature)


def test_the_package_is_typed() -> None:
    assert files("jetspark").joinpath("py.typed").is_file()


def modules_after(code: str) -> set[str]:
    """The top-level modules that some code brings into a fresh interpreter."""
    code += "\nimport sys\nprint(*{name.partition('.')[0] for name in sys.modules})"
    command = [sys.executable, "-c", code]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_import_needs_no_extra() -> None:
    modules = modules_after("import jetspark\njetspark.connect, jetspark.JetStream")
    assert {"jetspark", "msgspec"} <= modules
    assert not modules & OPTIONAL


def test_import_alone_brings_nothing() -> None:
    # The help of the command line waits for it.
    assert not modules_after("import jetspark") & {*OPTIONAL, "asyncio", "msgspec", "ssl"}


def test_the_protocol_does_no_io() -> None:
    modules = modules_after("import jetspark.protocol")
    assert {"jetspark", "msgspec"} <= modules
    assert not modules & {"asyncio", "selectors", "socket", "ssl"}
