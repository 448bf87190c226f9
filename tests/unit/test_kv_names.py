"""Names of buckets and keys, and patterns for keys."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspark.errors import InvalidBucketNameError, InvalidKeyError
from jetspark.kv.names import check_bucket, check_filter, check_key, merge_filters, stream_of
from tests.support.conformance import conformance

SECTION = "1. Names and validity"
LETTERS = string.ascii_letters + string.digits
TOKENS = LETTERS + "-/_="
NO_NAMES: list[Any] = [None, 1, b"a", ""]


@conformance("KV", SECTION, "a bucket is 1 or more letters, digits, _ and -")
@pytest.mark.parametrize("bucket", [*LETTERS, "_", "-", "a-B_9", "x" * 252])
def test_buckets(bucket: str) -> None:
    check_bucket(bucket)
    assert stream_of(bucket) == f"KV_{bucket}"


@conformance("KV", SECTION, "names are matched in full: no line break at the end")
@pytest.mark.parametrize("bucket", [*NO_NAMES, "a.b", "a b", "a/b", "a*", ">", "ä", "a\n", "$a"])
def test_no_buckets(bucket: Any) -> None:
    with pytest.raises(InvalidBucketNameError, match="must be a name of letters"):
        stream_of(bucket)


def test_a_bucket_is_not_longer_than_the_name_of_a_stream() -> None:
    with pytest.raises(InvalidBucketNameError, match="longer than 252"):
        check_bucket("x" * 253)


@conformance("KV", SECTION, "a key is 1 or more letters, digits and - / _ = with single dots")
@pytest.mark.parametrize("key", [*TOKENS, "a.b.c", "a-b/c_d=e.f", "_kv.x", "x" * 5000])
def test_keys(key: str) -> None:
    check_key(key, "b")
    assert check_filter(key, "b") == key


@conformance("KV", SECTION, "a key with two dots in a row is refused, as no server would hear it")
@pytest.mark.parametrize("key", ["a..b", ".", "..", ".a", "a.", "a..", ".a.b"])
def test_dots(key: str) -> None:
    for check in (check_key, check_filter):
        with pytest.raises(InvalidKeyError, match="bucket 'b': key"):
            check(key, "b")


@conformance("KV", SECTION, "a key with any other character is refused, and so is an empty one")
@pytest.mark.parametrize(
    "key", [*NO_NAMES, *(c for c in map(chr, range(256)) if c not in TOKENS), "a\n", "a.b\n", "a*"]
)
def test_no_keys(key: Any) -> None:
    with pytest.raises(InvalidKeyError, match=r"bucket 'b': key .* must be"):
        check_key(key, "b")


def test_the_error_does_not_repeat_a_long_key() -> None:
    with pytest.raises(InvalidKeyError) as caught:
        check_key("x " * 5000, "b")
    assert len(str(caught.value)) < 400


@conformance("KV", SECTION, "a filter may have * for a token and > for the last ones")
@pytest.mark.parametrize("pattern", [">", "*", "a.*", "*.b", "a.>", "*.*.>", "a.*.c"])
def test_filters(pattern: str) -> None:
    assert check_filter(pattern, "b") == pattern


@conformance("KV", SECTION, "the empty filter means the whole bucket")
def test_the_empty_filter() -> None:
    assert check_filter("", "b") == ">"


@conformance("KV", SECTION, "each wildcard in a filter is a whole token")
@pytest.mark.parametrize(
    "pattern", [None, 1, "a*", "*a.b", "a.b*", "a>", ">.a", "a.>.b", "> ", "a b", "a.>\n", "**"]
)
def test_no_filters(pattern: Any) -> None:
    with pytest.raises(InvalidKeyError, match=r"bucket 'b': key filter .* must be"):
        check_filter(pattern, "b")


@pytest.mark.parametrize(
    ("given", "merged"),
    [
        ([], []),
        (["a", "b"], ["a", "b"]),
        (["a", "a"], ["a"]),
        (["a.b", "a.*"], ["a.*"]),
        (["a.>", "a.b", "c"], ["a.>", "c"]),
        (["a.b", "c.d", ">"], [">"]),
        (["a.*", "b.*"], ["a.*", "b.*"]),
    ],
)
def test_filters_that_others_contain_are_left_out(given: list[str], merged: list[str]) -> None:
    assert merge_filters(given, "b") == merged


def test_filters_that_overlap_in_part_are_refused() -> None:
    with pytest.raises(InvalidKeyError, match=r"'a\.\*' and '\*\.b' overlap"):
        merge_filters(["x", "a.*", "*.b"], "b")


@given(st.text(max_size=20))
def test_what_is_let_through_cannot_leave_its_bucket(text: str) -> None:
    try:
        check_key(text, "b")
    except InvalidKeyError:
        return
    assert all(text.split("."))
    assert not set(text) - set(TOKENS + ".")
