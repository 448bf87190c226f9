"""Names in an object store: buckets, objects, their subjects, and digests.

Pure: no I/O.
"""

from __future__ import annotations

import base64
import binascii
import re

from jetspark.errors import BadObjectError, InvalidBucketNameError, InvalidNameError

__all__ = [
    "STREAM_PREFIX",
    "all_metas",
    "check_bucket",
    "check_object_name",
    "chunk_subject",
    "decode_digest",
    "encode_digest",
    "is_nuid",
    "meta_subject",
    "store_subjects",
    "stream_name",
]

STREAM_PREFIX = "OBJ_"

_BUCKET = re.compile(r"[A-Za-z0-9_-]+")
_TOKEN = re.compile(r"[^\x00-\x20\x7f.*>]+")
_LONGEST_BUCKET = 255 - len(STREAM_PREFIX)  # the stream has a directory of its name
_LONGEST_SUBJECT = 3072  # bytes; the lines of the protocol have 4096, and a reply subject


def check_bucket(bucket: object, what: str = "object store") -> None:
    """Refuse a name that an object store cannot have."""
    if not isinstance(bucket, str) or not _BUCKET.fullmatch(bucket):
        raise InvalidBucketNameError(
            f"{what} {bucket!r} must have a name of the letters A-Z and a-z, digits, _ and -"
        )
    if len(bucket) > _LONGEST_BUCKET:
        raise InvalidBucketNameError(
            f"{what} {bucket[:32]!r}... has a name of more than {_LONGEST_BUCKET} characters"
        )


def check_object_name(name: object) -> None:
    """Refuse a name that an object cannot have; nearly all texts will do."""
    if not isinstance(name, str):
        raise InvalidNameError(f"the name of an object must be a str, not {type(name).__name__}")
    if not name:
        raise InvalidNameError("the name of the object is empty; give it one")
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise InvalidNameError(f"object name {name!r} is not valid text: {error}") from None
    if size * 4 // 3 > _LONGEST_SUBJECT:
        raise InvalidNameError(
            f"object name {name[:32]!r}... has {size} bytes; {_LONGEST_SUBJECT * 3 // 4} are "
            "allowed"
        )


def is_nuid(nuid: str) -> bool:
    """Whether it can name the chunks of one object: it is one token, and no wildcard."""
    return _TOKEN.fullmatch(nuid) is not None


def stream_name(bucket: str) -> str:
    """The stream behind an object store."""
    return STREAM_PREFIX + bucket


def store_subjects(bucket: str) -> list[str]:
    """The subjects of that stream: those of the chunks and those of the descriptions."""
    return [f"$O.{bucket}.C.>", all_metas(bucket)]


def all_metas(bucket: str) -> str:
    """The descriptions of all objects."""
    return f"$O.{bucket}.M.>"


def meta_subject(bucket: str, name: str) -> str:
    """Where the description of an object is."""
    return f"$O.{bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"


def chunk_subject(bucket: str, nuid: str) -> str:
    """Where all the chunks of one version of an object are, in order."""
    return f"$O.{bucket}.C.{nuid}"


def encode_digest(digest: bytes) -> str:
    """A SHA-256 as the description has it."""
    return "SHA-256=" + base64.urlsafe_b64encode(digest).decode()


def decode_digest(text: str) -> bytes:
    """The SHA-256 in a description; raises `BadObjectError` if it is none."""
    algorithm, _, value = text.partition("=")
    if algorithm.upper() == "SHA-256":
        try:
            digest = base64.urlsafe_b64decode(value)
        except (binascii.Error, ValueError):
            digest = b""
        if len(digest) == 32:
            return digest
    raise BadObjectError(f"not a SHA-256 digest: {text!r}")
