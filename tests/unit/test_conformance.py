"""The page about conformance says what the marks on the tests say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date() -> None:
    result = subprocess.run(
        [sys.executable, "scripts/generate_conformance.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_no_row_is_empty() -> None:
    rows = [
        line
        for line in (ROOT / "docs" / "conformance.md").read_text().splitlines()
        if line.startswith("| ") and "---" not in line and not line.startswith("| section |")
    ]
    assert rows
    for row in rows:
        assert all(cell.strip() for cell in row.strip("|").split(" | ")), row
