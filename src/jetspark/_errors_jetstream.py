"""Errors of JetStream that no `err_code` stands for.

Three kinds: a status line that ends a pull request or a direct get, a reply or a message that
is not what it should be, and what buckets and object stores make of the errors of their stream
(as subclasses, so that a handler for the general error also sees the special one).

Import these from `jetspark.errors`.
"""

from __future__ import annotations

from jetspark._errors_api import (
    APIError,
    BadRequestError,
    JetStreamError,
    MessageNotFoundError,
    RequiredAPILevelError,
    StreamNameInUseError,
    StreamNotFoundError,
    TooManyRequestsError,
    WrongLastSequenceError,
)
from jetspark._errors_core import (
    InvalidOptionError,
    NoRespondersError,
    SubscriptionClosedError,
    TimeoutError,
)

__all__ = [
    "BadBucketError",
    "BadObjectError",
    "BadPullRequestError",
    "BatchCompletedError",
    "BucketExistsError",
    "BucketNotFoundError",
    "CheckpointError",
    "ConsumerDeletedError",
    "ConsumerInUseError",
    "ConsumerIsPushError",
    "ConsumerMismatchError",
    "DataLossError",
    "DigestMismatchError",
    "InvalidAckError",
    "InvalidBucketNameError",
    "InvalidConsumerNameError",
    "InvalidKeyError",
    "InvalidNameError",
    "InvalidResponseError",
    "InvalidStreamNameError",
    "IteratorClosedError",
    "KeyDeletedError",
    "KeyExistsError",
    "KeyNotFoundError",
    "LeadershipChangedError",
    "LinkError",
    "MaxBytesExceededError",
    "MaxWaitingExceededError",
    "MessageAlreadyAckedError",
    "MissingHeartbeatError",
    "NoMatchingStreamError",
    "NoMessagesError",
    "NoStreamResponseError",
    "NotJetStreamMessageError",
    "NotPullConsumerError",
    "NotPushConsumerError",
    "ObjectExistsError",
    "ObjectNotFoundError",
    "OrderedConsumerResetError",
    "PinIdMismatchError",
    "PublishStalledError",
    "PublisherClosedError",
    "RequestExpiredError",
    "RequestLimitError",
    "RevisionMismatchError",
    "ServerShutdownError",
    "StalledReadError",
    "StatusError",
    "TooManyResultsError",
    "status_error",
]


# Names, refused before anything is sent.


class InvalidNameError(InvalidOptionError):
    """A name that the server or the protocol cannot take."""


class InvalidStreamNameError(InvalidNameError):
    """A stream cannot have this name."""


class InvalidConsumerNameError(InvalidNameError):
    """A consumer cannot have this name."""


class InvalidBucketNameError(InvalidNameError):
    """A bucket or object store cannot have this name."""


class InvalidKeyError(InvalidNameError):
    """A key, or a filter for keys, that a bucket cannot have."""


# Replies.


class InvalidResponseError(JetStreamError):
    """A reply is not what the JetStream API sends."""

    may_have_taken_effect = True


class InvalidAckError(InvalidResponseError):
    """The reply to a publish is no acknowledgement; another subscriber may have answered."""


class NoStreamResponseError(JetStreamError, NoRespondersError):
    """No stream answers: none has the subject, it has no leader now, or JetStream is off."""


# Publishing.


class PublishStalledError(JetStreamError):
    """Too many publishes wait for their acknowledgement; this one was not sent."""

    retryable = True


class PublisherClosedError(JetStreamError):
    """The publisher has been closed."""

    may_have_taken_effect = True


# Messages.


class NotJetStreamMessageError(JetStreamError):
    """The message was not delivered by a consumer, so it cannot be acknowledged."""


class MessageAlreadyAckedError(JetStreamError):
    """The message has been acknowledged before."""


# Consumers.


class NotPullConsumerError(JetStreamError):
    """A pull consumer is needed, and this one pushes."""


class NotPushConsumerError(JetStreamError):
    """A push consumer is needed, and this one is to be pulled from."""


class NoMatchingStreamError(JetStreamError):
    """No stream, or more than one, has the subject."""


class ConsumerMismatchError(JetStreamError):
    """The consumer exists, and differs from what the subscription asks for."""


class ConsumerInUseError(JetStreamError):
    """This consumer object is busy with another call that excludes this one."""


class IteratorClosedError(JetStreamError, SubscriptionClosedError):
    """The iteration over the messages has been stopped."""


class MissingHeartbeatError(JetStreamError):
    """The server missed heartbeats; the consumer or the connection may be gone."""

    retryable = True


class OrderedConsumerResetError(JetStreamError):
    """An ordered consumer could not be created again where it broke off."""


# Status lines.


class CheckpointError(JetStreamError):
    """The checkpoint of a Spark query does not fit the streams that it reads."""


class DataLossError(JetStreamError):
    """Messages were removed from a stream before a Spark query had read them."""


class StalledReadError(JetStreamError):
    """Messages that a stream has are not delivered."""

    retryable = True


