"""Runs as sequences: they are what a list of the same messages would be."""

from __future__ import annotations

import copy

import pytest

from jetspark.errors import ProtocolError
from jetspark.protocol import Frame, MessageBatch, Parser, Run

COUNT = 300


def message(number: int) -> Frame:
    return b"orders", b"$JS.ACK.%d" % number, None, b"payload %d" % number


def wire(frames: list[Frame]) -> bytes:
    lines = []
    for subject, reply, _, payload in frames:
        middle = b"" if reply is None else reply + b" "
        lines.append(b"MSG %b 1 %b%d\r\n%b\r\n" % (subject, middle, len(payload), payload))
    return b"".join(lines)


def runs_of(frames: list[Frame], parser: Parser) -> list[Run]:
    events = parser.feed(wire(frames))
    batches = [event.frames for event in events if isinstance(event, MessageBatch)]
    assert [frame for batch in batches for frame in batch] == frames
    return [batch for batch in batches if isinstance(batch, Run)]


MESSAGES = [message(number) for number in range(1000, 1000 + COUNT)]
WITHOUT_REPLY: list[Frame] = [(subject, None, None, data) for subject, _, _, data in MESSAGES]
ANSWERS: list[Frame] = [
    (b"orders.%d" % number, None, None, data) for number, (*_, data) in enumerate(MESSAGES, 1000)
]


@pytest.fixture(params=[MESSAGES, WITHOUT_REPLY], ids=["replies", "no replies"])
def pair(request: pytest.FixtureRequest) -> tuple[Run, list[Frame]]:
    """A run, and the same messages as a list."""
    parser = Parser()
    runs_of(request.param, parser)  # it learns what they are like
    (run,) = runs_of(request.param, parser)
    return run, request.param


def test_like_a_list(pair: tuple[Run, list[Frame]]) -> None:
    run, frames = pair
    assert list(run) == frames
    assert len(run) == len(frames) == COUNT
    assert [run[0], run[7], run[-1]] == [frames[0], frames[7], frames[-1]]
    with pytest.raises(IndexError):
        run[len(frames)]


def test_cut(pair: tuple[Run, list[Frame]]) -> None:
    run, frames = pair
    for part in (slice(3, 50), slice(None, 10), slice(10, None), slice(5, 5), slice(9, 3)):
        piece = run[part]
        assert isinstance(piece, Run)
        assert list(piece) == frames[part]
        assert len(piece) == len(frames[part])
    assert list(run[10:40][5:10]) == frames[15:20]
    with pytest.raises(ValueError, match="step"):
        run[::2]


def test_what_is_left_of_an_iteration_can_be_looked_at(pair: tuple[Run, list[Frame]]) -> None:
    run, frames = pair
    iterator = iter(run)
    next(iterator)
    assert list(copy.copy(iterator)) == frames[1:]
    assert list(iterator) == frames[1:]


def test_the_bytes_of_all_messages(pair: tuple[Run, list[Frame]]) -> None:
    run, frames = pair
    *_, payload, size, width = run.layout
    text = bytes(run.view())
    assert len(text) == len(frames) * width
    for start, frame in zip(range(0, len(text), width), frames, strict=True):
        assert text[start : start + 3] == b"MSG"
        assert text[start + payload : start + payload + size] == frame[3]
    assert "orders" in repr(run)


def test_one_odd_message_ends_a_run_and_no_more() -> None:
    odd: Frame = (b"orders", b"$JS.ACK.2000", None, b"odd")
    parser = Parser()
    runs_of(MESSAGES, parser)
    run, *others = runs_of([*MESSAGES, odd, *MESSAGES], parser)
    assert list(run) == MESSAGES
    assert others


def test_a_reply_that_is_none() -> None:
    """It is as long as the others, but ends the field, or the line."""
    good = wire(MESSAGES)
    for bad in (b"$JS ACK.1250", b"$JS\tACK.1250", b"$JS.A\r\n1250"):
        parser = Parser()
        parser.feed(good)
        with pytest.raises(ProtocolError):
            parser.feed(good.replace(b"$JS.ACK.1250", bad))


def test_subjects_that_look_alike() -> None:
    """They are as long as the others, but end the field, which makes another message of it."""
    good = wire(ANSWERS)
    for bad in (b"orders 1250", b"orders\t1250"):
        parser = Parser()
        parser.feed(good)
        events = parser.feed(good.replace(b"orders.1250", bad))
        (odd,) = (event for event in events if isinstance(event, MessageBatch) and event.sid != 1)
        assert (odd.sid, list(odd.frames)) == (1250, [(b"orders", b"1", None, b"payload 1250")])


def test_a_message_that_does_not_end() -> None:
    good = wire(MESSAGES)
    parser = Parser()
    parser.feed(good)
    with pytest.raises(ProtocolError, match="CRLF"):
        parser.feed(good.replace(b"payload 1000\r\n", b"payload 1000 \n"))
