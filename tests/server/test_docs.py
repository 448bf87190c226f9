"""The programs in the README and in the documentation run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def programs() -> list[tuple[str, str]]:
    found = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for number, program in enumerate(PROGRAM.findall(page.read_text()), 1):
            if "asyncio.run(" in program:
                found.append((f"{page.name}-{number}", program))
    return found


@pytest.mark.parametrize(("name", "program"), programs(), ids=lambda value: str(value)[:40])
def test_program_runs(name: str, program: str) -> None:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, f"{name}: {result.stderr}"
    assert result.stdout


def test_the_readme_has_a_program() -> None:
    assert any(name.startswith("README") for name, _ in programs())
