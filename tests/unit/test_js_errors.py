"""The tree of errors, the registry of codes, and what status lines become."""

from __future__ import annotations

import inspect
import pickle
import re
from types import SimpleNamespace

import pytest

from jetspark import errors
from jetspark.error_codes import ErrorCode
from jetspark.errors import APIError, JetSparkError, JetStreamError, status_error

CLASSES = [
    value for value in (getattr(errors, name) for name in errors.__all__) if inspect.isclass(value)
]


def in_tree() -> list[tuple[str, str]]:
    """Each class and its parent, as the docstring draws them."""
    assert errors.__doc__ is not None
    path: list[str] = []
    found = []
    for line in errors.__doc__.splitlines():
        match = re.match(r" {4}((?:[│ ] {3})*)(?:[├└]── )?(\w+Error)\b", line)
        if match:
            depth = len(match[1]) // 4 + ("── " in line)
            path[depth:] = [match[2]]
            found.append((match[2], path[depth - 1] if depth else "Exception"))
    return found


def test_the_docstring_draws_the_whole_tree() -> None:
    real = {(cls.__name__, cls.__bases__[0].__name__) for cls in CLASSES}
    drawn = in_tree()
    assert len(drawn) == len(set(drawn))
    assert set(drawn) == real


def test_every_class_is_exported_under_its_public_name() -> None:
    assert len(errors.__all__) == len(set(errors.__all__))
    for cls in CLASSES:
        assert issubclass(cls, JetSparkError)
        assert cls.__module__ == "jetspark.errors"
        assert cls.__doc__


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_pickle_keeps_type_message_and_attributes(cls: type[JetSparkError]) -> None:
    error = cls("went wrong", code=404, err_code=10059, subject="a.b", retryable=True)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert str(copy) == "went wrong"
    assert copy.__dict__ == error.__dict__
    assert copy.retryable is True


@pytest.mark.parametrize("code", ErrorCode, ids=lambda code: code.name)
def test_errors_of_the_registry_pickle(code: ErrorCode) -> None:
    error = APIError.from_response(
        {"code": 400, "err_code": int(code), "description": "no"}, context="try"
    )
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (copy.code, copy.err_code, copy.description) == (400, code, "no")
    assert copy.retryable == error.retryable


