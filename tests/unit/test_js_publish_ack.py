"""The acknowledgement of a publish."""

from __future__ import annotations

import pickle

import pytest

from jetspark import errors
from jetspark.jetstream.publish_ack import PublishAck, decode_publish_ack


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b'{"stream":"S","seq":22}', PublishAck("S", 22)),
        (b'{"stream":"S","seq":18446744073709551615}', PublishAck("S", 2**64 - 1)),
        (b'{"stream":"S", "seq":22, "duplicate": true}', PublishAck("S", 22, duplicate=True)),
        (b'{"stream":"S","domain":"hub","seq":1}', PublishAck("S", 1, domain="hub")),
        (
            b'{"stream":"S","seq":3,"batch":"b1","count":3}',
            PublishAck("S", 3, batch_id="b1", batch_size=3),
        ),
        (b'{"stream":"S","seq":1,"of_a_newer_server":[1]}', PublishAck("S", 1)),
        (b'{"error":null,"stream":"S","seq":1}', PublishAck("S", 1)),
    ],
)
def test_acks(payload: bytes, expected: PublishAck) -> None:
    ack = decode_publish_ack(payload, "a.b")
    assert ack == expected
    assert ack.value is None
    assert pickle.loads(pickle.dumps(ack)) == ack


def test_a_counter_has_a_value_of_any_size() -> None:
    digits = "-" + "9" * 40
    ack = decode_publish_ack(f'{{"stream":"S","seq":1,"val":"{digits}"}}'.encode(), "a")
    assert ack.value == int(digits)


def test_an_error_is_raised_although_there_is_a_stream() -> None:
    payload = (
        b'{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 5"},'
        b'"stream":"S","seq":0}'
    )
    with pytest.raises(errors.WrongLastSequenceError, match=r"publish to 'a\.b'") as caught:
        decode_publish_ack(payload, "a.b")
    assert caught.value.last_sequence == 5


def test_a_duplicate_of_what_is_not_stored_yet() -> None:
    """As 2.10 says it; later servers send the error."""
    with pytest.raises(errors.DuplicateInProcessError, match="publish to 'a'"):
        decode_publish_ack(b'{"stream":"S","seq":0,"duplicate":true}', "a")


def test_an_error_without_a_stream() -> None:
    payload = b'{"error":{"code":429,"err_code":10167,"description":"too many requests"}}'
    with pytest.raises(errors.TooManyRequestsError) as caught:
        decode_publish_ack(payload, "a")
    assert caught.value.retryable


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"+OK",
        b"[]",
        b"{}",
        b'{"seq":1}',
        b'{"stream":"","seq":1}',
        b'{"stream":5,"seq":1}',
        b'{"stream":"S","seq":"1"}',
        b'{"stream":"\xff","seq":1}',
        b'{"error":"x"}',
    ],
)
def test_what_is_no_ack(payload: bytes) -> None:
    with pytest.raises(errors.InvalidAckError, match=r"publish to 'a\.b'") as caught:
        decode_publish_ack(payload, "a.b")
    assert caught.value.may_have_taken_effect
