"""Headers: the mapping, the block on the wire, what is refused and what is tolerated."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetspark.errors import InvalidHeaderError
from jetspark.protocol import Headers, encode_headers, parse_headers, parse_status

relaxed = settings(deadline=None, max_examples=200)

# -- the mapping ------------------------------------------------------------------------------


def test_values_are_read_by_exact_name() -> None:
    headers = Headers({"Trace": "a", "Tag": ["x", "y"]})
    assert headers["Trace"] == "a"
    assert headers["Tag"] == "x"
    assert headers.get("Tag") == "x"
    assert headers.get_all("Tag") == ["x", "y"]
    assert headers.get("tag") is None
    assert headers.get("tag", "none") == "none"
    assert headers.get_all("tag") == []
    assert "Tag" in headers
    assert "tag" not in headers
    assert 5 not in headers
    with pytest.raises(KeyError, match="tag"):
        headers["tag"]


def test_names_can_be_compared_without_case() -> None:
    headers = Headers([("Tag", "x"), ("TAG", "y"), ("Other", "z")])
    assert headers.get_all("tag", ignore_case=True) == ["x", "y"]
    assert headers.get_all("tAG", ignore_case=True) == ["x", "y"]


def test_order_and_repetition_are_kept() -> None:
    headers = Headers([("b", "1"), ("a", "2"), ("b", "3")])
    assert list(headers) == ["b", "a"]
    assert len(headers) == 3
    assert headers.items() == [("b", "1"), ("a", "2"), ("b", "3")]
    assert headers.to_dict() == {"b": ["1", "3"], "a": ["2"]}


def test_changes() -> None:
    headers = Headers()
    assert not headers
    headers.add("a", "1")
    headers.add("b", "2")
    headers.add("a", "3")
    headers["a"] = "4"
    assert headers.items() == [("b", "2"), ("a", "4")]
    del headers["b"]
    assert headers.items() == [("a", "4")]
    with pytest.raises(KeyError, match="b"):
        del headers["b"]


def test_a_copy_is_independent() -> None:
    original = Headers({"a": "1"})
    copy = Headers(original)
    copy.add("b", "2")
    original.items().clear()
    original.to_dict()["a"].append("3")
    assert original.items() == [("a", "1")]
    assert copy.items() == [("a", "1"), ("b", "2")]


def test_equality() -> None:
    headers = Headers({"a": ["1", "2"], "b": "3"})
    assert headers == Headers([("a", "1"), ("a", "2"), ("b", "3")])
    assert headers != Headers([("a", "2"), ("a", "1"), ("b", "3")])
    assert headers == {"b": "3", "a": ["1", "2"]}
    assert headers != {"b": "3", "a": "1"}
    assert headers != {"a": 5}
    assert headers != [("a", "1")]
    assert Headers(status=503) != Headers()
    assert Headers(status=404, description="x") != Headers(status=404)
    assert Headers(status=503) != {}
    with pytest.raises(TypeError, match="unhashable"):
        hash(headers)


def test_repr_and_pickle() -> None:
    headers = Headers({"a": ["1", "2"]}, status=409, description="Conflict")
    assert repr(headers) == "Headers({'a': ['1', '2']}, status=409, description='Conflict')"
    assert repr(Headers({"a": "1"})) == "Headers({'a': ['1']})"
    assert pickle.loads(pickle.dumps(headers)) == headers


def test_pairs_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="unpack"):
        Headers([("a", "b", "c")])  # type: ignore[list-item]


# -- writing ----------------------------------------------------------------------------------


def test_encode() -> None:
    assert encode_headers({}) == b"NATS/1.0\r\n\r\n"
    assert encode_headers({"A": "b"}) == b"NATS/1.0\r\nA: b\r\n\r\n"
    assert encode_headers(Headers([("B", "1"), ("A", "é"), ("B", "")])) == (
        b"NATS/1.0\r\nB: 1\r\nA: \xc3\xa9\r\nB: \r\n\r\n"
    )
    assert encode_headers({"A": ("x", "y"), "B": []}) == b"NATS/1.0\r\nA: x\r\nA: y\r\n\r\n"


def test_only_servers_write_a_status() -> None:
    assert encode_headers(Headers({"A": "b"}, status=503)) == b"NATS/1.0\r\nA: b\r\n\r\n"


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({"": "x"}, "header name '' must be printable ASCII"),
        ({"a b": "x"}, "header name 'a b' must be printable ASCII"),
        ({"a:b": "x"}, "header name 'a:b'"),
        ({"a\r\nb": "x"}, "header name"),
        ({"a\n": "x"}, "header name"),
        ({"a\t": "x"}, "header name"),
        ({"a\x7f": "x"}, "header name"),
        ({"é": "x"}, "header name 'é'"),
        ({5: "x"}, "header name 5"),
        ({b"a": "x"}, "header name b'a'"),
        ({"a": "x\r\nb: y"}, "the value of header 'a' contains a line break"),
        ({"a": "x\ny"}, "the value of header 'a' contains a line break"),
        ({"a": "x\r"}, "the value of header 'a' contains a line break"),
        ({"a": ["x", "y\n"]}, "the value of header 'a' contains a line break"),
        ({"a": 5}, "header 'a' must be a str or a list of str, not int"),
        ({"a": None}, "header 'a' must be a str or a list of str, not NoneType"),
        ({"a": b"x"}, "header 'a' must be a str or a list of str, not bytes"),
        ({"a": bytearray(b"x")}, "header 'a' must be a str or a list of str, not bytearray"),
        ({"a": ["x", 5]}, "header 'a' must have str values, not int"),
        ({"a": "\ud800"}, "headers cannot be encoded as UTF-8"),
        ("a: b", "headers must be a dict or Headers, not str"),
        ([("a", "b")], "headers must be a dict or Headers, not list"),
        (5, "headers must be a dict or Headers, not int"),
    ],
)
def test_refuses(headers: Any, text: str) -> None:
    with pytest.raises(InvalidHeaderError) as caught:
        encode_headers(headers)
    assert text in str(caught.value)


# -- reading ----------------------------------------------------------------------------------


def test_parse() -> None:
    headers = parse_headers(b"NATS/1.0\r\nA: b\r\nA:c\r\nB:  d : e\t \r\nC:\r\n\r\n")
    assert headers.items() == [("A", "b"), ("A", "c"), ("B", "d : e"), ("C", "")]
    assert headers.status is None
    assert headers.description == ""


@pytest.mark.parametrize(
    ("raw", "status", "description"),
    [
        (b"NATS/1.0 503\r\n\r\n", 503, ""),
        (b"NATS/1.0 404 No Messages\r\n\r\n", 404, "No Messages"),
        (b"NATS/1.0   409   Exceeded MaxWaiting  \r\nA: b\r\n\r\n", 409, "Exceeded MaxWaiting"),
        (b"NATS/1.0 100 Idle Heartbeat", 100, "Idle Heartbeat"),
        (b"NATS/1.0 404 \xff\r\n\r\n", 404, "\udcff"),
        (b"NATS/1.0\r\n\r\n", None, ""),
        (b"NATS/1.0 \r\n\r\n", None, ""),
        (b"NATS/1.0 40\r\n\r\n", None, ""),
        (b"NATS/1.0 4x4 text\r\n\r\n", None, ""),
        (b"NATS/1.0 \xd9\xa1\xd9\xa1\r\n\r\n", None, ""),
        (b"NATS/1.0\r\n503\r\n\r\n", None, ""),
        (b"NATS/2.0 503\r\n\r\n", None, ""),
        (b"503\r\n\r\n", None, ""),
        (b"", None, ""),
    ],
)
def test_status(raw: bytes, status: int | None, description: str) -> None:
    assert parse_status(raw) == (status, description)
    headers = parse_headers(raw)
    assert (headers.status, headers.description) == (status, description)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", []),
        (b"garbage", []),
        (b"HTTP/1.1\r\nA: b\r\n\r\n", []),
        (b"NATS/1.0", []),
        (b"NATS/1.0\r\n", []),
        (b"NATS/1.0\r\nno colon\r\nA: b\r\n\r\n", [("A", "b")]),
        (b"NATS/1.0\r\n: no name\r\nA: b", [("A", "b")]),
        (b"NATS/1.0\r\n\r\n\r\nA: b\r\n", [("A", "b")]),
        (b"NATS/1.0\r\nA: \xff\xfe\r\n\r\n", [("A", "\udcff\udcfe")]),
        (b"NATS/1.0\r\n\xff: b\r\n\r\n", [("\udcff", "b")]),
        (b"NATS/1.0\r\nA: b\nC: d\re\r\n\r\n", [("A", "b\nC: d\re")]),
        (b"NATS/1.0\r\n\x00:\x00\r\n", [("\x00", "\x00")]),
    ],
)
def test_garbage_is_tolerated(raw: bytes, expected: list[tuple[str, str]]) -> None:
    assert parse_headers(raw).items() == expected


# -- properties -------------------------------------------------------------------------------

_names = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=":")).filter(
    bool
)
# The blanks around a value belong to the line, not to the value.
_values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n")).map(
    lambda value: value.strip(" \t")
)
_pairs = st.lists(st.tuples(st.sampled_from(["A", "a", "Nats-Msg-Id"]) | _names, _values))


@relaxed
@given(_pairs)
def test_what_is_written_is_read_back(pairs: list[tuple[str, str]]) -> None:
    headers = Headers(pairs)
    raw = encode_headers(headers)
    assert raw.startswith(b"NATS/1.0\r\n")
    assert raw.endswith(b"\r\n\r\n")
    assert raw.count(b"\r\n") == len(pairs) + 2
    assert parse_headers(raw) == headers
    assert parse_headers(raw).items() == pairs


@relaxed
@given(st.dictionaries(_names, _values | st.lists(_values, min_size=1)))
def test_a_dict_is_read_back_as_an_equal_one(headers: Mapping[str, str | list[str]]) -> None:
    assert parse_headers(encode_headers(headers)) == headers


@relaxed
@given(st.text(), st.text())
def test_nothing_can_be_smuggled_into_a_block(name: str, value: str) -> None:
    try:
        raw = encode_headers({name: value, "Last": "x"})
    except InvalidHeaderError:
        return
    assert raw.count(b"\r") == raw.count(b"\n") == raw.count(b"\r\n") == 4
    assert parse_headers(raw).items() == [(name, value.strip(" \t")), ("Last", "x")]


@relaxed
@given(
    st.binary()
    | st.binary().map(lambda tail: b"NATS/1.0" + tail)
    | st.lists(st.binary()).map(lambda lines: b"NATS/1.0 " + b"\r\n".join(lines))
)
def test_any_bytes_can_be_read(raw: bytes) -> None:
    headers = parse_headers(raw)
    assert parse_status(raw) == (headers.status, headers.description)
    assert headers.status is None or 0 <= headers.status <= 999
    for name, value in headers.items():
        line = f"{name}:".encode("utf-8", "surrogateescape")
        assert line in raw
        assert value.encode("utf-8", "surrogateescape") in raw


@relaxed
@given(st.binary().map(lambda value: value.replace(b"\r", b"").replace(b"\n", b"").strip(b" \t")))
def test_values_that_are_not_utf8_can_be_sent_on(value: bytes) -> None:
    raw = b"NATS/1.0\r\nA: %b\r\n\r\n" % value
    assert encode_headers(parse_headers(raw)) == raw
