"""Long rows of messages that are alike or similar, which the parser cuts many at a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspark.errors import ProtocolError
from jetspark.protocol import Frame, MessageBatch, Parser, Run

Message = tuple[int, Frame]  # sid, and the message


def wire(messages: list[Message]) -> bytes:
    parts = []
    for sid, (subject, reply, header, payload) in messages:
        fields = [b"MSG" if header is None else b"HMSG", subject, b"%d" % sid]
        fields += [] if reply is None else [reply]
        fields += [] if header is None else [b"%d" % len(header)]
        body = (header or b"") + payload
        parts.append(b"%b %d\r\n%b\r\n" % (b" ".join(fields), len(body), body))
    return b"".join(parts)


def parsed(data: bytes, cuts: list[int]) -> list[Message]:
    parser = Parser()
    found: list[Message] = []
    size = 0
    for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True):
        for event in parser.feed(data[start:stop]):
            assert isinstance(event, MessageBatch)
            found += [(event.sid, frame) for frame in event.frames]
            size += event.size
    assert not parser.buffered
    assert size == len(data)
    return found


def plain_run(count: int, payload: bytes = b"12345") -> list[Message]:
    return [(7, (b"a.b", None, None, payload))] * count


def reply_run(count: int, first: int = 1, payload: bytes = b"12345") -> list[Message]:
    return [
        (7, (b"a.b", b"$JS.ACK.%d" % number, None, payload))
        for number in range(first, first + count)
    ]


def answers(
    count: int, first: int = 1, payload: bytes = b"12345", header: bytes | None = None
) -> list[Message]:
    return [
        (7, (b"a.%d" % number, None, header, payload)) for number in range(first, first + count)
    ]


def keys(
    count: int, first: int = 1, payload: bytes = b"12345", header: bytes | None = None
) -> list[Message]:
    return [
        (7, (b"a.%d" % number, b"$JS.ACK.%d" % (number // 3), header, payload))
        for number in range(first, first + count)
    ]


HEADER = b"NATS/1.0\r\nA: b\r\n\r\n"
HEADERS = [b"NATS/1.0\r\nA: %b\r\n\r\n" % (b"b" * number) for number in range(300)]


def with_headers(headers: list[bytes], payload: bytes = b"12345") -> list[Message]:
    return [
        message
        for number, header in enumerate(headers)
        for message in keys(1, number, payload, header)
    ]


RUNS = {
    "subjects of one length": answers(80, 10),
    "subjects that grow": answers(300, 950),
    "look-alikes of other subjects": answers(60, 10, b" 7 5\r\n12345\r\nMSG a.1 7 5\r\n"),
    "subjects like a reply": [
        *answers(20, 10),
        (8, (b"a.b", b"7", None, b"12345")),
        *answers(20, 10),
    ],
    "other subjects, then one": answers(40, 10) + plain_run(40) + answers(40, 10),
    "other subjects and sids": [
        (7 + number % 3 // 2, frame) for number, (_, frame) in enumerate(answers(90, 10))
    ],
    "similar, then another sid": keys(40) + [(8, frame) for _, frame in keys(40)],
    "subjects and replies that grow": keys(300, 950),
    "similar, then the same": keys(40) + reply_run(100) + keys(40),
    "similar with headers": keys(60, 1, b"12345", HEADER) + answers(60, 1, b"12345", HEADER),
    "headers only": answers(60, 1, b"", HEADER),
    "headers of any length": with_headers(HEADERS),
    "headers as long as payloads": with_headers(HEADERS[:40]) + with_headers([HEADER] * 40, HEADER),
    "a blank line in headers": with_headers(
        [*HEADERS[:40], HEADER + b"C: d\r\n\r\n", *HEADERS[:40]]
    ),
    "headers without an end": with_headers([*HEADERS[:40], *[b"NATS/1.0\r\n"] * 40]),
    "headers that end in payloads": with_headers([HEADER[:-2]] * 40, b"\r\n345"),
    "headers that are none": with_headers([*HEADERS[:40], *[b"\r\n\r\n"] * 40, b"\r", b"\n"]),
    "headers of no length": keys(60, 1, b"12345", b""),
    "headers, and as long without": keys(40, 1, b"", HEADER) + keys(40, 1, HEADER),
    "headers that take turns": [
        message
        for pair in zip(keys(40, 1, b"12345", HEADER), keys(40), strict=True)
        for message in pair
    ],
    "similar look-alikes": keys(60, 10, b"MSG a.1 7 r 5\r\n12345\r\nMSG a.1 7 r 29\r\n"),
    "another reply": keys(30) + answers(30) + keys(30),
    "sizes that take turns": [
        message for number in range(40) for message in keys(1, number, b"x" * (number % 3))
    ],
    "plain": plain_run(100),
    "empty payloads": plain_run(100, b""),
    "replies of one length": reply_run(80, 10),
    "replies that grow": reply_run(300, 950),
    "look-alikes": plain_run(60, b"\r\nMSG a.b 7 5\r\n12345\r\nMSG "),
    "look-alikes with replies": reply_run(60, 10, b"MSG a.b 7 r 5\r\n 5\r\n12345\r\n"),
    "another payload size": plain_run(30) + plain_run(30, b"123456") + plain_run(30),
    "another subject": [*plain_run(30), (7, (b"a.c", None, None, b"12345")), *plain_run(30)],
    "another sid": [*plain_run(30), (8, (b"a.b", None, None, b"12345")), *plain_run(30)],
    "with and without reply": plain_run(30) + reply_run(30) + plain_run(30),
    "a reply like a size": reply_run(20, 10) + plain_run(1) + reply_run(20, 10),
}


@pytest.mark.parametrize("messages", RUNS.values(), ids=RUNS.keys())
def test_whole_and_cut_anywhere(messages: list[Message]) -> None:
    data = wire(messages)
    assert parsed(data, []) == messages
    for cut in range(1, len(data), 13):
        assert parsed(data, [cut]) == messages


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"a", b"b.c", b"k.%d"]),
            st.sampled_from([1, 2]),
            st.sampled_from([None, 8, 98]),
            st.sampled_from([None, None, b"", b"h\r\n"]),
            st.sampled_from([b"", b"x", b" 1\r\n", b"\r\nMSG a 1 1\r\nx"]),
            st.integers(1, 40),
        ),
        max_size=6,
    ),
    st.data(),
)
def test_any_runs(
    runs: list[tuple[bytes, int, int | None, bytes | None, bytes, int]], data: st.DataObject
) -> None:
    messages: list[Message] = []
    for subject, sid, first, header, payload, count in runs:
        for number in range(count):
            reply = None if first is None else b"r.%d" % (first + number)
            name = subject % number if b"%" in subject else subject
            messages.append((sid, (name, reply, header, payload)))
    stream = wire(messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=3)))
    assert parsed(stream, cuts) == messages


@pytest.mark.parametrize(
    "messages", [plain_run(40), reply_run(40, 10), keys(40), answers(40, 1, b"12345", HEADER)]
)
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


@pytest.mark.parametrize("odd", [b"a.1 2 7 r", b"a.1\t2 7 r r", b"a.1\n2 7 r", b"a.12 7 r\nr"])
def test_a_line_that_is_none_among_similar_ones(odd: bytes) -> None:
    data = wire(keys(40)) + b"MSG %b 5\r\n12345\r\n" % odd + wire(keys(40))
    with pytest.raises(ProtocolError):
        Parser().feed(data)


@pytest.mark.parametrize(
    "line", [b"msg a.%d 7 5", b"MSG a.%d  7 5", b"MSG a.%d 7 5 ", b"MSG\ta.%d 7 5"]
)
def test_similar_lines_spelled_in_another_way(line: bytes) -> None:
    data = b"".join(b"%b\r\n12345\r\n" % (line % number) for number in range(60))
    assert parsed(data, []) == answers(60, 0)
    assert parsed(wire(answers(60)) + data, []) == answers(60) + answers(60, 0)


def test_messages_that_become_the_same_become_a_run() -> None:
    parser = Parser()
    parser.feed(wire(keys(100)))
    parser.feed(wire(reply_run(100, 100)))
    *_, batch = parser.feed(wire(reply_run(400, 200)))
    assert isinstance(batch, MessageBatch)
    assert isinstance(batch.frames, Run)


@pytest.mark.parametrize(
    "sizes", [b"9" * 5000 + b" 23", b"18 " + b"9" * 5000, b"18 24", b"-1 4", b" 23"]
)
def test_sizes_that_are_none_among_similar_ones(sizes: bytes) -> None:
    good = wire(answers(40, 1, b"12345", HEADER))
    odd = b"HMSG a.1 7 %b\r\n%b12345\r\n" % (sizes, HEADER)
    with pytest.raises(ProtocolError):
        Parser().feed(good + odd + good)


def test_headers_that_make_a_message_too_large() -> None:
    parser = Parser(max_message=100)
    (batch,) = parser.feed(wire(with_headers(HEADERS[:70])))
    assert isinstance(batch, MessageBatch)
    assert len(batch) == 70
    with pytest.raises(ProtocolError, match="over 100"):
        parser.feed(wire(with_headers(HEADERS[70:120])))


def test_one_that_is_not_like_the_others_leaves_the_rest_as_they_are() -> None:
    odd = with_headers([HEADER + b"C: d\r\n\r\n"])
    messages = with_headers([HEADER] * 2000) + odd + with_headers([HEADER] * 2000)
    assert parsed(wire(messages), []) == messages
