"""What the statuses of a pull mean, without a server."""

from __future__ import annotations

import pytest

from jetspark.jetstream.consumer.pull_status import Reaction, read_status
from tests.support.conformance import conformance

PENDING = b"Nats-Pending-Messages: 3\r\nNats-Pending-Bytes: 40\r\n"


@conformance("ADR-37", "Consume: status handling", "every status of the table has its reaction")
@pytest.mark.parametrize(
    ("line", "reaction"),
    [
        (b"100 Idle Heartbeat", Reaction.HEARTBEAT),
        (b"100 FlowControl Request", Reaction.HEARTBEAT),
        (b"400 Bad Request", Reaction.TERMINAL),
        (b"400 Bad Request - Priority Group missing", Reaction.TERMINAL),
        (b"404 No Messages", Reaction.ENDED),
        (b"408 Request Timeout", Reaction.ENDED),
        (b"408 Requests Pending", Reaction.ENDED),
        (b"408 Interest Expired", Reaction.ENDED),
        (b"409 Message Size Exceeds MaxBytes", Reaction.TOO_LARGE),
        (b"409 Batch Completed", Reaction.ENDED),
        (b"409 Exceeded MaxRequestBatch of 5", Reaction.REJECTED),
        (b"409 Exceeded MaxRequestExpires of 1s", Reaction.REJECTED),
        (b"409 Exceeded MaxRequestMaxBytes of 5", Reaction.REJECTED),
        (b"409 Exceeded MaxWaiting", Reaction.REJECTED),
        (b"409 Consumer Deleted", Reaction.TERMINAL),
        (b"409 consumer deleted", Reaction.TERMINAL),
        (b"409 Consumer is push based", Reaction.TERMINAL),
        (b"409 Leadership Change", Reaction.RESET),
        (b"409 Server Shutdown", Reaction.RESET),
        (b"409 Something New", Reaction.REJECTED),
        (b"412 Required Api Level", Reaction.TERMINAL),
        (b"423 Nats-Wrong-Pin-Id", Reaction.UNPINNED),
        (b"423 Nats-Pin-Id mismatch", Reaction.UNPINNED),
        (b"503", Reaction.REJECTED),
        (b"599 Something New", Reaction.REJECTED),
    ],
)
def test_reaction(line: bytes, reaction: Reaction) -> None:
    status = read_status(b"NATS/1.0 " + line + b"\r\n\r\n")
    assert status.reaction is reaction
    assert status.status == int(line[:3])
    assert status.pending_messages is None
    assert status.pending_bytes == 0


@conformance("ADR-37", "Consume: status handling", "pending headers are read from any status")
def test_pending_headers() -> None:
    status = read_status(b"NATS/1.0 408 Request Timeout\r\n" + PENDING + b"\r\n")
    assert (status.pending_messages, status.pending_bytes) == (3, 40)


def test_negative_and_broken_pending_headers() -> None:
    pending = b"Nats-Pending-Messages: -2\r\nNats-Pending-Bytes: x\r\n"
    status = read_status(b"NATS/1.0 409 Batch Completed\r\n" + pending + b"\r\n")
    assert (status.pending_messages, status.pending_bytes) == (0, 0)
