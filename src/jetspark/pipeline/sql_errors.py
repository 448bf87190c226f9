"""What Spark says of a query, in one line: the cause, where it is in the query, and a remedy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from jetspark.errors import FailedQueryError, InvalidQueryError, JetSparkError

from .sql_text import Rewritten, Table

__all__ = ["translate"]

_POSITION = re.compile(r"\(line (\d+), pos (\d+)\)")
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\] ")
_PYTHON_ERROR = re.compile(r"^(?:\w+\.)*\w+(?:Error|Exception): (.+)$", re.MULTILINE)

_IN_OUR_WORDS = {
    "TABLE_OR_VIEW_NOT_FOUND": "there is no table {relationName}; tables are stream.NAME, kv.NAME "
    "and objects.NAME, SHOW TABLES lists them",
    "UNRESOLVED_ROUTINE": "there is no function {routineName}; SHOW FUNCTIONS lists them",
    "UNRESOLVED_COLUMN.WITH_SUGGESTION": "there is no column {objectName}; near it are {proposal}",
    "UNRESOLVED_COLUMN.WITHOUT_SUGGESTION": "there is no column {objectName}",
    "FIELD_NOT_FOUND": "there is no field {fieldName}; there are {fields}",
    "UNSUPPORTED_INSERT.RDD_BASED": "the tables of NATS are for reading; jetspark run writes",
}
_NO_JSON = (
    "; there is a column json where some of the first and last messages are JSON objects, else "
    "use text"
)


class _Place(NamedTuple):
    line: int
    column: int
    text: str
    """The line, and under it a mark."""


def translate(
    error: Exception, sql: str, rewritten: Rewritten, views: Mapping[str, Table]
) -> JetSparkError:
    """The error for the user who wrote `sql`; `views` are hidden names and what they stand for."""
    from pyspark.errors import AnalysisException

    message = _message(error)
    for view, table in views.items():
        message = message.replace(f"`{view}`", str(table)).replace(view, str(table))
    place = _place(error, sql, rewritten)
    if place is not None:
        message = f"line {place.line}, column {place.column}: {message}"
    if isinstance(error, AnalysisException):
        return InvalidQueryError(message, place=place.text if place is not None else "")
    return FailedQueryError(message)


def _message(error: Exception) -> str:
    condition, parameters = _details(error)
    words = _IN_OUR_WORDS.get(condition)
    if words is not None:
        name = parameters.get("objectName", "").replace("`", "").lower()
        hint = _NO_JSON if name.split(".")[0] == "json" else ""
        return words.format_map(parameters) + hint
    text = str(error).strip()
    if condition == "PYTHON_EXCEPTION" or "Traceback (most recent call last)" in text:
        causes = _PYTHON_ERROR.findall(text)
        if causes:
            return str(causes[-1])
    text = text.partition("SQLSTATE:")[0].partition("\n== SQL")[0].partition("\n\tat ")[0]
    return " ".join(_CONDITION.sub("", text).split()) or type(error).__name__


def _details(error: Exception) -> tuple[str, dict[str, str]]:
    """The name that Spark has for the error, and what fills its message."""
    from pyspark.errors import PySparkException

    if not isinstance(error, PySparkException):
        return "", {}
    return error.getCondition() or "", error.getMessageParameters() or {}


def _place(error: Exception, sql: str, rewritten: Rewritten) -> _Place | None:
    index = _index(error, rewritten.sql)
    if index is None:
        return None
    index = rewritten.original(index)
    before = sql[:index]
    line = before.count("\n") + 1
    column = index - (before.rfind("\n") + 1) + 1
    text = sql.split("\n")[line - 1]
    return _Place(line, column, f"{text}\n{' ' * (column - 1)}^")


def _index(error: Exception, sql: str) -> int | None:
    """Where the error is in what Spark was given."""
    from pyspark.errors import PySparkException, QueryContextType

    if not isinstance(error, PySparkException):
        return None
    for context in error.getQueryContext() or []:
        if context.contextType() == QueryContextType.SQL and 0 <= context.startIndex() < len(sql):
            return context.startIndex()
    found = _POSITION.search(str(error))
    if found is None:
        return None
    lines = sql.split("\n")[: int(found[1]) - 1]
    return sum(len(line) + 1 for line in lines) + int(found[2])
