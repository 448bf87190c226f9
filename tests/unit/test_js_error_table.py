"""The error codes that the account of async-nats lists, with the numbers that servers use.

Its own numbers are wrong, all but one; the names are what its readers look for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from jetspark import errors
from jetspark.errors import APIError, status_error
from tests.support.conformance import conformance

F = TypeVar("F", bound=Callable[..., Any])

BY_CODE: dict[str, tuple[int, int, type[Exception]]] = {
    "STREAM_NOT_FOUND": (404, 10059, errors.StreamNotFoundError),
    "CONSUMER_NOT_FOUND": (404, 10014, errors.ConsumerNotFoundError),
    "STREAM_WRONG_LAST_SEQ": (400, 10071, errors.WrongLastSequenceError),
    "STREAM_NAME_EXISTS": (400, 10058, errors.StreamNameInUseError),
    "CONSUMER_NAME_EXISTS": (400, 10013, errors.ConsumerNameInUseError),
    "INSUFFICIENT_RESOURCES": (503, 10023, errors.InsufficientResourcesError),
    "NO_MESSAGE_FOUND": (404, 10037, errors.MessageNotFoundError),
    "CONSUMER_EXISTS": (400, 10148, errors.ConsumerExistsError),
    "CLUSTER_NOT_ACTIVE": (500, 10006, errors.ClusterError),
    "CLUSTER_NOT_LEADER": (500, 10009, errors.ClusterError),
    "CLUSTER_NOT_ENOUGH_PEERS": (400, 10005, errors.PlacementError),
    "CLUSTER_INCOMPLETE": (503, 10004, errors.ClusterError),
    "CONSUMER_BAD_SUBJECT": (400, 10112, errors.InvalidConsumerConfigError),
}
# These have no number of their own: the coarse code, or a status, tells of them.
WITHOUT_A_CODE = {
    "NOT_FOUND": (404, errors.NotFoundError),
    "REQUEST_NOT_FOUND": (404, errors.NotFoundError),
    "STREAM_NOT_CONFIGURED": (500, errors.InternalServerError),
    "CONSUMER_BAD_ACK": (400, errors.BadRequestError),
}


def rows(test: F) -> F:
    for name, (_, err_code, _) in BY_CODE.items():
        test = conformance("RUST", "JetStream Error Codes", f"{name} is {err_code}")(test)
    return test


def rows_without_a_code(test: F) -> F:
    for name, (code, _) in WITHOUT_A_CODE.items():
        row = f"{name} has no number; code {code} tells of it"
        test = conformance("RUST", "JetStream Error Codes", row)(test)
    return test


@rows
@pytest.mark.parametrize("name", BY_CODE)
def test_error_code(name: str) -> None:
    code, err_code, kind = BY_CODE[name]
    error = APIError.from_response(
        {"code": code, "err_code": err_code, "description": name.lower()}, context="test"
    )
    assert type(error) is kind
    assert (error.code, error.err_code) == (code, err_code)


@rows_without_a_code
@pytest.mark.parametrize("name", WITHOUT_A_CODE)
def test_code_without_a_number(name: str) -> None:
    code, kind = WITHOUT_A_CODE[name]
    error = APIError.from_response(
        {"code": code, "err_code": 0, "description": name.lower()}, context="test"
    )
    assert type(error) is kind


@conformance("RUST", "JetStream Error Codes", "CONSUMER_DELETED is the status 409")
@conformance("RUST", "JetStream Error Codes", "CONSUMER_DELETED_DRIFT is the status 409")
def test_deleted_consumer_is_a_status() -> None:
    error = status_error(409, "Consumer Deleted", context="test")
    assert isinstance(error, errors.ConsumerDeletedError)
