"""The proofs of the demo: two numbers each, which come from different places and must be equal.

What was sent is known by the publisher, what is where is read from the stream, the Parquet files,
the dead letters, the bucket and the alerts. The revenue is computed again from the Parquet files
without Spark. This module only counts and compares; `evidence` reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .flow import Sent

__all__ = ["Evidence", "Order", "Proof", "Totals", "prove", "revenue_of"]

LARGE_CENTS = 500_00
"""Orders of this amount or more raise an alert; pipeline.yml says the same."""


class Order(NamedTuple):
    """A row of the archive."""

    sequence: int
    id: str
    country: str
    cents: int
    minute: str
    """As in the keys of the bucket."""


class Totals(NamedTuple):
    """The revenue of a country in a minute."""

    orders: int
    cents: int


Revenue = Mapping[str, Totals]
"""By the key that the bucket has for it, such as `de.2026-11-27-1200`."""


@dataclass(frozen=True)
class Evidence:
    """What the pipeline left."""

    stored: int
    """Messages in the stream."""
    archive: list[Order]
    dead: list[int]
    """The sequence of each dead letter in the stream of orders."""
    bucket: Revenue
    alerts: list[str]
    """The order of each alert."""
    dropped_late: int = 0
    """Rows that Spark left out, because they were older than the watermark."""


@dataclass(frozen=True)
class Proof:
    """A statement, and what was found on both sides of it."""

    name: str
    left: int
    left_is: str
    right: int
    right_is: str
    cents: bool = field(default=False)
    """Whether the numbers are amounts of money."""

    @property
    def equation(self) -> str:
        """What must be equal to what."""
        return f"{self.left_is} = {self.right_is}"

    @property
    def holds(self) -> bool:
        """Whether both sides are equal."""
        return self.left == self.right


def revenue_of(archive: list[Order]) -> dict[str, Totals]:
    """The revenue by minute and country, where an order counts once, however often it is there."""
    once = {(_key(order), order.id, order.cents) for order in archive}
    orders = Counter(key for key, _, _ in once)
    cents: Counter[str] = Counter()
    for key, _, amount in once:
        cents[key] += amount
    return {key: Totals(count, cents[key]) for key, count in orders.items()}


def _key(order: Order) -> str:
    return f"{order.country}.{order.minute}"


def prove(sent: Sent, found: Evidence) -> list[Proof]:
    """All proofs, in the order in which they are shown."""
    archived = Counter(order.sequence for order in found.archive)
    places = archived + Counter(found.dead)
    sequences = set(range(1, found.stored + 1))
    expected = revenue_of(found.archive)
    keys = expected.keys() | found.bucket.keys()
    equal = sum(expected.get(key) == found.bucket.get(key) for key in keys)
    large = {order.id for order in found.archive if order.cents >= LARGE_CENTS}
    alerts = Counter(found.alerts)
    return [
        Proof(
            "every message was stored, or was a duplicate",
            sent.messages,
            "sent",
            found.stored + sent.refused,
            "stored + refused as duplicates",
        ),
        Proof(
            "each duplicate was refused, and nothing else",
            sent.kinds["duplicate"],
            "sent twice",
            sent.refused,
            "refused as duplicates",
        ),
        Proof(
            "everything stored is archived or dead-lettered",
            found.stored,
            "stored",
            len(found.archive) + len(found.dead),
            "archived + dead-lettered",
        ),
        Proof(
            "nothing is missing, nothing is there twice",
            len(sequences | places.keys()),
            "sequences",
            sum(places[sequence] == 1 for sequence in sequences),
            "in one place, once",
        ),
        Proof(
            "only the malformed are dead-lettered",
            sent.kinds["malformed"],
            "malformed",
            len(found.dead),
            "dead-lettered",
        ),
        Proof(
            "the amounts are equal",
            sent.cents,
            "EUR sent",
            sum(order.cents for order in found.archive),
            "EUR archived",
            cents=True,
        ),
        Proof(
            "the bucket equals the archive, entry by entry",
            len(keys),
            "bucket entries",
            equal,
            "equal to the archive",
        ),
        Proof(
            "the revenue is equal, each order once",
            sum(totals.cents for totals in found.bucket.values()),
            "EUR in the bucket",
            sum(totals.cents for totals in expected.values()),
            "EUR recomputed",
            cents=True,
        ),
        Proof(
            "no late order was left out",
            sent.kinds["late"],
            "late",
            sent.kinds["late"] - found.dropped_late,
            "late and counted",
        ),
        Proof(
            "each large order raised one alert",
            len(large | alerts.keys()),
            "large orders",
            sum(alerts[order] == 1 for order in large),
            "large orders with one alert",
        ),
    ]
