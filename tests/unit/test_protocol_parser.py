"""The parser on chosen streams: every frame cut everywhere, spelling, batches, limits, errors."""

from __future__ import annotations

import random
import traceback
import tracemalloc
from collections.abc import Iterable, Iterator

import pytest

from jetspark.errors import ProtocolError
from jetspark.protocol import ErrorReply, Event, MessageBatch, Op, Parser, ServerInfo

HEADER = b"NATS/1.0\r\nA: b\r\n\r\n"


def flat(events: Iterable[Event]) -> list[object]:
    """The events with messages one by one, however they were put into batches."""
    result: list[object] = []
    for event in events:
        if isinstance(event, MessageBatch):
            assert len(event) == len(event.frames) > 0
            result += [(event.sid, *frame) for frame in event.frames]
        else:
            result.append(event)
    return result


def parse(reads: Iterable[bytes], parser: Parser | None = None) -> list[Event]:
    parser = parser or Parser()
    return [event for read in reads for event in parser.feed(read)]


def cuts(wire: bytes) -> Iterator[list[bytes]]:
    """A stream whole, in two at every byte, in three around every byte, in bytes, at random."""
    yield [wire]
    yield [wire[i : i + 1] for i in range(len(wire))]
    for cut in range(len(wire) + 1):
        yield [wire[:cut], wire[cut:]]
        yield [wire[:cut], wire[cut : cut + 1], b"", wire[cut + 1 :]]
    for seed in range(50):
        rng = random.Random(seed)
        places = sorted(rng.randrange(len(wire) + 1) for _ in range(rng.randrange(2, 9)))
        yield [wire[i:j] for i, j in zip([0, *places], [*places, len(wire)], strict=True)]


