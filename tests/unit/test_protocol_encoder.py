"""The encoder: frames, their order, what is refused, and that a refusal leaves no trace."""

from __future__ import annotations

import array
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetspark.errors import (
    InvalidArgumentError,
    InvalidHeaderError,
    InvalidSubjectError,
    MaxPayloadError,
)
from jetspark.protocol import FULL_PIECES, Encoder, Headers, connect_frame

BLOCK = b"NATS/1.0\r\nA: b\r\n\r\n"
assert len(BLOCK) == 18


def encoded(add: Callable[[Encoder], object]) -> bytes:
    encoder = Encoder()
    add(encoder)
    return encoder.take()


# -- frames -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "frame"),
    [
        (("a", b"hi"), b"PUB a 2\r\nhi\r\n"),
        (("a", b""), b"PUB a 0\r\n\r\n"),
        (("a.é", b"\r\nPING\r\n"), b"PUB a.\xc3\xa9 8\r\n\r\nPING\r\n\r\n"),
        (("a", b"hi", "r.1"), b"PUB a r.1 2\r\nhi\r\n"),
        (("a", b"hi", b"_INBOX.x"), b"PUB a _INBOX.x 2\r\nhi\r\n"),
        (("a", b"hi", None, {"A": "b"}), b"HPUB a 18 20\r\n%bhi\r\n" % BLOCK),
        (("a", b"hi", "r", {"A": "b"}), b"HPUB a r 18 20\r\n%bhi\r\n" % BLOCK),
        (("a", b"", b"r", Headers({"A": "b"})), b"HPUB a r 18 18\r\n%b\r\n" % BLOCK),
        (("a", b"hi", None, {}), b"PUB a 2\r\nhi\r\n"),
        (("a", b"hi", "r", Headers(status=503)), b"PUB a r 2\r\nhi\r\n"),
    ],
)
def test_publish(arguments: tuple[Any, ...], frame: bytes) -> None:
    encoder = Encoder()
    for _ in range(3):  # the first fills the caches
        encoder.publish(*arguments)
        assert encoder.take() == frame


def test_request() -> None:
    encoder = Encoder()
    for _ in range(3):
        encoder.request("a", b"hi", b"_INBOX.x.1")
        assert encoder.take() == b"PUB a _INBOX.x.1 2\r\nhi\r\n"
        encoder.request("a", b"hi", b"_INBOX.x.1", {"A": "b"})
        assert encoder.take() == b"HPUB a _INBOX.x.1 18 20\r\n%bhi\r\n" % BLOCK
        encoder.request("a", bytearray(b"hi"), b"_INBOX.x.1")
        assert encoder.take() == b"PUB a _INBOX.x.1 2\r\nhi\r\n"


def test_publish_trusted() -> None:
    assert encoded(lambda e: e.publish_trusted(b"$JS.ACK.1", b"+ACK")) == (
        b"PUB $JS.ACK.1 4\r\n+ACK\r\n"
    )
    assert encoded(lambda e: e.publish_trusted(b"$JS.ACK.1", b"", b"r")) == (
        b"PUB $JS.ACK.1 r 0\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("add", "frame"),
    [
        (lambda e: e.subscribe("a.*", 1), b"SUB a.* 1\r\n"),
        (lambda e: e.subscribe("a.>", 22, "workers"), b"SUB a.> workers 22\r\n"),
        (lambda e: e.unsubscribe(1), b"UNSUB 1\r\n"),
        (lambda e: e.unsubscribe(1, 0), b"UNSUB 1 0\r\n"),
        (lambda e: e.unsubscribe(1, 5), b"UNSUB 1 5\r\n"),
        (lambda e: e.ping(), b"PING\r\n"),
        (lambda e: e.pong(), b"PONG\r\n"),
    ],
)
def test_control_frames(add: Callable[[Encoder], object], frame: bytes) -> None:
    assert encoded(add) == frame


