"""Entries: what they tell, from each place that they come from."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

from jetspark import Base64KeyCodec, JSONCodec, KeyValueEntry, KeyValueOperation, StoredMessage
from jetspark.errors import InvalidArgumentError, InvalidKeyError
from jetspark.kv.entry import EntryForm, operation_of
from tests.support.conformance import conformance

SECTION = "3. Headers"
PUT, DELETE, PURGE = KeyValueOperation
SHORT = b"$JS.ACK.KV_b.cons.1.7.3.1577836800123456789.4"
LONG = b"$JS.ACK.hub.HASH.KV_b.cons.1.7.3.1577836800123456789.4"
LONGEST = LONG + b".random"
ADDED = (
    b"\r\nNats-Stream: KV_b\r\nNats-Subject: $KV.b.k\r\nNats-Sequence: 7\r\n"
    b"Nats-Time-Stamp: 2020-01-01T00:00:00.123456789Z\r\n\r\n"
)
TIME = datetime(2020, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)


def form(codec: Any = None, key_codec: Any = None) -> EntryForm[Any]:
    return EntryForm("b", "$KV.b.", codec, key_codec)


def block(*lines: str) -> bytes:
    return "\r\n".join(["NATS/1.0", *lines, "", ""]).encode()


def entry(header: bytes | None = None, data: bytes = b"v", **options: Any) -> KeyValueEntry[Any]:
    return KeyValueEntry(form(**options), "k", header, data, SHORT)


@conformance("KV", SECTION, "the operation: KV-Operation first, then Nats-Marker-Reason, else PUT")
@pytest.mark.parametrize(
    ("lines", "operation"),
    [
        (["A: b"], PUT),
        (["KV-Operation: PUT"], PUT),
        (["KV-Operation: DEL"], DELETE),
        (["KV-Operation: PURGE", "Nats-Rollup: sub"], PURGE),
        (["KV-Operation: DEL", "Nats-Marker-Reason: MaxAge"], DELETE),
        (["KV-Operation: PUT", "Nats-Marker-Reason: MaxAge"], PUT),
        (["Nats-Marker-Reason: MaxAge"], PURGE),
        (["Nats-Marker-Reason: Purge"], PURGE),
        (["Nats-Marker-Reason: Remove"], DELETE),
        (["KV-Operation: "], PUT),
        (["X: KV-Operation"], PUT),
    ],
)
def test_operations(lines: list[str], operation: KeyValueOperation) -> None:
    assert operation_of(block(*lines)) is operation
    assert entry(block(*lines)).operation is operation
    assert entry(block(*lines)).deleted is (operation is not PUT)


@conformance("KV", SECTION, "any other operation means that the key is deleted")
@pytest.mark.parametrize("line", ["KV-Operation: NEW", "Nats-Marker-Reason: New"])
def test_operations_of_the_future(line: str) -> None:
    assert operation_of(block(line)) is DELETE


def test_without_headers_it_is_a_put() -> None:
    assert operation_of(None) is PUT
    assert not entry().deleted


@conformance("KV", "6. Watch, keys, history", "reply subjects of 9 and of 11 and more tokens")
@pytest.mark.parametrize("reply", [SHORT, LONG, LONGEST])
def test_from_a_consumer(reply: bytes) -> None:
    found = KeyValueEntry(form(), "k", None, b"v", reply)
    assert (found.bucket, found.key, found.value, found.revision) == ("b", "k", b"v", 7)
    assert (found.created, found.delta, found.operation) == (TIME, 4, PUT)
    assert repr(found) == "<KeyValueEntry 'k' revision 7 of bucket 'b' PUT b'v'>"


def test_from_a_direct_get() -> None:
    found = form().of_direct("k", b"NATS/1.0" + ADDED, b"")
    assert found is not None
    assert (found.key, found.value, found.revision, found.created) == ("k", b"", 7, TIME)
    assert (found.delta, found.size, found.deleted) == (0, 0, False)


@conformance("KV", "4. Reads", "of headers with the same name, those of the server come last")
def test_from_a_direct_get_of_a_copy() -> None:
    stored = b"NATS/1.0" + ADDED.replace(b": 7", b": 1").replace(b"2020", b"1999")[:-4]
    found = form().of_direct("k", stored + b"\r\nKV-Operation: DEL" + ADDED, b"")
    assert found is not None
    assert (found.revision, found.created, found.operation) == (7, TIME, DELETE)


@conformance("KV", "4. Reads", "a status is told by its line, not by empty data")
def test_a_status_is_no_entry() -> None:
    assert form().of_direct("k", b"NATS/1.0 404 Message Not Found\r\n\r\n", b"") is None


def test_from_a_stored_message() -> None:
    message = StoredMessage(
        "KV_b", "$KV.b.k", 7, b"v", block("KV-Operation: DEL"), "2020-01-01T00:00:00.123456789Z"
    )
    found = form().of_stored(message)
    assert (found.key, found.value, found.revision, found.created) == ("k", b"v", 7, TIME)
    assert (found.operation, found.delta) == (DELETE, 0)


def test_typed_values_are_decoded_when_they_are_wanted() -> None:
    found = entry(data=b'{"a":1}', codec=JSONCodec())
    assert found.value == {"a": 1}
    assert found.value is found.value
    assert found.raw_value == b'{"a":1}'


def test_a_value_that_the_codec_does_not_understand() -> None:
    with pytest.raises(ValueError) as caught:
        _ = entry(data=b"{", codec=JSONCodec()).value
    assert "'k' revision 7 of bucket 'b'" in caught.value.__notes__[0]


def test_an_entry_without_a_value() -> None:
    deleted = block("KV-Operation: DEL")
    assert entry(deleted, b"").value == b""
    for header in (deleted, block("Nats-Msg-Size: 5")):
        with pytest.raises(InvalidArgumentError, match="has no value"):
            _ = entry(header, b"", codec=JSONCodec()).value


def test_the_size_of_a_value_that_was_left_out() -> None:
    header = block("Nats-Msg-Size: 1", "Nats-Msg-Size: 12345")
    assert entry(header, b"").size == 12345
    assert entry(block("A: b"), b"").size == 0
    assert entry(None, b"four").size == 4


def test_a_key_codec() -> None:
    found = KeyValueEntry(form(None, Base64KeyCodec()), "YQ.Yg", None, b"", SHORT)
    assert found.key == "a.b"
    assert repr(found) == "<KeyValueEntry 'a.b' revision 7 of bucket 'b' PUT b''>"


def test_a_key_that_the_codec_does_not_know() -> None:
    found = KeyValueEntry(form(None, Base64KeyCodec()), "no/base64", None, b"", SHORT)
    assert repr(found) == "<KeyValueEntry 'no/base64' revision 7 of bucket 'b' PUT b''>"
    with pytest.raises(InvalidKeyError, match="'no/base64' was not written by this codec"):
        _ = found.key


def test_entries_pickle() -> None:
    found = pickle.loads(pickle.dumps(entry(data=b"[1]", codec=JSONCodec())))
    assert (found.key, found.value, found.revision) == ("k", [1], 7)
    assert len(repr(entry(data=bytes(1000)))) < 250
