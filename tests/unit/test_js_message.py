"""The message of a consumer without a server: its metadata, and the bodies of its acks."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspark.connection import Client
from jetspark.errors import (
    InvalidArgumentError,
    MessageAlreadyAckedError,
    NotJetStreamMessageError,
)
from jetspark.jetstream.message import AckKind, JetStreamMessage, Metadata, parse_metadata
from tests.support.conformance import conformance

SHORT = b"$JS.ACK.ORDERS.worker.2.10.7.1700000000123456789.5"
LONG = b"$JS.ACK.hub.ACCOUNT.ORDERS.worker.2.10.7.1700000000123456789.5"


class Recorder:
    """In place of a client and its encoder: keeps what would be sent."""

    _restricted = False

    def __init__(self) -> None:
        self._encoder = self
        self.sent: list[tuple[bytes, bytes, bytes | None]] = []

    def publish_trusted(self, subject: bytes, data: bytes, reply: bytes | None = None) -> bool:
        self.sent.append((subject, data, reply))
        return False


def message(
    reply: bytes | None = SHORT, *, no_acks: bool = False
) -> tuple[JetStreamMessage, Recorder]:
    recorder = Recorder()
    made = JetStreamMessage(
        b"orders.1", reply, None, b"data", cast(Client, recorder), None, no_acks
    )
    return made, recorder


@conformance("RUST", "JetStream Message", "metadata is read from the reply subject")
def test_short_form() -> None:
    metadata = parse_metadata(SHORT)
    assert metadata == Metadata("ORDERS", "worker", 10, 7, 2, 5, 1700000000123456789)
    assert metadata.domain == ""
    assert metadata.timestamp == datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)
    assert metadata.redelivered


@conformance("RUST", "JetStream Message", "the longer reply subject has domain and account")
@pytest.mark.parametrize(
    ("reply", "domain"),
    [
        (LONG, "hub"),
        (LONG.replace(b".hub.", b"._."), ""),
        (LONG + b".rnd", "hub"),
        (LONG + b".more.tokens.9", "hub"),
    ],
)
def test_long_form(reply: bytes, domain: str) -> None:
    short = parse_metadata(SHORT)
    metadata = parse_metadata(reply)
    assert metadata.domain == domain
    assert metadata.timestamp_ns == short.timestamp_ns
    assert (metadata.stream, metadata.consumer) == ("ORDERS", "worker")
    assert (metadata.stream_sequence, metadata.consumer_sequence) == (10, 7)
    assert (metadata.num_delivered, metadata.num_pending) == (2, 5)


@pytest.mark.parametrize(
    "reply",
    [
        None,
        b"",
        b"_INBOX.abc",
        b"$JS.ACK",
        SHORT.rpartition(b".")[0],  # 8 tokens
        SHORT + b".1",  # 10 tokens
        SHORT.replace(b"$JS", b"$KV"),
        SHORT.replace(b"ACK", b"FC"),
        SHORT.replace(b".7.", b".x."),
        SHORT.replace(b".7.", b".-7."),
        SHORT.replace(b".7.", b".."),
        LONG.replace(b".7.", b".7a."),
    ],
)
def test_other_reply_subjects(reply: bytes | None) -> None:
    with pytest.raises(NotJetStreamMessageError):
        parse_metadata(reply)


@given(reply=st.binary(max_size=80) | st.lists(st.binary(max_size=4), max_size=14).map(b".".join))
def test_any_reply_subject_is_read_or_refused(reply: bytes) -> None:
    with suppress(NotJetStreamMessageError):
        parse_metadata(b"$JS.ACK." + reply)


def test_names_that_are_not_utf_8() -> None:
    assert parse_metadata(SHORT.replace(b"ORDERS", b"\xff")).stream == "\udcff"


@given(
    numbers=st.tuples(*[st.integers(0, 2**64 - 1)] * 4, st.integers(0, 2**63 - 1)),
    long=st.booleans(),
)
def test_numbers_survive(numbers: tuple[int, ...], long: bool) -> None:
    delivered, sequence, consumer_sequence, pending, time = numbers
    prefix = "$JS.ACK._.HASH." if long else "$JS.ACK."
    reply = f"{prefix}S.c.{delivered}.{sequence}.{consumer_sequence}.{time}.{pending}".encode()
    metadata = parse_metadata(reply)
    assert metadata == Metadata("S", "c", sequence, consumer_sequence, delivered, pending, time)
    assert metadata.redelivered == (delivered > 1)


def test_metadata_is_parsed_once() -> None:
    made, _ = message()
    assert made.metadata is made.metadata
    assert made.subject == "orders.1"


@conformance("RUST", "Acknowledgment", "each kind has its body")
@pytest.mark.parametrize(
    ("call", "arguments", "body"),
    [
        ("ack", {}, b"+ACK"),
        ("nak", {}, b"-NAK"),
        ("term", {}, b"+TERM"),
        ("term", {"reason": "not ours"}, b"+TERM not ours"),
        ("in_progress", {}, b"+WPI"),
        ("ack_with", {"kind": AckKind.ACK}, b"+ACK"),
        ("ack_with", {"kind": AckKind.NAK}, b"-NAK"),
        ("ack_with", {"kind": AckKind.PROGRESS}, b"+WPI"),
        ("ack_with", {"kind": AckKind.TERM}, b"+TERM"),
        ("ack_with", {"kind": AckKind.NEXT}, b"+NXT"),
    ],
)
async def test_bodies(call: str, arguments: dict[str, Any], body: bytes) -> None:
    made, recorder = message()
    await getattr(made, call)(**arguments)
    assert recorder.sent == [(SHORT, body, None)]
    assert made.acked == (body != b"+WPI")


@pytest.mark.parametrize("delay", [1.5, timedelta(seconds=1.5)])
async def test_nak_with_a_delay(delay: float | timedelta) -> None:
    made, recorder = message()
    await made.nak(delay)
    kind, _, body = recorder.sent[0][1].partition(b" ")
    assert kind == b"-NAK"
    assert json.loads(body) == {"delay": 1_500_000_000}


@conformance("RUST", "Acknowledgment", "a message is acknowledged once")
@pytest.mark.parametrize("first", ["ack", "nak", "term"])
async def test_terminal_once(first: str) -> None:
    made, recorder = message()
    await getattr(made, first)()
    for later in ("ack", "nak", "term", "in_progress", "double_ack"):
        await getattr(made, later)()
    assert len(recorder.sent) == 1
    with pytest.raises(MessageAlreadyAckedError, match=r"orders\.1"):
        await made.ack_next()


async def test_in_progress_may_be_repeated() -> None:
    made, recorder = message()
    await made.in_progress()
    await made.in_progress()
    await made.ack()
    assert [body for _, body, _ in recorder.sent] == [b"+WPI", b"+WPI", b"+ACK"]


async def test_consumer_without_acks() -> None:
    made, recorder = message(no_acks=True)
    for call in ("ack", "nak", "term", "in_progress", "double_ack"):
        await getattr(made, call)()
    with pytest.raises(InvalidArgumentError):
        await made.ack_next()
    assert recorder.sent == []
    assert not made.acked


@pytest.mark.parametrize("reply", [None, b"_INBOX.x"])
@pytest.mark.parametrize("call", ["ack", "nak", "term", "in_progress", "double_ack", "ack_next"])
async def test_message_of_no_consumer(reply: bytes | None, call: str) -> None:
    made, recorder = message(reply)
    with pytest.raises(NotJetStreamMessageError, match="consumer"):
        await getattr(made, call)()
    assert recorder.sent == []
    assert not made.acked
    with pytest.raises(NotJetStreamMessageError):
        assert made.metadata
