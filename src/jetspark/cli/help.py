"""What `--help` shows: text with a little colour, as loading rich for it would take too long."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

__all__ = ["HelpfulCommand", "HelpfulGroup"]

Context = Any  # these two are classes of click, which typer has under a private name
Formatter = Any


class HelpfulCommand(TyperCommand):
    """A command with its options in groups, and examples of how to use it."""

    def format_options(self, ctx: Context, formatter: Formatter) -> None:
        """Write the arguments, the options of the command, and those that others share with it."""
        _write_options(self, ctx, formatter)

    def format_epilog(self, ctx: Context, formatter: Formatter) -> None:
        """Write the examples."""
        _write_examples(self, formatter)


class HelpfulGroup(TyperGroup):
    """The same for the program as a whole."""

    def format_options(self, ctx: Context, formatter: Formatter) -> None:
        """Write the commands, and after them the few options."""
        self.format_commands(ctx, formatter)
        _write_options(self, ctx, formatter)

    def format_commands(self, ctx: Context, formatter: Formatter) -> None:
        """Write the first sentence about each command, all of it."""
        sentences = [
            (_name(name), (command.help or "").split("\n\n")[0])
            for name, command in self.commands.items()
        ]
        with formatter.section(_heading("Commands")):
            formatter.write_dl(sentences)

    def format_epilog(self, ctx: Context, formatter: Formatter) -> None:
        """Write the examples."""
        _write_examples(self, formatter)


def _write_options(command: TyperCommand | TyperGroup, ctx: Context, formatter: Formatter) -> None:
    sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None:
            usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
            section = getattr(parameter, "rich_help_panel", None) or usual
            sections.setdefault(section, []).append((_name(record[0]), record[1]))
    for section, records in sections.items():
        if records:
            with formatter.section(_heading(section)):
                formatter.write_dl(records)


def _write_examples(command: TyperCommand | TyperGroup, formatter: Formatter) -> None:
    if command.epilog:
        with formatter.section(_heading("Examples")):
            formatter.write_text(f"\b\n{command.epilog}")


def _heading(text: str) -> str:
    return typer.style(text, bold=True)


def _name(text: str) -> str:
    return typer.style(text, fg="cyan")
