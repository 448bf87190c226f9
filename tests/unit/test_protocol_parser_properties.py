"""The parser on generated streams: what is encoded is parsed back, and garbage does no harm."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.parser import check, one_input, random_input
from jetspark.errors import ProtocolError
from jetspark.protocol import ErrorReply, Event, MessageBatch, Op, Parser, ServerInfo

MAX_LINE = 200
MAX_MESSAGE = 300

relaxed = settings(deadline=None, max_examples=200)

# -- the model: events, and one of their many spellings on the wire ---------------------------

Model = tuple[object, bytes]
"""An event (a message as sid, subject, reply, header, payload) and its bytes."""

_gaps = st.sampled_from([b" ", b" ", b" ", b"  ", b"\t", b" \t "])
_ends = st.sampled_from([b"", b"", b"", b" ", b"\t "])
# A CR may be inside a subject, and at its end too: only CR LF ends the line.
_names = st.one_of(
    st.sampled_from([b"a", b"a.b", b"1", b"18"]),
    st.binary(min_size=1, max_size=12).map(lambda raw: raw.translate(None, b" \t\n") or b"x"),
)
_payloads = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"\r\n", b"MSG a 1 1\r\nx\r\n", b"PING\r\n", b"\r", b"\n", b"x" * 250]),
)


@st.composite
def _spelled(draw: st.DrawFn, words: list[bytes]) -> bytes:
    verb = words[0]
    line = draw(st.sampled_from([verb, verb, verb.lower(), verb.capitalize()]))
    for word in words[1:]:
        line += draw(_gaps) + word
    return line + draw(_ends) + b"\r\n"


@st.composite
def _message(draw: st.DrawFn) -> Model:
    subject, reply = draw(_names), draw(st.none() | _names)
    sid = draw(st.integers(0, 3) | st.integers(0, 10**17))
    header, payload = draw(st.none() | _payloads.filter(lambda p: len(p) < 50)), draw(_payloads)
    words = [b"MSG" if header is None else b"HMSG", subject, b"%d" % sid]
    if reply is not None:
        words.append(reply)
    if header is not None:
        words.append(b"%d" % len(header))
    body = (header or b"") + payload
    words.append(b"%d" % len(body))
    line = draw(_spelled(words))
    return (sid, subject, reply, header, payload), line + body + b"\r\n"


@st.composite
def _info(draw: st.DrawFn) -> Model:
    fields: dict[str, Any] = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "server_id": st.text(max_size=10),
                "port": st.integers(0, 65535),
                "ldm": st.booleans(),
                "connect_urls": st.lists(st.text(max_size=5), max_size=2),
            },
        )
    )
    text = json.dumps({**fields, "unknown": [1, {"a": None}]}).encode()
    return ServerInfo(**fields), draw(_spelled([b"INFO", text]))


@st.composite
def _error(draw: st.DrawFn) -> Model:
    characters = st.characters(exclude_categories=["Cs", "Cc"])
    text = draw(st.text(characters, max_size=20)).strip()
    return ErrorReply(text), draw(_spelled([b"-ERR", b"'%b'" % text.encode()]))


@st.composite
def _plain(draw: st.DrawFn) -> Model:
    op = draw(st.sampled_from(Op))
    return op, draw(_spelled([op.value.encode()]))


_streams = st.lists(st.one_of(_message(), _message(), _plain(), _error(), _info()), max_size=12)


@st.composite
def _repeated(draw: st.DrawFn) -> list[Model]:
    """Few different messages many times: what the shortcut for repeated lines is for."""
    few = draw(st.lists(_message(), min_size=1, max_size=3))
    return draw(st.lists(st.sampled_from(few), max_size=20))


_fragments = st.sampled_from(
    b"MSG |HMSG |MSG a 1 |HMSG a 1 |a |1 |0|1|2|18|999| |\t|\r|\n|\r\n|\r\n\r\n|PING\r\n|PONG"
    b"|+OK\r\n|-ERR |'|INFO {}\r\n|INFO {|}|\"|:|MSG a 1 1\r\nx\r\n|HMSG a 1 0 1\r\nx\r\n".split(
        b"|"
    )
)
_garbage = st.one_of(
    st.binary(max_size=600), st.lists(_fragments | st.binary(max_size=3), max_size=60).map(b"".join)
)


@st.composite
def _mutated(draw: st.DrawFn) -> bytes:
    """A valid stream with a few bytes changed, lost or put in."""
    wire = bytearray(b"".join(part for _, part in draw(_streams | _repeated())))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(wire)))
        wire[place : place + draw(st.integers(0, 3))] = draw(_fragments | st.binary(max_size=2))
    return bytes(wire)


@st.composite
def _cut(draw: st.DrawFn, wire: bytes) -> list[bytes]:
    places = sorted(draw(st.lists(st.integers(0, len(wire)), max_size=10)))
    return [wire[i:j] for i, j in zip([0, *places], [*places, len(wire)], strict=True)]


# -- round trips ------------------------------------------------------------------------------


def flat(events: Iterable[Event]) -> list[object]:
    result: list[object] = []
    for event in events:
        if isinstance(event, MessageBatch):
            assert event.frames
            result += [(event.sid, *frame) for frame in event.frames]
        else:
            result.append(event)
    return result


@relaxed
@given(st.data(), _streams | _repeated())
def test_what_is_encoded_is_parsed_back(data: st.DataObject, model: list[Model]) -> None:
    wire = b"".join(part for _, part in model)
    expected = [event for event, _ in model]
    sizes = sum(len(part) for event, part in model if isinstance(event, tuple))
    for reads in ([wire], data.draw(_cut(wire)), [wire[i : i + 1] for i in range(len(wire))]):
        parser = Parser()
        events = [event for read in reads for event in parser.feed(read)]
        assert flat(events) == expected
        assert sum(e.size for e in events if isinstance(e, MessageBatch)) == sizes
        assert parser.buffered == 0


@relaxed
@given(_streams | _repeated())
def test_batches_are_as_long_as_they_can_be(model: list[Model]) -> None:
    events = Parser().feed(b"".join(part for _, part in model))
    sids = [event.sid if isinstance(event, MessageBatch) else None for event in events]
    assert all(a is None or a != b for a, b in pairwise(sids))


# -- garbage ----------------------------------------------------------------------------------


def run(reads: Iterable[bytes]) -> tuple[list[object] | str, int]:
    """Feed a parser: the events or the error, and how many bytes it holds at the end."""
    parser = Parser(max_line=MAX_LINE, max_message=MAX_MESSAGE)
    events: list[Event] = []
    try:
        for read in reads:
            events += parser.feed(read)
            assert parser.buffered <= MAX_MESSAGE + 2
    except ProtocolError as error:
        return str(error), parser.buffered
    return flat(events), parser.buffered


@settings(relaxed, max_examples=500)
@given(st.data(), _garbage | _mutated())
def test_garbage_is_parsed_or_refused_however_it_is_cut(data: st.DataObject, wire: bytes) -> None:
    whole = run([wire])
    assert run(data.draw(_cut(wire))) == whole
    assert run(wire[i : i + 1] for i in range(len(wire))) == whole


@relaxed
@given(_streams, _garbage)
def test_what_came_before_does_not_change_how_garbage_is_read(
    model: list[Model], wire: bytes
) -> None:
    fresh, used = Parser(), Parser()
    used.feed(b"".join(part for _, part in model))
    assert result(used, wire) == result(fresh, wire)


def result(parser: Parser, wire: bytes) -> list[object] | str:
    try:
        return flat(parser.feed(wire))
    except ProtocolError as error:
        return str(error)


def test_the_fuzz_target() -> None:
    rng = random.Random(1)
    parsed = sum(check(*random_input(rng)) for _ in range(300))
    assert 50 < parsed < 250  # it makes good streams and bad ones
    for _ in range(300):
        one_input(rng.randbytes(rng.randrange(20)))
