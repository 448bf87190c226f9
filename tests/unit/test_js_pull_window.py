"""The bookkeeping of endless pulling, without a server."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from jetspark.jetstream.consumer.messages import pinned_size, wire_size
from jetspark.jetstream.consumer.pull_window import PullWindow
from tests.support.conformance import conformance


def by_messages(limit: int) -> PullWindow:
    return PullWindow(
        max_messages=limit,
        max_bytes=None,
        threshold_messages=math.ceil(limit / 2),
        threshold_bytes=0,
    )


def by_bytes(limit: int) -> PullWindow:
    return PullWindow(
        max_messages=1_000_000,
        max_bytes=limit,
        threshold_messages=500_000,
        threshold_bytes=math.ceil(limit / 2),
    )


@conformance("ADR-37", "Consume: algorithm", "the first request asks for the whole window")
def test_first_order_fills_the_window() -> None:
    window = by_messages(10)
    assert window.needs_order()
    assert window.order() == (10, 0)
    assert not window.needs_order()


@conformance(
    "ADR-37", "Consume: algorithm", "a request is sent when pending falls below the threshold"
)
def test_orders_again_below_the_threshold() -> None:
    window = by_messages(10)
    window.order()
    for _ in range(5):
        window.returned(1, 0)
        assert not window.needs_order()
    window.returned(1, 0)
    assert window.needs_order()
    assert window.order() == (6, 0)
    assert window.pending_messages == 10


@conformance("ADR-37", "Consume: algorithm", "a window of one message does not stall")
def test_window_of_one() -> None:
    window = by_messages(1)
    for _ in range(3):
        assert window.order() == (1, 0)
        on_order = window.needs_order()
        window.returned(1, 0)
        assert (on_order, window.needs_order()) == (False, True)


@conformance(
    "ADR-37", "Consume: algorithm", "max_bytes asks for 1,000,000 messages and the bytes left"
)
def test_orders_by_bytes() -> None:
    window = by_bytes(1000)
    assert window.order() == (1_000_000, 1000)
    window.returned(1, 500)
    assert not window.needs_order()
    window.returned(1, 1)
    assert window.needs_order()
    assert window.order() == (1_000_000, 501)


@conformance("ADR-37", "Consume: algorithm", "pending counters never fall below zero")
def test_never_below_zero() -> None:
    window = by_bytes(1000)
    window.order()
    window.returned(5_000_000, 5000)
    assert (window.pending_messages, window.pending_bytes) == (0, 0)
    window = by_messages(10)
    window.order()
    window.reset()
    window.pending_messages -= 3  # late messages of an order that was given up
    assert window.order() == (10, 0)


def test_order_with_a_limit() -> None:
    window = by_messages(100)
    assert window.order(limit=7) == (7, 0)
    assert window.pending_messages == 7


@conformance(
    "ADR-37", "Consume: algorithm", "a reset makes the next request ask for everything again"
)
def test_reset() -> None:
    window = by_messages(10)
    window.order()
    window.reset()
    assert window.needs_order()
    assert window.order() == (10, 0)


@conformance(
    "ADR-37", "Consume: buffering", "what has arrived and was not taken stays counted after a reset"
)
def test_reset_with_messages_that_wait() -> None:
    window = by_messages(10)
    window.order()
    window.reset(4)
    assert window.order() == (6, 0)
    window.reset(5)
    assert not window.needs_order()
    window = by_bytes(1000)
    window.order()
    window.reset(3, 400)
    assert window.order() == (1_000_000, 600)


def test_order_that_was_too_small_for_the_next_message() -> None:
    window = by_bytes(1000)
    window.reset(3, 450)
    assert window.order() == (1_000_000, 550)
    window.returned(1_000_000, 550)
    assert not window.too_small(550)
    assert not window.needs_order()  # the same again would fail the same way
    window.returned(1, 1)
    assert window.needs_order()
    assert window.order() == (1_000_000, 551)
    window.returned(1_000_002, 1000)
    assert window.order() == (1_000_000, 1000)
    assert window.too_small(1000)  # nothing larger can be ordered


@conformance("ADR-37", "Message size", "subject, reply subject, headers and payload are counted")
def test_sizes() -> None:
    assert wire_size((b"ab", None, None, b"data")) == 6
    assert wire_size((b"ab", b"reply", b"NATS/1.0\r\n\r\n", b"data")) == 23


def test_sizes_for_a_pinned_client() -> None:
    pin, other = b"Nats-Pin-Id: xyz\r\n", b"A: b\r\n"
    for header, counted in (
        (None, 0),
        (b"NATS/1.0\r\n" + pin + b"\r\n", 0),
        (b"NATS/1.0\r\n" + other + b"\r\n", 18),
        (b"NATS/1.0\r\n" + other + pin + b"\r\n", 18),
        (b"NATS/1.0\r\n" + pin + other + b"\r\n", 18),
    ):
        assert pinned_size((b"ab", b"reply", header, b"data")) == 11 + counted


@given(limit=st.integers(1, 1000), taken=st.lists(st.integers(1, 50)))
def test_never_more_than_the_limit_on_order(limit: int, taken: list[int]) -> None:
    window = by_messages(limit)
    for number in taken:
        if window.needs_order():
            window.order()
        assert 0 < window.pending_messages <= limit
        window.returned(min(number, window.pending_messages), 0)
