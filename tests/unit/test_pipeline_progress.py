"""What the reports of Spark's queries add up to, and what their failures say."""

from __future__ import annotations

import json
import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from jetspark.errors import PipelineFailedError
from jetspark.pipeline.failure import cause_of
from jetspark.pipeline.progress import Meter, Progress, QueryProgress, lag_of


def report(batch: int, rows: int, *, late: int = 0, run: str = "r", **source: Any) -> Any:
    content = {
        "numInputRows": rows,
        "stateOperators": [{"numRowsDroppedByWatermark": late}],
        "sources": [source] if source else [],
    }
    return SimpleNamespace(
        runId=run, batchId=batch, timestamp=f"t{batch}-{rows}", json=json.dumps(content)
    )


def query(*reports: Any) -> Any:
    """What a query tells of itself."""
    return SimpleNamespace(lastProgress=reports[-1] if reports else None, recentProgress=reports)


def test_each_report_counts_once() -> None:
    meter = Meter()
    meter.absorb(query())
    first, second, idle = report(0, 10), report(1, 5, late=2), report(1, 0)
    meter.absorb(query(first))
    meter.absorb(query(first, second))
    meter.absorb(query(first, second))
    meter.absorb(query(first, second, idle))
    assert (meter.rows, meter.late, meter.batches) == (15, 2, 2)
    meter.absorb(query(report(1, 5, run="restarted")))
    assert (meter.rows, meter.batches) == (20, 3)


def test_rates_are_of_the_last_seconds() -> None:
    meter = Meter()
    assert meter.rate(0) == 0
    meter.rows = 100
    assert meter.rate(1) == 100
    for now in range(2, 20):
        rate = meter.rate(now)
    assert rate == 0


@pytest.mark.parametrize(
    ("latest", "end", "lag"),
    [
        ('{"A": 10}', '{"A": 4}', 6),
        ({"A": 10, "B": 1}, {"A": 10}, 1),
        ({"A": 3}, {"A": 4}, 0),
        (None, "5", None),
        ("no JSON", None, None),
        ("5", "4", None),
    ],
)
def test_lag(latest: Any, end: Any, lag: int | None) -> None:
    assert lag_of({"sources": [{"latestOffset": latest, "endOffset": end}]}) == lag


def test_lag_before_the_first_report() -> None:
    assert lag_of(None) is None
    assert Meter().lag is None


def test_progress_as_json() -> None:
    one = QueryProgress("a", "sink", "done", 5, 1.26, None, 2, 1, 1)
    other = QueryProgress("b", "source", "running", 5, 0.0, 7, 3, 0, 1)
    found = Progress("p", 1.23, (one, other)).as_json()
    assert (found["dead"], found["late"], found["seconds"]) == (5, 1, 1.2)
    assert found["queries"][0] == {
        "name": "a",
        "kind": "sink",
        "state": "done",
        "rows": 5,
        "rate": 1.3,
        "lag": None,
        "dead": 2,
        "late": 1,
        "batches": 1,
    }


SINK = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted due to stage failure
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 3, in main
jetspark.errors.NoServersError: cannot connect to nats://x; is NATS running there?

	at org.apache.spark.api.python.BasePythonRunner
Driver stacktrace: SQLSTATE: XXKST"""
OURS = SINK.replace("jetspark.errors.NoServersError", "jetspark._errors_core.InvalidOptionError")
ENGINE = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: \
[CAST_INVALID_INPUT] The value 'x' of the type "STRING" cannot be cast to "INT". Use `try_cast`. \
SQLSTATE: 22018
== SQL (line 1, position 8) =="""


@pytest.mark.parametrize(
    ("text", "cause", "passing"),
    [
        (SINK, "cannot connect to nats://x; is NATS running there?", True),
        (OURS, "cannot connect to nats://x; is NATS running there?", False),
        (
            ENGINE,
            'The value \'x\' of the type "STRING" cannot be cast to "INT". Use `try_cast`.',
            False,
        ),
        ("ValueError: broken\nmore", "ValueError: broken", False),
        ("Python worker failed to connect back.", "Python worker failed to connect back.", True),
        ("", "", False),
    ],
)
def test_causes(text: str, cause: str, passing: bool) -> None:
    assert cause_of(text) == (cause, passing)


def test_the_error() -> None:
    error = PipelineFailedError("it failed", query="archive", retryable=True)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.query, copy.retryable) == ("it failed", "archive", True)
