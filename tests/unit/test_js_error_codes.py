"""The list of error codes and the script that makes it."""

from __future__ import annotations

import enum

import pytest

from jetspark import error_codes
from jetspark.error_codes import ErrorCode
from scripts.generate_error_codes import generate, python_name


def test_all_codes_of_the_server_are_there() -> None:
    assert len(ErrorCode) == 226
    assert [int(code) for code in ErrorCode] == [*range(10002, 10228)]


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (10003, "BAD_REQUEST"),
        (10014, "CONSUMER_NOT_FOUND"),
        (10025, "INVALID_JSON"),
        (10052, "STREAM_INVALID_CONFIG"),
        (10059, "STREAM_NOT_FOUND"),
        (10071, "STREAM_WRONG_LAST_SEQUENCE"),
        (10227, "MESSAGE_SOURCE_HDR_NOT_ALLOWED"),
    ],
)
def test_codes_have_names(code: int, name: str) -> None:
    assert ErrorCode(code).name == name
    assert ErrorCode(code) == code


@pytest.mark.parametrize(
    ("constant", "name"),
    [
        ("JSStreamNotFoundErr", "STREAM_NOT_FOUND"),
        ("JSStreamWrongLastMsgIDErrF", "STREAM_WRONG_LAST_MSG_ID"),
        ("JSStreamInvalidConfigF", "STREAM_INVALID_CONFIG"),
        ("JSStreamGeneralErrorF", "STREAM_GENERAL_ERROR"),
        ("JSConsumerAckFCRequiresFCErr", "CONSUMER_ACK_FC_REQUIRES_FC"),
        ("JSMessageTTLInvalidErr", "MESSAGE_TTL_INVALID"),
        ("JSStreamMaxBytesRequired", "STREAM_MAX_BYTES_REQUIRED"),
        ("JSInvalidJSONErr", "INVALID_JSON"),
    ],
)
def test_python_names(constant: str, name: str) -> None:
    assert python_name(constant) == name


def test_the_script_writes_a_module_in_the_order_of_the_codes() -> None:
    text = generate(
        [
            {"name": "JSStreamNotFoundErr", "code": 404, "err_code": 10059},
            {"name": "JSBadRequestErr", "code": 400, "err_code": 10003},
        ]
    )
    module: dict[str, type[enum.IntEnum]] = {}
    exec(compile(text, "error_codes", "exec"), module)
    assert [(code.name, int(code)) for code in module["ErrorCode"]] == [
        ("BAD_REQUEST", 10003),
        ("STREAM_NOT_FOUND", 10059),
    ]
    assert text.startswith(f'"""{(error_codes.__doc__ or "").splitlines()[0]}')


def test_the_script_refuses_two_constants_of_one_name() -> None:
    twice = {"name": "JSBadRequestErr", "code": 400, "err_code": 10003}
    with pytest.raises(SystemExit, match="BAD_REQUEST"):
        generate([twice, {**twice, "err_code": 10004}])
