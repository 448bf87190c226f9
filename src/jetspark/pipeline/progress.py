"""How far the queries of a pipeline are: rows, rates, lag, dead letters and late rows."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Meter", "Progress", "QueryProgress", "lag_of"]

_WINDOW = 5.0  # seconds that a rate is an average of


@dataclass(frozen=True)
class QueryProgress:
    """One query, at a moment."""

    name: str
    what: str
    """`sink`, or `source` for the query that brings away its dead letters."""
    state: str
    """`running`, `waiting` (to be restarted), `done`, `stopped` or `failed`."""
    rows: int
    """That it has read in this run."""
    rate: float
    """Rows a second, lately."""
    lag: int | None
    """Messages that it has still to read; None if its sources do not tell."""
    dead: int
    """Dead letters of this run."""
    late: int
    """Rows of this run that were left out because of a watermark."""
    batches: int
    report: Mapping[str, Any] | None = field(repr=False, default=None)
    """What Spark said last."""

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "name": self.name,
            "kind": self.what,
            "state": self.state,
            "rows": self.rows,
            "rate": round(self.rate, 1),
            "lag": self.lag,
            "dead": self.dead,
            "late": self.late,
            "batches": self.batches,
        }


@dataclass(frozen=True)
class Progress:
    """All queries of a pipeline, at a moment."""

    pipeline: str
    seconds: float
    """Since they were started."""
    queries: tuple[QueryProgress, ...]

    @property
    def dead(self) -> int:
        """All dead letters of this run."""
        return sum(query.dead for query in self.queries)

    @property
    def late(self) -> int:
        """All late rows of this run."""
        return sum(query.late for query in self.queries)

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "pipeline": self.pipeline,
            "seconds": round(self.seconds, 1),
            "dead": self.dead,
            "late": self.late,
            "queries": [query.as_json() for query in self.queries],
        }


class Meter:
    """Adds up what one query reports; it may be restarted on the way."""

    def __init__(self) -> None:
        self.rows = 0
        self.late = 0
        self.batches = 0
        self.report: dict[str, Any] | None = None
        self._seen: tuple[str, int, str] | None = None
        self._recent: deque[tuple[float, int]] = deque()

    def absorb(self, query: StreamingQuery) -> None:
        """Take in the latest reports of a query, of which some may be known already."""
        last = query.lastProgress
        if last is None or _key(last) == self._seen:
            return  # to get all of them takes a hundred times as long
        reports = query.recentProgress
        fresh = []
        for report in reversed(reports):
            if _key(report) == self._seen:
                break
            fresh.append(json.loads(report.json))
        for report in fresh:
            self.rows += max(int(report.get("numInputRows") or 0), 0)
            self.late += sum(
                int(operator.get("numRowsDroppedByWatermark") or 0)
                for operator in report.get("stateOperators") or ()
            )
            self.batches += bool(report.get("numInputRows"))
        self.report = fresh[0]
        self._seen = _key(reports[-1])

    def rate(self, now: float) -> float:
        """Rows a second; to be asked now and then."""
        self._recent.append((now, self.rows))
        while now - self._recent[0][0] > _WINDOW and len(self._recent) > 2:
            self._recent.popleft()
        begin, before = self._recent[0]
        return (self.rows - before) / (now - begin) if now > begin else 0.0

    @property
    def lag(self) -> int | None:
        """What the query has still to read."""
        return lag_of(self.report)


def _key(report: Any) -> tuple[str, int, str]:
    return str(report.runId), int(report.batchId), str(report.timestamp)


def lag_of(report: Mapping[str, Any] | None) -> int | None:
    """The messages between the end of a batch and that of the streams; None if it is not known."""
    if report is None:
        return None
    total = None
    for source in report.get("sources") or ():
        latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
        if latest is not None:
            behind = sum(max(last - (end or {}).get(name, 0), 0) for name, last in latest.items())
            total = (total or 0) + behind
    return total


def _offsets(value: Any) -> dict[str, int] | None:
    """Offsets of streams: `{"ORDERS": 1234}`; None for those of other sources."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if not isinstance(value, dict):
        return None
    return {
        str(name): last
        for name, last in value.items()
        if isinstance(last, int) and not isinstance(last, bool)
    }
