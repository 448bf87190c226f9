"""The header blocks that the options of a published message make."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspark import Headers, Schedule
from jetspark.errors import (
    InvalidArgumentError,
    InvalidHeaderError,
    InvalidOptionError,
    InvalidStreamNameError,
)
from jetspark.jetstream.publish_headers import (
    MAX_BLOCK,
    header_block,
    message_data,
    message_headers,
)
from jetspark.protocol import encode_headers, parse_headers
from tests.support.conformance import conformance

NEW_YEAR = datetime(2030, 1, 1, tzinfo=UTC)


def block(**options: Any) -> dict[str, list[str]]:
    made = header_block(options)
    assert made is not None
    return parse_headers(made).to_dict()


@conformance("RUST", "Idempotent Publishing", "Nats-Msg-Id carries the id of a message")
@conformance("RUST", "Idempotent Publishing", "Nats-Expected-Last-Msg-Id expects the last id")
@conformance("RUST", "Idempotent Publishing", "Nats-Expected-Last-Sequence expects a sequence")
@conformance(
    "RUST", "Idempotent Publishing", "Nats-Expected-Last-Subject-Sequence expects one of a subject"
)
@pytest.mark.parametrize(
    ("options", "headers"),
    [
        ({"msg_id": "17"}, {"Nats-Msg-Id": ["17"]}),
        ({"msg_id": "two words"}, {"Nats-Msg-Id": ["two words"]}),
        ({"msg_id": "größe"}, {"Nats-Msg-Id": ["größe"]}),
        ({"expected_stream": "ORDERS"}, {"Nats-Expected-Stream": ["ORDERS"]}),
        ({"expected_last_sequence": 0}, {"Nats-Expected-Last-Sequence": ["0"]}),
        ({"expected_last_msg_id": "16"}, {"Nats-Expected-Last-Msg-Id": ["16"]}),
        (
            {"expected_last_subject_sequence": 5, "expected_last_subject_sequence_subject": "a.*"},
            {
                "Nats-Expected-Last-Subject-Sequence": ["5"],
                "Nats-Expected-Last-Subject-Sequence-Subject": ["a.*"],
            },
        ),
        ({"rollup": "sub"}, {"Nats-Rollup": ["sub"]}),
        ({"ttl": 10}, {"Nats-TTL": ["10s"]}),
        ({"ttl": 2.0}, {"Nats-TTL": ["2s"]}),
        ({"ttl": timedelta(days=2)}, {"Nats-TTL": ["172800s"]}),
        ({"ttl": "never"}, {"Nats-TTL": ["never"]}),
        ({"headers": {"A": ["1", "2"]}, "msg_id": "x"}, {"A": ["1", "2"], "Nats-Msg-Id": ["x"]}),
        ({"headers": {"Nats-Msg-Id": "old"}, "msg_id": "new"}, {"Nats-Msg-Id": ["new"]}),
    ],
)
def test_an_option_becomes_a_header(options: dict[str, Any], headers: dict[str, Any]) -> None:
    assert block(**options) == headers


def test_options_that_are_none_ask_for_nothing() -> None:
    assert header_block({}) is None
    assert header_block({"msg_id": None, "headers": None, "ttl": None}) is None
    assert block(msg_id="1", ttl=None) == {"Nats-Msg-Id": ["1"]}


def test_the_headers_of_the_caller_stay_as_they_are() -> None:
    mine = Headers({"A": "1"})
    message_headers({"headers": mine, "msg_id": "x"})
    assert mine == {"A": "1"}


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_the_short_cut_for_an_id_makes_the_same_block(msg_id: str) -> None:
    try:
        short = header_block({"msg_id": msg_id})
    except InvalidArgumentError:
        with pytest.raises(InvalidArgumentError):
            header_block({"msg_id": msg_id, "ttl": None})
        return
    assert short == header_block({"msg_id": msg_id, "ttl": None})
    assert short == encode_headers({"Nats-Msg-Id": msg_id})


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"msg_id": ""}, "msg_id"),
        ({"msg_id": " x"}, "msg_id"),
        ({"msg_id": 7}, "msg_id"),
        ({"msg_id": "a\r\nNats-Rollup: all"}, "line break"),
        ({"expected_last_sequence": -1}, "expected_last_sequence"),
        ({"expected_last_sequence": True}, "expected_last_sequence"),
        ({"expected_last_subject_sequence": "5"}, "expected_last_subject_sequence"),
        ({"expected_last_subject_sequence_subject": "a"}, "needs expected_last_subject_sequence"),
        (
            {"expected_last_subject_sequence": 1, "expected_last_subject_sequence_subject": "a b"},
            "expected_last_subject_sequence_subject",
        ),
        ({"rollup": "subject"}, "'sub' or 'all'"),
        ({"ttl": 0}, "ttl"),
        ({"ttl": 0.5}, "at least a second"),
        ({"ttl": 1.5}, "whole seconds"),
        ({"ttl": "1h"}, "never"),
        ({"ttl": float("inf")}, "ttl"),
        ({"schedule": "@daily"}, "Schedule"),
        ({"headers": [("a", "b")]}, "dict or Headers"),
        ({"headers": {"a b": "c"}}, "a b"),
        ({"mgs_id": "x"}, "did you mean msg_id"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_bad_option_is_refused_by_name(options: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidArgumentError, match=word):
        header_block(options)


def test_a_bad_stream_name_is_refused() -> None:
    with pytest.raises(InvalidStreamNameError, match="expected_stream"):
        header_block({"expected_stream": "a.b"})


def test_headers_that_no_stream_stores_are_refused() -> None:
    room = MAX_BLOCK - len(encode_headers({"A": ""}))
    fitting = header_block({"headers": {"A": "x" * room}})
    assert fitting is not None
    assert len(fitting) == MAX_BLOCK
    with pytest.raises(InvalidHeaderError, match="65536 bytes"):
        header_block({"headers": {"A": "x" * (room + 1)}})


def test_data_is_copied_unless_it_cannot_change() -> None:
    data = b"abc"
    assert message_data(data) is data
    buffer = bytearray(b"abc")
    copied = message_data(buffer)
    buffer[:] = b"xyz"
    assert copied == b"abc"
    assert message_data(memoryview(b"abc")) == b"abc"
    with pytest.raises(InvalidArgumentError, match="encode"):
        message_data("abc")


# --- schedules


@pytest.mark.parametrize(
    ("schedule", "headers"),
    [
        (
            Schedule.at(NEW_YEAR, "out"),
            {"Nats-Schedule": ["@at 2030-01-01T00:00:00Z"], "Nats-Schedule-Target": ["out"]},
        ),
        (
            Schedule.at(NEW_YEAR.astimezone(timezone(timedelta(hours=2))), "out"),
            {"Nats-Schedule": ["@at 2030-01-01T00:00:00Z"], "Nats-Schedule-Target": ["out"]},
        ),
        (
            Schedule.every(timedelta(minutes=5), "out", rollup=True),
            {
                "Nats-Schedule": ["@every 300s"],
                "Nats-Schedule-Target": ["out"],
                "Nats-Schedule-Rollup": ["sub"],
            },
        ),
        (
            Schedule.every(1.5, "out", source="latest", ttl="never"),
            {
                "Nats-Schedule": ["@every 1500000us"],
                "Nats-Schedule-Target": ["out"],
                "Nats-Schedule-Source": ["latest"],
                "Nats-Schedule-TTL": ["never"],
            },
        ),
        (
            Schedule.cron("0 30 9 * * mon-fri", "out", time_zone="Europe/Rome", ttl=60),
            {
                "Nats-Schedule": ["0 30 9 * * mon-fri"],
                "Nats-Schedule-Target": ["out"],
                "Nats-Schedule-TTL": ["60s"],
                "Nats-Schedule-Time-Zone": ["Europe/Rome"],
            },
        ),
        (
            Schedule.cron("@daily", "out"),
            {"Nats-Schedule": ["@daily"], "Nats-Schedule-Target": ["out"]},
        ),
    ],
)
def test_a_schedule_becomes_headers(schedule: Schedule, headers: dict[str, Any]) -> None:
    assert block(schedule=schedule) == headers


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: Schedule.at(datetime(2030, 1, 1), "out"), "tzinfo"),
        (lambda: Schedule.every(0.5, "out"), "at least a second"),
        (lambda: Schedule.cron("30 9 * * *", "out"), "six fields"),
        (lambda: Schedule.cron("@daily", "out.*"), "target"),
        (lambda: Schedule.cron("@daily", ""), "target"),
        (lambda: Schedule.cron("@daily", "out", source="out"), "source and target"),
        (lambda: Schedule.cron("@daily", "out", source="a b"), "source"),
        (lambda: Schedule.cron("@daily", "out", ttl=0.1), "ttl"),
        (lambda: Schedule("@every 5s", "out", time_zone="UTC"), "cron"),
    ],
)
def test_a_bad_schedule_is_refused(make: Any, word: str) -> None:
    with pytest.raises(InvalidOptionError, match=word):
        make()
