"""Environment variables in a pipeline file: `${NAME}` and `${NAME:-default}`."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["substitute"]

_REFERENCE = re.compile(r"\$(\$\{)|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|(\$\{)")


def substitute(text: str, environment: Mapping[str, str]) -> tuple[str, list[str]]:
    """The text with its variables filled in, and what is wrong with them.

    A variable that is empty counts as one that is not there, as in a shell. `$${` is a plain `${`.

    >>> substitute("nats://${HOST:-localhost}:${PORT}", {"PORT": "4222"})
    ('nats://localhost:4222', [])
    """
    wrong: list[str] = []

    def fill(found: re.Match[str]) -> str:
        escaped, name, default, broken = found.groups()
        if escaped is not None:
            return "${"
        if broken is not None:
            wrong.append("'${' must be ${NAME} or ${NAME:-default}; write $${ for a plain '${'")
            return found[0]
        value = environment.get(name) or default
        if value is None:
            wrong.append(
                f"environment variable {name} is not set; set it, or write ${{{name}:-default}}"
            )
            return ""
        return str(value)

    return _REFERENCE.sub(fill, text), wrong
