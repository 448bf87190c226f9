"""The commands in the documentation and in the help are ones that the program takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from jetspark.cli.main import app

ROOT = Path(__file__).parents[2]
PROGRAM = get_command(app)
SHELL = re.compile(r"^(?:\$ )?((?:\w+=\S+ )?jetspark [a-z].*)$", re.MULTILINE)
BLOCK = re.compile(r"^```(?:console|text|sh|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def lines() -> list[tuple[str, str]]:
    """The commands, with the page that has them."""
    texts = {page.name: page.read_text() for page in (ROOT / "docs").glob("*.md")}
    texts["README.md"] = (ROOT / "README.md").read_text()
    blocks = [app.info.epilog, *(command.epilog for command in app.registered_commands)]
    texts["help"] = "".join(f"```text\n{block}\n```\n" for block in blocks)
    found = []
    for page, text in sorted(texts.items()):
        for block in BLOCK.findall(text):
            joined = block.replace("\\\n", " ")
            found += [(page, line) for line in SHELL.findall(joined) if "..." not in line]
    return found


def arguments(line: str) -> list[str]:
    """What the program gets: up to a pipe, the next command or a remark."""
    words = shlex.split(line, comments=True)
    words = words[words.index("jetspark") + 1 :]
    for end in ("|", "&&", "&", ">", ";"):
        words = words[: words.index(end)] if end in words else words
    return words


@pytest.mark.parametrize(("page", "line"), lines())
def test_a_command_is_accepted(page: str, line: str) -> None:
    name, *rest = arguments(line)
    assert name in PROGRAM.commands  # type: ignore[attr-defined]
    PROGRAM.commands[name].make_context(name, rest)  # type: ignore[attr-defined]


def test_there_are_commands() -> None:
    pages = {page for page, _ in lines()}
    assert {"help", "sql.md"} <= pages
