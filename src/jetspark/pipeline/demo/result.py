"""What a demo brought: the numbers that are printed, written as JSON and drawn in the report."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .books import Evidence, Proof
from .flow import Sent
from .places import ALERTS, BUCKET, DEAD, ORDERS, Places
from .watch import Sample, rates

__all__ = ["Result", "euros"]


def euros(cents: float) -> str:
    """An amount.

    >>> euros(123456)
    '1,234.56'
    """
    return f"{cents / 100:,.2f}"


@dataclass(frozen=True)
class Result:
    """All of it."""

    sent: Sent
    found: Evidence
    proofs: list[Proof]
    samples: list[Sample]
    steps: Mapping[str, float]
    """How many seconds each part took."""
    live: tuple[float, float]
    """When the live part began and ended, in seconds of the samples."""
    server: str
    places: Places

    @property
    def balanced(self) -> bool:
        """Whether all proofs hold."""
        return all(proof.holds for proof in self.proofs)

    @property
    def revenue(self) -> int:
        """In cents, all that is in the bucket."""
        return sum(totals.cents for totals in self.found.bucket.values())

    @property
    def peak(self) -> float:
        """The most rows a second that a query did."""
        queries = self.samples[-1].rows if self.samples else {}
        return max((y for query in queries for _, y in rates(self.samples, query)), default=0.0)

    def where(self) -> dict[str, str]:
        """What is where."""
        return {
            "orders": f"stream {ORDERS} ({self.found.stored:,} messages)",
            "archive": f"{self.places.archive} ({len(self.found.archive):,} rows of Parquet)",
            "revenue": f"bucket {BUCKET} ({len(self.found.bucket):,} keys)",
            "alerts": f"stream {ALERTS} ({len(self.found.alerts):,} messages)",
            "dead letters": f"stream {DEAD} ({len(self.found.dead):,} messages)",
            "pipeline": str(self.places.pipeline),
        }

    def next_steps(self, options: str = "") -> dict[str, str]:
        """Commands to try, and what they show; `options` is what else they need."""
        query = (
            f"SELECT split_part(key, '.', 1) AS country, round(sum(json.revenue), 2) AS revenue "
            f"FROM kv.{BUCKET} GROUP BY 1 ORDER BY 2 DESC"
        )
        everything = shlex.quote(str(self.places.root / "everything"))
        return {
            f'jetspark sql "{query}"{options}': "the revenue of each country, from the bucket",
            f"jetspark top --once{options}": "the streams and how full they are",
            f"jetspark archive {ORDERS} {everything}{options}": "the whole stream as Parquet files",
        }

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "balanced": self.balanced,
            "proofs": [
                {
                    "name": proof.name,
                    "holds": proof.holds,
                    proof.left_is: proof.left,
                    proof.right_is: proof.right,
                }
                for proof in self.proofs
            ],
            "sent": {"messages": self.sent.messages, "kinds": dict(self.sent.kinds)},
            "archived": len(self.found.archive),
            "dead_lettered": len(self.found.dead),
            "alerts": len(self.found.alerts),
            "revenue_cents": self.revenue,
            "peak_rows_per_second": round(self.peak),
            "seconds": {name: round(value, 1) for name, value in self.steps.items()},
            "server": self.server,
            "directory": str(self.places.root),
        }
