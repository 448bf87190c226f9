"""The program as a whole: help, version, wrong usage, and what it imports for them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

HEAVY = {"pyspark", "pyarrow", "pandas", "yaml", "rich", "asyncio", "ssl", "msgspec", "readline"}


def jetspark(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program, in a place where it must not leave anything."""
    env = {**os.environ, "COLUMNS": "100", "TERM": "dumb"}
    command = [sys.executable, "-m", "jetspark.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)


def commands() -> list[str]:
    from jetspark.cli.main import app

    found = []
    for command in app.registered_commands:
        assert command.callback is not None
        found.append(command.name or command.callback.__name__)
    return found


def test_help_lists_the_commands() -> None:
    done = jetspark("--help")
    assert done.returncode == 0
    assert done.stderr == ""
    for command in commands():
        assert re.search(rf"^  {command} ", done.stdout, re.MULTILINE)


def test_the_version() -> None:
    assert jetspark("--version").stdout == f"jetspark {version('jetspark')}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nope"], "No such command 'nope'"),
        (["sql", "--nope"], "No such option"),
        (["bench", "--messages", "many"], "integer"),
        (["sql", "SELECT 1", "--json", "--csv"], "--json, --csv and --output exclude each other"),
        (["sql", "SELECT 1", "--file", "x.sql"], "exclude each other"),
        (["sql", "--file", "missing.sql"], "missing.sql cannot be read"),
        (["sql", " ; "], "there is no statement"),
    ],
)
def test_wrong_usage(arguments: list[str], said: str) -> None:
    done = jetspark(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert said in " ".join(done.stderr.replace("│", "").split())
    assert "Traceback" not in done.stderr


def test_every_command_teaches_by_example() -> None:
    # In one process: ten starts would take long.
    code = """
import sys
from typer.main import get_command
from jetspark.cli.main import app
for command in sys.argv[1:]:
    print("=====", command)
    try:
        get_command(app)([command, "--help"], prog_name="jetspark")
    except SystemExit:
        pass
"""
    run = [sys.executable, "-c", code, *commands()]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120, check=True)
    for command in commands():
        text = done.stdout.partition(f"===== {command}\n")[2].partition("=====")[0]
        assert "Examples:" in text
        assert f"jetspark {command}" in text.partition("Examples:")[2]


def test_help_needs_nothing_heavy() -> None:
    code = "import jetspark.cli.main, sys; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stdout.split())


def test_a_reader_that_has_had_enough_is_no_error(tmp_path: Path) -> None:
    code = """
import sys
import jetspark.cli.main as main
@main.app.command()
def chatter():
    for number in range(100_000):
        print("line", number)
main.app.registered_commands[-1].callback = main._guarded(chatter)
sys.argv = ["jetspark", "chatter"]
main.main()
"""
    (tmp_path / "chatter.py").write_text(code)
    pipe = f"{sys.executable} chatter.py | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", pipe], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines() == ["line 0", "0"]
    assert done.stderr == ""