class StatusError(JetStreamError):
    """A request was ended by a status line; `status` and `description` are from it."""

    status: int = 0
    description: str = ""


class NoMessagesError(StatusError):
    """There is no message now, and the request does not wait for one (404)."""

    retryable = True


class RequestExpiredError(StatusError, TimeoutError):
    """The request has expired (408)."""

    may_have_taken_effect = False


class BadPullRequestError(StatusError):
    """The server did not accept the pull request (400)."""


class BatchCompletedError(StatusError):
    """The request got all its messages, with bytes to spare (409)."""


class MaxBytesExceededError(StatusError):
    """The next message is larger than the bytes that are left of the request (409)."""


class RequestLimitError(StatusError):
    """The request exceeds `max_batch`, `max_expires` or `max_bytes` of the consumer (409)."""


class MaxWaitingExceededError(StatusError):
    """The consumer has as many waiting requests as its `max_waiting` allows (409)."""

    retryable = True


class ConsumerDeletedError(StatusError):
    """The consumer, or its stream, was deleted (409)."""


class ConsumerIsPushError(StatusError, NotPullConsumerError):
    """The consumer pushes, so it cannot be pulled from (409)."""


class LeadershipChangedError(StatusError):
    """The consumer has a new leader, which does not know the request (409)."""

    retryable = True


class ServerShutdownError(StatusError):
    """The server of the consumer is shutting down (409)."""

    retryable = True


class PinIdMismatchError(StatusError):
    """Another client is pinned now (423)."""

    retryable = True


class TooManyResultsError(StatusError):
    """More subjects match than a direct get can answer (413)."""


# Buckets and object stores.


class BucketNotFoundError(StreamNotFoundError):
    """There is no such bucket or object store."""


class BucketExistsError(StreamNameInUseError):
    """A bucket or object store of that name exists with another configuration."""


class BadBucketError(JetStreamError):
    """The stream exists and is not a bucket."""


class KeyNotFoundError(MessageNotFoundError):
    """The bucket has no such key."""


class KeyDeletedError(KeyNotFoundError):
    """The key has been deleted; `revision` is that of the marker."""

    revision: int = 0


class KeyExistsError(WrongLastSequenceError):
    """The key to create exists."""


class RevisionMismatchError(WrongLastSequenceError):
    """The key has another revision than the expected one."""


class ObjectNotFoundError(MessageNotFoundError):
    """The store has no such object."""


class ObjectExistsError(JetStreamError):
    """An object of that name exists."""


class BadObjectError(JetStreamError):
    """The description of an object, or one of its chunks, is damaged or missing."""


class DigestMismatchError(BadObjectError):
    """The data of an object do not have the digest that they were stored with."""


class LinkError(JetStreamError):
    """A link to an object or store cannot be made or followed."""


# The texts of 409 and 408, compared as lower-case substrings: their case and their tails differ
# between servers. The order matters only where one text contains another.
_CONFLICTS: tuple[tuple[str, type[StatusError]], ...] = (
    ("consumer deleted", ConsumerDeletedError),
    ("push based", ConsumerIsPushError),
    ("leadership change", LeadershipChangedError),
    ("server shutdown", ServerShutdownError),
    ("batch completed", BatchCompletedError),
    ("message size exceeds maxbytes", MaxBytesExceededError),
    ("exceeded maxwaiting", MaxWaitingExceededError),
    ("exceeded maxrequest", RequestLimitError),
)
_BAD_REQUESTS = ("empty request", "bad request", "malformed request")
_BY_STATUS: dict[int, type[StatusError]] = {
    400: BadPullRequestError,
    408: RequestExpiredError,
    413: TooManyResultsError,
    423: PinIdMismatchError,
}


def status_error(status: int, description: str, *, context: str = "") -> JetStreamError:
    """The exception for a status line (`NATS/1.0 409 Consumer Deleted`) that ended a request.

    `context` names what was attempted. Control statuses (100, 204) are not errors: they must
    not come here.
    """
    text = description.lower()
    api_error: type[APIError] | None = None
    kind = _BY_STATUS.get(status, StatusError)
    if status == 404 and "no messages" in text:
        kind = NoMessagesError
    elif status == 404:
        api_error = MessageNotFoundError
    elif status == 408 and any(bad in text for bad in _BAD_REQUESTS):
        api_error = BadRequestError
    elif status == 409:
        kind = next((kind for part, kind in _CONFLICTS if part in text), StatusError)
    elif status == 412:
        api_error = RequiredAPILevelError
    elif status == 429:
        api_error = TooManyRequestsError
    elif status == 503:
        prefix = f"{context}: " if context else ""
        return NoStreamResponseError(f"{prefix}{description or 'no responders'} (status 503)")
    if api_error is not None:
        return api_error.from_status(status, description, context=context)
    prefix = f"{context}: " if context else ""
    return kind(
        f"{prefix}{description or kind.__name__} (status {status})",
        status=status,
        description=description,
    )