@pytest.mark.parametrize(
    ("err_codes", "expected"),
    [
        ([10002, 10113, 10120, 10122], errors.AccountLimitError),
        ([10003, 10056, 10131, 10132, 10193], errors.BadRequestError),
        ([10004, 10006, 10007, 10009], errors.ClusterError),
        ([10005], errors.PlacementError),
        ([10008, 10035], errors.ServiceUnavailableError),
        ([10012], errors.ConsumerCreateError),
        ([10013], errors.ConsumerNameInUseError),
        ([10014], errors.ConsumerNotFoundError),
        ([10023, 10028, 10047], errors.InsufficientResourcesError),
        ([10025], errors.InvalidJSONError),
        ([10026, 10027], errors.LimitReachedError),
        ([10034, 10052, 10055, 10074, 10157], errors.InvalidStreamConfigError),
        ([10036], errors.NotSupportedError),
        ([10037, 10043], errors.MessageNotFoundError),
        ([10039], errors.JetStreamNotEnabledForAccountError),
        ([10049], errors.StreamCreateError),
        ([10050], errors.StreamDeleteError),
        ([10054, 10097], errors.MessageTooLargeError),
        ([10057], errors.MessageDeleteError),
        ([10058], errors.StreamNameInUseError),
        ([10059], errors.StreamNotFoundError),
        ([10060], errors.ExpectedStreamMismatchError),
        ([10065], errors.SubjectOverlapError),
        ([10069], errors.StreamUpdateError),
        ([10070], errors.WrongLastMessageIdError),
        ([10071, 10164], errors.WrongLastSequenceError),
        ([10076], errors.JetStreamNotEnabledError),
        ([10077], errors.StoreFailedError),
        (
            [*range(10083, 10096), 10112, 10116, 10160, 10162, 10178, 10196, 10218],
            errors.InvalidConsumerConfigError,
        ),
        ([10105], errors.ConsumerAlreadyActiveError),
        ([10109], errors.StreamSealedError),
        ([10110], errors.PurgeError),
        ([10111], errors.RollupError),
        ([10117], errors.TooManySubjectsError),
        ([10118, 10119, 10194, 10195], errors.OfflineError),
        ([10136, 10138, 10139], errors.FilterError),
        ([10148], errors.ConsumerExistsError),
        ([10149], errors.ConsumerDoesNotExistError),
        ([10158], errors.DuplicateInProcessError),
        ([10163], errors.ExpectedSequenceNotReadyError),
        ([10165], errors.InvalidMessageTTLError),
        ([10166], errors.MessageTTLDisabledError),
        ([10167], errors.TooManyRequestsError),
        ([*range(10168, 10174)], errors.CounterError),
        ([*range(10174, 10178), 10179, 10199, 10200, 10201, 10210], errors.AtomicPublishError),
        ([10180], errors.MinLastSequenceError),
        ([10185], errors.RequiredAPILevelError),
        ([*range(10186, 10193), 10203, 10212, 10223], errors.ScheduleError),
        ([10204], errors.ConsumerResetError),
        ([*range(10205, 10209), 10211], errors.BatchPublishError),
    ],
    ids=lambda value: value.__name__ if inspect.isclass(value) else "",
)
def test_the_err_code_chooses_the_class(err_codes: list[int], expected: type[APIError]) -> None:
    for err_code in err_codes:
        # The code is of another family on purpose: it must not matter.
        assert APIError.class_for(418, err_code) is expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (400, errors.BadRequestError),
        (404, errors.NotFoundError),
        (408, errors.APITimeoutError),
        (409, errors.ConflictError),
        (412, errors.PreconditionFailedError),
        (429, errors.TooManyRequestsError),
        (500, errors.InternalServerError),
        (503, errors.ServiceUnavailableError),
        (418, APIError),
    ],
)
def test_an_unknown_err_code_falls_back_to_the_family(code: int, expected: type[APIError]) -> None:
    error = APIError.from_response({"code": code, "err_code": 19999, "description": "new"})
    assert type(error) is expected
    assert error.err_code == 19999


def test_the_registry_has_only_codes_that_exist() -> None:
    assert set(APIError._by_err_code) <= {int(code) for code in ErrorCode}


def test_a_code_belongs_to_one_class() -> None:
    with pytest.raises(TypeError, match="StreamNotFoundError"):

        class Second(APIError, err_codes=[10059]):
            pass


def test_the_message_says_what_was_attempted_and_what_to_do() -> None:
    error = APIError.from_response(
        {"code": 404, "err_code": 10059, "description": "stream not found"},
        context="get stream 'ORDERS'",
    )
    text = str(error)
    for part in ("get stream 'ORDERS'", "stream not found", "404", "10059", "create it first"):
        assert part in text
    assert (error.code, error.err_code, error.description) == (404, 10059, "stream not found")
    assert error.context == "get stream 'ORDERS'"
    assert not error.may_have_taken_effect


def test_an_error_may_be_a_struct() -> None:
    detail = SimpleNamespace(code=400, err_code=10071, description="wrong last sequence: 7")
    error = APIError.from_response(detail, context="update key")
    assert isinstance(error, errors.WrongLastSequenceError)
    assert error.last_sequence == 7


def test_fields_of_a_wrong_type_do_not_hide_the_error() -> None:
    error = APIError.from_response({"code": "x", "err_code": [1], "description": None})
    assert type(error) is APIError
    assert (error.code, error.err_code) == (0, 0)


def test_the_last_sequence_is_not_always_known() -> None:
    error = APIError.from_response(
        {"code": 400, "err_code": 10164, "description": "wrong last sequence"}
    )
    assert isinstance(error, errors.WrongLastSequenceError)
    assert error.last_sequence is None


RETRYABLE = {10004, 10008, 10009, 10023, 10158, 10163, 10167, 10210, 10211}
FINAL = {10002, 10006, 10014, 10039, 10052, 10059, 10071, 10076, 10077, 10174, 10205}


@pytest.mark.parametrize("err_code", sorted(RETRYABLE | FINAL))
def test_whether_a_retry_may_help(err_code: int) -> None:
    error = APIError.from_response({"code": 500, "err_code": err_code, "description": ""})
    assert error.retryable == (err_code in RETRYABLE)