STREAMS: dict[str, tuple[bytes, list[object]]] = {
    "control": (
        b"PING\r\nPONG\r\n+OK\r\n-ERR 'Stale Connection'\r\n",
        [Op.PING, Op.PONG, Op.OK, ErrorReply("Stale Connection")],
    ),
    "info in the middle": (
        b'INFO {"server_id":"A"} \r\nMSG a 1 1\r\nx\r\nINFO {"server_id":"B","ldm":true}\r\n',
        [ServerInfo(server_id="A"), (1, b"a", None, None, b"x"), ServerInfo("B", ldm=True)],
    ),
    "empty payload": (b"MSG a 1 0\r\n\r\n" * 2, [(1, b"a", None, None, b"")] * 2),
    "reply": (b"MSG a 1 _INBOX.x 2\r\nhi\r\n", [(1, b"a", b"_INBOX.x", None, b"hi")]),
    "headers": (
        b"HMSG a 1 18 20\r\n%bhi\r\nHMSG a 1 r 18 18\r\n%b\r\n" % (HEADER, HEADER),
        [(1, b"a", None, HEADER, b"hi"), (1, b"a", b"r", HEADER, b"")],
    ),
    "empty header block": (b"HMSG a 1 0 1\r\nx\r\n", [(1, b"a", None, b"", b"x")]),
    "look-alikes in the payload": (
        b"MSG a 1 15\r\nPING\r\nMSG a 1 9\r\n"
        b"MSG a 1 12\r\nMSG a 1 12\r\n\r\n"  # its own control line
        b"MSG a 1 4\r\n\r\n\r\n\r\n",
        [
            (1, b"a", None, None, b"PING\r\nMSG a 1 9"),
            (1, b"a", None, None, b"MSG a 1 12\r\n"),
            (1, b"a", None, None, b"\r\n\r\n"),
        ],
    ),
    "the same line again": (b"MSG a 1 3\r\nabc\r\n" * 5, [(1, b"a", None, None, b"abc")] * 5),
    "almost the same line": (
        b"MSG a 1 1\r\nv\r\nMSG a 1 11\r\nMSG a 1 1\r\n\r\nMSG a 1 1\r\nw\r\nMSG a 11 1\r\nx\r\n"
        b"MSG aa 1 1\r\ny\r\nMSG a 1 r 1\r\nz\r\nMSG a 1 1\r\n!\r\nHMSG a 1 0 1\r\n?\r\n",
        [
            (1, b"a", None, None, b"v"),
            (1, b"a", None, None, b"MSG a 1 1\r\n"),
            (1, b"a", None, None, b"w"),
            (11, b"a", None, None, b"x"),
            (1, b"aa", None, None, b"y"),
            (1, b"a", b"r", None, b"z"),
            (1, b"a", None, None, b"!"),
            (1, b"a", None, b"", b"?"),
        ],
    ),
    "the same line again after another one": (
        b"".join(
            b"MSG a 1 1\r\nx\r\n" + other
            for other in (b"MSG a 1 r 1\r\ny\r\n", b"HMSG a 1 1 2\r\nhy\r\n", b"PING\r\n", b"")
        ),
        [
            (1, b"a", None, None, b"x"),
            (1, b"a", b"r", None, b"y"),
            (1, b"a", None, None, b"x"),
            (1, b"a", None, b"h", b"y"),
            (1, b"a", None, None, b"x"),
            Op.PING,
            (1, b"a", None, None, b"x"),
        ],
    ),
    "subjects of any bytes but blanks and line feeds": (
        b"MSG a\x0b1 1 1\r\nx\r\nMSG a\x0cb 1 r\x0b 1\r\ny\r\nMSG \ra\rb\r 1 1\r\nz\r\n"
        b"MSG \xff\x00\x85\x1c\xc2\xa0 1 1\r\n!\r\n",
        [
            (1, b"a\x0b1", None, None, b"x"),
            (1, b"a\x0cb", b"r\x0b", None, b"y"),
            (1, b"\ra\rb\r", None, None, b"z"),
            (1, b"\xff\x00\x85\x1c\xc2\xa0", None, None, b"!"),
        ],
    ),
    "any case, any number of blanks and tabs": (
        b"ping\r\n PoNg \r\nmsg a 1 1\r\nx\r\nMSG  a\t 1  r \t1\t\r\ny\r\nhMsg\ta\t1\t0\t1\r\nz\r\n"
        b"MSG  1 1\t1\r\n!\r\nMSG a 1  1\r\n?\r\nHMSG a 1  0 1\r\n.\r\n"
        b'Info\t{"port":\t1}\t\r\n-err\tno quotes \r\n+ok\r\n',
        [
            Op.PING,
            Op.PONG,
            (1, b"a", None, None, b"x"),
            (1, b"a", b"r", None, b"y"),
            (1, b"a", None, b"", b"z"),
            (1, b"1", None, None, b"!"),
            (1, b"a", None, None, b"?"),
            (1, b"a", None, b"", b"."),
            ServerInfo(port=1),
            ErrorReply("no quotes"),
            Op.OK,
        ],
    ),
    # With an empty field the lines would have the shape of one with the reply `1`.
    "two blanks in a row": (
        b"MSG a 1 1\r\nx\r\nMSG  1 1 1\r\ny\r\nHMSG  1 1 1 1\r\nz\r\nMSG a 1  1\r\n!\r\n",
        [
            (1, b"a", None, None, b"x"),
            (1, b"1", None, None, b"y"),
            (1, b"1", None, b"z", b""),
            (1, b"a", None, None, b"!"),
        ],
    ),
    # With the reply `1` the line has the shape of a MSG to the subject `a<TAB>1`.
    "a tab instead of a blank": (
        b"MSG a 1 1\r\nx\r\nMSG a\t1 1 1\r\ny\r\nHMSG a\t1 1 0 1\r\nz\r\n",
        [
            (1, b"a", None, None, b"x"),
            (1, b"a", b"1", None, b"y"),
            (1, b"a", b"1", b"", b"z"),
        ],
    ),
}


@pytest.mark.parametrize("name", STREAMS)
def test_cut_everywhere(name: str) -> None:
    wire, expected = STREAMS[name]
    for reads in cuts(wire):
        parser = Parser()
        assert flat(parse(reads, parser)) == expected, reads
        assert parser.buffered == 0, reads


@pytest.mark.parametrize("name", STREAMS)
def test_what_was_learnt_from_earlier_frames_changes_nothing(name: str) -> None:
    wire, expected = STREAMS[name]
    parser = Parser()
    for _ in range(3):
        assert flat(parser.feed(wire)) == expected


