"""The commands of the tutorial and of the README do what the text says, one after the other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands(page: str) -> list[str]:
    """What a reader would type, apart from the installation."""
    text = "".join(_BLOCK.findall((ROOT / page).read_text()))
    lines = [line[2:] for line in text.splitlines() if line.startswith("$ ")]
    return [line for line in lines if line.startswith(("jetspark ", "cd "))]


def run(script: list[str], folder: Path) -> str:
    """Run commands in one shell, which ends at the first that fails."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("NATS_")
    }
    environment |= {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "XDG_CONFIG_HOME": str(folder),  # where no context is selected
    }
    result = subprocess.run(
        ["sh", "-ec", "\n".join(script)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.faults
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_every_command(page: str, tmp_path: Path) -> None:
    script = commands(page)
    assert len(script) > 3
    output = run(script, tmp_path)
    if page != "README.md":
        assert output.count("500") >= 2  # the stream and its copy
        assert "not JSON" in output  # one of the dead letters
    assert (tmp_path / "shop" / "archive").is_dir()
