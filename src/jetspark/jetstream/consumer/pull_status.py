"""What the statuses mean that a server sends instead of messages (ADR-37).

Pure: one function from the header block of a status to what to do about it.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from jetspark.protocol import parse_headers

__all__ = ["PullStatus", "Reaction", "read_status"]


class Reaction(enum.Enum):
    """How a pull goes on after a status."""

    HEARTBEAT = "alive, nothing to deliver"
    ENDED = "the request is over, as it should be"
    TOO_LARGE = "the next message is larger than the bytes asked for"
    RESET = "the server has forgotten what was asked for: ask again"
    REJECTED = "the request was refused: wait, then ask again"
    UNPINNED = "another client is pinned: ask again without the id"
    TERMINAL = "the consumer is gone or of the wrong kind"


class PullStatus(NamedTuple):
    """A status, read."""

    status: int
    description: str
    reaction: Reaction
    pending_messages: int | None  # what of the request was not delivered, if the server says so
    pending_bytes: int


def read_status(header: bytes) -> PullStatus:
    """Read the header block of a status message."""
    headers = parse_headers(header)
    status = headers.status or 0
    messages = _number(headers.get("Nats-Pending-Messages"))
    size = _number(headers.get("Nats-Pending-Bytes"))
    reaction = _reaction(status, headers.description.lower())
    return PullStatus(status, headers.description, reaction, messages, size or 0)


def _number(text: str | None) -> int | None:
    """A count; the server may send a negative one, which means 0."""
    if text is None:
        return None
    try:
        return max(int(text), 0)
    except ValueError:
        return None


def _reaction(status: int, text: str) -> Reaction:
    if status == 100:
        return Reaction.HEARTBEAT
    if status in (404, 408):
        return Reaction.ENDED
    if status == 423:
        return Reaction.UNPINNED
    if status in (400, 412):
        return Reaction.TERMINAL
    if status == 503:
        return Reaction.REJECTED
    if status == 409:
        for part, reaction in _CONFLICTS:
            if part in text:
                return reaction
    return Reaction.REJECTED


_CONFLICTS = (
    ("consumer deleted", Reaction.TERMINAL),
    ("push based", Reaction.TERMINAL),
    ("message size exceeds", Reaction.TOO_LARGE),
    ("batch completed", Reaction.ENDED),
    ("leadership change", Reaction.RESET),
    ("server shutdown", Reaction.RESET),
    ("exceeded max", Reaction.REJECTED),
)