def test_every_pair_of_cuts() -> None:
    wire = b"PING\r\nMSG a 1 2\r\n\r\n\r\nHMSG b 2 r 2 3\r\nxyz\r\nMSG a 1 0\r\n\r\nPONG\r\n"
    expected = flat(parse([wire]))
    assert len(expected) == 5
    for i in range(len(wire)):
        for j in range(i, len(wire)):
            assert flat(parse([wire[:i], wire[i:j], wire[j:]])) == expected, (i, j)


def test_a_batch_counts_the_bytes_of_its_messages() -> None:
    message = b"MSG a 1 3\r\nabc\r\n"
    other = b"HMSG b 2 r 18 20\r\n" + HEADER + b"hi\r\n"
    wire = (
        b"PING\r\n" + message * 2 + b"PONG\r\n" + message + other + message + b"+OK\r\n" + other * 2
    )
    for reads in cuts(wire):
        sizes: dict[int, int] = {1: 0, 2: 0}
        for event in parse(reads):
            if isinstance(event, MessageBatch):
                assert event.size == len(event) * len(message if event.sid == 1 else other), reads
                sizes[event.sid] += event.size
        assert sizes == {1: 4 * len(message), 2: 3 * len(other)}


def test_the_size_of_a_batch_is_as_spelled() -> None:
    wire = b"MSG   a \t 1   3 \r\nabc\r\n"
    for reads in cuts(wire):
        (batch,) = parse(reads)
        assert isinstance(batch, MessageBatch)
        assert batch.size == len(wire)


# -- batches ----------------------------------------------------------------------------------


def message(sid: int, text: bytes = b"x") -> bytes:
    return b"MSG s %d %d\r\n%b\r\n" % (sid, len(text), text)


def batches(events: list[Event]) -> list[object]:
    """Sid and payloads of each batch; other events as they are."""
    return [
        (event.sid, b"".join(frame[3] for frame in event.frames))
        if isinstance(event, MessageBatch)
        else event
        for event in events
    ]


def test_consecutive_messages_of_a_subscription_are_one_batch() -> None:
    wire = b"".join(message(1, payload) for payload in (b"a", b"b", b"cc", b"d"))
    assert batches(parse([wire])) == [(1, b"abccd")]


def test_interleaved_subscriptions_stay_in_order() -> None:
    sids = [1, 2, 2, 1, 1, 3, 1, 3, 3]
    wire = b"".join(message(sid, b"%d" % index) for index, sid in enumerate(sids))
    assert batches(parse([wire])) == [
        (1, b"0"),
        (2, b"12"),
        (1, b"34"),
        (3, b"5"),
        (1, b"6"),
        (3, b"78"),
    ]


def test_other_events_stay_in_order() -> None:
    wire = message(1) + b"PING\r\n" + message(1) * 2 + b"-ERR 'e'\r\nPONG\r\n" + message(2)
    assert batches(parse([wire])) == [
        (1, b"x"),
        Op.PING,
        (1, b"xx"),
        ErrorReply("e"),
        Op.PONG,
        (2, b"x"),
    ]


@pytest.mark.parametrize("next_sid", [1, 2])
def test_a_message_that_a_read_cuts_is_in_the_batch_of_those_that_follow(next_sid: int) -> None:
    parser = Parser()
    wire = message(1, b"first") + message(1, b"second")
    assert batches(parser.feed(wire[:-4])) == [(1, b"first")]
    assert batches(parser.feed(wire[-4:] + message(next_sid, b"third") + message(1, b"4"))) == (
        [(1, b"secondthird4")] if next_sid == 1 else [(1, b"second"), (2, b"third"), (1, b"4")]
    )


def test_batches_are_not_changed_by_later_reads() -> None:
    parser = Parser()
    (first,) = parser.feed(message(1, b"a"))
    parser.feed(message(1, b"b") * 3)
    assert batches([first]) == [(1, b"a")]


# -- size -------------------------------------------------------------------------------------