@pytest.mark.parametrize(
    ("special", "general"),
    [
        (errors.KeyExistsError, errors.WrongLastSequenceError),
        (errors.RevisionMismatchError, errors.WrongLastSequenceError),
        (errors.BucketNotFoundError, errors.StreamNotFoundError),
        (errors.BucketExistsError, errors.StreamNameInUseError),
        (errors.KeyNotFoundError, errors.NotFoundError),
        (errors.KeyDeletedError, errors.KeyNotFoundError),
        (errors.ObjectNotFoundError, errors.NotFoundError),
        (errors.ConsumerDoesNotExistError, errors.ConsumerNotFoundError),
        (errors.ConsumerIsPushError, errors.NotPullConsumerError),
        (errors.NoStreamResponseError, errors.NoRespondersError),
        (errors.RequestExpiredError, TimeoutError),
        (errors.InvalidStreamNameError, ValueError),
        (errors.InvalidKeyError, errors.InvalidOptionError),
        (errors.InvalidAckError, errors.InvalidResponseError),
    ],
)
def test_general_handlers_see_special_errors(
    special: type[Exception], general: type[Exception]
) -> None:
    assert issubclass(special, general)


@pytest.mark.parametrize(
    ("status", "description", "expected", "retryable"),
    [
        (400, "Bad Request - Priority Group missing", errors.BadPullRequestError, False),
        (404, "No Messages", errors.NoMessagesError, True),
        (404, "Message Not Found", errors.MessageNotFoundError, False),
        (404, "No Results", errors.MessageNotFoundError, False),
        (408, "Request Timeout", errors.RequestExpiredError, True),
        (408, "Interest Expired", errors.RequestExpiredError, True),
        (408, "Requests Pending", errors.RequestExpiredError, True),
        (408, "Empty Request", errors.BadRequestError, False),
        (408, "Bad Request", errors.BadRequestError, False),
        (408, "Malformed Request", errors.BadRequestError, False),
        (409, "Consumer Deleted", errors.ConsumerDeletedError, False),
        (409, "Consumer is push based", errors.ConsumerIsPushError, False),
        (409, "Leadership Change", errors.LeadershipChangedError, True),
        (409, "Server Shutdown", errors.ServerShutdownError, True),
        (409, "Batch Completed", errors.BatchCompletedError, False),
        (409, "Message Size Exceeds MaxBytes", errors.MaxBytesExceededError, False),
        (409, "Exceeded MaxWaiting", errors.MaxWaitingExceededError, True),
        (409, "Exceeded MaxRequestBatch of 10", errors.RequestLimitError, False),
        (409, "Exceeded MaxRequestExpires of 1s", errors.RequestLimitError, False),
        (409, "Exceeded MaxRequestMaxBytes of 10", errors.RequestLimitError, False),
        (409, "Something New", errors.StatusError, False),
        (412, "Required Api Level", errors.RequiredAPILevelError, False),
        (413, "Too Many Results", errors.TooManyResultsError, False),
        (423, "Nats-Pin-Id mismatch", errors.PinIdMismatchError, True),
        (423, "Nats-Wrong-Pin-Id", errors.PinIdMismatchError, True),
        (429, "Too Many Requests", errors.TooManyRequestsError, True),
        (500, "internal", errors.StatusError, False),
        (503, "", errors.NoStreamResponseError, True),
        (599, "", errors.StatusError, False),
    ],
)
def test_status_lines(
    status: int, description: str, expected: type[JetStreamError], retryable: bool
) -> None:
    for text in (description, description.upper()):
        error = status_error(status, text, context="fetch from 'C'")
        assert type(error) is expected
        assert error.retryable == retryable
        assert "fetch from 'C'" in str(error)
        assert str(status) in str(error)
        assert text in str(error)
        assert type(pickle.loads(pickle.dumps(error))) is expected


def test_status_errors_carry_the_status_line() -> None:
    error = status_error(409, "Consumer Deleted")
    assert isinstance(error, errors.StatusError)
    assert (error.status, error.description) == (409, "Consumer Deleted")
    missing = status_error(404, "Message Not Found")
    assert isinstance(missing, errors.MessageNotFoundError)
    assert (missing.code, missing.err_code) == (404, 0)
