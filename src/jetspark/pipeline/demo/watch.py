"""How far the queries of the demo are: samples of rows and lag over time, and rates from them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jetspark.pipeline.progress import Progress

__all__ = ["Sample", "Watch", "position", "rates"]


@dataclass(frozen=True)
class Sample:
    """A moment of the demo."""

    seconds: float
    """Since the pipeline was started."""
    published: int
    """Messages in the stream, as the publisher knows."""
    rows: Mapping[str, int]
    """By query, how many of them it is done with."""

    def lag(self, query: str) -> int:
        """How many messages a query has still to read."""
        return max(self.published - self.rows[query], 0)

    @property
    def caught_up(self) -> bool:
        """Whether all queries have read everything."""
        return all(not self.lag(query) for query in self.rows)


@dataclass
class Watch:
    """Collects samples from the progress of the pipeline."""

    stream: str
    samples: list[Sample] = field(default_factory=list)

    def take(self, published: int, progress: Progress) -> Sample:
        """Add a sample."""
        before = self.samples[-1].rows if self.samples else {}
        rows = {}
        for query in progress.queries:
            name = query.name if query.what == "sink" else "dead letters"
            rows[name] = max(before.get(name, 0), position(query.report, self.stream))
        sample = Sample(progress.seconds, published, rows)
        self.samples.append(sample)
        return sample


def position(report: Mapping[str, Any] | None, stream: str) -> int:
    """The sequence up to which a query has read, from what Spark reports."""
    for source in (report or {}).get("sources") or ():
        offset = source.get("endOffset")
        if isinstance(offset, str):
            offset = json.loads(offset)
        if isinstance(offset, Mapping) and stream in offset:
            return int(offset[stream])
    return 0


def rates(samples: Sequence[Sample], query: str) -> list[tuple[float, float]]:
    """Rows a second over time: what a batch brought, over the time since the one before."""
    found: list[tuple[float, float]] = []
    if not samples:
        return found
    begin, last = samples[0], samples[-1]
    for sample in samples[1:]:
        grown = sample.rows[query] - begin.rows[query]
        if grown > 0 or sample is last:
            rate = grown / (sample.seconds - begin.seconds)
            found += [(begin.seconds, rate), (sample.seconds, rate)]
            begin = sample
    return found
