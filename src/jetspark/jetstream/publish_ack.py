"""The acknowledgement of a publish: decoded once for every message, so it is kept lean.

One decoding tells an acknowledgement from an error, without the codec of the configurations.
"""

from __future__ import annotations

from typing import Any

import msgspec

from jetspark.errors import APIError, InvalidAckError
from jetspark.jetstream.codec import NOT_JSON

__all__ = ["PublishAck", "decode_publish_ack", "parse_publish_ack"]


class PublishAck(msgspec.Struct, frozen=True, gc=False, repr_omit_defaults=True):
    """Where a message was stored."""

    stream: str = ""
    sequence: int = msgspec.field(name="seq", default=0)
    domain: str = ""
    # The message id was seen before; `sequence` is that of the first copy.
    duplicate: bool = False
    # The new value of a counter, in decimal digits of any number.
    val: str = ""
    # The id of a committed batch, and how many messages it has.
    batch_id: str = msgspec.field(name="batch", default="")
    batch_size: int = msgspec.field(name="count", default=0)
    # Never set on what a caller gets: it is raised.
    error: dict[str, Any] | None = None

    @property
    def value(self) -> int | None:
        """The new value of a counter (2.12), None if the stream does not count."""
        return int(self.val) if self.val else None


_IN_PROCESS = {
    "code": 409,
    "err_code": 10158,
    "description": "duplicate message id is in process",
}
"""What servers from 2.11 on say when a message with the same id is just being stored."""

parse_publish_ack = msgspec.json.Decoder(PublishAck).decode
"""What a reply says, be it an error; raises one of `NOT_JSON` if it is none."""


def decode_publish_ack(payload: bytes, subject: str) -> PublishAck:
    """The acknowledgement in a reply; raises the error that it carries instead."""
    try:
        ack = parse_publish_ack(payload)
    except NOT_JSON as error:
        raise InvalidAckError(
            f"publish to {subject!r}: the reply is not an acknowledgement: {error}"
        ) from error
    if ack.error is not None:
        raise APIError.from_response(ack.error, context=f"publish to {subject!r}")
    if not ack.stream:
        raise InvalidAckError(
            f"publish to {subject!r}: the reply names no stream; does something else than "
            "JetStream answer on this subject?"
        )
    if ack.duplicate and not ack.sequence:
        # So 2.10 says that the first copy is not stored yet, and may never be.
        raise APIError.from_response(_IN_PROCESS, context=f"publish to {subject!r}")
    return ack
