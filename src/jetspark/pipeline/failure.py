"""What a query that failed says, on one line, and whether trying again may help."""

from __future__ import annotations

import re

import jetspark.errors
from jetspark.errors import JetSparkError

__all__ = ["cause_of"]

_RAISED = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE)
_ENGINE = re.compile(r"^(Py4J|Spark|PySpark|StreamingQuery|Python)?(Java)?(Exception|Error)$")
_CLASS = re.compile(r"\[[A-Z][A-Z0-9_.]+\] ")
_PASSING_WORDS = ("connection refused", "connection reset", "failed to connect", "timed out")


def cause_of(text: str) -> tuple[str, bool]:
    """The cause in the message of a failed query, and whether it may be over later.

    What a source or sink raised is somewhere in it, below the traceback of Python.
    """
    for name, message in reversed(_RAISED.findall(text)):
        ours = getattr(jetspark.errors, name, None)
        if isinstance(ours, type) and issubclass(ours, JetSparkError):
            return message.strip(), _passes(ours)
    for name, message in reversed(_RAISED.findall(text)):
        if not _ENGINE.match(name) and "org.apache.spark" not in message:
            return f"{name}: {message.strip()}", _sounds_passing(message)
    found = [said for said in _CLASS.split(text.strip()) if said.strip()]
    said = found[-1].strip().partition("\n")[0] if found else ""
    return said.partition(" SQLSTATE: ")[0].strip(), _sounds_passing(said)


def _passes(kind: type[JetSparkError]) -> bool:
    unavailable = (
        jetspark.errors.ConnectionError,
        jetspark.errors.TimeoutError,
        jetspark.errors.NoRespondersError,
    )
    lasting = (jetspark.errors.AuthenticationError, jetspark.errors.PermissionsError)
    return (kind.retryable or issubclass(kind, unavailable)) and not issubclass(kind, lasting)


def _sounds_passing(message: str) -> bool:
    return any(words in message.lower() for words in _PASSING_WORDS)
