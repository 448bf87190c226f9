"""Subjects: what may be sent, and what matches what, against a reference made to be obvious."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetspark.errors import InvalidSubjectError
from jetspark.protocol import (
    check_queue,
    check_subject,
    check_subscribe_subject,
    encode_subject,
    subject_is_subset,
    subject_matches,
    subjects_collide,
)

relaxed = settings(deadline=None, max_examples=300)

LITERALS = ["a", "a.b", "orders.eu.1", "a.b>", "a*", "*a", "a.b*c.d", "$JS.API.INFO", "é.ü", "\x0b"]
PATTERNS = ["*", ">", "a.*", "a.>", "*.*", "*.>", "a.*.b.>"]

NO_SUBJECTS: list[tuple[Any, str]] = [
    ("", "is empty"),
    (" ", "contains white space"),
    ("a b", "'a b' contains white space"),
    ("a\tb", "contains white space"),
    ("a\rb", "contains white space"),
    ("a\n", "contains white space"),
    ("a\fb", "contains white space"),
    ("a\r\nPING", "contains white space"),
    (None, "must be a str, not NoneType"),
    (b"a", "must be a str, not bytes"),
    (5, "must be a str, not int"),
]
EMPTY_TOKENS = [".", ".a", "a.", "a..b", "..", "a...b", ".>", "*."]

# -- what may be sent -------------------------------------------------------------------------


@pytest.mark.parametrize("subject", LITERALS)
def test_literals_are_good_for_everything(subject: str) -> None:
    check_subject(subject)
    check_subscribe_subject(subject)
    check_queue(subject)
    assert encode_subject(subject) == subject.encode()


@pytest.mark.parametrize("subject", PATTERNS)
def test_wildcards_are_for_subscriptions(subject: str) -> None:
    check_subscribe_subject(subject)
    with pytest.raises(InvalidSubjectError, match="has a wildcard; only subscriptions may use"):
        check_subject(subject)


@pytest.mark.parametrize(("subject", "text"), NO_SUBJECTS)
def test_what_breaks_the_control_line_is_refused(subject: Any, text: str) -> None:
    for check, what in (
        (check_subject, "subject"),
        (check_subscribe_subject, "subject"),
        (check_queue, "queue name"),
    ):
        with pytest.raises(InvalidSubjectError) as caught:
            check(subject)
        assert str(caught.value).startswith(what)
        assert text in str(caught.value)


@pytest.mark.parametrize("subject", EMPTY_TOKENS)
def test_empty_tokens_are_refused(subject: str) -> None:
    for check in (check_subject, check_subscribe_subject):
        with pytest.raises(InvalidSubjectError, match="has an empty token"):
            check(subject)
    check_queue(subject)  # the server takes any word for a queue


@pytest.mark.parametrize("subject", [">.a", "a.>.b", ">.>", "a.>.*"])
def test_a_full_wildcard_must_be_last(subject: str) -> None:
    with pytest.raises(InvalidSubjectError, match="'>' is allowed only as the last token"):
        check_subscribe_subject(subject)


def test_errors_name_what_is_wrong() -> None:
    with pytest.raises(InvalidSubjectError, match=r"^reply subject 'a\.\*' has a wildcard"):
        check_subject("a.*", "reply subject")
    with pytest.raises(InvalidSubjectError, match=r"^option 'filter' is empty"):
        check_subscribe_subject("", "option 'filter'")


def test_a_lone_surrogate_cannot_be_encoded() -> None:
    with pytest.raises(InvalidSubjectError, match="cannot be encoded as UTF-8"):
        encode_subject("a.\ud800")


@relaxed
@given(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(" \t\r\n\f.*>")))
def test_what_is_accepted_is_one_field_of_a_control_line(subject: str) -> None:
    for check in (check_subject, check_subscribe_subject, check_queue):
        try:
            check(subject)
        except InvalidSubjectError:
            continue
        line = b"PUB %b 5\r\n" % encode_subject(subject)
        assert line.replace(b"\t", b" ").split(b" ")[1].decode() == subject
        assert line.count(b"\n") == line.count(b"\r") == 1
        if check is not check_queue:
            assert "" not in subject.split(".")
        if check is check_subject:
            assert not {"*", ">"} & set(subject.split("."))


# -- what matches what ------------------------------------------------------------------------


def matches(pattern: list[str], subject: list[str]) -> bool:
    """The reference: whether a literal subject is matched, both as tokens."""
    if pattern == [">"]:
        return bool(subject)
    if not pattern or not subject:
        return not pattern and not subject
    return pattern[0] in ("*", subject[0]) and matches(pattern[1:], subject[1:])


def patterns(length: int) -> list[str]:
    """All patterns of up to so many tokens."""
    heads = [list(tokens) for n in range(length) for tokens in product(["a", "b", "*"], repeat=n)]
    return [".".join([*head, last]) for head in heads for last in ("a", "b", "*", ">")]


# One token longer than the patterns, and with a token that none of them names: what these
# subjects do not tell apart, no subject does.
SUBJECTS = [".".join(tokens) for n in range(1, 5) for tokens in product("abc", repeat=n)]
MATCHED = {
    pattern: frozenset(s for s in SUBJECTS if matches(pattern.split("."), s.split(".")))
    for pattern in patterns(3)
}


def test_the_reference_is_right() -> None:
    assert len(MATCHED) == 52
    assert MATCHED["a.*"] == {"a.a", "a.b", "a.c"}
    assert MATCHED[">"] == set(SUBJECTS)
    assert "a" not in MATCHED["a.>"]
    assert {"a.b", "a.b.c"} <= MATCHED["a.>"]


def test_subject_matches_like_the_reference() -> None:
    for pattern, matched in MATCHED.items():
        for subject in SUBJECTS:
            assert subject_matches(pattern, subject) == (subject in matched), (pattern, subject)


def test_a_subset_is_one_for_all_subjects() -> None:
    for (inner, inner_set), (outer, outer_set) in product(MATCHED.items(), repeat=2):
        assert subject_is_subset(inner, outer) == (inner_set <= outer_set), (inner, outer)


def test_a_collision_is_one_for_some_subject() -> None:
    for (first, first_set), (second, second_set) in product(MATCHED.items(), repeat=2):
        collide = bool(first_set & second_set)
        assert subjects_collide(first, second) == collide, (first, second)


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("a.b>", "a.b>", True),
        ("a.b>", "a.bc", False),
        ("a*", "a*", True),
        ("a*", "ab", False),
        ("A", "a", False),
        ("*", "a.b", False),
        (">", "a.b", True),
        ("é.*", "é.ü", True),
    ],
)
def test_wildcards_are_whole_tokens(pattern: str, subject: str, expected: bool) -> None:
    assert subject_matches(pattern, subject) is expected


_tokens = st.sampled_from(["a", "b", "bb", "*", "a*", "b>"])
_patterns = st.tuples(st.lists(_tokens, max_size=6), _tokens | st.just(">")).map(
    lambda parts: ".".join([*parts[0], parts[1]])
)
_subjects = st.lists(st.sampled_from(["a", "b", "bb", "a*", "b>"]), min_size=1, max_size=8).map(
    ".".join
)


@relaxed
@given(_patterns, _subjects)
def test_longer_subjects_match_like_the_reference(pattern: str, subject: str) -> None:
    expected = matches(pattern.split("."), subject.split("."))
    assert subject_matches(pattern, subject) == expected


@relaxed
@given(st.data(), _patterns, _patterns)
def test_relations(data: st.DataObject, first: str, second: str) -> None:
    assert subject_is_subset(first, first)
    assert subject_is_subset(first, ">")
    assert subjects_collide(first, first)
    assert subjects_collide(first, second) == subjects_collide(second, first)
    if subject_is_subset(first, second):
        assert subjects_collide(first, second)
        if subject_is_subset(second, first):
            assert first == second
    # A subject made to match the first, so that the rules below are not true by mere luck.
    *head, last = first.split(".")
    literal = st.sampled_from(["a", "b", "z"])
    tokens = [data.draw(literal) if token == "*" else token for token in head]
    tail = data.draw(st.lists(literal, min_size=1, max_size=3))
    tokens += tail if last == ">" else [tail[0] if last == "*" else last]
    subject = ".".join(tokens)
    assert subject_matches(first, subject)
    if subject_is_subset(first, second):
        assert subject_matches(second, subject)
    if subject_matches(second, subject):
        assert subjects_collide(first, second)
