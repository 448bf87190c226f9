"""The pages about Spark say what the code does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "spark.md").read_text("utf-8")
REFERENCE = (ROOT / "docs" / "spark-options.md").read_text("utf-8")
OPTIONS = set(re.findall(r"^\| `(\w+)` \|", REFERENCE, re.MULTILINE))
SPARKS_OWN = {"path", "checkpointLocation"}


def test_the_reference_is_up_to_date() -> None:
    result = subprocess.run(
        [sys.executable, "scripts/generate_spark_options.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    "option",
    ["stream", "endingOffsets", "maxOffsetsPerTrigger", "ledger", "bucket", "servers", "creds"],
)
def test_the_reference_has_every_table(option: str) -> None:
    assert option in OPTIONS


def test_the_programs_of_the_guide_can_be_compiled() -> None:
    programs = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    assert programs
    for program in programs:
        compile(program, "spark.md", "exec")


def test_the_guide_uses_options_that_exist() -> None:
    used = set(re.findall(r'\.option\("(\w+)"', GUIDE))
    assert used
    assert used - SPARKS_OWN <= OPTIONS


def test_the_links_of_the_guide_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", GUIDE)
    assert links
    for link in links:
        assert (ROOT / "docs" / link).exists(), link