def test_a_large_payload_over_many_reads() -> None:
    payload = random.Random(1).randbytes(3_000_000) + b"\r\nPING\r\n"
    wire = (
        b"PING\r\nHMSG big 7 18 %d\r\n" % (18 + len(payload)) + HEADER + payload + b"\r\nPONG\r\n"
    )
    for read in (1_000, 65_536, 1_000_000, len(wire)):
        events = parse(wire[i : i + read] for i in range(0, len(wire), read))
        assert flat(events) == [Op.PING, (7, b"big", None, HEADER, payload), Op.PONG], read


def test_buffered_counts_what_is_held() -> None:
    parser = Parser()
    assert parser.feed(b"MSG a 1 ") == []
    assert parser.buffered == 8
    assert parser.feed(b"4\r\nab") == []
    assert parser.buffered == 2
    assert parser.feed(b"cd\r") == []
    assert parser.buffered == 5
    assert flat(parser.feed(b"\nPI")) == [(1, b"a", None, None, b"abcd")]
    assert parser.buffered == 2
    assert parser.feed(b"NG\r\n") == [Op.PING]
    assert parser.buffered == 0


def test_a_payload_in_single_bytes_takes_little_memory() -> None:
    parser = Parser()
    parser.feed(b"MSG a 1 100000\r\n")
    tracemalloc.start()
    try:
        for number in range(100_000):
            parser.feed(b"%c" % (number % 256))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000
    (event,) = flat(parser.feed(b"\r\n"))
    assert event == (1, b"a", None, None, bytes(number % 256 for number in range(100_000)))


def test_what_is_learnt_is_bounded() -> None:
    parser = Parser()
    for number in range(10_000):
        wire = b"MSG a %d %d\r\n%b\r\n" % (number, number % 5000, b"x" * (number % 5000))
        assert flat(parser.feed(wire)) == [(number, b"a", None, None, b"x" * (number % 5000))]
        assert len(parser._numbers) <= 4096
        assert len(parser._sizes) <= 4096


# -- limits -----------------------------------------------------------------------------------


def outcome(reads: Iterable[bytes], parser: Parser) -> list[object] | str:
    """The events, or the error as text."""
    try:
        return flat(parse(reads, parser))
    except ProtocolError as error:
        assert parser.buffered == 0
        return str(error)


@pytest.mark.parametrize("line", [b"MSG aaaaaaaaaa 1 2\r\n", b"-ERR '0123456789'\r\n"])
def test_the_line_limit(line: bytes) -> None:
    wire = line + b"hi\r\n" if line.startswith(b"MSG") else line
    for reads in cuts(wire):
        assert len(outcome(reads, Parser(max_line=len(line)))) == 1, reads
        too_long = f"a control line is longer than {len(line) - 1} bytes"
        assert outcome(reads, Parser(max_line=len(line) - 1)) == too_long, reads


def test_a_line_without_end_is_not_collected() -> None:
    parser = Parser(max_line=1000)
    for _ in range(9):
        assert parser.feed(b"x" * 100) == []
        assert parser.buffered <= 1000
    with pytest.raises(ProtocolError, match="longer than 1000 bytes"):
        parser.feed(b"x" * 100)
    assert parser.buffered == 0


def test_the_message_limit() -> None:
    wire = b"MSG a 1 10\r\n0123456789\r\nHMSG a 1 3 10\r\n0123456789\r\n"
    for reads in cuts(wire):
        assert len(outcome(reads, Parser(max_message=10))) == 2, reads
        assert outcome(reads, Parser(max_message=9)) == "a message of 10 bytes is over 9", reads


@pytest.mark.parametrize("verb", [b"MSG a 1 1000", b"HMSG a 1 0 1000"])
def test_a_number_known_as_sid_is_still_too_large_as_size(verb: bytes) -> None:
    parser = Parser(max_message=100)
    assert flat(parser.feed(b"MSG a 1000 1\r\nx\r\n")) == [(1000, b"a", None, None, b"x")]
    with pytest.raises(ProtocolError, match="a message of 1000 bytes is over 100"):
        parser.feed(verb + b"\r\n")


