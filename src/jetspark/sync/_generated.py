"""The blocking classes, made by `python scripts/generate_sync.py` from the async ones.

Do not edit: change the async classes and run the script.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    Self,
    TypeAlias,
    TypeVar,
    Unpack,
    overload,
)

import msgspec

from jetspark import (
    AccountInfo,
    AccountLimits,
    AccountTier,
    AckKind,
    AckPolicy,
    APIStats,
    Backoff,
    Base64KeyCodec,
    ClusterInfo,
    Compression,
    ConnectionEvent,
    ConnectionState,
    ConnectOptions,
    ConsumerConfig,
    ConsumerInfo,
    ConsumerLimits,
    ConsumerPause,
    CounterValue,
    DeliverPolicy,
    DiscardPolicy,
    EventKind,
    ExternalStream,
    Headers,
    HeadersLike,
    JSONCodec,
    KeyCodec,
    KeyCodecChain,
    KeyValueConfig,
    KeyValueEntry,
    KeyValueOperation,
    KeyValueStatus,
    LostMessages,
    MessageOptions,
    Metadata,
    ObjectInfo,
    ObjectLink,
    ObjectMeta,
    ObjectOptions,
    ObjectStoreConfig,
    ObjectStoreStatus,
    OrderedOptions,
    PathKeyCodec,
    PeerInfo,
    PersistMode,
    Placement,
    PriorityGroupState,
    PriorityPolicy,
    PublishAck,
    PublishOptions,
    ReplayPolicy,
    Republish,
    RetentionPolicy,
    Schedule,
    SequenceInfo,
    ServerInfo,
    SourceConsumer,
    Statistics,
    StorageType,
    StoredMessage,
    StreamAlternate,
    StreamConfig,
    StreamInfo,
    StreamSource,
    StreamSourceInfo,
    StreamState,
    SubjectTransform,
    ValueCodec,
)
from jetspark.connection.message import Message as AsyncMessage
from jetspark.connection.subscription import Subscription as AsyncSubscription
from jetspark.context import JetStream as AsyncJetStream
from jetspark.errors import JetSparkError, JetStreamError
from jetspark.jetstream.atomic_batch import AtomicBatch as AsyncAtomicBatch
from jetspark.jetstream.consumer.base import Consumer as AsyncConsumer
from jetspark.jetstream.consumer.fetch import FetchedMessages as AsyncFetchedMessages
from jetspark.jetstream.consumer.messages import Consumption as AsyncConsumption
from jetspark.jetstream.consumer.messages import MessageStream as AsyncMessageStream
from jetspark.jetstream.consumer.messages import WarningHandler
from jetspark.jetstream.consumer.ordered import OrderedConsumer as AsyncOrderedConsumer
from jetspark.jetstream.consumer.ordered_push import OrderedPushConsumer as AsyncOrderedPushConsumer
from jetspark.jetstream.consumer.ordered_push import (
    OrderedPushSubscription as AsyncOrderedPushSubscription,
)
from jetspark.jetstream.consumer.pull import PullConsumer as AsyncPullConsumer
from jetspark.jetstream.consumer.push import PushConsumer as AsyncPushConsumer
from jetspark.jetstream.consumer.push_feed import PushSubscription as AsyncPushSubscription
from jetspark.jetstream.fast_ingest import FastIngest as AsyncFastIngest
from jetspark.jetstream.message import JetStreamMessage as AsyncJetStreamMessage
from jetspark.jetstream.publish_headers import TTL
from jetspark.jetstream.pull_subscription import PullSubscription as AsyncPullSubscription
from jetspark.jetstream.stream import Stream as AsyncStream
from jetspark.kv.bucket import OLD_MARKER
from jetspark.kv.bucket import KeyValue as AsyncKeyValue
from jetspark.kv.watcher import KeyValueWatcher as AsyncKeyValueWatcher
from jetspark.objects.reader import ObjectReader as AsyncObjectReader
from jetspark.objects.source import SupportsRead
from jetspark.objects.store import ObjectStore as AsyncObjectStore
from jetspark.objects.upload import ProgressCallback
from jetspark.objects.watcher import ObjectWatcher as AsyncObjectWatcher
from jetspark.protocol.encoder import Payload

from ._base import FRONTS, Wrapper, in_list, in_loop, in_threads, in_worker, unwrap, wrap
from ._client import LoopClient, acknowledge, publish_async, publish_pending
from ._fetch import fetched
from ._futures import PublishAckFuture
from ._iterators import HAND, Feed, Items
from ._thread import LoopThread

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from jetspark.jetstream.consumer.arrow import ArrowStream as AsyncArrowStream
else:
    AsyncArrowStream = RecordBatch = Any


__all__ = [
    "APIStats",
    "AccountInfo",
    "AccountLimits",
    "AccountTier",
    "AckKind",
    "AckPolicy",
    "ArrowStream",
    "AtomicBatch",
    "Backoff",
    "Base64KeyCodec",
    "Client",
    "ClusterInfo",
    "Compression",
    "ConnectOptions",
    "ConnectionEvent",
    "ConnectionState",
    "Consumer",
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
    "OrderedPushSubscription",
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
]


T = TypeVar("T")


class ArrowStream(Feed[RecordBatch]):
    """The messages of a pull consumer as record batches, to iterate over."""

    _async: AsyncArrowStream

    @property
    def client(self) -> Client:
        """The client that it belongs to."""
        found: Client = wrap(self._async.client, self._thread)
        return found

    @property
    def subject(self) -> str:
        """The subject."""
        return self._async.subject

    @property
    def queue(self) -> str | None:
        """The queue group, if there is one."""
        return self._async.queue

    @property
    def consumer(self) -> PullConsumer:
        """The consumer that the messages come from."""
        found: PullConsumer = wrap(self._async.consumer, self._thread)
        return found

    def stop(self) -> None:
        """Stop at once; messages that wait are dropped, and come again if they need acks."""
        self._stop(self._async.stop())

    def drain(self, timeout: float | None = None) -> None:
        """Ask for no more; what has arrived can still be taken, then the iteration ends.

        Returns when the server has confirmed it, and raises `TimeoutError` if it does not in
        `timeout` seconds (default: the `drain_timeout` of the connection).
        """
        self._drain(self._async.drain(timeout))

    @property
    def pending(self) -> int:
        """How many messages were to follow the last one, when the server sent that."""
        return self._async.pending

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._exit(*exc_info)


class AtomicBatch(Wrapper):
    """A batch, made by `JetStream.batch`.

    >>> with js.batch() as batch:  # doctest: +SKIP
    ...     batch.add("orders.1", b"eggs", expected_last_subject_sequence=0)
    ...     batch.add("orders.2", b"flour")
    ...     ack = batch.commit()

    All messages go to one stream, 1000 at most. Expectations are checked at the commit, against
    what the stream held before the batch. Nothing is stored without a commit: leaving the block
    without one, and any error, give the batch up. So does the server after ten seconds without a
    message.
    """

    _async: AsyncAtomicBatch

    @property
    def id(self) -> str:
        """The id under which the server knows it."""
        return self._async.id

    @property
    def size(self) -> int:
        """How many messages were added."""
        return self._async.size

    @property
    def closed(self) -> bool:
        """Whether it is committed or given up."""
        return self._async.closed

    def add(self, subject: str, data: Payload = b"", **options: Unpack[MessageOptions]) -> None:
        """Add a message.

        An option that cannot be right in a batch is refused and leaves the batch as it was; any
        other error ends it.
        """
        self._thread.run(self._async.add(subject, data, **options))

    def commit(self) -> PublishAck:
        """Have all messages stored; the acknowledgement is that of the last one.

        The messages have consecutive sequences, of which `sequence` is the last, and `batch_size`
        says how many they are.
        """
        return self._thread.run(self._async.commit())

    def abandon(self) -> None:
        """Give the batch up: none of its messages will be stored."""
        self._thread.call(self._async.abandon)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._thread.finish(self._async.__aexit__, *exc_info)


class Client(Wrapper):
    """A connection to a NATS system, made by `connect`."""

    _async: LoopClient

    def publish(
        self,
        subject: str,
        data: Payload = b"",
        *,
        headers: HeadersLike | None = None,
        reply: str | None = None,
    ) -> None:
        """Publish a message.

        Returns when the message is on its way, not when the server has it; `flush` waits for that.
        Waits while the server does not keep up.
        """
        if (headers or reply) is None and self._async.put(subject, data):
            return
        self._thread.run(self._async.publish(subject, data, headers=headers, reply=reply))

    def flush(self, timeout: float | None = 10.0) -> None:
        """Wait until the server has processed everything published and subscribed before."""
        self._thread.run(self._async.flush(timeout))

    def rtt(self, timeout: float | None = 10.0) -> float:
        """The time in seconds to the server and back."""
        return self._thread.run(self._async.rtt(timeout))

    def subscribe(
        self,
        subject: str,
        *,
        queue: str | None = None,
        callback: Callable[[Message], object] | None = None,
        pending_messages: int | None = None,
        pending_bytes: int | None = None,
    ) -> Subscription:
        """Subscribe to a subject, which may have wildcards.

        Each message goes to one member of a `queue` only. Without a callback, iterate over the
        subscription or call its `next`. The limits default to those of the connection.
        """
        found: Subscription = wrap(
            self._thread.run(
                self._async.subscribe(
                    subject,
                    queue=queue,
                    callback=in_worker(callback, self._thread),
                    pending_messages=pending_messages,
                    pending_bytes=pending_bytes,
                )
            ),
            self._thread,
        )
        return found

    def request(
        self,
        subject: str,
        data: Payload = b"",
        *,
        timeout: float = 5.0,
        headers: HeadersLike | None = None,
    ) -> Message:
        """Send a request and return the first answer.

        Raises `NoRespondersError` at once when nobody listens, `TimeoutError` when nobody answers
        in time.
        """
        found: Message = wrap(
            self._thread.run(self._async.request(subject, data, timeout=timeout, headers=headers)),
            self._thread,
        )
        return found

    def request_many(
        self,
        subject: str,
        data: Payload = b"",
        *,
        timeout: float = 5.0,
        max_messages: int | None = None,
        stall: float | None = None,
        sentinel: Callable[[Message], bool] | None = None,
        headers: HeadersLike | None = None,
    ) -> Iterator[Message]:
        """Send a request and iterate over all answers.

        It ends after `timeout` seconds in all, after `max_messages`, when no answer came for
        `stall` seconds after the one before, or with the answer for which `sentinel` is true
        (which is not yielded), whichever comes first.
        """
        return Items(
            self._thread,
            self._thread.call(
                self._async.request_many,
                subject,
                data,
                timeout=timeout,
                max_messages=max_messages,
                stall=stall,
                sentinel=in_loop(sentinel, self._thread),
                headers=headers,
            ),
            lambda item: wrap(item, self._thread),
        )

    def new_inbox(self) -> str:
        """A unique subject to get answers on."""
        return self._thread.call(self._async.new_inbox)

    @property
    def state(self) -> ConnectionState:
        """Where the connection is in its life."""
        return self._async.state

    @property
    def connected(self) -> bool:
        """Whether a server is connected right now."""
        return self._async.connected

    @property
    def closed(self) -> bool:
        """Whether the client is closed for good."""
        return self._async.closed

    @property
    def server(self) -> str | None:
        """The URL of the server in use, without credentials."""
        return self._async.server

    @property
    def server_info(self) -> ServerInfo:
        """What the server in use says about itself."""
        return self._async.server_info

    @property
    def servers(self) -> list[str]:
        """All servers known, configured and discovered."""
        return self._async.servers

    @property
    def max_payload(self) -> int:
        """How large a message may be, headers included."""
        return self._async.max_payload

    @property
    def statistics(self) -> Statistics:
        """Counters over the whole life of the client."""
        return self._async.statistics

    @property
    def last_error(self) -> BaseException | None:
        """Why the connection was lost or closed last."""
        return self._async.last_error

    def events(self) -> Iterator[ConnectionEvent]:
        """Iterate over the events of the connection from now on, until it is closed."""
        return Items(self._thread, self._thread.call(self._async.events))

    def force_reconnect(self) -> None:
        """Leave the server in use and connect again, to another one if there is one.

        Returns at once; use `flush` to wait for the new connection.
        """
        self._thread.run(self._async.force_reconnect())

    def drain(self, timeout: float | None = None) -> None:
        """Finish cleanly: no new messages, those that arrived are processed, then close.

        Callbacks are called for all that has arrived; iterators keep what waits for them. What was
        published to streams is waited for until it is acknowledged or has failed. If all that
        takes longer than `timeout` (default: `drain_timeout`), the client is closed all the same
        and `TimeoutError` is raised.
        """
        self._thread.run(self._async.drain(timeout))

    def close(self) -> None:
        """Close at once: what waits in subscriptions is dropped, pending calls fail.

        What has been published is still written to the socket. Afterwards no task and no socket
        of the client is left, and on the server no consumer of an ordered reader or a watcher.
        """
        self._thread.finish(self._async.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._thread.finish(self._async.__aexit__, *exc_info)

    def jetstream(
        self,
        *,
        domain: str | None = None,
        prefix: str | None = None,
        timeout: float = 5.0,
        max_ack_pending: int = 4000,
        backpressure: bool = True,
        strict: bool = False,
    ) -> JetStream:
        """The JetStream of the account, of a `domain`, or behind an API `prefix`.

        `timeout` is for each request, in seconds. Up to `max_ack_pending` messages of
        `publish_async` may wait for their acknowledgement; then `publish_async` waits
        (`backpressure`) or raises `PublishStalledError`. With `strict`, fields that this version
        does not know are errors (for tests).
        """
        return JetStream(
            self._thread.call(
                self._async.jetstream,
                domain=domain,
                prefix=prefix,
                timeout=timeout,
                max_ack_pending=max_ack_pending,
                backpressure=backpressure,
                strict=strict,
            ),
            self._thread,
        )


class Consumer(Wrapper):
    """A consumer on the server; how messages are got from it is up to the subclasses."""

    _async: AsyncConsumer

    @property
    def cached_info(self) -> ConsumerInfo:
        """What the server said when it was last asked."""
        return self._async.cached_info

    @property
    def name(self) -> str:
        """The name of the consumer."""
        return self._async.name

    @property
    def stream_name(self) -> str:
        """The name of its stream."""
        return self._async.stream_name

    @property
    def config(self) -> ConsumerConfig:
        """Its configuration, as of the last info."""
        return self._async.config

    @property
    def no_acks(self) -> bool:
        """Whether messages need no acknowledgement."""
        return self._async.no_acks

    @property
    def description(self) -> str:
        """How error messages call it."""
        return self._async.description

    def info(self) -> ConsumerInfo:
        """Ask the server for the state of the consumer."""
        return self._thread.run(self._async.info())

    def delete(self) -> None:
        """Delete the consumer on the server."""
        self._thread.run(self._async.delete())


class Consumption(Wrapper):
    """The running `consume` of a consumer; ends with `stop` or `drain`, or by an error."""

    _async: AsyncConsumption

    @property
    def closed(self) -> bool:
        """Whether no more messages will be handed out."""
        return self._async.closed

    def stop(self) -> None:
        """Stop at once; messages that wait are dropped, and come again if they need acks."""
        self._thread.run(self._async.stop())

    def drain(self, timeout: float | None = None) -> None:
        """Ask for no more, hand out what has arrived, then end.

        Raises `TimeoutError` if that takes longer than `timeout` seconds (default: the
        `drain_timeout` of the connection); the callback goes on with what waits.
        """
        self._thread.run(self._async.drain(timeout))

    def wait(self) -> None:
        """Wait until it has ended; raises the error that ended it."""
        self._thread.run(self._async.wait())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._thread.finish(self._async.__aexit__, *exc_info)


class FastIngest(Wrapper):
    """A batch of any length, made by `JetStream.fast_ingest`.

    >>> with js.fast_ingest() as ingest:  # doctest: +SKIP
    ...     for line in file:
    ...         ingest.add("lines", line)
    >>> ingest.ack.sequence, ingest.ack.batch_size  # doctest: +SKIP

    A message is stored when the server gets it, long before the batch ends. Leaving the block
    waits for the acknowledgement of all of them (see `close`). After an error the rest is not
    sent; what was stored stays, and `ack`, if it is there, says how many messages that is.

    With `gap="fail"` a message that is lost or refused ends the batch with an error, and nothing
    behind it is stored. With `gap="ok"` the batch goes on: `lost`, `refused` and `errors` tell
    what is missing, and the acknowledgement counts these messages, too.

    A pause of ten seconds ends the batch, as the server forgets it. Call it from one thread at a
    time.
    """

    _async: AsyncFastIngest

    @property
    def client(self) -> Client:
        """The client that it belongs to."""
        found: Client = wrap(self._async.client, self._thread)
        return found

    @property
    def subject(self) -> str:
        """The subject."""
        return self._async.subject

    @property
    def queue(self) -> str | None:
        """The queue group, if there is one."""
        return self._async.queue

    @property
    def id(self) -> str:
        """The id under which the server knows it."""
        return self._async.id

    @property
    def ack(self) -> PublishAck | None:
        """The acknowledgement of the whole batch."""
        return self._async.ack

    @property
    def lost(self) -> int:
        """Messages that did not reach the stream."""
        return self._async.lost

    @property
    def refused(self) -> int:
        """Messages that the stream did not take."""
        return self._async.refused

    @property
    def errors(self) -> list[JetStreamError]:
        """What happened to the first of these."""
        return self._async.errors

    @property
    def size(self) -> int:
        """How many messages were added."""
        return self._async.size

    @property
    def closed(self) -> bool:
        """Whether the batch has come to its end."""
        return self._async.closed

    def add(self, subject: str, data: Payload = b"", **options: Unpack[MessageOptions]) -> int:
        """Add a message and return its number in the batch, counted from 1.

        Waits while too many are without an acknowledgement.
        """
        return self._thread.run(self._async.add(subject, data, **options))

    def close(self) -> PublishAck | None:
        """End the batch and return its acknowledgement; None if nothing was added."""
        return self._thread.run(self._async.close())

    def abandon(self) -> None:
        """Stop without waiting for an acknowledgement; what was sent stays stored."""
        self._thread.call(self._async.abandon)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._thread.finish(self._async.__aexit__, *exc_info)


class JetStream(Wrapper):
    """JetStream over one connection, made by `Client.jetstream`."""

    _async: AsyncJetStream

    @property
    def client(self) -> Client:
        """The client that it belongs to."""
        found: Client = wrap(self._async.client, self._thread)
        return found

    def publish(
        self, subject: str, data: Payload = b"", **options: Unpack[PublishOptions]
    ) -> PublishAck:
        """Publish a message and wait until the stream has stored it.

        >>> ack = js.publish("orders.new", b"a dozen eggs", msg_id="17")  # doctest: +SKIP
        >>> ack.stream, ack.sequence  # doctest: +SKIP
        ('ORDERS', 1)

        Raises `NoStreamResponseError` when no stream has the subject, an `APIError` when the
        stream refuses the message, and `TimeoutError` or `DisconnectedError` when nobody knows
        what became of it. Then publish it again only if it has a `msg_id`. A message with one, and
        without an expected sequence, is sent again by itself when the connection is lost and
        comes back in time.
        """
        return self._thread.run(self._async.publish(subject, data, **options))

    def publish_async(
        self, subject: str, data: Payload = b"", **options: Unpack[PublishOptions]
    ) -> PublishAckFuture:
        """Publish a message and return its acknowledgement as a future, to be waited for later.

        >>> for order in orders:  # doctest: +SKIP
        ...     js.publish_async("orders.new", order)
        >>> js.publish_async_complete()  # doctest: +SKIP

        Waits while `max_ack_pending` messages are without their acknowledgement; a context made
        with `backpressure=False` raises `PublishStalledError` instead. The `timeout`, 30 seconds
        if it is not given, holds for that, and then again for the acknowledgement.

        When the connection is lost, messages that were sent without a `msg_id`, or with an
        expected sequence, fail with `DisconnectedError`, because they may be stored or not. The
        others are sent again, in their order, when it is back: the acknowledgement of one that
        had been stored then says `duplicate`. What is published meanwhile is sent afterwards.
        Whatever is not acknowledged in its time fails with `TimeoutError`.
        """
        return PublishAckFuture(
            publish_async(self._async, self._thread, subject, data, options), self._thread
        )

    @property
    def publish_async_pending(self) -> int:
        """How many messages of `publish_async` are without their acknowledgement."""
        return publish_pending(self._async)

    def publish_async_complete(self, timeout: float | None = None) -> None:
        """Wait until each message of `publish_async` is acknowledged or has failed.

        Raises what failed since the last call and was not seen, because nobody has asked its
        future: the error if it is one, an `ExceptionGroup` if there are several. Draining the
        connection waits, too, and reports failures as events; closing it does not wait.
        """
        self._thread.run(self._async.publish_async_complete(timeout))

    def counter_add(
        self, subject: str, increment: int = 1, **options: Unpack[PublishOptions]
    ) -> int:
        """Add to a counter and return its new value; a negative number is subtracted.

        The stream needs `allow_msg_counter` (2.12). After a `TimeoutError` or `DisconnectedError`
        it is not known whether the number was added.
        """
        return self._thread.run(self._async.counter_add(subject, increment, **options))

    def batch(self, *, timeout: float | None = None) -> AtomicBatch:
        """Begin a batch of messages that are stored all together or not at all.

        The stream needs `allow_atomic` (2.12). `timeout` is for each answer of the server.
        """
        return AtomicBatch(self._thread.call(self._async.batch, timeout=timeout), self._thread)

    def fast_ingest(
        self,
        *,
        gap: Literal["fail", "ok"] = "fail",
        flow: int = 500,
        max_outstanding: int = 2,
        timeout: float | None = None,
    ) -> FastIngest:
        """Begin a stream of many messages with few acknowledgements.

        The stream needs `allow_batched` (2.14). With `gap="fail"` it ends when a message is lost
        or refused; with `"ok"` it goes on. The server acknowledges every `flow` messages, or more
        often if it wants, and up to `max_outstanding` acknowledgements may be missing (1 to 3).
        `timeout` is for each answer of the server.
        """
        return FastIngest(
            self._thread.call(
                self._async.fast_ingest,
                gap=gap,
                flow=flow,
                max_outstanding=max_outstanding,
                timeout=timeout,
            ),
            self._thread,
        )

    @overload
    def create_consumer(
        self, stream: str, *, deliver_subject: str, **fields: Any
    ) -> PushConsumer: ...

    @overload
    def create_consumer(self, stream: str, **fields: Any) -> PullConsumer: ...

    @overload
    def create_consumer(
        self, stream: str, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer: ...

    def create_consumer(
        self, stream: str, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer:
        """Create a consumer; one that exists with the same configuration is returned.

        Raises `ConsumerExistsError` if it exists with another one.
        """
        method: Any = self._async.create_consumer
        found: PullConsumer | PushConsumer = wrap(
            self._thread.run(method(stream, config, **fields)), self._thread
        )
        return found

    @overload
    def update_consumer(
        self, stream: str, *, deliver_subject: str, **fields: Any
    ) -> PushConsumer: ...

    @overload
    def update_consumer(self, stream: str, **fields: Any) -> PullConsumer: ...

    @overload
    def update_consumer(
        self, stream: str, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer: ...

    def update_consumer(
        self, stream: str, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer:
        """Change a consumer: the configuration replaces the present one as a whole.

        Raises `ConsumerDoesNotExistError` if there is none of that name, and
        `ConsumerCreateError` for a change that the server does not allow.
        """
        method: Any = self._async.update_consumer
        found: PullConsumer | PushConsumer = wrap(
            self._thread.run(method(stream, config, **fields)), self._thread
        )
        return found

    @overload
    def create_or_update_consumer(
        self, stream: str, *, deliver_subject: str, **fields: Any
    ) -> PushConsumer: ...

    @overload
    def create_or_update_consumer(self, stream: str, **fields: Any) -> PullConsumer: ...

    @overload
    def create_or_update_consumer(
        self, stream: str, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer: ...

    def create_or_update_consumer(
        self, stream: str, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer:
        """Create a consumer, or replace the configuration of the one of that name."""
        method: Any = self._async.create_or_update_consumer
        found: PullConsumer | PushConsumer = wrap(
            self._thread.run(method(stream, config, **fields)), self._thread
        )
        return found

    @overload
    def get_consumer(
        self, stream: str, name: str, *, push: Literal[False] = False
    ) -> PullConsumer: ...

    @overload
    def get_consumer(self, stream: str, name: str, *, push: Literal[True]) -> PushConsumer: ...

    def get_consumer(
        self, stream: str, name: str, *, push: bool = False
    ) -> PullConsumer | PushConsumer:
        """The consumer of that name, which pulls, or with `push` one that pushes.

        Raises `ConsumerNotFoundError` if there is none, and `NotPullConsumerError` or
        `NotPushConsumerError` if it is of the other kind.
        """
        method: Any = self._async.get_consumer
        found: PullConsumer | PushConsumer = wrap(
            self._thread.run(method(stream, name, push=push)), self._thread
        )
        return found

    @overload
    def get_or_create_consumer(
        self, stream: str, *, deliver_subject: str, **fields: Any
    ) -> PushConsumer: ...

    @overload
    def get_or_create_consumer(self, stream: str, **fields: Any) -> PullConsumer: ...

    @overload
    def get_or_create_consumer(
        self, stream: str, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer: ...

    def get_or_create_consumer(
        self, stream: str, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer:
        """The consumer of that name as it is, or a new one with this configuration.

        Raises `NotPullConsumerError` or `NotPushConsumerError` if it is of the other kind.
        """
        method: Any = self._async.get_or_create_consumer
        found: PullConsumer | PushConsumer = wrap(
            self._thread.run(method(stream, config, **fields)), self._thread
        )
        return found

    def delete_consumer(self, stream: str, name: str) -> None:
        """Delete a consumer; raises `ConsumerNotFoundError` if there is none."""
        self._thread.run(self._async.delete_consumer(stream, name))

    def consumers(self, stream: str) -> Iterator[PullConsumer | PushConsumer]:
        """Iterate over the consumers of a stream, in the order of their names.

        Raises `OfflineError` at the end if some do not answer; `consumer_names` has them.
        """
        return Items(
            self._thread,
            self._thread.call(self._async.consumers, stream),
            lambda item: wrap(item, self._thread),
        )

    def consumer_names(self, stream: str) -> Iterator[str]:
        """Iterate over the names of the consumers of a stream, in order."""
        return Items(self._thread, self._thread.call(self._async.consumer_names, stream))

    def pause_consumer(
        self, stream: str, name: str, until: datetime | timedelta | float
    ) -> ConsumerPause:
        """Have a consumer deliver nothing until a time, or for so many seconds (2.11)."""
        return self._thread.run(self._async.pause_consumer(stream, name, until))

    def resume_consumer(self, stream: str, name: str) -> ConsumerPause:
        """Let a paused consumer go on (2.11)."""
        return self._thread.run(self._async.resume_consumer(stream, name))

    def unpin_consumer(self, stream: str, name: str, group: str) -> None:
        """Unpin the client that a priority group is pinned to, so that another one gets its turn.

        Raises `InvalidConsumerConfigError` if the consumer has no such group (2.11).
        """
        self._thread.run(self._async.unpin_consumer(stream, name, group))

    def reset_consumer(self, stream: str, name: str, seq: int | None = None) -> ConsumerInfo:
        """Have a consumer begin again at a sequence, or at its first unacknowledged message.

        What was delivered and not acknowledged counts as new (2.14). Raises `ConsumerResetError`
        if the deliver policy of the consumer does not allow the sequence.
        """
        return self._thread.run(self._async.reset_consumer(stream, name, seq))

    def create_stream(self, config: StreamConfig | None = None, **fields: Any) -> Stream:
        """Create a stream; one that exists with the same configuration is returned.

        Raises `StreamNameInUseError` if it exists with another one.

        >>> js.create_stream(name="ORDERS", subjects=["orders.>"])  # doctest: +SKIP
        """
        return Stream(self._thread.run(self._async.create_stream(config, **fields)), self._thread)

    def update_stream(self, config: StreamConfig | None = None, **fields: Any) -> Stream:
        """Change a stream: the configuration replaces the present one as a whole.

        To change some fields only, use `Stream.update`. Raises `StreamNotFoundError` if there is
        none of that name.
        """
        return Stream(self._thread.run(self._async.update_stream(config, **fields)), self._thread)

    def create_or_update_stream(self, config: StreamConfig | None = None, **fields: Any) -> Stream:
        """Create a stream, or replace the configuration of the one of that name."""
        return Stream(
            self._thread.run(self._async.create_or_update_stream(config, **fields)), self._thread
        )

    def get_stream(self, name: str) -> Stream:
        """The stream of that name; raises `StreamNotFoundError` if there is none."""
        return Stream(self._thread.run(self._async.get_stream(name)), self._thread)

    def get_or_create_stream(self, config: StreamConfig | None = None, **fields: Any) -> Stream:
        """The stream of that name as it is, or a new one with this configuration."""
        return Stream(
            self._thread.run(self._async.get_or_create_stream(config, **fields)), self._thread
        )

    def delete_stream(self, name: str) -> None:
        """Delete a stream with its messages and consumers."""
        self._thread.run(self._async.delete_stream(name))

    def purge_stream(
        self,
        name: str,
        *,
        subject: str | None = None,
        sequence: int | None = None,
        keep: int | None = None,
    ) -> int:
        """Remove messages from a stream and return how many; see `Stream.purge`."""
        return self._thread.run(
            self._async.purge_stream(name, subject=subject, sequence=sequence, keep=keep)
        )

    def streams(self, *, subject: str | None = None) -> Iterator[Stream]:
        """Iterate over the streams in the order of their names, or over those with a subject.

        Raises `OfflineError` at the end if some do not answer, for example because their servers
        are down; `stream_names` has them all the same.
        """
        return Items(
            self._thread,
            self._thread.call(self._async.streams, subject=subject),
            lambda item: wrap(item, self._thread),
        )

    def stream_names(self, *, subject: str | None = None) -> Iterator[str]:
        """Iterate over the names of the streams in order, or of those with a subject."""
        return Items(self._thread, self._thread.call(self._async.stream_names, subject=subject))

    def stream_name_by_subject(self, subject: str) -> str:
        """The name of the one stream that has a subject.

        Raises `NoMatchingStreamError` if there is none, or if a wildcard matches several.
        """
        return self._thread.run(self._async.stream_name_by_subject(subject))

    def account_info(self) -> AccountInfo:
        """What the account uses and may use."""
        return self._thread.run(self._async.account_info())

    def subscribe(
        self,
        subject: str | None = None,
        *,
        queue: str | None = None,
        durable: str | None = None,
        stream: str | None = None,
        consumer: str | None = None,
        bind: bool = False,
        ordered: bool = False,
        config: ConsumerConfig | None = None,
        callback: Callable[[JetStreamMessage], object] | None = None,
        manual_ack: bool = False,
        pending_messages: int | None = None,
        pending_bytes: int | None = None,
        on_warning: WarningHandler | None = None,
        **fields: Any,
    ) -> PushSubscription:
        """Subscribe to a subject of a stream with a push consumer.

        The consumer called `consumer` must exist; so must the one called `durable` with `bind`,
        and is created otherwise. Without a name, a consumer is created for this subscription.
        One that was created is deleted by `unsubscribe` and after `drain`. The members of a
        `queue` share a consumer, by default one with the name of the queue. With `ordered`, the
        messages come in order and without gaps, and need no acknowledgement.

        A callback is called with each message, one after the other, and the message is then
        acknowledged, unless it raised or `manual_ack` is set. Without a callback, iterate.

        `config` and further fields of it by name are for a consumer that is created; one that
        exists must agree with what is set there.
        """
        found: PushSubscription = wrap(
            self._thread.run(
                self._async.subscribe(
                    subject,
                    queue=queue,
                    durable=durable,
                    stream=stream,
                    consumer=consumer,
                    bind=bind,
                    ordered=ordered,
                    config=config,
                    callback=in_worker(callback, self._thread),
                    manual_ack=manual_ack,
                    pending_messages=pending_messages,
                    pending_bytes=pending_bytes,
                    on_warning=in_loop(on_warning, self._thread),
                    **fields,
                )
            ),
            self._thread,
        )
        return found

    def pull_subscribe(
        self,
        subject: str | None = None,
        *,
        durable: str | None = None,
        stream: str | None = None,
        consumer: str | None = None,
        bind: bool = False,
        config: ConsumerConfig | None = None,
        **fields: Any,
    ) -> PullSubscription:
        """Subscribe to a subject of a stream with a pull consumer, to `fetch` from it.

        The consumer is found or created as by `subscribe`.
        """
        return PullSubscription(
            self._thread.run(
                self._async.pull_subscribe(
                    subject,
                    durable=durable,
                    stream=stream,
                    consumer=consumer,
                    bind=bind,
                    config=config,
                    **fields,
                )
            ),
            self._thread,
        )

    def create_object_store(
        self, config: ObjectStoreConfig | None = None, **fields: Any
    ) -> ObjectStore:
        """Create an object store; one that exists with the same configuration is returned.

        >>> store = js.create_object_store(bucket="photos")  # doctest: +SKIP

        Raises `BucketExistsError` if it exists with another one.
        """
        return ObjectStore(
            self._thread.run(self._async.create_object_store(config, **fields)), self._thread
        )

    def update_object_store(
        self, config: ObjectStoreConfig | None = None, **fields: Any
    ) -> ObjectStore:
        """Change an object store: the configuration replaces the present one as a whole.

        To change some fields only, start from `status().config`. Raises `BucketNotFoundError` if
        there is none of that name.
        """
        return ObjectStore(
            self._thread.run(self._async.update_object_store(config, **fields)), self._thread
        )

    def create_or_update_object_store(
        self, config: ObjectStoreConfig | None = None, **fields: Any
    ) -> ObjectStore:
        """Create an object store, or replace the configuration of the one of that name."""
        return ObjectStore(
            self._thread.run(self._async.create_or_update_object_store(config, **fields)),
            self._thread,
        )

    def object_store(self, bucket: str, *, publish_prefix: str = "") -> ObjectStore:
        """The object store of that name; raises `BucketNotFoundError` if there is none.

        If the store is imported from another account, whose subjects are mapped to ones with a
        prefix, that is the `publish_prefix`: what is put goes to `<prefix>.$O.<bucket>...`.
        """
        return ObjectStore(
            self._thread.run(self._async.object_store(bucket, publish_prefix=publish_prefix)),
            self._thread,
        )

    def delete_object_store(self, bucket: str) -> None:
        """Delete an object store with all objects in it."""
        self._thread.run(self._async.delete_object_store(bucket))

    def object_stores(self) -> Iterator[ObjectStoreStatus]:
        """Iterate over the states of the object stores, in the order of their names."""
        return Items(self._thread, self._thread.call(self._async.object_stores))

    def object_store_names(self) -> Iterator[str]:
        """Iterate over the names of the object stores, in order."""
        return Items(self._thread, self._thread.call(self._async.object_store_names))

    @overload
    def create_key_value(
        self,
        config: KeyValueConfig | None = None,
        *,
        codec: None = None,
        key_codec: KeyCodec | None = None,
        **fields: Any,
    ) -> KeyValue[bytes]: ...

    @overload
    def create_key_value(
        self,
        config: KeyValueConfig | None = None,
        *,
        codec: ValueCodec[T],
        key_codec: KeyCodec | None = None,
        **fields: Any,
    ) -> KeyValue[T]: ...

    def create_key_value(
        self,
        config: KeyValueConfig | None = None,
        *,
        codec: ValueCodec[Any] | None = None,
        key_codec: KeyCodec | None = None,
        **fields: Any,
    ) -> KeyValue[Any]:
        """Create a bucket; one that exists with the same configuration is returned.

        Raises `BucketExistsError` if it exists with another one.

        >>> js.create_key_value(bucket="settings", history=5)  # doctest: +SKIP
        """
        method: Any = self._async.create_key_value
        return KeyValue(
            self._thread.run(method(config, codec=codec, key_codec=key_codec, **fields)),
            self._thread,
        )

    @overload
    def update_key_value(
        self,
        config: KeyValueConfig | None = None,
        *,
        codec: None = None,
        key_codec: KeyCodec | None = None,
        **fields: Any,
    ) -> KeyValue[bytes]: ...

    @overload
    def update_key_value(
        self,
        config: KeyValueConfig | None = None,
        *,
        codec: ValueCodec[T],
        key_codec: KeyCodec | None = None,
        **fields: Any,
    ) -> KeyValue[T]: ...

    def update_key_value(
        self,
        config: KeyValueConfig | None = None,
        *,
        codec: ValueCodec[Any] | None = None,
        key_codec: KeyCodec | None = None,
        **fields: Any,
    ) -> KeyValue[Any]:
        """Change a bucket: the configuration replaces the present one as a whole.

        To change some fields only, start from `status().config`. Raises `BucketNotFoundError` if
        there is none of that name.
        """
        method: Any = self._async.update_key_value
        return KeyValue(
            self._thread.run(method(config, codec=codec, key_codec=key_codec, **fields)),
            self._thread,
        )

    @overload
    def create_or_update_key_value(
        self,
        config: KeyValueConfig | None = None,
        *,
        codec: None = None,
        key_codec: KeyCodec | None = None,
        **fields: Any,
    ) -> KeyValue[bytes]: ...

    @overload
    def create_or_update_key_value(
        self,
        config: KeyValueConfig | None = None,
        *,
        codec: ValueCodec[T],
        key_codec: KeyCodec | None = None,
        **fields: Any,
    ) -> KeyValue[T]: ...

    def create_or_update_key_value(
        self,
        config: KeyValueConfig | None = None,
        *,
        codec: ValueCodec[Any] | None = None,
        key_codec: KeyCodec | None = None,
        **fields: Any,
    ) -> KeyValue[Any]:
        """Create a bucket, or replace the configuration of the one of that name."""
        method: Any = self._async.create_or_update_key_value
        return KeyValue(
            self._thread.run(method(config, codec=codec, key_codec=key_codec, **fields)),
            self._thread,
        )

    @overload
    def key_value(
        self, bucket: str, *, codec: None = None, key_codec: KeyCodec | None = None
    ) -> KeyValue[bytes]: ...

    @overload
    def key_value(
        self, bucket: str, *, codec: ValueCodec[T], key_codec: KeyCodec | None = None
    ) -> KeyValue[T]: ...

    def key_value(
        self,
        bucket: str,
        *,
        codec: ValueCodec[Any] | None = None,
        key_codec: KeyCodec | None = None,
    ) -> KeyValue[Any]:
        """The bucket of that name.

        Raises `BucketNotFoundError` if there is none, and `BadBucketError` if the stream that has
        its name is no bucket.
        """
        method: Any = self._async.key_value
        return KeyValue(
            self._thread.run(method(bucket, codec=codec, key_codec=key_codec)), self._thread
        )

    def delete_key_value(self, bucket: str) -> None:
        """Delete a bucket with all that is in it."""
        self._thread.run(self._async.delete_key_value(bucket))

    def key_values(self) -> Iterator[KeyValueStatus]:
        """Iterate over the buckets in the order of their names; mirrors are not among them."""
        return Items(self._thread, self._thread.call(self._async.key_values))

    def key_value_names(self) -> Iterator[str]:
        """Iterate over the names of the buckets in order; mirrors are not among them."""
        return Items(self._thread, self._thread.call(self._async.key_value_names))


class KeyValue(Wrapper, Generic[T]):
    """A bucket of keys with values, made by the calls of the context.

    >>> bucket = js.create_key_value(bucket="settings", history=5)  # doctest: +SKIP
    >>> revision = bucket.put("color", b"blue")  # doctest: +SKIP
    >>> bucket.get("color").value  # doctest: +SKIP
    b'blue'

    Reads may come from any server that has the bucket, and one that lags behind does not know the
    latest writes yet; `create` and `update` always do.
    """

    _async: AsyncKeyValue[T]

    @property
    def config(self) -> KeyValueConfig:
        """Its configuration, as of when it was opened."""
        return self._async.config

    @property
    def name(self) -> str:
        """The name of the bucket."""
        return self._async.name

    def get(self, key: str, revision: int | None = None) -> KeyValueEntry[T]:
        """The latest entry of a key, or one of its earlier revisions.

        Raises `KeyNotFoundError` if there is none, which is a `KeyDeletedError` if the key was
        deleted or has expired.
        """
        return self._thread.run(self._async.get(key, revision))

    def get_many(self, keys: str | Iterable[str]) -> dict[str, KeyValueEntry[T]]:
        """The latest entries of several keys at once, by their keys; `*` and `>` are allowed.

        Keys that do not exist, or were deleted, are left out. It is one round trip for up to 1,024
        keys that have up to a megabyte, all of them from one moment, on a server of version 2.11.
        On an older one, and where wildcards match more, it is one after the other.
        """
        return self._thread.run(self._async.get_many(in_list(keys)))

    def keys(self, *filters: str) -> Iterator[str]:
        """Iterate over the keys, or over those that match one of the filters.

        Each comes once, also if others write it meanwhile; the key that was written longest ago
        comes first. An empty bucket has none.
        """
        return Items(self._thread, self._thread.call(self._async.keys, *filters))

    def history(self, key: str) -> list[KeyValueEntry[T]]:
        """The revisions of a key that are kept, the oldest first, markers included.

        Raises `KeyNotFoundError` if there are none.
        """
        return self._thread.run(self._async.history(key))

    def watch(
        self,
        *filters: str,
        include_history: bool = False,
        updates_only: bool = False,
        ignore_deletes: bool = False,
        meta_only: bool = False,
        resume_from_revision: int | None = None,
        on_warning: WarningHandler | None = None,
    ) -> KeyValueWatcher[T]:
        """Watch all keys, or those that match one of the filters.

        First come the latest entries of the keys, markers of deleted ones included, then None,
        once, then every change. With `include_history` all revisions that are kept come first;
        with `updates_only` nothing but the None; with `resume_from_revision` all from that
        revision on, whatever the other two say. `ignore_deletes` leaves markers out, `meta_only`
        the values.
        """
        return KeyValueWatcher(
            self._thread.call(
                self._async.watch,
                *filters,
                include_history=include_history,
                updates_only=updates_only,
                ignore_deletes=ignore_deletes,
                meta_only=meta_only,
                resume_from_revision=resume_from_revision,
                on_warning=in_loop(on_warning, self._thread),
            ),
            self._thread,
        )

    def put(self, key: str, value: T) -> int:
        """Set a key, whatever it is now, and return the new revision."""
        return self._thread.run(self._async.put(key, value))

    def create(self, key: str, value: T, *, ttl: TTL | None = None) -> int:
        """Set a key that does not exist, or is deleted or expired, and return its revision.

        Raises `KeyExistsError` if it exists. After `ttl` seconds, whole ones, it expires; the
        bucket needs `limit_marker_ttl` for that (2.11).
        """
        return self._thread.run(self._async.create(key, value, ttl=ttl))

    def update(self, key: str, value: T, revision: int) -> int:
        """Set a key if its latest revision is this one, and return the new revision.

        Raises `RevisionMismatchError` if someone else was faster.
        """
        return self._thread.run(self._async.update(key, value, revision))

    def delete(self, key: str, *, revision: int | None = None) -> None:
        """Delete a key: a marker takes its place, and its history is kept.

        With a `revision`, only if that is the latest one; else `RevisionMismatchError`.
        """
        self._thread.run(self._async.delete(key, revision=revision))

    def purge(self, key: str, *, ttl: TTL | None = None, revision: int | None = None) -> None:
        """Delete a key with its history; only a marker is left.

        The marker itself goes after `ttl` seconds, for which the bucket needs `limit_marker_ttl`
        (2.11). With a `revision`, only if that is the latest one; else `RevisionMismatchError`.
        """
        self._thread.run(self._async.purge(key, ttl=ttl, revision=revision))

    def purge_deletes(self, older_than: float | timedelta = OLD_MARKER) -> int:
        """Remove the markers of deleted keys and what is left of their history.

        Markers that are younger than `older_than` are kept, so that others may still see them;
        with 0 none is. Returns how many messages were removed.
        """
        return self._thread.run(self._async.purge_deletes(older_than))

    def status(self) -> KeyValueStatus:
        """Ask the server for configuration and state of the bucket."""
        return self._thread.run(self._async.status())


class KeyValueWatcher(Feed[KeyValueEntry[T] | None]):
    """The entries of keys as they change, made by `KeyValue.watch`.

    >>> with bucket.watch("orders.*") as watcher:  # doctest: +SKIP
    ...     for entry in watcher:
    ...         if entry is None:
    ...             print("that is what there was; now come the changes")
    ...         else:
    ...             print(entry.key, entry.operation, entry.value)

    It begins when the block is entered, or with the first entry that is asked for. It survives
    reconnects, restarts and leader changes without a loss; what passes by itself goes to
    `on_warning`. An entry may then come that has been replaced by a later one, which comes, too.
    It ends quietly after `stop`, and with `BucketNotFoundError` when the bucket is deleted.

    As much as makes up a few megabytes waits locally; a reader that does not keep up makes the
    server wait.
    """

    _async: AsyncKeyValueWatcher[T]
    _most = HAND

    @property
    def initial_done(self) -> bool:
        """Whether the end of the initial data has been seen."""
        return self._async.initial_done and None not in self._hand

    @property
    def bucket(self) -> str:
        """The name of the bucket."""
        return self._async.bucket

    def next(self, timeout: float | None = None) -> KeyValueEntry[T] | None:
        """The next entry, or None for the end of the initial data.

        Raises `TimeoutError` if none comes in time, and `IteratorClosedError` after `stop`.
        """
        found: KeyValueEntry[T] | None = self._next(self._async.next, timeout)
        return found

    def stop(self) -> None:
        """End the watch at once; entries that wait are dropped. May be called from anywhere."""
        self._stop(self._async.stop())

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._exit(*exc_info)


class Message(msgspec.Struct, gc=False, eq=False):
    """A message received from a subscription or as the answer to a request."""

    _async: AsyncMessage
    _thread: LoopThread

    @property
    def raw_subject(self) -> bytes:
        """The subject as it came."""
        return self._async.raw_subject

    @property
    def raw_reply(self) -> bytes | None:
        """The subject for an answer as it came, None if there is none."""
        return self._async.raw_reply

    @property
    def raw_headers(self) -> bytes | None:
        """The headers as they came, None if there are none."""
        return self._async.raw_headers

    @property
    def data(self) -> bytes:
        """The payload."""
        return self._async.data

    @property
    def client(self) -> Client:
        """The client that it belongs to."""
        found: Client = wrap(self._async.client, self._thread)
        return found

    @property
    def subject(self) -> str:
        """The subject that it was published to."""
        return self._async.subject

    @property
    def reply(self) -> str | None:
        """The subject that an answer should go to."""
        return self._async.reply

    @property
    def headers(self) -> Headers:
        """The headers; empty where the message has none."""
        return self._async.headers

    @property
    def status(self) -> int | None:
        """The status code, if this is a status of the server and no message of a user."""
        return self._async.status

    @property
    def size(self) -> int:
        """The bytes of headers and payload."""
        return self._async.size

    def respond(self, data: Payload = b"", *, headers: HeadersLike | None = None) -> None:
        """Answer the request that this message is."""
        self._thread.run(self._async.respond(data, headers=headers))

    def __repr__(self) -> str:
        return repr(self._async)


class JetStreamMessage(Message, gc=False, eq=False):
    """A message that a consumer delivered.

    It is acknowledged with one of `ack`, `double_ack`, `nak` and `term`, once: later calls do
    nothing. On a consumer without acknowledgements (`ack_policy=none`) all of them do nothing.
    """

    _async: AsyncJetStreamMessage

    @property
    def metadata(self) -> Metadata:
        """Stream, consumer, sequences, time and counts."""
        return self._async.metadata

    @property
    def acked(self) -> bool:
        """Whether it has been acknowledged for good."""
        return self._async.acked

    def ack(self) -> None:
        """Tell the server that the message is done; returns when that is on its way."""
        acknowledge(self._async, self._thread)

    def double_ack(self, timeout: float = 5.0) -> None:
        """Tell the server that the message is done and wait until it has noted that."""
        self._thread.run(self._async.double_ack(timeout))

    def nak(self, delay: float | timedelta | None = None) -> None:
        """Ask for the message again, at once or after a delay."""
        self._thread.run(self._async.nak(delay))

    def in_progress(self) -> None:
        """Ask for more time: the server waits for another `ack_wait` before it redelivers."""
        self._thread.run(self._async.in_progress())

    def term(self, reason: str | None = None) -> None:
        """Give the message up: it will not be delivered again (the reason needs 2.10.4)."""
        self._thread.run(self._async.term(reason))

    def ack_next(self, timeout: float = 5.0) -> JetStreamMessage:
        """Acknowledge, and get the next message of the pull consumer in the same round trip.

        Raises `TimeoutError` if none comes in time; the message is acknowledged all the same.
        """
        return JetStreamMessage(self._thread.run(self._async.ack_next(timeout)), self._thread)

    def ack_with(self, kind: AckKind) -> None:
        """Acknowledge in the way that `kind` says."""
        self._thread.run(self._async.ack_with(kind))


class FetchedMessages(list[JetStreamMessage]):
    """The messages of a fetch; `error` is set when it ended early for a reason."""

    error: JetSparkError | None = None

    @classmethod
    def _of(cls, found: AsyncFetchedMessages, thread: LoopThread) -> FetchedMessages:
        made = cls([JetStreamMessage(each, thread) for each in found])
        made.error = found.error
        return made


class MessageStream(Feed[JetStreamMessage]):
    """The messages of a pull consumer, to iterate over.

    >>> with consumer.messages() as messages:  # doctest: +SKIP
    ...     for message in messages:
    ...         message.ack()

    It survives reconnects, leader changes and missed heartbeats, which go to the warning handler.
    It ends with an error when the consumer is deleted, and quietly after `stop` and `drain`.
    """

    _async: AsyncMessageStream
    _item: ClassVar[Any] = JetStreamMessage
    _most = HAND

    @property
    def client(self) -> Client:
        """The client that it belongs to."""
        found: Client = wrap(self._async.client, self._thread)
        return found

    @property
    def subject(self) -> str:
        """The subject."""
        return self._async.subject

    @property
    def queue(self) -> str | None:
        """The queue group, if there is one."""
        return self._async.queue

    @property
    def consumer(self) -> PullConsumer:
        """The consumer that the messages come from."""
        found: PullConsumer = wrap(self._async.consumer, self._thread)
        return found

    def stop(self) -> None:
        """Stop at once; messages that wait are dropped, and come again if they need acks."""
        self._stop(self._async.stop())

    def drain(self, timeout: float | None = None) -> None:
        """Ask for no more; what has arrived can still be taken, then the iteration ends.

        Returns when the server has confirmed it, and raises `TimeoutError` if it does not in
        `timeout` seconds (default: the `drain_timeout` of the connection).
        """
        self._drain(self._async.drain(timeout))

    def next(self, timeout: float | None = None) -> JetStreamMessage:
        """The next message; `TimeoutError` if none comes in time."""
        found: JetStreamMessage = self._next(self._async.next, timeout)
        return found

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._exit(*exc_info)


class ObjectReader(Feed[bytes]):
    """The data of an object, or a part of them: iterate over it, or `read` it.

    >>> with store.get("photo.jpg") as reader:  # doctest: +SKIP
    ...     for chunk in reader:
    ...         file.write(chunk)

    Whether the data are those that were stored shows at the end: instead of the last of them,
    `DigestMismatchError` is raised if they are not. Of a part, only the sizes can be checked.
    Leave the block, or call `stop`, to give up early; a reader that is not referred to any more
    gives up by itself.

    Whoever cancels the wait for a chunk can wait for it again. After an error it is raised again,
    and after `stop`, or a `read` that was cancelled, `IteratorClosedError`: there is no end of the
    data but the true one.
    """

    _async: AsyncObjectReader

    @property
    def info(self) -> ObjectInfo:
        """What is known of the object; of its target, if the name was that of a link."""
        return self._async.info

    @property
    def length(self) -> int:
        """How many bytes there are to read, in all."""
        return self._async.length

    def read(self) -> bytes:
        """All the data that have not been read yet."""
        return self._thread.run(self._async.read())

    def stop(self) -> None:
        """Read no more."""
        self._stop(self._async.stop())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._exit(*exc_info)


class ObjectStore(Wrapper):
    """Objects under names, made by `create_object_store` and `object_store` of the context.

    >>> store = js.create_object_store(bucket="photos")  # doctest: +SKIP
    >>> store.put("cat.jpg", Path("cat.jpg"), metadata={"by": "me"})  # doctest: +SKIP
    >>> data = store.get("cat.jpg").read()  # doctest: +SKIP
    """

    _async: AsyncObjectStore

    @property
    def name(self) -> str:
        """The name of the store."""
        return self._async.name

    def info(self, name: str, *, show_deleted: bool = False) -> ObjectInfo:
        """What is known of an object, or of a link; also of a deleted one if that is asked for.

        Raises `ObjectNotFoundError` if there is none.
        """
        return self._thread.run(self._async.info(name, show_deleted=show_deleted))

    def list(self, *, show_deleted: bool = False) -> Iterator[ObjectInfo]:
        """Iterate over the objects and links in the store, in the order of their last change.

        Each comes once, also if others write it meanwhile, or give it another name. With
        `show_deleted`, those that have been deleted are among them, and one that is being renamed
        may come with both names.
        """
        return Items(self._thread, self._thread.call(self._async.list, show_deleted=show_deleted))

    def watch(
        self,
        *,
        include_history: bool = False,
        updates_only: bool = False,
        ignore_deletes: bool = False,
        on_warning: WarningHandler | None = None,
    ) -> ObjectWatcher:
        """Watch the objects of the store.

        First come the objects that are there, deleted ones included, then None, once, then every
        change. With `updates_only` nothing but the None comes first. `ignore_deletes` leaves out
        what is deleted. A store keeps no history of a name: `include_history` changes nothing,
        except in a store that was written in another way.
        """
        return ObjectWatcher(
            self._thread.call(
                self._async.watch,
                include_history=include_history,
                updates_only=updates_only,
                ignore_deletes=ignore_deletes,
                on_warning=in_loop(on_warning, self._thread),
            ),
            self._thread,
        )

    def delete(self, name: str) -> None:
        """Delete an object, or a link; one that is deleted already stays so.

        Raises `ObjectNotFoundError` if there never was one.
        """
        self._thread.run(self._async.delete(name))

    def update_meta(
        self,
        current_name: str,
        /,
        meta: ObjectMeta | None = None,
        *,
        name: str | None = None,
        description: str | None = None,
        headers: Mapping[str, str | Sequence[str]] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> ObjectInfo:
        """Change the name, description, headers or metadata of an object or link.

        They are given one by one, or all together as a `meta`. The data stay where they are. A
        new name that could not be given to the end can be given again.

        Raises `ObjectExistsError` if there is an object of the new name, and `ObjectNotFoundError`
        if there is none of the old one.
        """
        return self._thread.run(
            self._async.update_meta(
                current_name,
                meta,
                name=name,
                description=description,
                headers=headers,
                metadata=metadata,
            )
        )

    def add_link(self, name: str, target: ObjectInfo | str) -> ObjectInfo:
        """Make a name for another object, which may be in another store of the context.

        The target is an info, or the name of an object in this store. The link does not follow it
        when it is renamed or deleted. Raises `LinkError` if the target is deleted or a link, and
        `ObjectExistsError` if an object has the name; a link of that name is replaced.
        """
        return self._thread.run(self._async.add_link(name, target))

    def add_bucket_link(self, name: str, bucket: str | ObjectStore) -> ObjectInfo:
        """Make a link to a whole store, which programs that find it can open.

        Raises `ObjectExistsError` if an object has the name; a link of that name is replaced.
        """
        return self._thread.run(self._async.add_bucket_link(name, unwrap(bucket)))

    def put(
        self,
        name: str | ObjectMeta,
        data: bytes | bytearray | memoryview | os.PathLike[str] | SupportsRead | Iterable[bytes],
        *,
        description: str | None = None,
        headers: Mapping[str, str | Sequence[str]] | None = None,
        metadata: Mapping[str, str] | None = None,
        chunk_size: int | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> ObjectInfo:
        """Store an object; one of the same name is replaced when all of the new one is stored.

        The data are bytes, the path of a file (`pathlib.Path`), a file opened for reading bytes,
        or an iterable of bytes; they are stored in chunks of 128 KiB, or of
        `chunk_size`. `on_progress` is called with the number of bytes that are stored, and that
        of all if it is known, which that of an iterable or an open file is not.

        If it fails or is cancelled, the chunks stored so far are removed, and the old object stays.
        Of several puts of one name at a time, the last one to finish wins.
        """
        return self._thread.run(
            self._async.put(
                name,
                in_threads(data, self._async._context.client),
                description=description,
                headers=headers,
                metadata=metadata,
                chunk_size=chunk_size,
                on_progress=in_loop(on_progress, self._thread),
            )
        )

    def put_file(
        self, name: str | ObjectMeta, path: str | os.PathLike[str], **options: Any
    ) -> ObjectInfo:
        """Store a file; the options are those of `put`."""
        return self._thread.run(self._async.put_file(name, path, **options))

    def get(
        self,
        name: str,
        *,
        offset: int = 0,
        length: int | None = None,
        timeout: float | timedelta = 30.0,
        on_progress: ProgressCallback | None = None,
    ) -> ObjectReader:
        """The data of an object, or `length` bytes of them from `offset` on; links are followed.

        >>> data = store.get("cat.jpg").read()  # doctest: +SKIP

        Raises `ObjectNotFoundError` if there is none, and `BadObjectError` if chunks of it are
        missing; see `ObjectReader` for what is checked at the end. A range that reaches over the
        end is cut. `TimeoutError` is raised when no data come for `timeout` seconds.
        """
        return ObjectReader(
            self._thread.run(
                self._async.get(
                    name,
                    offset=offset,
                    length=length,
                    timeout=timeout,
                    on_progress=in_loop(on_progress, self._thread),
                )
            ),
            self._thread,
        )

    def get_file(
        self,
        name: str,
        path: str | os.PathLike[str],
        *,
        timeout: float | timedelta = 30.0,
        on_progress: ProgressCallback | None = None,
    ) -> ObjectInfo:
        """Write an object into a file, which appears, or is replaced, when all is there.

        A file that is replaced keeps its permissions.
        """
        return self._thread.run(
            self._async.get_file(
                name, path, timeout=timeout, on_progress=in_loop(on_progress, self._thread)
            )
        )

    def status(self) -> ObjectStoreStatus:
        """Ask the server for the state of the store."""
        return self._thread.run(self._async.status())

    def seal(self) -> None:
        """Forbid every change, for ever: nothing can be put, deleted or renamed any more."""
        self._thread.run(self._async.seal())


class ObjectWatcher(Feed[ObjectInfo | None]):
    """The objects of a store as they change, made by `ObjectStore.watch`.

    >>> with store.watch() as watcher:  # doctest: +SKIP
    ...     for info in watcher:
    ...         if info is None:
    ...             print("that is what there was; now come the changes")
    ...         else:
    ...             print(info.name, "deleted" if info.deleted else info.size)

    It begins when the block is entered, or with the first object that is asked for. It survives
    reconnects, restarts and leader changes without a loss; what passes by itself goes to
    `on_warning`. It ends quietly after `stop`, and with `BucketNotFoundError` when the store is
    deleted. A few megabytes wait locally; a reader that does not keep up makes the server wait.

    A renamed object shows up under its new name only. A description that is damaged raises
    `BadObjectError`; the next one can be asked for all the same.
    """

    _async: AsyncObjectWatcher
    _most = HAND

    @property
    def bucket(self) -> str:
        """The name of the store."""
        return self._async.bucket

    @property
    def initial_done(self) -> bool:
        """Whether the end of the initial data has been seen."""
        return self._async.initial_done and None not in self._hand

    def next(self, timeout: float | None = None) -> ObjectInfo | None:
        """The next object, or None for the end of the initial data.

        Raises `TimeoutError` if none comes in time, and `IteratorClosedError` after `stop`.
        """
        found: ObjectInfo | None = self._next(self._async.next, timeout)
        return found

    def stop(self) -> None:
        """End the watch at once; what waits is dropped. May be called from anywhere."""
        self._stop(self._async.stop())

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._exit(*exc_info)


class OrderedPushConsumer(Consumer):
    """Reads a stream in order, each message once, with a consumer that pushes.

    It survives like `OrderedConsumer`, except that an error of the server which will not pass by
    itself (the stream is gone, for example) ends the iteration with `OrderedConsumerResetError`.

    One iteration can run at a time; the next one goes on where it stopped.
    """

    _async: AsyncOrderedPushConsumer

    def info(self) -> ConsumerInfo:
        """Ask the server for the state of the consumer that is in use."""
        return self._thread.run(self._async.info())

    def delete(self) -> None:
        """Delete the consumer on the server, if it is there; reading on creates a new one."""
        self._thread.run(self._async.delete())

    def messages(
        self, *, stop_after: int | None = None, on_warning: WarningHandler | None = None
    ) -> OrderedPushSubscription:
        """Iterate over the messages that the server pushes, without end or until `stop_after`.

        What goes wrong and passes is given to `on_warning`, by default to the events of the
        connection.
        """
        return OrderedPushSubscription(
            self._thread.call(
                self._async.messages,
                stop_after=stop_after,
                on_warning=in_loop(on_warning, self._thread),
            ),
            self._thread,
        )

    def consume(
        self,
        callback: Callable[[JetStreamMessage], object],
        *,
        stop_after: int | None = None,
        on_warning: WarningHandler | None = None,
    ) -> Consumption:
        """Have a callback called with each message, one after the other."""
        return Consumption(
            self._thread.run(
                self._async.consume(
                    in_worker(callback, self._thread),
                    stop_after=stop_after,
                    on_warning=in_loop(on_warning, self._thread),
                )
            ),
            self._thread,
        )


class PullConsumer(Consumer):
    """A consumer from which messages are pulled.

    `fetch` and `next` send one request. `messages` and `consume` keep requests on order, which is
    faster and what most applications want. `fetch_arrow` and `arrow_batches` give columns.

    Consumers with priority groups (2.11) need `group`, and take `min_pending` and
    `min_ack_pending` (overflow) or `priority` (prioritized, 2.12). A pinned client is told by the
    server and needs nothing.
    """

    _async: AsyncPullConsumer

    def fetch(
        self,
        max_messages: int | None = None,
        *,
        max_bytes: int | None = None,
        timeout: float | timedelta = 30.0,
        heartbeat: float | timedelta | None = None,
        group: str | None = None,
        min_pending: int | None = None,
        min_ack_pending: int | None = None,
        priority: int | None = None,
    ) -> FetchedMessages:
        """Get up to `max_messages`, or as many as have up to `max_bytes`.

        Returns when there are so many, or after `timeout` with those that came. If it ended early
        for a reason, that is in the `error` of the list, and raised if the list is empty.
        """
        found: FetchedMessages = fetched(
            self._async,
            self._thread,
            self._async.fetch(
                max_messages,
                max_bytes=max_bytes,
                timeout=timeout,
                heartbeat=heartbeat,
                group=group,
                min_pending=min_pending,
                min_ack_pending=min_ack_pending,
                priority=priority,
            ),
        )
        return found

    def fetch_no_wait(
        self,
        max_messages: int | None = None,
        *,
        max_bytes: int | None = None,
        group: str | None = None,
        min_pending: int | None = None,
        min_ack_pending: int | None = None,
        priority: int | None = None,
    ) -> FetchedMessages:
        """Like `fetch`, with only those messages that the consumer has right now."""
        found: FetchedMessages = fetched(
            self._async,
            self._thread,
            self._async.fetch_no_wait(
                max_messages,
                max_bytes=max_bytes,
                group=group,
                min_pending=min_pending,
                min_ack_pending=min_ack_pending,
                priority=priority,
            ),
        )
        return found

    def next(
        self,
        timeout: float | timedelta = 30.0,
        *,
        heartbeat: float | timedelta | None = None,
        group: str | None = None,
        min_pending: int | None = None,
        min_ack_pending: int | None = None,
        priority: int | None = None,
    ) -> JetStreamMessage:
        """Get one message; raises `TimeoutError` when none comes in time."""
        found: JetStreamMessage = fetched(
            self._async,
            self._thread,
            self._async.next(
                timeout,
                heartbeat=heartbeat,
                group=group,
                min_pending=min_pending,
                min_ack_pending=min_ack_pending,
                priority=priority,
            ),
        )
        return found

    def sequence(
        self, batch: int, *, timeout: float | timedelta = 30.0, group: str | None = None
    ) -> Iterator[FetchedMessages]:
        """Fetch again and again; yields the batches that are not empty, without end."""
        return Items(
            self._thread,
            self._thread.call(self._async.sequence, batch, timeout=timeout, group=group),
            lambda item: wrap(item, self._thread),
            ahead=1,
        )

    def messages(
        self,
        max_messages: int | None = None,
        *,
        max_bytes: int | None = None,
        expires: float | timedelta = 30.0,
        heartbeat: float | timedelta | None = None,
        threshold_messages: int | None = None,
        threshold_bytes: int | None = None,
        stop_after: int | None = None,
        group: str | None = None,
        min_pending: int | None = None,
        min_ack_pending: int | None = None,
        priority: int | None = None,
        on_warning: WarningHandler | None = None,
    ) -> MessageStream:
        """Iterate over the messages of the consumer, without end or until `stop_after`.

        Up to `max_messages` or `max_bytes` are on order or wait locally (default: as much as makes
        up about 16 MiB, and not more than 1000 messages); more is ordered when that falls below
        the threshold (default: half). `expires` is for one request,
        during which the server shows every `heartbeat` that it is there (default: 5 seconds, or
        half of `expires`); after two of them without a sign, it is asked again.
        What goes wrong and passes is given to `on_warning`, by default to the events of the
        connection.
        """
        return MessageStream(
            self._thread.call(
                self._async.messages,
                max_messages,
                max_bytes=max_bytes,
                expires=expires,
                heartbeat=heartbeat,
                threshold_messages=threshold_messages,
                threshold_bytes=threshold_bytes,
                stop_after=stop_after,
                group=group,
                min_pending=min_pending,
                min_ack_pending=min_ack_pending,
                priority=priority,
                on_warning=in_loop(on_warning, self._thread),
            ),
            self._thread,
        )

    def consume(
        self,
        callback: Callable[[JetStreamMessage], object],
        *,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        expires: float | timedelta = 30.0,
        heartbeat: float | timedelta | None = None,
        threshold_messages: int | None = None,
        threshold_bytes: int | None = None,
        stop_after: int | None = None,
        group: str | None = None,
        min_pending: int | None = None,
        min_ack_pending: int | None = None,
        priority: int | None = None,
        on_warning: WarningHandler | None = None,
    ) -> Consumption:
        """Have a callback called with each message, one after the other.

        The options are those of `messages`. What the callback raises is reported as an event of
        the connection, and the message is not acknowledged.
        """
        return Consumption(
            self._thread.run(
                self._async.consume(
                    in_worker(callback, self._thread),
                    max_messages=max_messages,
                    max_bytes=max_bytes,
                    expires=expires,
                    heartbeat=heartbeat,
                    threshold_messages=threshold_messages,
                    threshold_bytes=threshold_bytes,
                    stop_after=stop_after,
                    group=group,
                    min_pending=min_pending,
                    min_ack_pending=min_ack_pending,
                    priority=priority,
                    on_warning=in_loop(on_warning, self._thread),
                )
            ),
            self._thread,
        )

    def fetch_arrow(
        self,
        max_messages: int | None = None,
        *,
        max_bytes: int | None = None,
        timeout: float | timedelta = 30.0,
        heartbeat: float | timedelta | None = None,
    ) -> RecordBatch:
        """Like `fetch`, with the messages as an Arrow record batch (see `arrow_batches`)."""
        return self._thread.run(
            self._async.fetch_arrow(
                max_messages, max_bytes=max_bytes, timeout=timeout, heartbeat=heartbeat
            )
        )

    def arrow_batches(
        self,
        *,
        rows: int = 10000,
        linger: float = 0.05,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        expires: float | timedelta = 30.0,
        heartbeat: float | timedelta | None = None,
        stop_after: int | None = None,
        on_warning: WarningHandler | None = None,
    ) -> ArrowStream:
        """Iterate over the messages as Arrow record batches of up to `rows` rows.

        The columns are `stream, subject, sequence, timestamp, headers, data`. A batch is smaller
        when the end of the stream is reached, or when `linger` seconds have passed since its first
        row. Without `max_messages` and `max_bytes`, as much is on order as makes up about 16 MiB.
        Meant for consumers without acknowledgements.
        """
        return ArrowStream(
            self._thread.call(
                self._async.arrow_batches,
                rows=rows,
                linger=linger,
                max_messages=max_messages,
                max_bytes=max_bytes,
                expires=expires,
                heartbeat=heartbeat,
                stop_after=stop_after,
                on_warning=in_loop(on_warning, self._thread),
            ),
            self._thread,
        )


class OrderedConsumer(PullConsumer):
    """Reads a stream in order, each message once, without acknowledgements.

    >>> consumer = stream.ordered_consumer(filter_subject="orders.>")  # doctest: +SKIP
    >>> for message in consumer.messages():  # doctest: +SKIP
    ...     print(message.metadata.stream_sequence)

    If a message, the consumer or the connection is lost, a new consumer takes over right after the
    last message, which shows only as a warning. If that cannot be created, it is tried again and
    again (after 1, 2, 4, ... up to 10 seconds), or `max_reset_attempts` times, and then
    `OrderedConsumerResetError` is raised, as it is at once when the permission is missing.

    One iteration (`messages`, `consume`, `arrow_batches`) can run at a time; the next one goes on
    where it stopped. `fetch` and its like go on after the last message fetched, with a new consumer
    each time, which makes them slow. Both on one object raise `ConsumerInUseError`.
    """

    _async: AsyncOrderedConsumer

    def info(self) -> ConsumerInfo:
        """Ask the server for the state of the consumer that is in use."""
        return self._thread.run(self._async.info())

    def delete(self) -> None:
        """Delete the consumer on the server, if it is there; reading on creates a new one."""
        self._thread.run(self._async.delete())


class PullSubscription(Wrapper):
    """A subscription that fetches from a pull consumer, made by `pull_subscribe`.

    >>> subscription = js.pull_subscribe("orders.*", durable="worker")  # doctest: +SKIP
    >>> for message in subscription.fetch(10, timeout=5):  # doctest: +SKIP
    ...     message.ack()

    Where the consumer was made for it, `unsubscribe` and `drain` delete the consumer.
    """

    _async: AsyncPullSubscription

    @property
    def client(self) -> Client:
        """The client that it belongs to."""
        found: Client = wrap(self._async.client, self._thread)
        return found

    @property
    def subject(self) -> str:
        """The subject."""
        return self._async.subject

    @property
    def queue(self) -> str | None:
        """The queue group, if there is one."""
        return self._async.queue

    @property
    def consumer(self) -> PullConsumer:
        """The consumer that the messages come from."""
        found: PullConsumer = wrap(self._async.consumer, self._thread)
        return found

    def fetch(self, batch: int = 1, timeout: float | timedelta = 5.0) -> list[JetStreamMessage]:
        """Get up to `batch` messages: those that are there, or else those that come in time.

        Raises `TimeoutError` if none comes in time, and other errors only if there is no message
        to return.
        """
        found: list[JetStreamMessage] = fetched(
            self._async, self._thread, self._async.fetch(batch, timeout)
        )
        return found

    def next(self, timeout: float | timedelta = 5.0) -> JetStreamMessage:
        """Get one message; raises `TimeoutError` if none comes in time."""
        found: JetStreamMessage = fetched(self._async, self._thread, self._async.next(timeout))
        return found

    @property
    def closed(self) -> bool:
        """Whether nothing can be fetched any more."""
        return self._async.closed

    def unsubscribe(self) -> None:
        """Stop at once; the consumer is deleted if it was made for this subscription."""
        self._thread.run(self._async.unsubscribe())

    def drain(self) -> None:
        """Let the fetches that wait end, then stop.

        Then the consumer is deleted if it was made for this subscription; should that fail, it is
        reported.
        """
        self._thread.run(self._async.drain())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._thread.finish(self._async.__aexit__, *exc_info)


class PushConsumer(Consumer):
    """A consumer that the server pushes messages from.

    Everybody who listens gets all messages, except with a `deliver_group`, whose members share
    them. What the application has not taken yet waits locally: up to some megabytes if the
    consumer has `flow_control`; without, up to `pending_messages` and `pending_bytes` (those of
    the connection by default), and then newly arriving ones are dropped and counted.
    """

    _async: AsyncPushConsumer

    def messages(
        self,
        *,
        stop_after: int | None = None,
        pending_messages: int | None = None,
        pending_bytes: int | None = None,
        on_warning: WarningHandler | None = None,
    ) -> PushSubscription:
        """Iterate over the messages that the server pushes, without end or until `stop_after`.

        What goes wrong and passes is given to `on_warning`, by default to the events of the
        connection.
        """
        found: PushSubscription = wrap(
            self._thread.call(
                self._async.messages,
                stop_after=stop_after,
                pending_messages=pending_messages,
                pending_bytes=pending_bytes,
                on_warning=in_loop(on_warning, self._thread),
            ),
            self._thread,
        )
        return found

    def consume(
        self,
        callback: Callable[[JetStreamMessage], object],
        *,
        stop_after: int | None = None,
        pending_messages: int | None = None,
        pending_bytes: int | None = None,
        on_warning: WarningHandler | None = None,
    ) -> Consumption:
        """Have a callback called with each message, one after the other.

        The options are those of `messages`. What the callback raises is reported as an event of
        the connection, and the message is not acknowledged.
        """
        return Consumption(
            self._thread.run(
                self._async.consume(
                    in_worker(callback, self._thread),
                    stop_after=stop_after,
                    pending_messages=pending_messages,
                    pending_bytes=pending_bytes,
                    on_warning=in_loop(on_warning, self._thread),
                )
            ),
            self._thread,
        )


class Stream(Wrapper):
    """A stream, made by the calls of the context; `cached_info` is what was last heard of it.

    >>> stream = js.create_stream(name="ORDERS", subjects=["orders.>"])  # doctest: +SKIP
    >>> stream.get_last_message("orders.new").data  # doctest: +SKIP
    b'...'
    """

    _async: AsyncStream

    @property
    def name(self) -> str:
        """The name of the stream."""
        return self._async.name

    def get_message(self, seq: int) -> StoredMessage:
        """The message with a sequence; raises `MessageNotFoundError` if there is none."""
        return self._thread.run(self._async.get_message(seq))

    def get_last_message(self, subject: str) -> StoredMessage:
        """The last message of a subject, which may have wildcards."""
        return self._thread.run(self._async.get_last_message(subject))

    def get_next_message(
        self, subject: str = ">", *, seq: int | None = None, start_time: datetime | None = None
    ) -> StoredMessage:
        """The first message of a subject at or after a sequence, or a time (2.11)."""
        return self._thread.run(
            self._async.get_next_message(subject, seq=seq, start_time=start_time)
        )

    def direct_get(self, seq: int) -> StoredMessage:
        """The message with a sequence; raises `MessageNotFoundError` if there is none."""
        return self._thread.run(self._async.direct_get(seq))

    def direct_get_last(self, subject: str) -> StoredMessage:
        """The last message of a subject, which may have wildcards."""
        return self._thread.run(self._async.direct_get_last(subject))

    def direct_get_next(
        self, subject: str = ">", *, seq: int | None = None, start_time: datetime | None = None
    ) -> StoredMessage:
        """The first message of a subject at or after a sequence, or a time (2.11)."""
        return self._thread.run(
            self._async.direct_get_next(subject, seq=seq, start_time=start_time)
        )

    def direct_get_batch(
        self,
        *,
        batch: int | None = None,
        subject: str = ">",
        seq: int | None = None,
        start_time: datetime | None = None,
        max_bytes: int = 1048576,
    ) -> Iterator[StoredMessage]:
        """Iterate over the messages of a subject from a sequence or a time on (2.11).

        It ends after `batch` messages, or when all that were there at the beginning have come.
        They are asked for in portions of `max_bytes`, and again where some got lost on the way.
        A server before 2.11 is asked for each message by itself.
        """
        return Items(
            self._thread,
            self._thread.call(
                self._async.direct_get_batch,
                batch=batch,
                subject=subject,
                seq=seq,
                start_time=start_time,
                max_bytes=max_bytes,
            ),
        )

    def direct_get_last_many(
        self,
        subjects: str | Sequence[str],
        *,
        up_to_sequence: int | None = None,
        up_to_time: datetime | None = None,
        max_bytes: int = 1048576,
    ) -> Iterator[StoredMessage]:
        """Iterate over the last message of each of the subjects, which may have wildcards (2.11).

        All of them are from one moment: the present, or that of `up_to_sequence` or `up_to_time`.
        They are asked for in portions of `max_bytes`, each of up to 1024 subjects in the order of
        the sequences. Those that are removed before their portion is sent are left out, as may
        happen where a new message of a subject replaces the one before. Wildcards may match 1024
        subjects; `TooManyResultsError` says that they match more.
        """
        return Items(
            self._thread,
            self._thread.call(
                self._async.direct_get_last_many,
                subjects,
                up_to_sequence=up_to_sequence,
                up_to_time=up_to_time,
                max_bytes=max_bytes,
            ),
        )

    @property
    def cached_info(self) -> StreamInfo:
        """What the server said when it was last asked."""
        return self._async.cached_info

    @property
    def config(self) -> StreamConfig:
        """Its configuration, as of the last info."""
        return self._async.config

    def info(
        self, *, subjects_filter: str | None = None, deleted_details: bool = False
    ) -> StreamInfo:
        """Ask the server for the state of the stream.

        With a `subjects_filter` (`>` is all), `state.subjects` has the number of messages of each
        subject that matches; with `deleted_details`, `state.deleted` the deleted sequences.
        """
        return self._thread.run(
            self._async.info(subjects_filter=subjects_filter, deleted_details=deleted_details)
        )

    def update(self, config: StreamConfig | None = None, **fields: Any) -> StreamInfo:
        """Change the configuration: as a whole, or some fields of the present one.

        >>> stream.update(max_age=3600, max_msgs=1_000_000)  # doctest: +SKIP
        """
        return self._thread.run(self._async.update(config, **fields))

    def seal(self) -> StreamInfo:
        """Forbid every change of the messages, for ever."""
        return self._thread.run(self._async.seal())

    def purge(
        self, *, subject: str | None = None, sequence: int | None = None, keep: int | None = None
    ) -> int:
        """Remove messages and return how many.

        All of them, or those of a `subject` (which may have wildcards); of these, those before a
        `sequence`, or all but the newest `keep`.
        """
        return self._thread.run(self._async.purge(subject=subject, sequence=sequence, keep=keep))

    def delete(self) -> None:
        """Delete the stream with its messages and consumers."""
        self._thread.run(self._async.delete())

    def delete_message(self, seq: int, *, secure: bool = False) -> None:
        """Delete a message; `secure` overwrites it with random bytes first, which is slower.

        Raises `MessageNotFoundError` or `MessageDeleteError`.
        """
        self._thread.run(self._async.delete_message(seq, secure=secure))

    def get_counter(self, subject: str) -> CounterValue:
        """The value of a counter (2.12); raises `MessageNotFoundError` if it was never counted."""
        return self._thread.run(self._async.get_counter(subject))

    def get_counters(self, subjects: str | Sequence[str]) -> Iterator[CounterValue]:
        """Iterate over the values of the counters that match (2.12); needs `allow_direct`."""
        return Items(self._thread, self._thread.call(self._async.get_counters, subjects))

    @overload
    def create_consumer(self, *, deliver_subject: str, **fields: Any) -> PushConsumer: ...

    @overload
    def create_consumer(self, **fields: Any) -> PullConsumer: ...

    @overload
    def create_consumer(
        self, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer: ...

    def create_consumer(
        self, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer:
        """Create a consumer; one that exists with the same configuration is returned.

        Raises `ConsumerExistsError` if it exists with another one.
        """
        method: Any = self._async.create_consumer
        found: PullConsumer | PushConsumer = wrap(
            self._thread.run(method(config, **fields)), self._thread
        )
        return found

    @overload
    def update_consumer(self, *, deliver_subject: str, **fields: Any) -> PushConsumer: ...

    @overload
    def update_consumer(self, **fields: Any) -> PullConsumer: ...

    @overload
    def update_consumer(
        self, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer: ...

    def update_consumer(
        self, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer:
        """Change a consumer: the configuration replaces the present one as a whole."""
        method: Any = self._async.update_consumer
        found: PullConsumer | PushConsumer = wrap(
            self._thread.run(method(config, **fields)), self._thread
        )
        return found

    @overload
    def create_or_update_consumer(self, *, deliver_subject: str, **fields: Any) -> PushConsumer: ...

    @overload
    def create_or_update_consumer(self, **fields: Any) -> PullConsumer: ...

    @overload
    def create_or_update_consumer(
        self, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer: ...

    def create_or_update_consumer(
        self, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer:
        """Create a consumer, or replace the configuration of the one of that name."""
        method: Any = self._async.create_or_update_consumer
        found: PullConsumer | PushConsumer = wrap(
            self._thread.run(method(config, **fields)), self._thread
        )
        return found

    @overload
    def get_consumer(self, name: str, *, push: Literal[False] = False) -> PullConsumer: ...

    @overload
    def get_consumer(self, name: str, *, push: Literal[True]) -> PushConsumer: ...

    def get_consumer(self, name: str, *, push: bool = False) -> PullConsumer | PushConsumer:
        """The consumer of that name, which pulls, or with `push` one that pushes.

        Raises `ConsumerNotFoundError` if there is none, and `NotPullConsumerError` or
        `NotPushConsumerError` if it is of the other kind.
        """
        method: Any = self._async.get_consumer
        found: PullConsumer | PushConsumer = wrap(
            self._thread.run(method(name, push=push)), self._thread
        )
        return found

    @overload
    def get_or_create_consumer(self, *, deliver_subject: str, **fields: Any) -> PushConsumer: ...

    @overload
    def get_or_create_consumer(self, **fields: Any) -> PullConsumer: ...

    @overload
    def get_or_create_consumer(
        self, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer: ...

    def get_or_create_consumer(
        self, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer | PushConsumer:
        """The consumer of that name as it is, or a new one with this configuration."""
        method: Any = self._async.get_or_create_consumer
        found: PullConsumer | PushConsumer = wrap(
            self._thread.run(method(config, **fields)), self._thread
        )
        return found

    def delete_consumer(self, name: str) -> None:
        """Delete a consumer."""
        self._thread.run(self._async.delete_consumer(name))

    def consumers(self) -> Iterator[PullConsumer | PushConsumer]:
        """Iterate over the consumers, in the order of their names."""
        return Items(
            self._thread,
            self._thread.call(self._async.consumers),
            lambda item: wrap(item, self._thread),
        )

    def consumer_names(self) -> Iterator[str]:
        """Iterate over the names of the consumers, in order."""
        return Items(self._thread, self._thread.call(self._async.consumer_names))

    def pause_consumer(self, name: str, until: datetime | timedelta | float) -> ConsumerPause:
        """Have a consumer deliver nothing until a time, or for so many seconds (2.11)."""
        return self._thread.run(self._async.pause_consumer(name, until))

    def resume_consumer(self, name: str) -> ConsumerPause:
        """Let a paused consumer go on (2.11)."""
        return self._thread.run(self._async.resume_consumer(name))

    def unpin_consumer(self, name: str, group: str) -> None:
        """Unpin the client that a priority group is pinned to (2.11)."""
        self._thread.run(self._async.unpin_consumer(name, group))

    def reset_consumer(self, name: str, seq: int | None = None) -> ConsumerInfo:
        """Have a consumer begin again at a sequence, or at its first unacknowledged message."""
        return self._thread.run(self._async.reset_consumer(name, seq))

    @overload
    def ordered_consumer(
        self, *, push: Literal[False] = False, **options: Unpack[OrderedOptions]
    ) -> OrderedConsumer: ...

    @overload
    def ordered_consumer(
        self, *, push: Literal[True], **options: Unpack[OrderedOptions]
    ) -> OrderedPushConsumer: ...

    def ordered_consumer(
        self, *, push: bool = False, **options: Unpack[OrderedOptions]
    ) -> OrderedConsumer | OrderedPushConsumer:
        """Create a consumer that delivers each message once and in order, whatever gets lost.

        It pulls, or with `push` has the server push. See `OrderedOptions` for what can be set.
        """
        method: Any = self._async.ordered_consumer
        found: OrderedConsumer | OrderedPushConsumer = wrap(
            self._thread.run(method(push=push, **options)), self._thread
        )
        return found


class Subscription(Feed[Message]):
    """A subscription, to iterate over or to ask for the next message.

    >>> with nc.subscribe("orders.*") as sub:  # doctest: +SKIP
    ...     for message in sub:
    ...         print(message.subject, message.data)

    Leaving the block unsubscribes. With a callback the messages are handed to it instead, one
    after the other.
    """

    _async: AsyncSubscription
    _item: ClassVar[Any] = Message
    _most = HAND

    @property
    def client(self) -> Client:
        """The client that it belongs to."""
        found: Client = wrap(self._async.client, self._thread)
        return found

    @property
    def subject(self) -> str:
        """The subject."""
        return self._async.subject

    @property
    def queue(self) -> str | None:
        """The queue group, if there is one."""
        return self._async.queue

    @property
    def dropped(self) -> int:
        """Messages dropped because the limits were reached."""
        return self._async.dropped

    def next(self, timeout: float | None = None) -> Message:
        """The next message; waits for it, at most `timeout` seconds if that is given.

        Raises `TimeoutError`, or `SubscriptionClosedError` when no more will come.
        """
        found: Message = self._next(self._async.next, timeout)
        return found

    @property
    def pending_messages(self) -> int:
        """How many messages wait to be taken."""
        return self._async.pending_messages + len(self._hand)

    @property
    def pending_bytes(self) -> int:
        """How many bytes wait; a batch counts until its last message is taken."""
        return self._async.pending_bytes

    @property
    def closed(self) -> bool:
        """Whether no more messages will come."""
        return self._async.closed

    def unsubscribe(self, limit: int | None = None) -> None:
        """Stop at once and drop what waits; or after `limit` messages in total, if it is given.

        Messages that arrived before a limit was set can be taken even if they are more.
        """
        if limit is None:
            self._stop(self._async.unsubscribe(limit))
        else:
            self._thread.run(self._async.unsubscribe(limit))

    def drain(self, timeout: float | None = None) -> None:
        """Stop the server from sending more, then let the application take what has arrived.

        Returns when the server has confirmed and, with a callback, when the callback has been
        called for the last message. Iteration ends after the last message.
        """
        self._drain(self._async.drain(timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._exit(*exc_info)


class PushSubscription(Subscription):
    """The messages of a push consumer, to iterate over or for a callback.

    >>> with consumer.messages() as messages:  # doctest: +SKIP
    ...     for message in messages:
    ...         message.ack()

    Missing heartbeats and lost messages go to the warning handler, by default to the events of the
    connection, and it goes on: that a push consumer was deleted is never said by a server. Where
    the consumer was made for the subscription, it is deleted by `unsubscribe` and after `drain`.
    """

    _async: AsyncPushSubscription
    _item: ClassVar[Any] = JetStreamMessage
    if TYPE_CHECKING:

        def __next__(self) -> JetStreamMessage: ...

    @property
    def consumer(self) -> Consumer:
        """The consumer that the messages come from."""
        found: Consumer = wrap(self._async.consumer, self._thread)
        return found

    def next(self, timeout: float | None = None) -> JetStreamMessage:
        """The next message; waits for it, at most `timeout` seconds if that is given."""
        found: JetStreamMessage = self._next(self._async.next, timeout)
        return found

    def stop(self) -> None:
        """Stop at once and drop what waits; it comes again if it needs acks."""
        self._stop(self._async.stop())

    def unsubscribe(self, limit: int | None = None) -> None:
        """Stop at once and drop what waits; or after `limit` messages in total, if it is given.

        Without a limit, the consumer is deleted if it was made for this subscription.
        """
        if limit is None:
            self._stop(self._async.unsubscribe(limit))
        else:
            self._thread.run(self._async.unsubscribe(limit))

    def drain(self, timeout: float | None = None) -> None:
        """Stop the server from sending more, then let the application take what has arrived.

        Returns when the server has confirmed and, with a callback, when the callback has been
        called for the last message. Iteration ends after the last message. Then the consumer is
        deleted if it was made for this subscription; should that fail, it is reported.
        """
        self._drain(self._async.drain(timeout))

    def __enter__(self) -> Self:
        self._enter()
        return self


class OrderedPushSubscription(PushSubscription):
    """The messages of an ordered push consumer, to iterate over or for a callback."""

    _async: AsyncOrderedPushSubscription

    @property
    def consumer(self) -> OrderedPushConsumer:
        """The consumer that the messages come from."""
        return OrderedPushConsumer(self._async.consumer, self._thread)

    def drain(self, timeout: float | None = None) -> None:
        """Stop the server from sending more, then let the application take what has arrived."""
        self._drain(self._async.drain(timeout))


FRONTS.update(
    {
        "jetspark.jetstream.consumer.arrow.ArrowStream": ArrowStream,
        "jetspark.jetstream.atomic_batch.AtomicBatch": AtomicBatch,
        "jetspark.jetstream.consumer.base.Consumer": Consumer,
        "jetspark.jetstream.consumer.messages.Consumption": Consumption,
        "jetspark.jetstream.fast_ingest.FastIngest": FastIngest,
        "jetspark.context.JetStream": JetStream,
        "jetspark.kv.bucket.KeyValue": KeyValue,
        "jetspark.kv.watcher.KeyValueWatcher": KeyValueWatcher,
        "jetspark.connection.message.Message": Message,
        "jetspark.jetstream.message.JetStreamMessage": JetStreamMessage,
        "jetspark.jetstream.consumer.fetch.FetchedMessages": FetchedMessages._of,
        "jetspark.jetstream.consumer.messages.MessageStream": MessageStream,
        "jetspark.objects.reader.ObjectReader": ObjectReader,
        "jetspark.objects.store.ObjectStore": ObjectStore,
        "jetspark.objects.watcher.ObjectWatcher": ObjectWatcher,
        "jetspark.jetstream.consumer.ordered_push.OrderedPushConsumer": OrderedPushConsumer,
        "jetspark.jetstream.ack_future.PublishAckFuture": PublishAckFuture,
        "jetspark.jetstream.consumer.pull.PullConsumer": PullConsumer,
        "jetspark.jetstream.consumer.ordered.OrderedConsumer": OrderedConsumer,
        "jetspark.jetstream.pull_subscription.PullSubscription": PullSubscription,
        "jetspark.jetstream.consumer.push.PushConsumer": PushConsumer,
        "jetspark.jetstream.stream.Stream": Stream,
        "jetspark.connection.subscription.Subscription": Subscription,
        "jetspark.jetstream.consumer.push_feed.PushSubscription": PushSubscription,
        "jetspark.jetstream.consumer.ordered_push.OrderedPushSubscription": OrderedPushSubscription,
    }
)


MessageCallback: TypeAlias = Callable[[Message], object]
