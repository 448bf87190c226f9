"""Checks that configurations share; each raises `InvalidOptionError` and names the field."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from jetspark.errors import InvalidOptionError, InvalidSubjectError
from jetspark.protocol import subjects

__all__ = [
    "INT32",
    "INT64",
    "UINT64",
    "check_description",
    "check_duration",
    "check_filter",
    "check_literal",
    "check_metadata",
    "check_range",
]

INT32 = 2**31 - 1
INT64 = 2**63 - 1
UINT64 = 2**64 - 1

_MAX_DESCRIPTION = 4 * 1024
_MAX_METADATA = 128 * 1024


def check_description(description: str) -> None:
    """Refuse a description that is too long for a server."""
    if len(description.encode(errors="replace")) > _MAX_DESCRIPTION:
        raise InvalidOptionError(f"description is longer than {_MAX_DESCRIPTION} bytes")


def check_metadata(metadata: Mapping[str, str]) -> None:
    """Refuse metadata that are too large for a server."""
    size = sum(len(text.encode(errors="replace")) for item in metadata.items() for text in item)
    if size > _MAX_METADATA:
        raise InvalidOptionError(f"metadata has {size} bytes; {_MAX_METADATA} are allowed")


def check_range(field: str, value: int, least: int, most: int) -> None:
    """Refuse a number that a server would refuse or take for another one."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidOptionError(f"{field} must be a whole number, not {value!r}")
    if not least <= value <= most:
        unlimited = ", where -1 is unlimited" if least == -1 else ""
        raise InvalidOptionError(f"{field} must be {least} to {most}{unlimited}, not {value}")


def check_duration(field: str, value: timedelta, least: timedelta = timedelta(0)) -> None:
    """Refuse a negative duration, and one that is set but shorter than a server takes."""
    if value < timedelta(0) or timedelta(0) < value < least:
        raise InvalidOptionError(
            f"{field} must be at least {least.total_seconds():g} s, not {value.total_seconds():g} s"
        )


def check_literal(field: str, subject: str) -> None:
    """Refuse what is not a subject to publish to."""
    try:
        subjects.check_subject(subject, field)
    except InvalidSubjectError as error:
        raise InvalidOptionError(str(error)) from None


def check_filter(field: str, subject: str) -> None:
    """Refuse what is not a subject to subscribe to."""
    try:
        subjects.check_subscribe_subject(subject, field)
    except InvalidSubjectError as error:
        raise InvalidOptionError(str(error)) from None