# -- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wire", "text"),
    [
        (b"\r\n", "unknown operation: b''"),
        (b" \t \r\n", "unknown operation: b''"),
        (b"HELLO world\r\n", "unknown operation: b'HELLO world'"),
        (b"HTTP/1.1 400 Bad Request\r\n", "unknown operation: b'HTTP/1.1 400 Bad Request'"),
        (b"SUB a 1\r\n", "unknown operation: b'SUB a 1'"),
        (b"MSGa 1 1\r\n", "unknown operation"),
        (b"y" * 200 + b"\r\n", f"unknown operation: b'{'y' * 80}...'"),
        (b"PING\nPING\r\n", "does not end with CRLF: b'PING'"),
        (b"PING\n", "does not end with CRLF"),
        (b"\n", "does not end with CRLF"),
        (b"PING\rPING\r\n", "unknown operation"),
        (b"MSG a 1 1\nx\r\n", "does not end with CRLF"),
        (b"MSG a\nb 1 1\r\nx\r\n", "does not end with CRLF"),
        (b"MSG\r\n", "wrong number of arguments: b'MSG'"),
        (b"MSG a 1\r\n", "wrong number of arguments"),
        (b"MSG a 1 r x 1\r\n", "wrong number of arguments"),
        (b"MSG a 1 r\tx 1\r\n", "wrong number of arguments"),
        (b"HMSG a 1 1\r\n", "wrong number of arguments"),
        (b"HMSG a 1 r x 1 1\r\n", "wrong number of arguments"),
        (b"MSG a b 1\r\n", "not a number: b'MSG a b 1'"),
        (b"MSG a 1 -1\r\n", "not a number"),
        (b"MSG a 1 +1\r\n", "not a number"),
        (b"MSG a 1 1_0\r\n", "not a number"),
        (b"MSG a 1 0x1\r\n", "not a number"),
        (b"MSG a 1 1\r\r\n", "not a number"),
        (b"MSG a 1\r 1\r\n", "not a number"),
        (b"MSG a 1 \xd9\xa1\r\n", "not a number"),
        (b"MSG a 1 1111111111111111111\r\n", "not a number"),
        (b"HMSG a 1 r x 1\r\n", "not a number"),
        (b"MSG a 1 999999999999999999\r\n", "a message of 999999999999999999 bytes is over"),
        (b"HMSG a 1 2 1\r\n", "headers longer than the message"),
        (b"HMSG a 1 r 2 1\r\n", "headers longer than the message"),
        (b"MSG a 1 1\r\nxy\r\n", "a message of 1 bytes does not end with CRLF"),
        (b"MSG a 1 1\r\nx\n\r", "a message of 1 bytes does not end with CRLF"),
        (b"MSG a 1 2\r\nx\r\n\r\n", "a message of 2 bytes does not end with CRLF"),
        (b"MSG a 1 2\r\n12\r\rPING\r\n", "a message of 2 bytes does not end with CRLF"),
        (b"INFO\r\n", "an INFO that cannot be read"),
        (b"INFO {\r\n", "an INFO that cannot be read"),
    ],
)
def test_refuses(wire: bytes, text: str) -> None:
    before = b"MSG a 1 1\r\nx\r\nHMSG a 1 r 0 2\r\nxy\r\n"  # learns the numbers 0, 1 and 2
    for prefix in (b"", before):
        outcomes = {str(outcome(reads, Parser())) for reads in cuts(prefix + wire)}
        assert len(outcomes) == 1, outcomes
        assert text in outcomes.pop()


def test_after_an_error_every_feed_raises_it_again() -> None:
    parser = Parser()
    with pytest.raises(ProtocolError) as first:
        parser.feed(b"MSG a 1 1\r\nx\r\nBAD\r\n")
    depths = set()
    for data in (b"PING\r\n", b"", b"BAD\r\n", b"MSG a 1 1\r\nx\r\n"):
        with pytest.raises(ProtocolError) as again:
            parser.feed(data)
        assert str(again.value) == str(first.value) == "unknown operation: b'BAD'"
        assert parser.buffered == 0
        depths.add(len(traceback.extract_tb(again.value.__traceback__)))
    assert len(depths) == 1  # the traceback does not grow from call to call
