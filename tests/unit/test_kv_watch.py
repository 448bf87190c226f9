"""Where the initial data of a watch end."""

from __future__ import annotations

import pytest

from jetspark.kv.watcher import _end_of_initial
from jetspark.protocol import Frame

SHORT = b"$JS.ACK.KV_b.consumer.1.%d.%d.1750000000000000000.%d"
LONG = b"$JS.ACK._.account.KV_b.consumer.1.%d.%d.1750000000000000000.%d.token"


@pytest.fixture(params=[SHORT, LONG], ids=["short replies", "long replies"])
def form(request: pytest.FixtureRequest) -> bytes:
    reply: bytes = request.param
    return reply


def batch(form: bytes, *pending: int) -> list[Frame]:
    """Messages after each of which so many are pending."""
    return [
        (b"$KV.b.k", form % (100 + number, number, count), None, b"v")
        for number, count in enumerate(pending, 1)
    ]


@pytest.mark.parametrize(
    ("pending", "left", "end"),
    [
        ((9, 8, 7), 10, 0),  # nothing has changed since the server counted
        ((2, 1, 0), 3, 3),
        ((0,), 1, 1),
        ((12, 11, 10), 10, 0),  # three keys are new
        ((3, 2, 1), 3, 3),  # as many as were counted have come, and there are new ones
        ((3, 2, 1, 0), 2, 2),
        ((1, 0), 10, 2),  # the others were deleted
        ((1, 0, 0), 10, 2),  # ... and then one came
        ((1, 0, 5, 4), 10, 2),
        ((100, 10), 20, 0),
    ],
)
def test_where_the_initial_data_end(
    form: bytes, pending: tuple[int, ...], left: int, end: int
) -> None:
    assert _end_of_initial(batch(form, *pending), left) == end
