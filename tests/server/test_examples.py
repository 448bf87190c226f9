"""The examples run as they stand, each in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from jetspark.server import NatsServer
from tests.support.streams import version_of

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(
    # Those for Spark are in tests/spark, where there is a session for all of them.
    path
    for path in (ROOT / "examples").glob("*.py")
    if not path.name.startswith("spark_")
)
NEEDS = re.compile(r"\b2\.(\d+) or newer\b")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(example: Path, nats_server: NatsServer) -> None:
    needs = NEEDS.search(example.read_text("utf-8"))
    if needs and version_of(nats_server) < (2, int(needs[1])):
        pytest.skip(f"it says that it needs a server of {needs[0]}")
    result = subprocess.run(
        [sys.executable, "-W", "error", example],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 3
