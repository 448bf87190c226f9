"""Long runs of messages that are alike, which the parser cuts many at a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspark.errors import ProtocolError
from jetspark.protocol import Frame, MessageBatch, Parser

Message = tuple[bytes, int, bytes | None, bytes]  # subject, sid, reply, payload


def wire(messages: list[Message]) -> bytes:
    frames = []
    for subject, sid, reply, payload in messages:
        middle = b"" if reply is None else reply + b" "
        frames.append(b"MSG %b %d %b%d\r\n%b\r\n" % (subject, sid, middle, len(payload), payload))
    return b"".join(frames)


def parsed(data: bytes, cuts: list[int]) -> list[tuple[int, Frame]]:
    parser = Parser()
    found: list[tuple[int, Frame]] = []
    size = 0
    for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True):
        for event in parser.feed(data[start:stop]):
            assert isinstance(event, MessageBatch)
            found += [(event.sid, frame) for frame in event.frames]
            size += event.size
    assert not parser.buffered
    assert size == len(data)
    return found


def expected(messages: list[Message]) -> list[tuple[int, Frame]]:
    return [(sid, (subject, reply, None, payload)) for subject, sid, reply, payload in messages]


def plain_run(count: int, payload: bytes = b"12345") -> list[Message]:
    return [(b"a.b", 7, None, payload) for _ in range(count)]


def reply_run(count: int, first: int = 1, payload: bytes = b"12345") -> list[Message]:
    return [(b"a.b", 7, b"$JS.ACK.%d" % number, payload) for number in range(first, first + count)]


def answers(count: int, first: int = 1, payload: bytes = b"12345") -> list[Message]:
    return [(b"a.%d" % number, 7, None, payload) for number in range(first, first + count)]


RUNS = {
    "subjects of one length": answers(80, 10),
    "subjects that grow": answers(300, 950),
    "look-alikes of other subjects": answers(60, 10, b" 7 5\r\n12345\r\nMSG a.1 7 5\r\n"),
    "subjects like a reply": [*answers(20, 10), (b"a.b", 8, b"7", b"12345"), *answers(20, 10)],
    "other subjects, then one": answers(40, 10) + plain_run(40) + answers(40, 10),
    "other subjects and sids": [
        (subject, 7 + number % 3 // 2, None, payload)
        for number, (subject, _, _, payload) in enumerate(answers(90, 10))
    ],
    "plain": plain_run(100),
    "empty payloads": plain_run(100, b""),
    "replies of one length": reply_run(80, 10),
    "replies that grow": reply_run(300, 950),
    "look-alikes": plain_run(60, b"\r\nMSG a.b 7 5\r\n12345\r\nMSG "),
    "look-alikes with replies": reply_run(60, 10, b"MSG a.b 7 r 5\r\n 5\r\n12345\r\n"),
    "another payload size": plain_run(30) + plain_run(30, b"123456") + plain_run(30),
    "another subject": [*plain_run(30), (b"a.c", 7, None, b"12345"), *plain_run(30)],
    "another sid": [*plain_run(30), (b"a.b", 8, None, b"12345"), *plain_run(30)],
    "with and without reply": plain_run(30) + reply_run(30) + plain_run(30),
    "a reply like a size": [*reply_run(20, 10), (b"a.b", 7, None, b"12345"), *reply_run(20, 10)],
}


@pytest.mark.parametrize("messages", RUNS.values(), ids=RUNS.keys())
def test_whole_and_cut_anywhere(messages: list[Message]) -> None:
    data = wire(messages)
    assert parsed(data, []) == expected(messages)
    for cut in range(1, len(data), 13):
        assert parsed(data, [cut]) == expected(messages)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"a", b"b.c"]),
            st.sampled_from([1, 2]),
            st.sampled_from([None, 8, 98]),
            st.sampled_from([b"", b"x", b" 1\r\n", b"\r\nMSG a 1 1\r\nx"]),
            st.integers(1, 40),
        ),
        max_size=6,
    ),
    st.data(),
)
def test_any_runs(
    runs: list[tuple[bytes, int, int | None, bytes, int]], data: st.DataObject
) -> None:
    messages: list[Message] = []
    for subject, sid, first, payload, count in runs:
        for number in range(count):
            reply = None if first is None else b"r.%d" % (first + number)
            messages.append((subject, sid, reply, payload))
    stream = wire(messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=3)))
    assert parsed(stream, cuts) == expected(messages)


@pytest.mark.parametrize("messages", [plain_run(40), reply_run(40, 10)])
@pytest.mark.parametrize("broken", [10, 20, 39])
def test_a_broken_ending_in_a_run(messages: list[Message], broken: int) -> None:
    good, bad = wire(messages[:broken]), wire(messages[broken : broken + 1])
    parser = Parser()
    with pytest.raises(ProtocolError, match="does not end with CRLF"):
        parser.feed(good + bad[:-1] + b"x" + wire(messages[broken + 1 :]) + b"MSG a 1 0\r\n\r\n")


@pytest.mark.parametrize("reply", [b"two words", b"$JS ACK.55", b"$JS\tACK.55"])
def test_a_reply_with_a_blank_in_a_run(reply: bytes) -> None:
    run = reply_run(40, 10)
    odd = b"MSG a.b 7 %b 5\r\n12345\r\n" % reply
    with pytest.raises(ProtocolError):
        Parser().feed(wire(run) + odd + wire(run))
