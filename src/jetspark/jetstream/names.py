"""The names that streams, consumers and their groups may have.

A name becomes one token of a subject and a directory on the server's disk, so a bad one is
refused here, before it goes astray. Subjects have their own rules, in `protocol.subjects`.
"""

from __future__ import annotations

import re

from jetspark.errors import (
    InvalidConsumerNameError,
    InvalidNameError,
    InvalidOptionError,
    InvalidStreamNameError,
)

__all__ = ["check_consumer_name", "check_domain", "check_priority_group", "check_stream_name"]

_MAX_NAME = 255  # bytes; the server stores an asset in a directory of that name
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f.*>/\\]")
_FORBIDDEN_IN_DOMAIN = re.compile(r"[\x00-\x20\x7f.*>]")
_PRIORITY_GROUP = re.compile(r"[A-Za-z0-9/_=-]{1,16}")


def _check(name: object, what: str, error: type[InvalidNameError]) -> None:
    if not isinstance(name, str):
        raise error(f"{what} must be a str, not {type(name).__name__}")
    if not name:
        raise error(f"{what} is empty")
    if _FORBIDDEN.search(name):
        raise error(f"{what} {name!r} must not contain white space or any of . * > / \\")
    if len(name.encode(errors="replace")) > _MAX_NAME:
        raise error(f"{what} {name[:32]!r}... is longer than {_MAX_NAME} bytes")


def check_stream_name(name: object, what: str = "stream name") -> None:
    """Refuse a name that a stream cannot have."""
    _check(name, what, InvalidStreamNameError)


def check_consumer_name(name: object, what: str = "consumer name") -> None:
    """Refuse a name that a consumer cannot have."""
    _check(name, what, InvalidConsumerNameError)


def check_priority_group(name: object) -> None:
    """Refuse a name that a priority group cannot have."""
    if not isinstance(name, str) or not _PRIORITY_GROUP.fullmatch(name):
        raise InvalidNameError(
            f"priority group {name!r} must have 1 to 16 letters, digits or any of / _ = -"
        )


def check_domain(domain: object) -> None:
    """Refuse a domain that is not one token of a subject."""
    if not isinstance(domain, str) or not domain or _FORBIDDEN_IN_DOMAIN.search(domain):
        raise InvalidOptionError(
            f"domain {domain!r} must be a name without white space and any of . * >"
        )
