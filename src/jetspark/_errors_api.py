"""Errors that the JetStream API answers with, one class for each thing that can be handled.

A class registers itself for the `err_code` values it stands for (`err_codes=`), or for a whole
family of HTTP-like codes (`codes=`). `APIError.from_response` looks the class up: first by
`err_code`, which is unique and never changes its meaning, then by `code`, which is coarse
(a full stream answers 503, a bad configuration 500). Descriptions are free text and are never
matched.

Import these from `jetspark.errors`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Protocol

from jetspark._errors_core import JetSparkError, TimeoutError

__all__ = [
    "APIError",
    "APITimeoutError",
    "AccountLimitError",
    "AtomicPublishError",
    "BadRequestError",
    "BatchPublishError",
    "ClusterError",
    "ConflictError",
    "ConsumerAlreadyActiveError",
    "ConsumerCreateError",
    "ConsumerDoesNotExistError",
    "ConsumerExistsError",
    "ConsumerNameInUseError",
    "ConsumerNotFoundError",
    "ConsumerResetError",
    "CounterError",
    "DuplicateInProcessError",
    "ExpectedSequenceNotReadyError",
    "ExpectedStreamMismatchError",
    "FilterError",
    "InsufficientResourcesError",
    "InternalServerError",
    "InvalidConsumerConfigError",
    "InvalidJSONError",
    "InvalidMessageTTLError",
    "InvalidStreamConfigError",
    "JetStreamError",
    "JetStreamNotEnabledError",
    "JetStreamNotEnabledForAccountError",
    "LimitReachedError",
    "MessageDeleteError",
    "MessageNotFoundError",
    "MessageTTLDisabledError",
    "MessageTooLargeError",
    "MinLastSequenceError",
    "NotFoundError",
    "NotSupportedError",
    "OfflineError",
    "PlacementError",
    "PreconditionFailedError",
    "PurgeError",
    "RequiredAPILevelError",
    "RollupError",
    "ScheduleError",
    "ServiceUnavailableError",
    "StoreFailedError",
    "StreamCreateError",
    "StreamDeleteError",
    "StreamNameInUseError",
    "StreamNotFoundError",
    "StreamReplacedError",
    "StreamSealedError",
    "StreamUpdateError",
    "SubjectOverlapError",
    "TooManyRequestsError",
    "TooManySubjectsError",
    "WrongLastMessageIdError",
    "WrongLastSequenceError",
]


class JetStreamError(JetSparkError):
    """Anything that went wrong with JetStream."""


class _ErrorFields(Protocol):
    """The three fields of an error in a reply."""

    @property
    def code(self) -> int: ...
    @property
    def err_code(self) -> int: ...
    @property
    def description(self) -> str: ...


# Errors that pass by themselves although their class as a whole does not: a partial answer, the
# wrong node, a move in progress, a membership change in flight, too many batches in flight.
_RETRYABLE_ERR_CODES = frozenset({10004, 10009, 10124, 10202, 10210, 10211, 10226})


class APIError(JetStreamError):
    """The server refused a request.

    `err_code` says which error it is (see `jetspark.error_codes.ErrorCode`), `code` is the
    HTTP-like class of it, `description` the text of the server and `context` what was attempted.
    `err_code` is 0 where the server reported the same thing with a bare status.
    """

    code: int = 0
    err_code: int = 0
    description: str = ""
    context: str = ""
    # What a user can do about it, added to the message.
    advice: ClassVar[str] = ""

    _by_err_code: ClassVar[dict[int, type[APIError]]] = {}
    _by_code: ClassVar[dict[int, type[APIError]]] = {}

    def __init_subclass__(
        cls, *, err_codes: Iterable[int] = (), codes: Iterable[int] = (), **kwargs: Any
    ) -> None:
        """Register the class for the codes it stands for."""
        super().__init_subclass__(**kwargs)
        for registry, keys in ((cls._by_err_code, err_codes), (cls._by_code, codes)):
            for key in keys:
                if key in registry:
                    raise TypeError(f"{key} already belongs to {registry[key].__name__}")
                registry[key] = cls

    @staticmethod
    def class_for(code: int, err_code: int = 0) -> type[APIError]:
        """The class that stands for an `err_code`, or else for the family of a `code`."""
        return APIError._by_err_code.get(err_code) or APIError._by_code.get(code) or APIError

    @staticmethod
    def from_response(error: Mapping[str, Any] | _ErrorFields, *, context: str = "") -> APIError:
        """The exception for the `error` of a reply; `context` names what was attempted."""
        if isinstance(error, Mapping):
            code, err_code = _number(error.get("code")), _number(error.get("err_code"))
            description = str(error.get("description", ""))
        else:
            code, err_code, description = error.code, error.err_code, error.description
        kind = APIError.class_for(code, err_code)
        attributes = {"retryable": True} if err_code in _RETRYABLE_ERR_CODES else {}
        return kind(
            _message(context, description, f"code {code}, err_code {err_code}", kind.advice),
            code=code,
            err_code=err_code,
            description=description,
            context=context,
            **attributes,
        )

    @classmethod
    def from_status(cls, status: int, description: str, *, context: str = "") -> APIError:
        """An exception of this class for a reply that was a bare status line."""
        return cls(
            _message(context, description, f"status {status}", cls.advice),
            code=status,
            description=description,
            context=context,
        )


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _message(context: str, description: str, codes: str, advice: str) -> str:
    text = f"{description or 'no reason given'} ({codes})"
    return (f"{context}: " if context else "") + text + (f"; {advice}" if advice else "")


# The families by `code`.


class BadRequestError(APIError, codes=[400], err_codes=[10003, 10056, 10131, 10132, 10193]):
    """The server did not accept the request as it was."""


class NotFoundError(APIError, codes=[404]):
    """What was asked for does not exist."""


class APITimeoutError(APIError, TimeoutError, codes=[408]):
    """The server gave up on the request."""


class ConflictError(APIError, codes=[409]):
    """The request conflicts with another one."""


class PreconditionFailedError(APIError, codes=[412]):
    """A condition of the request does not hold."""


class TooManyRequestsError(APIError, codes=[429], err_codes=[10167]):
    """The server has too much to do; nothing was stored."""

    retryable = True
    advice = "send more slowly, or retry later"


class InternalServerError(APIError, codes=[500]):
    """The server failed, or refused with a text that says why."""


class ServiceUnavailableError(APIError, codes=[503], err_codes=[10008, 10035]):
    """JetStream cannot answer now, for example because no leader is elected."""

    retryable = True


# The system and the account.


class JetStreamNotEnabledError(APIError, err_codes=[10076]):
    """JetStream is not enabled on the server."""

    advice = "start the server with JetStream enabled, or check the domain"


class JetStreamNotEnabledForAccountError(JetStreamNotEnabledError, err_codes=[10039]):
    """JetStream is not enabled for this account."""

    advice = "enable JetStream for the account, or connect as another user"


class RequiredAPILevelError(PreconditionFailedError, err_codes=[10185]):
    """The server is too old for what was asked."""

    advice = "upgrade the server, or do without the feature"


class NotSupportedError(APIError, err_codes=[10010, 10036]):
    """The server cannot do this, or silently ignored that it was asked."""


class InvalidJSONError(BadRequestError, err_codes=[10025]):
    """The request is not JSON, or has a field that this server does not know."""

    advice = "a field of a newer server cannot be used with this one"


class ClusterError(
    APIError,
    err_codes=[
        *(10004, 10006, 10007, 10009, 10040, 10041, 10044, 10048, 10075),
        *(10123, 10124, 10129, 10202, 10224, 10226),
    ],
):
    """The cluster could not handle the request; see `retryable`."""


class PlacementError(APIError, err_codes=[10005, 10011]):
    """No servers suit the replicas and the placement that were asked for."""


class AccountLimitError(APIError, err_codes=[10002, 10113, 10120, 10122]):
    """A limit of the account forbids it."""


class LimitReachedError(APIError, err_codes=[10026, 10027]):
    """There are as many streams or consumers as the limits allow."""


class InsufficientResourcesError(APIError, err_codes=[10023, 10028, 10047]):
    """The servers have not enough memory, storage or room for it."""

    retryable = True


class OfflineError(APIError, err_codes=[10118, 10119, 10194, 10195]):
    """The stream or consumer is offline, for example because its server is too old for it."""


# Streams.


class StreamNotFoundError(NotFoundError, err_codes=[10059]):
    """There is no such stream."""

    advice = "create it first, or check its name, the account and the domain"


class StreamReplacedError(StreamNotFoundError):
    """The stream was deleted and created again: its sequences mean other messages now."""

    advice = "begin to read it anew"


class StreamNameInUseError(APIError, err_codes=[10058, 10130]):
    """A stream of that name exists with another configuration."""

    advice = "update it instead, or choose another name"


class InvalidStreamConfigError(
    APIError,
    err_codes=[
        *(10021, 10022, 10024, *range(10030, 10035), 10046, 10052, 10053, 10055, 10061, 10074),
        *(10128, 10133, *range(10140, 10148), *range(10150, 10153), *range(10154, 10158)),
        *(10198, 10209, *range(10213, 10218)),
    ],
):
    """The server refused the configuration of a stream, or (10052) of a consumer."""


class StreamCreateError(APIError, err_codes=[10049]):
    """The stream could not be created."""


class StreamUpdateError(APIError, err_codes=[10069]):
    """The stream could not be updated."""


class StreamDeleteError(APIError, err_codes=[10050]):
    """The stream could not be deleted."""


class SubjectOverlapError(APIError, err_codes=[10065]):
    """Another stream has captured one of the subjects."""

    advice = "a subject can belong to one stream only"


class StreamSealedError(APIError, err_codes=[10109]):
    """The stream is sealed and does not change any more."""


class PurgeError(APIError, err_codes=[10110]):
    """The stream could not be purged, for example because of `deny_purge`."""


class TooManySubjectsError(APIError, err_codes=[10117]):
    """The stream has more subjects than its info can list."""

    advice = "ask with a narrower subjects_filter"


class MinLastSequenceError(PreconditionFailedError, err_codes=[10180]):
    """The stream has not reached the sequence that the request demands."""

    retryable = True


# Messages.


class MessageNotFoundError(NotFoundError, err_codes=[10037, 10043]):
    """The stream has no such message."""


class MessageDeleteError(APIError, err_codes=[10057]):
    """The message could not be deleted, for example because of `deny_delete`."""


class MessageTooLargeError(APIError, err_codes=[10054, 10097]):
    """Headers and payload exceed the `max_msg_size` of the stream, or the headers 64 KiB."""


class StoreFailedError(APIError, err_codes=[10077]):
    """The stream did not store the message: it is full and discards new ones."""


class ExpectedStreamMismatchError(APIError, err_codes=[10060]):
    """The subject belongs to another stream than the expected one."""


class WrongLastMessageIdError(APIError, err_codes=[10070]):
    """The last message has another id than the expected one."""


class WrongLastSequenceError(APIError, err_codes=[10071, 10164]):
    """The last sequence is not the expected one: someone else was faster."""

    @property
    def last_sequence(self) -> int | None:
        """The sequence that the server reported, for diagnostics; not every server tells it."""
        found = re.search(r"(\d+)\s*$", self.description)
        return int(found[1]) if found else None


class ExpectedSequenceNotReadyError(ServiceUnavailableError, err_codes=[10163]):
    """The expected sequence of a subject cannot be checked just now."""


class DuplicateInProcessError(ConflictError, err_codes=[10158]):
    """A message with the same id is being stored at this moment."""

    retryable = True


class RollupError(APIError, err_codes=[10111]):
    """The rollup was refused: the stream does not allow it, or its value is wrong."""


class InvalidMessageTTLError(APIError, err_codes=[10165]):
    """The TTL of a message is not valid."""

    advice = "a TTL is at least one second"


class MessageTTLDisabledError(APIError, err_codes=[10166]):
    """The stream does not allow a TTL for a message."""

    advice = "set allow_msg_ttl on the stream"


class CounterError(APIError, err_codes=range(10168, 10174)):
    """A counter message was refused, or a counter stream is not possible."""


class AtomicPublishError(
    APIError, err_codes=[*range(10174, 10178), 10179, 10199, 10200, 10201, 10210]
):
    """An atomic batch was refused; none of its messages was stored."""


class BatchPublishError(APIError, err_codes=[*range(10205, 10209), 10211]):
    """A fast-ingest batch was refused."""


class ScheduleError(APIError, err_codes=[*range(10186, 10193), 10203, 10212, 10223]):
    """A message schedule was refused, or the stream cannot have schedules."""


# Consumers.


class ConsumerNotFoundError(NotFoundError, err_codes=[10014]):
    """There is no such consumer."""

    advice = "create it first, or check its name; an idle ephemeral consumer is deleted"


class ConsumerDoesNotExistError(ConsumerNotFoundError, err_codes=[10149]):
    """The consumer to update does not exist."""


class ConsumerNameInUseError(APIError, err_codes=[10013]):
    """A consumer of that name exists with another configuration."""

    advice = "update it instead, or choose another name"


class ConsumerExistsError(ConsumerNameInUseError, err_codes=[10148]):
    """The consumer to create exists with another configuration."""


class ConsumerAlreadyActiveError(APIError, err_codes=[10105]):
    """A push consumer is already bound by another subscription."""


class ConsumerCreateError(APIError, err_codes=[10012, 10104]):
    """The consumer could not be created, or the update is not allowed."""


class ConsumerResetError(APIError, err_codes=[10204]):
    """The consumer cannot be reset to that sequence."""


class InvalidConsumerConfigError(
    APIError,
    err_codes=[
        *(*range(10078, 10096), *range(10098, 10104), *range(10106, 10109), 10112),
        *(*range(10114, 10117), 10121, *range(10125, 10128), 10134, 10135, 10137, 10153),
        *(*range(10159, 10163), 10178, *range(10181, 10185), 10196, 10197),
        *range(10218, 10223),
    ],
):
    """The server refused the configuration of a consumer."""


class FilterError(InvalidConsumerConfigError, err_codes=[10136, 10138, 10139]):
    """The filter subjects of a consumer are empty, overlap, or are given in two ways."""
