"""The names of buckets and keys, and the patterns that pick keys.

A server enforces none of these rules: a bad key would go astray, or be heard by nobody.

Pure: no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from jetspark.errors import InvalidBucketNameError, InvalidKeyError
from jetspark.protocol.subjects import subject_is_subset, subjects_collide

__all__ = [
    "STREAM_PREFIX",
    "SUBJECT_PREFIX",
    "check_bucket",
    "check_filter",
    "check_key",
    "is_key",
    "merge_filters",
    "short",
    "stream_of",
]

STREAM_PREFIX = "KV_"
SUBJECT_PREFIX = "$KV."

_MAX_BUCKET = 255 - len(STREAM_PREFIX)  # characters; the server has a directory for the stream
_BUCKET = re.compile(r"[A-Za-z0-9_-]+")
_TOKEN = r"[-/_=A-Za-z0-9]+"
is_key = re.compile(rf"{_TOKEN}(?:\.{_TOKEN})*").fullmatch
"""Whether a str is a key; a match, or None."""
_FILTER = re.compile(rf"(?:(?:{_TOKEN}|\*)(?:\.(?:{_TOKEN}|\*))*(?:\.>)?|>)")


def check_bucket(bucket: object) -> None:
    """Refuse a name that a bucket cannot have."""
    if not isinstance(bucket, str) or not _BUCKET.fullmatch(bucket):
        raise InvalidBucketNameError(
            f"bucket {bucket!r} must be a name of letters, digits, '_' and '-'"
        )
    if len(bucket) > _MAX_BUCKET:
        raise InvalidBucketNameError(
            f"bucket {bucket[:32]!r}... is longer than {_MAX_BUCKET} characters"
        )


def check_key(key: object, bucket: str) -> None:
    """Refuse what is not a key."""
    if not isinstance(key, str) or not is_key(key):
        raise InvalidKeyError(
            f"bucket {bucket!r}: key {short(key)} must be letters, digits and any of - / _ = . "
            "and must not begin or end with a dot, nor have two in a row; for other keys, give "
            "the bucket a key_codec"
        )


def check_filter(pattern: object, bucket: str) -> str:
    """A pattern for keys, where the empty one means all of them."""
    if pattern == "":
        return ">"
    if not isinstance(pattern, str) or not _FILTER.fullmatch(pattern):
        raise InvalidKeyError(
            f"bucket {bucket!r}: key filter {short(pattern)} must be a key in which a whole token "
            "may be '*', and the last one '>'"
        )
    return pattern


def merge_filters(patterns: Iterable[str], bucket: str) -> list[str]:
    """The patterns without those that others contain; servers refuse what overlaps."""
    patterns = list(dict.fromkeys(patterns))
    # Two keys that differ have nothing in common, and there may be many.
    keys = [pattern for pattern in patterns if is_key(pattern)]
    wide = _merge_wildcards([pattern for pattern in patterns if not is_key(pattern)], bucket)
    return wide + [key for key in keys if not any(subject_is_subset(key, each) for each in wide)]


def _merge_wildcards(patterns: list[str], bucket: str) -> list[str]:
    kept: list[str] = []
    for pattern in patterns:
        if any(subject_is_subset(pattern, other) for other in kept):
            continue
        kept = [other for other in kept if not subject_is_subset(other, pattern)]
        for other in kept:
            if subjects_collide(pattern, other):
                raise InvalidKeyError(
                    f"bucket {bucket!r}: key filters {other!r} and {pattern!r} overlap, and "
                    "neither contains the other; use one at a time, or a wider one"
                )
        kept.append(pattern)
    return kept


def stream_of(bucket: str) -> str:
    """The stream of a bucket."""
    check_bucket(bucket)
    return STREAM_PREFIX + bucket


def short(key: object) -> str:
    """A key as errors show it."""
    text = repr(key)
    return text if len(text) <= 100 else text[:100] + "..."
