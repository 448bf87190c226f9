"""Codecs for values and keys."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspark import Base64KeyCodec, JSONCodec, KeyCodec, KeyCodecChain, PathKeyCodec
from jetspark.errors import InvalidKeyError
from jetspark.kv.names import check_filter, check_key
from tests.support.conformance import conformance

SECTION = "8. Mirrors, sources, republish"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


def test_json() -> None:
    codec = JSONCodec()
    values: list[Any] = [None, 1, "ö", [1, {"a": None}], {}]
    for value in values:
        assert codec.decode(codec.encode(value)) == value
    assert codec.encode({"a": "ö"}) == '{"a":"ö"}'.encode()


def test_json_of_a_type() -> None:
    codec = JSONCodec(Point)
    assert codec.encode(Point(1, 2)) == b'{"x":1,"y":2}'
    assert codec.decode(b'{"x":1}') == Point(1)
    with pytest.raises(msgspec.ValidationError, match=r"\$\.x"):
        codec.decode(b'{"x":"1"}')
    with pytest.raises(msgspec.DecodeError):
        codec.decode(b"")


def test_json_codecs_pickle() -> None:
    codec = pickle.loads(pickle.dumps(JSONCodec(Point)))
    assert codec.decode(b'{"x":1}') == Point(1)
    assert repr(codec) == "JSONCodec(Point)"
    assert pickle.loads(pickle.dumps(JSONCodec())).decode(b"1") == 1


@conformance("KV", SECTION, "base64 keys are encoded token by token, in the URL alphabet")
@pytest.mark.parametrize(
    ("key", "stored"),
    [
        ("a", "YQ"),
        ("a.b", "YQ.Yg"),
        ("user@example", "dXNlckBleGFtcGxl"),
        ("ÿþ?>", "w7_Dvj8-"),
        (" .*", "IA.Kg"),
    ],
)
def test_base64_keys(key: str, stored: str) -> None:
    codec = Base64KeyCodec()
    assert codec.encode(key) == stored
    assert codec.decode(stored) == key
    assert codec.decode(stored + "==") == key or "." in key


@conformance("KV", SECTION, "wildcards in filters stay what they are")
@pytest.mark.parametrize(
    ("pattern", "stored"),
    [(">", ">"), ("a.*", "YQ.*"), ("*.a.>", "*.YQ.>"), ("*a", "KmE"), (">.a", "Pg.YQ")],
)
def test_base64_filters(pattern: str, stored: str) -> None:
    assert Base64KeyCodec().encode_filter(pattern) == stored


@pytest.mark.parametrize("stored", ["a", "YQ.!", "_w", "a/b="])
def test_keys_of_others_are_no_base64(stored: str) -> None:
    with pytest.raises(InvalidKeyError, match="was not written by this codec"):
        Base64KeyCodec().decode(stored)


@conformance("KV", SECTION, "paths: / is ., a leading one _root_, a trailing one nothing")
@pytest.mark.parametrize(
    ("key", "stored", "read"),
    [
        ("a/b", "a.b", "a/b"),
        ("/etc/hosts", "_root_.etc.hosts", "/etc/hosts"),
        ("a/b/", "a.b", "a/b"),
        ("/", "_root_", "/"),
        ("_root_x", "_root_x", "_root_x"),
    ],
)
def test_path_keys(key: str, stored: str, read: str) -> None:
    codec = PathKeyCodec()
    assert codec.encode(key) == stored
    assert codec.decode(stored) == read
    assert codec.encode_filter("/etc/*/>") == "_root_.etc.*.>"


@conformance("KV", SECTION, "chains of codecs decode in reverse")
def test_chains() -> None:
    chain = KeyCodecChain(PathKeyCodec(), Base64KeyCodec())
    assert chain.encode("/a/ö") == "X3Jvb3Rf.YQ.w7Y"
    assert chain.decode("X3Jvb3Rf.YQ.w7Y") == "/a/ö"
    assert chain.encode_filter("/a/*") == "X3Jvb3Rf.YQ.*"
    assert KeyCodecChain().encode("a") == "a"


@given(st.lists(st.text(min_size=1, max_size=8).filter(lambda t: "." not in t), min_size=1))
def test_any_token_becomes_a_key_and_back(tokens: list[str]) -> None:
    codec: KeyCodec = Base64KeyCodec()
    key = ".".join(tokens)
    try:
        key.encode()
    except UnicodeEncodeError:
        return
    stored = codec.encode(key)
    check_key(stored, "b")
    check_filter(codec.encode_filter(key), "b")
    assert codec.decode(stored) == key


def test_the_example_of_a_codec_by_hand() -> None:
    class Upper:
        def encode(self, value: str, /) -> bytes:
            return value.upper().encode()

        def decode(self, data: bytes, /) -> str:
            return data.decode().lower()

    from jetspark import ValueCodec

    codec: ValueCodec[Any] = Upper()
    assert codec.decode(codec.encode("a")) == "a"
