"""How lost and misplaced deliveries are noticed, from the reply subjects of the messages alone."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspark.jetstream.consumer.sequences import (
    Gap,
    GapDetector,
    OrderCheck,
    Place,
    first_sequence,
    place_of,
)
from jetspark.protocol import Frame
from tests.support.conformance import conformance


def frame(consumer_sequence: int, stream_sequence: int | None = None, consumer: str = "c") -> Frame:
    place = stream_sequence or consumer_sequence * 10
    return (
        b"orders.new",
        b"$JS.ACK.S.%b.1.%d.%d.1700000000000000000.0"
        % (consumer.encode(), place, consumer_sequence),
        None,
        b"data",
    )


def frames(*consumer_sequences: int) -> list[Frame]:
    return [frame(number) for number in consumer_sequences]


FOREIGN: Frame = (b"x", b"_INBOX.abc", None, b"data")


# -- places -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (b"$JS.ACK.S.c.2.30.4.1700.5", Place(b"c", 30, 4)),
        (b"$JS.ACK._.hash.S.c.2.30.4.1700.5", Place(b"c", 30, 4)),
        (b"$JS.ACK.dom.hash.S.c.2.30.4.1700.5.random", Place(b"c", 30, 4)),
        (b"$JS.ACK.dom.hash.S.c.2.30.4.1700.5.random.more", Place(b"c", 30, 4)),
        (b"$JS.ACK.a.S.c.2.30.4.1700.5", None),  # 10 tokens are of no version
        (b"$JS.ACK.S.c.2.30.4.1700", None),
        (b"$JS.ACK.S.c.2.x.4.1700.5", None),
        (b"$JS.FC.S.c.2.30.4.1700.5", None),
        (b"_INBOX.abc", None),
        (None, None),
    ],
)
@conformance("ADR-15", "JSAck", "9 tokens and 11 or more are read, anything else is not")
def test_place(reply: bytes | None, expected: Place | None) -> None:
    assert place_of((b"s", reply, None, b"")) == expected


def test_first_sequence() -> None:
    assert first_sequence([]) is None
    assert first_sequence([FOREIGN]) is None
    assert first_sequence([FOREIGN, frame(3), frame(4)]) == 30


# -- order --------------------------------------------------------------------------------------


@pytest.fixture
def check() -> OrderCheck:
    check = OrderCheck()
    check.begin("c")
    return check


def test_what_comes_in_order_is_accepted(check: OrderCheck) -> None:
    for batch in (frames(1, 2, 3), frames(4), frames(5, 6)):
        assert check.accept(batch) == (batch, None)
    assert (check.consumer_sequence, check.stream_sequence) == (6, 60)


def test_nothing_is_in_order(check: OrderCheck) -> None:
    assert check.accept([]) == ([], None)
    assert check.consumer_sequence == 0


@pytest.mark.parametrize(
    ("arriving", "accepted", "surprise"),
    [
        ((2, 3), 0, 2),  # before the first
        ((1, 2, 4, 5), 2, 4),  # between
        ((1, 2, 2, 3), 2, 2),  # twice
        ((1, 2, 1, 2), 2, 1),  # the consumer was reset
        ((1, 3, 2), 1, 3),  # in another order
    ],
)
def test_what_does_not_come_in_order_is_refused(
    check: OrderCheck, arriving: tuple[int, ...], accepted: int, surprise: int
) -> None:
    batch = frames(*arriving)
    assert check.accept(batch) == (batch[:accepted], surprise)
    assert check.consumer_sequence == accepted


def test_a_message_that_was_seen_is_refused(check: OrderCheck) -> None:
    check.accept([frame(1, 10), frame(2, 20)])
    check.begin("d")
    assert check.accept([frame(1, 20, "d"), frame(2, 30, "d")]) == ([], 1)
    assert check.stream_sequence == 20


def test_other_consumers_and_strangers_are_left_out(check: OrderCheck) -> None:
    ours = frames(1, 2, 3)
    others = [frame(7, consumer="old"), FOREIGN]
    mixed = [others[0], ours[0], others[1], ours[1], others[0], ours[2], others[1]]
    assert check.accept(mixed) == (ours, None)
    assert check.accept(others) == ([], None)


def test_the_next_consumer_begins_at_1(check: OrderCheck) -> None:
    check.accept(frames(1, 2))
    check.begin("d")
    assert check.accept([frame(1, 21, "d")]) == ([frame(1, 21, "d")], None)
    assert check.accept(frames(3)) == ([], None)  # of the one before


def test_nothing_is_accepted_between_two_consumers(check: OrderCheck) -> None:
    check.begin("")
    assert check.accept(frames(1, 2)) == ([], None)


@given(
    count=st.integers(1, 30),
    lost=st.sets(st.integers(1, 30)),
    cuts=st.lists(st.integers(1, 6), min_size=30, max_size=30),
)
def test_only_what_comes_before_the_first_loss_is_accepted(
    count: int, lost: set[int], cuts: list[int]
) -> None:
    check = OrderCheck()
    check.begin("c")
    arriving = [frame(number) for number in range(1, count + 1) if number not in lost]
    expected = min([number for number in lost if number <= count], default=count + 1) - 1
    accepted: list[Frame] = []
    surprised = False
    for cut in cuts:
        batch, arriving = arriving[:cut], arriving[cut:]
        good, surprise = check.accept(batch)
        accepted += good
        if surprise is not None:
            surprised = True
            break
    assert accepted == [frame(number) for number in range(1, expected + 1)]
    assert surprised == any(
        number > expected for number in range(1, count + 1) if number not in lost
    )


# -- gaps ---------------------------------------------------------------------------------------


@conformance("ADR-15", "Messages Gaps", "messages tell the last consumer and stream sequence")
def test_no_gap() -> None:
    gaps = GapDetector()
    assert gaps.messages(frames(5, 6)) is None  # begins with whatever comes first
    assert gaps.messages(frames(7)) is None
    assert gaps.heartbeat(7, 70) is None


@conformance("ADR-15", "Messages Gaps", "a gap in the consumer sequence is detected")
@pytest.mark.parametrize("arriving", [[6, 7], [3, 6, 7], [3, 4, 6]])
def test_gap_between_messages(arriving: list[int]) -> None:
    gaps = GapDetector()
    gaps.messages(frames(1, 2))
    gap = gaps.messages(frames(*arriving))
    last = max(number for number in (2, *arriving) if number < 6)
    assert gap == Gap(last + 1, 6, last * 10 + 1)
    assert gaps.messages(frames(arriving[-1] + 1)) is None  # told once


def test_the_first_of_several_gaps_is_told() -> None:
    gaps = GapDetector()
    assert gaps.messages(frames(1, 3, 5)) == Gap(2, 3, 11)


@conformance("ADR-15", "Messages Gaps", "heartbeats tell of a gap at the end")
def test_gap_that_a_heartbeat_tells_of() -> None:
    gaps = GapDetector()
    gaps.messages(frames(1, 2))
    assert gaps.heartbeat(4, 40) == Gap(3, 4, 21)
    assert gaps.heartbeat(4, 40) is None  # told once
    assert gaps.messages(frames(5)) is None


def test_a_heartbeat_may_come_first() -> None:
    gaps = GapDetector()
    assert gaps.heartbeat(8, 80) is None
    assert gaps.messages(frames(10)) == Gap(9, 10, 81)


def test_falling_numbers_are_no_gap() -> None:
    gaps = GapDetector()
    gaps.messages(frames(5, 6))
    assert gaps.messages(frames(1, 2)) is None
    assert gaps.heartbeat(0, 0) is None
    assert gaps.messages(frames(1)) is None
    assert gaps.messages(frames(3)) == Gap(2, 3, 11)


def test_strangers_are_no_gap() -> None:
    gaps = GapDetector()
    gaps.messages(frames(1))
    assert gaps.messages([FOREIGN]) is None
    assert gaps.messages([FOREIGN, *frames(2), FOREIGN]) is None


def test_what_the_application_is_told() -> None:
    error = Gap(3, 5, 21).error("consumer 'c' of stream 'S'")
    assert "consumer 'c' of stream 'S'" in str(error)
    assert "sequence 21" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (again.expected, again.received, again.resume_sequence) == (3, 5, 21)
