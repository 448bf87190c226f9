"""What the messages of a counter stream say (2.12, ADR-49)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from jetspark.errors import InvalidResponseError

from .codec import NOT_JSON
from .reading import StoredMessage

__all__ = ["CounterValue", "counter_value"]


class CounterValue(msgspec.Struct, frozen=True):
    """A counter at the moment of its last change."""

    subject: str
    value: int
    increment: int | None  # of the last change
    sequence: int  # of the last change
    # In a stream that adds up others: the value of each source, by its stream and subject.
    sources: Mapping[str, Mapping[str, int]] = {}


class _Body(msgspec.Struct):
    val: str


_body = msgspec.json.Decoder(_Body)
_sources = msgspec.json.Decoder(dict[str, dict[str, str]])


def counter_value(message: StoredMessage) -> CounterValue:
    """Read the last message of a counter."""
    increment = message.headers.get("Nats-Incr")
    sources = message.headers.get("Nats-Counter-Sources")
    try:
        return CounterValue(
            subject=message.subject,
            value=int(_body.decode(message.data).val),
            increment=None if increment is None else int(increment),
            sequence=message.sequence,
            sources={
                stream: {subject: int(value) for subject, value in values.items()}
                for stream, values in (_sources.decode(sources) if sources else {}).items()
            },
        )
    except (*NOT_JSON, ValueError) as error:
        raise InvalidResponseError(
            f"message {message.sequence} of stream {message.stream!r}, on {message.subject!r}, "
            f"is no counter: {error}"
        ) from error
