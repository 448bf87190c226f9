"""Templates of subjects, keys and names: `alerts.{country}` takes a column of the row."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Template", "quoted", "read_template"]

_PIECE = re.compile(r"(\{\{|\}\})|\{([^{}]*)\}|([{}])")


@dataclass(frozen=True)
class Template:
    """What `read_template` makes of a text."""

    text: str
    pieces: tuple[tuple[str, str | None], ...]
    """A fixed text, and the column behind it; the last one has none."""

    @property
    def columns(self) -> list[str]:
        """Those that it names, in order, each once; of `a.b` only `a`, which is the column."""
        names = [column.partition(".")[0] for _, column in self.pieces if column is not None]
        return list(dict.fromkeys(names))

    def expression(self) -> str:
        """As an expression of SQL; null if one of the columns is null."""
        parts: list[str] = []
        for fixed, column in self.pieces:
            if fixed:
                parts.append("'" + fixed.replace("\\", "\\\\").replace("'", "\\'") + "'")
            if column is not None:
                path = ".".join(quoted(step) for step in column.split("."))
                parts.append(f"CAST({path} AS STRING)")
        return f"concat({', '.join(parts)})" if parts else "''"

    def pattern(self) -> str:
        """The subjects that it can make, as far as its fixed parts tell: `alerts.>`."""
        fixed, column = self.pieces[0]
        if column is None:
            return fixed
        begin, dot, _ = fixed.rpartition(".")
        return f"{begin}{dot}>"


def read_template(text: str) -> Template:
    """Take a template apart; raises `ValueError` with what is wrong.

    >>> read_template("alerts.{country}").columns
    ['country']
    """
    pieces: list[tuple[str, str | None]] = []
    fixed, last = "", 0
    for found in _PIECE.finditer(text):
        fixed += text[last : found.start()]
        last = found.end()
        brace, column, single = found.groups()
        if single is not None:
            raise ValueError(f"{text!r} has a single {single!r}; write {{column}}, or {single * 2}")
        if brace is not None:
            fixed += brace[0]
            continue
        if not all(step.strip() for step in column.split(".")):
            raise ValueError(f"{text!r} has empty braces; write the name of a column in them")
        pieces.append((fixed, column.strip()))
        fixed = ""
    pieces.append((fixed + text[last:], None))
    return Template(text, tuple(pieces))


def quoted(name: str) -> str:
    """A name for SQL."""
    return "`" + name.replace("`", "``") + "`"
