"""Subjects: what may be sent, and what matches what.

The server does not refuse most bad subjects, it mis-delivers them or closes the connection
(a space shifts the fields of the control line), so everything is checked here, before sending.
"""

from __future__ import annotations

import re

from jetspark.errors import InvalidSubjectError

__all__ = [
    "check_queue",
    "check_subject",
    "check_subscribe_subject",
    "encode_subject",
    "subject_is_subset",
    "subject_matches",
    "subjects_collide",
]

_BLANK = re.compile(r"[ \t\r\n\f]")
_EMPTY_TOKEN = re.compile(r"^\.|\.\.|\.$")
_WILDCARD_TOKEN = re.compile(r"(?:^|\.)[*>](?:\.|$)")
_INNER_FULL_WILDCARD = re.compile(r"(?:^|\.)>\.")


def _check_common(subject: object, what: str) -> str:
    if not isinstance(subject, str):
        raise InvalidSubjectError(f"{what} must be a str, not {type(subject).__name__}")
    if not subject:
        raise InvalidSubjectError(f"{what} is empty")
    if _BLANK.search(subject):
        raise InvalidSubjectError(f"{what} {subject!r} contains white space")
    return subject


def check_subject(subject: object, what: str = "subject") -> None:
    """Refuse what cannot be published to: blanks, empty tokens, wildcards."""
    checked = _check_common(subject, what)
    if _EMPTY_TOKEN.search(checked):
        raise InvalidSubjectError(f"{what} {checked!r} has an empty token")
    if _WILDCARD_TOKEN.search(checked):
        raise InvalidSubjectError(
            f"{what} {checked!r} has a wildcard; only subscriptions may use '*' and '>'"
        )


def check_subscribe_subject(subject: object, what: str = "subject") -> None:
    """Refuse what cannot be subscribed to: blanks, empty tokens, `>` before the end."""
    checked = _check_common(subject, what)
    if _EMPTY_TOKEN.search(checked):
        raise InvalidSubjectError(f"{what} {checked!r} has an empty token")
    if _INNER_FULL_WILDCARD.search(checked):
        raise InvalidSubjectError(f"{what} {checked!r}: '>' is allowed only as the last token")


def check_queue(queue: object) -> None:
    """Refuse an empty queue name or one with white space."""
    _check_common(queue, "queue name")


def encode_subject(subject: str, what: str = "subject") -> bytes:
    """The wire form of a subject; a lone surrogate cannot be carried."""
    try:
        return subject.encode()
    except UnicodeEncodeError as error:
        raise InvalidSubjectError(f"{what} {subject!r} cannot be encoded as UTF-8") from error


def subject_matches(pattern: str, subject: str) -> bool:
    """Whether a literal subject is matched by a pattern with `*` and `>`."""
    return subject_is_subset(subject, pattern)


def subject_is_subset(inner: str, outer: str) -> bool:
    """Whether every subject that `inner` matches is also matched by `outer`."""
    inner_tokens = inner.split(".")
    outer_tokens = outer.split(".")
    for index, token in enumerate(outer_tokens):
        if index == len(inner_tokens):
            return False
        if token == ">" and index == len(outer_tokens) - 1:
            return True
        inner_token = inner_tokens[index]
        if inner_token == ">" and index == len(inner_tokens) - 1:
            return False
        if token not in ("*", inner_token):
            return False
    return len(inner_tokens) == len(outer_tokens)


def subjects_collide(first: str, second: str) -> bool:
    """Whether some literal subject is matched by both patterns."""
    first_tokens = first.split(".")
    second_tokens = second.split(".")
    for a, b in zip(first_tokens, second_tokens, strict=False):
        if a == ">" or b == ">":
            return True
        if a != b and a != "*" and b != "*":
            return False
    return len(first_tokens) == len(second_tokens)