def test_connect() -> None:
    fields = {"verbose": False, "name": "é\r\n", "protocol": 1}
    frame = connect_frame(fields)
    assert frame.startswith(b"CONNECT {")
    assert frame.endswith(b"}\r\n")
    assert frame.count(b"\r\n") == 1
    assert json.loads(frame[8:]) == fields


# -- payloads ---------------------------------------------------------------------------------


@pytest.mark.parametrize("extra", [(), ("r",), (None, {"A": "b"})])
@pytest.mark.parametrize(
    "data",
    [
        bytearray(b"abcd"),
        memoryview(b"abcd"),
        memoryview(b"__abcd__")[2:6],
        memoryview(b"a_b_c_d_")[::2],
        memoryview(b"abcd").cast("H"),
        memoryview(b"abcd").cast("B", (2, 2)),
        memoryview(b"abcd").cast("I"),
        type("Bytes", (bytes,), {})(b"abcd"),
    ],
)
def test_anything_made_of_bytes_can_be_sent(data: Any, extra: tuple[Any, ...]) -> None:
    expected = encoded(lambda e: e.publish("a", b"abcd", *extra))
    encoder = Encoder()
    for _ in range(2):
        encoder.publish("a", data, *extra)
        assert encoder.take() == expected


def test_a_payload_is_sent_as_it_was() -> None:
    encoder = Encoder()
    data = bytearray(b"before")
    encoder.publish("a", data)
    encoder.publish("a", memoryview(data))
    data[:] = b"changed since"
    assert encoder.take() == b"PUB a 6\r\nbefore\r\n" * 2


@pytest.mark.parametrize("extra", [(), ("r",), (None, {"A": "b"})])
@pytest.mark.parametrize(
    "data", ["text", None, 5, 1.5, [1, 2], (1, 2), [300], {}, object(), array.array("i", [1])]
)
def test_anything_else_is_refused(data: Any, extra: tuple[Any, ...]) -> None:
    encoder = Encoder()
    encoder.publish("a", b"0123456789", *extra)
    before = encoder.size
    with pytest.raises(InvalidArgumentError) as caught:
        encoder.publish("a", data, *extra)
    assert f"data must be bytes, not {type(data).__name__}; encode it first" in str(caught.value)
    assert (encoder.size, encoder.messages) == (before, 1)
    with pytest.raises(InvalidArgumentError, match="data must be bytes"):
        encoder.request("a", data, b"inbox")
    assert (encoder.size, encoder.messages) == (before, 1)


# -- limits -----------------------------------------------------------------------------------


def test_max_payload_counts_headers_and_payload() -> None:
    encoder = Encoder(max_payload=20)
    encoder.publish("a", b"x" * 20)
    encoder.publish("a", b"xx", None, {"A": "b"})
    encoder.request("a", b"x" * 20, b"inbox")
    before = encoder.size
    adds: list[Callable[[], object]] = [
        lambda: encoder.publish("big", b"x" * 21),
        lambda: encoder.publish("big", b"xxx", None, {"A": "b"}),
        lambda: encoder.publish("big", memoryview(array.array("H", [0] * 11)), "r"),
        lambda: encoder.request("big", b"x" * 21, b"inbox"),
    ]
    for add in adds:
        with pytest.raises(MaxPayloadError, match="bytes to 'big' is over the server's limit") as e:
            add()
        assert (e.value.size, e.value.limit) in ((21, 20), (22, 20))
    assert (encoder.size, encoder.messages) == (before, 3)


def test_the_limit_follows_the_server() -> None:
    encoder = Encoder(max_payload=20)
    encoder.publish("a", b"x" * 20)
    encoder.max_payload = 10
    assert encoder.max_payload == 10
    assert not encoder.sizes
    for publish in (encoder.publish, lambda s, d: encoder.request(s, d, b"inbox")):
        with pytest.raises(MaxPayloadError):
            publish("a", b"x" * 20)
    encoder.max_payload = 30
    encoder.publish("a", b"x" * 30)
    assert encoder.messages == 2


