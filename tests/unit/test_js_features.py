"""Fields that a server may be too old for: which these are, and how they are found."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from jetspark import ConsumerConfig, StreamConfig, StreamSource
from jetspark.connection import Message
from jetspark.errors import InvalidOptionError, InvalidResponseError
from jetspark.jetstream import features
from jetspark.jetstream.codec import Config
from jetspark.jetstream.features import api_level, configure
from jetspark.jetstream.reading import _parse_direct

NEVER_SENT = {"sourcing"}


def documented(kind: type[Config]) -> dict[str, tuple[int, int]]:
    """The fields whose comments name a server of 2.10 or newer."""
    found = {}
    for line in inspect.getsource(kind).splitlines():
        match = re.match(r" {4}(\w+): .*#.*?\b2\.(\d+)\b", line)
        if match and int(match[2]) >= 10 and match[1] not in NEVER_SENT:
            found[match[1]] = (2, int(match[2]))
    return found


def test_every_newer_field_is_known() -> None:
    assert {**documented(StreamConfig), **documented(ConsumerConfig)} == features._FIELDS
    assert documented(StreamSource) == features._SOURCE_FIELDS


SENT: dict[str, Any] = {
    "name": "S",
    "allow_msg_ttl": True,
    "persist_mode": "async",
    "mirror": {"name": "M", "consumer": {}},
    "sources": [{"name": "A", "subject_transforms": []}, {"name": "B"}, {"name": "C"}],
}


def test_newer_fields_that_are_used() -> None:
    assert dict(features._used(SENT)) == {
        "allow_msg_ttl": (2, 11),
        "persist_mode": (2, 12),
        "mirror.consumer": (2, 14),
        "sources[0].subject_transforms": (2, 10),
    }


@pytest.mark.parametrize(
    ("answer", "missing"),
    [
        (SENT, set()),
        ({**SENT, "allow_msg_ttl": False}, set()),  # known, and decided otherwise
        ({**SENT, "mirror": {"name": "M"}}, {"mirror.consumer"}),
        ({**SENT, "mirror": None}, {"mirror.consumer"}),
        ({**SENT, "sources": [{"name": "A"}]}, {"sources[0].subject_transforms"}),
        ({**SENT, "sources": None}, set()),
        ({"name": "S"}, {"allow_msg_ttl", "persist_mode", "mirror.consumer"}),
    ],
)
def test_newer_fields_that_an_answer_lacks(answer: dict[str, Any], missing: set[str]) -> None:
    assert {name for name, _ in features._used(SENT, answer)} == missing


def test_newer_values() -> None:
    sent = {"ack_policy": "flow_control", "priority_policy": "prioritized"}
    used = {"priority_policy": (2, 11), "priority_policy='prioritized'": (2, 12)}
    assert dict(features._used(sent)) == {**used, "ack_policy='flow_control'": (2, 14)}


def test_levels() -> None:
    assert api_level({"_nats.level": "5"}) == 5
    assert api_level({}) == api_level({"_nats.level": "x"}) == 0
    assert features._parse("2.15.1-beta") == (2, 15)
    assert features._parse("") == (0, 0)


def test_configurations_are_given_in_three_ways() -> None:
    config = StreamConfig(name="S", max_msgs=1)
    assert configure(StreamConfig, config, {}) is config
    assert configure(StreamConfig, None, {"name": "S", "max_msgs": 1}) == config
    assert configure(StreamConfig, config, {"max_msgs": 2}).max_msgs == 2
    for wrong in ({"name": "S"}, "S", ConsumerConfig()):
        with pytest.raises(InvalidOptionError, match="give a StreamConfig"):
            configure(StreamConfig, wrong, {})  # type: ignore[arg-type]


# --- the answer to a direct get

ADDED = b"Nats-Stream: S\r\nNats-Subject: a.b\r\nNats-Sequence: 7\r\nNats-Time-Stamp: %b\r\n"
NEW_TIME, OLD_TIME = b"2022-09-01T10:00:00.5Z", b"2022-09-01 10:00:00.5 +0000 UTC"


def answer(block: bytes, data: bytes = b"x") -> Message:
    return Message(b"_INBOX.x", None, block, data, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("time", [NEW_TIME, OLD_TIME])
@pytest.mark.parametrize("headers", [b"", b"A: b\r\n", b"Nats-Stream: T\r\nNats-Sequence: 1\r\n"])
@pytest.mark.parametrize("batch", [b"", b"Nats-Num-Pending: 3\r\nNats-Last-Sequence: 6\r\n"])
@pytest.mark.parametrize("later", [b"", b"Nats-Newer: 1\r\n"])
def test_the_answer_to_a_direct_get(
    time: bytes, headers: bytes, batch: bytes, later: bytes
) -> None:
    block = b"NATS/1.0\r\n" + headers + ADDED % time + batch + later + b"\r\n"
    found = _parse_direct(answer(block))
    assert found is not None
    message, previous = found
    assert (message.stream, message.subject, message.sequence) == ("S", "a.b", 7)
    assert (message.data, message.timestamp.isoformat()) == (
        b"x",
        "2022-09-01T10:00:00.500000+00:00",
    )
    assert (message.num_pending, previous) == ((3, 6) if batch else (None, 0))
    assert message.raw_headers == (b"NATS/1.0\r\n" + headers + b"\r\n" if headers else None)


def test_a_stored_message_may_have_a_status_line_of_its_own() -> None:
    found = _parse_direct(answer(b"NATS/1.0 404 No\r\n" + ADDED % NEW_TIME + b"\r\n", b""))
    assert found is not None
    assert found.message.headers.status == 404


@pytest.mark.parametrize(
    "block", [b"NATS/1.0 404 Message Not Found\r\n\r\n", b"NATS/1.0\r\n\r\n", b""]
)
def test_a_status_is_no_message(block: bytes) -> None:
    assert _parse_direct(answer(block, b"")) is None


@pytest.mark.parametrize(
    "added",
    [b"", b"Nats-Subject: a\r\n", (ADDED % NEW_TIME).replace(b"7", b"x").partition(b"\n")[2]],
)
def test_an_answer_that_cannot_be_read(added: bytes) -> None:
    with pytest.raises(InvalidResponseError, match="direct get"):
        _parse_direct(answer(b"NATS/1.0\r\nNats-Stream: S\r\n" + added + b"\r\n"))
