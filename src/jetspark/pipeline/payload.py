"""Payloads become columns, strictly: a row is in the view of its source, or it has a reason.

JSON is parsed by Spark. `from_json` alone is not strict: it does not look behind the first value,
so `{"a": 1} and more` would pass. So the text is put into the middle of a document of ours, which
is whole only if the text is exactly one JSON value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .ddl import Column
from .spec import META_COLUMNS, Kind, Payload, Source
from .templates import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["parsed_view", "unparsable_rows"]

_DOCUMENT, _END, _CORRUPT = "jetspark_payload", "jetspark_end", "jetspark_corrupt"
_STRICT = (
    "map('mode', 'PERMISSIVE', 'allowSingleQuotes', 'false', 'allowNonNumericNumbers', 'false', "
    f"'columnNameOfCorruptRecord', '{_CORRUPT}')"
)
_WRAPPED = f"""concat('{{"{_DOCUMENT}":[', _text, '],"{_END}":true}}')"""
_SHOWN = 60  # characters of a value, in a reason


def parsed_view(frame: DataFrame, source: Source, columns: tuple[Column, ...]) -> DataFrame:
    """The view of a source: its payload as columns, and what else is known of each message."""
    meta = [
        f"{quoted(column)} AS {name}"
        for name, column in META_COLUMNS[source.kind].items()
        if column in frame.columns
    ]
    names = [*(quoted(column.name) for column in columns), *(m.rpartition(" ")[2] for m in meta)]
    if source.payload is Payload.BINARY:
        data = quoted(_data(source))
        return frame.selectExpr(*meta, f"{data} AS data").select(*names)
    checked = _checked(frame, source, columns)
    # A generator instead of a filter: Spark would move a filter below the parsing, and parse twice.
    rows = "inline(if(_ok, array(_row), array()))"
    return checked.selectExpr(*meta, rows).select(*names)


def unparsable_rows(
    frame: DataFrame, source: Source, columns: tuple[Column, ...], most: int
) -> DataFrame:
    """The other rows, as messages for dead letters; of a payload at most so many bytes are kept."""
    data = quoted(_data(source))
    stream = "stream" if source.kind is Kind.STREAM else f"'KV_{source.target}'"
    sequence = "sequence" if source.kind is Kind.STREAM else "revision"
    subject = "subject" if source.kind is Kind.STREAM else "key"
    headers = {
        "Jetspark-Reason": _clean(_reason(source, columns)),
        "Jetspark-Stream": stream,
        "Jetspark-Sequence": f"CAST({sequence} AS STRING)",
        "Jetspark-Subject": subject,
        "Jetspark-Label": f"'{source.name}'",
        "Jetspark-Truncated": f"if(length({data}) > {most}, CAST(length({data}) AS STRING), NULL)",
    }
    listed = ", ".join(f"'{name}', {value}" for name, value in headers.items())
    return (
        _checked(frame, source, columns)
        .where("NOT _ok")
        .selectExpr(
            f"substring({data}, 1, {most}) AS data",
            f"map_filter(map({listed}), (name, value) -> value IS NOT NULL) AS headers",
        )
    )


def _data(source: Source) -> str:
    return "data" if source.kind is Kind.STREAM else "value"


def _checked(frame: DataFrame, source: Source, columns: tuple[Column, ...]) -> DataFrame:
    """The rows with `_text`, `_ok` (whether it can be parsed) and `_row` (what came of it)."""
    frame = frame.selectExpr("*", f"CAST({quoted(_data(source))} AS STRING) AS _text")
    kept = "coalesce(operation, 'PUT') <> 'PUT'" if source.kind is Kind.BUCKET else "false"
    if source.payload is Payload.TEXT:
        row = f"if({kept}, NULL, named_struct('text', _text))"
        return frame.selectExpr("*", f"({kept}) OR is_valid_utf8(_text) AS _ok", f"{row} AS _row")
    schema = ", ".join(f"{quoted(column.name)}: {column.type}" for column in columns)
    document = f"{_DOCUMENT} ARRAY<STRUCT<{schema}>>, {_END} BOOLEAN, {_CORRUPT} STRING"
    frame = frame.selectExpr(
        "*", f"from_json({_WRAPPED}, {_literal(document)}, {_STRICT}) AS _document"
    )
    frame = frame.selectExpr("*", f"get(_document.{_DOCUMENT}, 0) AS _row")
    return frame.selectExpr(
        "*", f"({kept}) OR coalesce({' AND '.join(_conditions(columns))}, false) AS _ok"
    )


def _conditions(columns: tuple[Column, ...]) -> list[str]:
    """What must be true of a row that was parsed."""
    return [
        "is_valid_utf8(_text)",
        f"_document.{_CORRUPT} IS NULL",
        f"_document.{_END}",
        f"size(_document.{_DOCUMENT}) = 1",
        "_row IS NOT NULL",
        # A text that closes our brackets and opens others would bring keys of its own.
        f"(NOT contains(_text, ']') OR size(json_object_keys({_WRAPPED})) = 2)",
        *(f"_row.{quoted(column.name)} IS NOT NULL" for column in columns if not column.nullable),
        *(f"NOT {_infinite(column)}" for column in columns if _is_float(column)),
    ]


def _is_float(column: Column) -> bool:
    return column.type.upper() in ("DOUBLE", "FLOAT", "REAL")


def _infinite(column: Column) -> str:
    """True for a number that was too large, which Spark reads as infinite."""
    field = f"_row.{quoted(column.name)}"
    return f"coalesce(isnan({field}) OR abs({field}) = double('Infinity'), false)"


def _reason(source: Source, columns: tuple[Column, ...]) -> str:
    """Why a row cannot be parsed; looked for only in rows that cannot."""
    if source.payload is Payload.TEXT:
        return "'the payload is not UTF-8'"
    fields = f"from_json({_WRAPPED}, '{_DOCUMENT} ARRAY<MAP<STRING, STRING>>', {_STRICT})"
    values = f"from_json({_WRAPPED}, '{_DOCUMENT} ARRAY<STRING>', {_STRICT})"
    first = f"get({fields}.{_DOCUMENT}, 0)"
    of_columns = ", ".join(_reason_of(column, first) for column in columns)
    return f"""CASE
        WHEN NOT is_valid_utf8(_text) THEN 'the payload is not UTF-8'
        WHEN _text NOT RLIKE '\\\\S' THEN 'the payload is empty'
        WHEN size(coalesce(array_compact(array({of_columns})), array())) > 0
            THEN array_join(array_compact(array({of_columns})), '; ')
        WHEN try_parse_json(_text) IS NOT NULL AND _document.{_CORRUPT} IS NOT NULL
                AND size({values}.{_DOCUMENT}) = 1
            THEN concat('the payload is JSON, but no object: ', left(trim(_text), {_SHOWN}))
        WHEN trim(_text) = 'null' THEN 'the payload is JSON, but no object: null'
        ELSE concat('the payload is no JSON: ', left(trim(_text), {_SHOWN}))
    END"""


def _reason_of(column: Column, fields: str) -> str:
    """What is wrong with a column; null if nothing is."""
    name = column.name.replace("\\", "\\\\").replace("'", "\\'")
    given = f"{fields}['{name}']"
    found = f"_row.{quoted(column.name)}"
    wrong = f"{given} IS NOT NULL AND {given} <> 'null' AND {found} IS NULL"
    if _is_float(column):
        wrong = f"({wrong}) OR {_infinite(column)}"
    missing = "" if column.nullable else f"WHEN {found} IS NULL THEN 'column {name} is missing'"
    return (
        f"CASE WHEN {fields} IS NULL THEN NULL WHEN {wrong} "
        f"THEN concat('column {name}: ', left({given}, {_SHOWN}), ' is no {column.type}') "
        f"{missing} END"
    )


def _clean(expression: str) -> str:
    """A text that can be the value of a header: on one line."""
    return f"regexp_replace(make_valid_utf8({expression}), '[\\\\p{{Cntrl}}]+', ' ')"


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