def test_a_negative_limit_is_none() -> None:
    encoder = Encoder(max_payload=-1)
    encoder.publish("a", b"x" * 2_000_000)
    encoder.publish("a", b"x" * 2_000_000, "r", {"A": "b"})
    assert encoder.messages == 2


LINE = 100


@pytest.mark.parametrize(
    ("add", "text"),
    [
        (lambda e, n: e.publish("s" * n, b"x"), "subject too long"),
        (lambda e, n: e.publish("s", b"x", "r" * n), "subject and reply subject too long"),
        (lambda e, n: e.publish("s", b"x", "é" * (n // 2)), "subject and reply subject too long"),
        (lambda e, n: e.publish("s", b"x", b"r" * n), "subject and reply subject too long"),
        (lambda e, n: e.publish("s" * (n // 2), b"x", "r" * (n // 2), {"A": "b"}), "too long"),
        (lambda e, n: e.request("s" * n, b"x", b"inbox"), "too long"),
        (lambda e, n: e.request("s" * (n // 2), b"x", b"i" * (n // 2)), "too long"),
        (lambda e, n: e.subscribe("s" * n, 1), "subject and queue name too long"),
        (lambda e, n: e.subscribe("s", 1, "q" * n), "subject and queue name too long"),
    ],
)
def test_control_lines_fit_into_what_the_server_takes(
    add: Callable[[Encoder, int], object], text: str
) -> None:
    encoder = Encoder(max_control_line=LINE)
    accepted = 0
    for length in range(2, LINE + 50):
        for _ in range(2):  # the second may come from a cache
            refusal = ""
            try:
                add(encoder, length)
            except InvalidSubjectError as error:
                refusal = str(error)
            if refusal:
                assert text in refusal
                assert f"the server takes {LINE} bytes in a line" in refusal
                assert encoder.size == 0
            else:
                accepted += 1
                assert encoder.take().index(b"\r\n") <= LINE
    assert 2 * (LINE // 2) <= accepted <= 2 * LINE


# -- refusals ---------------------------------------------------------------------------------

REFUSED: list[tuple[Callable[[Encoder], object], type[InvalidArgumentError], str]] = [
    (lambda e: e.publish("", b""), InvalidSubjectError, "subject is empty"),
    (lambda e: e.publish("a b", b""), InvalidSubjectError, "subject 'a b' contains white space"),
    (lambda e: e.publish("a.*", b""), InvalidSubjectError, "has a wildcard"),
    (lambda e: e.publish("a..b", b""), InvalidSubjectError, "has an empty token"),
    (lambda e: e.publish("\ud800", b""), InvalidSubjectError, "subject '\\ud800' cannot be enc"),
    (lambda e: e.publish(b"a", b""), InvalidSubjectError, "must be a str, not bytes"),  # type: ignore[arg-type]
    (lambda e: e.publish(None, b""), InvalidSubjectError, "must be a str, not NoneType"),  # type: ignore[arg-type]
    (lambda e: e.publish(["a"], b""), InvalidSubjectError, "must be a str, not list"),  # type: ignore[arg-type]
    (lambda e: e.publish("a", b"", ""), InvalidSubjectError, "reply subject is empty"),
    (lambda e: e.publish("a", b"", "r r"), InvalidSubjectError, "reply subject 'r r' contains"),
    (lambda e: e.publish("a", b"", "r.>"), InvalidSubjectError, "reply subject 'r.>' has a wild"),
    (lambda e: e.publish("a", b"", "\ud800"), InvalidSubjectError, "reply subject '\\ud800' cann"),
    (lambda e: e.publish("a", b"", 5), InvalidSubjectError, "reply subject must be a str"),  # type: ignore[arg-type]
    (lambda e: e.publish("a", b"", None, {"a b": "x"}), InvalidHeaderError, "header name 'a b'"),
    (lambda e: e.publish("a", b"", None, {"a": "x\n"}), InvalidHeaderError, "line break"),
    (lambda e: e.publish("a", b"", None, "a: b"), InvalidHeaderError, "must be a dict"),  # type: ignore[arg-type]
    (lambda e: e.request("a b", b"", b"i"), InvalidSubjectError, "contains white space"),
    (lambda e: e.request(["a"], b"", b"i"), InvalidSubjectError, "must be a str"),  # type: ignore[arg-type]
    (lambda e: e.subscribe("", 1), InvalidSubjectError, "subject is empty"),
    (lambda e: e.subscribe("a.>.b", 1), InvalidSubjectError, "only as the last token"),
    (lambda e: e.subscribe("\ud800", 1), InvalidSubjectError, "subject '\\ud800' cannot be enc"),
    (lambda e: e.subscribe("a", 1, ""), InvalidSubjectError, "queue name is empty"),
    (lambda e: e.subscribe("a", 1, "q q"), InvalidSubjectError, "queue name 'q q' contains"),
    (lambda e: e.subscribe("a", 1, "\ud800"), InvalidSubjectError, "queue name '\\ud800' cannot"),
]


@pytest.mark.parametrize(("add", "kind", "text"), REFUSED)
def test_a_refusal_leaves_no_trace(
    add: Callable[[Encoder], object], kind: type[Exception], text: str
) -> None:
    calls: list[str] = []
    encoder = Encoder(on_output=lambda: calls.append("output"))
    for _ in range(2):
        with pytest.raises(kind) as caught:
            add(encoder)
        assert text in str(caught.value)
    assert (encoder.size, encoder.messages, encoder.take(), calls) == (0, 0, b"", [])
    encoder.publish("a", b"x")
    encoder.ping()
    with pytest.raises(kind):
        add(encoder)
    assert encoder.messages == 1
    assert encoder.take() == b"PUB a 1\r\nx\r\nPING\r\n"


def test_checking_a_subscription_adds_nothing() -> None:
    encoder = Encoder()
    encoder.subscribe_frame("a.*", 0, "q")
    assert (encoder.size, encoder.take()) == (0, b"")


# -- collecting -------------------------------------------------------------------------------


def test_on_output_is_called_for_the_first_frame_after_a_take() -> None:
    calls: list[str] = []
    encoder = Encoder(on_output=lambda: calls.append("output"))
    adds: list[Callable[[], object]] = [
        lambda: encoder.publish("a", b""),
        lambda: encoder.publish("a", b"", "r", {"A": "b"}),
        lambda: encoder.request("a", b"", b"i"),
        lambda: encoder.publish_trusted(b"a", b""),
        lambda: encoder.subscribe("a", 1),
        encoder.ping,
    ]
    for number, first in enumerate(adds, 1):
        first()
        for add in adds:
            add()
        assert len(calls) == number
        encoder.take()


def test_it_says_when_enough_waits() -> None:
    encoder = Encoder()
    adds: list[Callable[[], bool]] = [
        lambda: encoder.publish("a", b"x"),
        lambda: encoder.request("a", b"x", b"inbox"),
        lambda: encoder.publish_trusted(b"a", b"x"),
    ]
    for add in adds:
        answers = [add() for _ in range(FULL_PIECES // 3 + 1)]
        assert answers == [False] * (FULL_PIECES // 3) + [True]
        encoder.take()
        assert add() is False
        encoder.take()
    assert encoder.publish("a", b"x" * 100_000) is False
    assert encoder.publish("a", b"x" * 100_000) is True
    encoder.take()
    assert encoder.publish("a", b"x") is False


def test_what_is_kept_for_speed_is_bounded() -> None:
    encoder = Encoder()
    for number in range(10_000):
        encoder.publish(f"subject.{number}", b"x" * number)
        assert encoder.take() == b"PUB subject.%d %d\r\n%b\r\n" % (number, number, b"x" * number)
    assert len(encoder.prefixes) <= 4096
    assert len(encoder.sizes) <= 4097


def test_long_subjects_are_not_kept() -> None:
    encoder = Encoder()
    for number in range(10):
        encoder.publish("s" * 3000 + str(number), b"x")
    assert not encoder.prefixes


def test_the_client_may_hold_on_to_the_collections() -> None:
    encoder = Encoder()
    held = (encoder.pieces, encoder.prefixes, encoder.sizes)
    for number in range(5000):
        encoder.publish(f"a.{number}", b"x")
    encoder.ping()
    encoder.drop_control_frames()
    encoder.take()
    encoder.max_payload = 5
    encoder.publish("b", b"x")
    assert all(
        mine is theirs
        for mine, theirs in zip(
            held, (encoder.pieces, encoder.prefixes, encoder.sizes), strict=True
        )
    )
    # What they are for: a plain message made of what has been checked before.
    encoder.pieces += (encoder.prefixes["b"], encoder.sizes[1], b"y")
    assert encoder.messages == 5002
    assert encoder.take() == b"PUB b 1\r\nx\r\nPUB b 1\r\ny\r\n"


# -- any order of calls -----------------------------------------------------------------------

_payloads = st.binary(max_size=20) | st.just(b"x" * 5000)
_calls = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from(["a", "b.c"]), _payloads),
    st.tuples(st.just("publish"), st.just("a"), _payloads, st.just("r"), st.just({"A": "b"})),
    st.tuples(st.just("request"), st.sampled_from(["a", "d"]), _payloads, st.just(b"inbox")),
    st.tuples(st.just("publish_trusted"), st.just(b"ack"), st.just(b"+ACK")),
    st.tuples(st.just("subscribe"), st.just("a.*"), st.integers(0, 99)),
    st.tuples(st.just("unsubscribe"), st.integers(0, 99)),
    st.sampled_from([("ping",), ("pong",), ("take",), ("drop_control_frames",), ("refused",)]),
)
_CONTROL = {"subscribe", "unsubscribe", "ping", "pong"}


@settings(deadline=None, max_examples=200)
@given(st.lists(_calls, max_size=30))
def test_any_order_of_calls(calls: list[tuple[Any, ...]]) -> None:
    encoder = Encoder()
    waiting: list[tuple[bool, bytes]] = []  # the model: whether it is a message, and its frame
    messages = 0
    for name, *arguments in calls:
        if name == "take":
            assert encoder.take() == b"".join(frame for _, frame in waiting)
            waiting.clear()
        elif name == "drop_control_frames":
            encoder.drop_control_frames()
            waiting = [item for item in waiting if item[0]]
        elif name == "refused":
            with pytest.raises(InvalidSubjectError):
                encoder.publish("no subject", b"x")
        else:
            getattr(encoder, name)(*arguments)
            alone = Encoder()
            getattr(alone, name)(*arguments)
            waiting.append((name not in _CONTROL, alone.take()))
            messages += name not in _CONTROL
        assert encoder.size == sum(len(frame) for _, frame in waiting)
        assert encoder.messages == messages
    assert encoder.take() == b"".join(frame for _, frame in waiting)


def test_a_trusted_subject_may_have_wildcards() -> None:
    encoder = Encoder(max_control_line=200)
    with pytest.raises(InvalidSubjectError):
        encoder.publish("api.*.>", b"")
    assert encoder.trust_subject("api.*.>")
    encoder.publish("api.*.>", b"")
    assert encoder.take() == b"PUB api.*.> 0\r\n\r\n"


def test_a_trusted_subject_leaves_room_for_an_inbox() -> None:
    encoder = Encoder(max_control_line=200)
    assert not encoder.trust_subject("a" * 100)
    with pytest.raises(InvalidSubjectError):
        encoder.trust_subject("two words")
