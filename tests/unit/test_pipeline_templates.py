"""Templates, durations, schemas and variables of pipeline files."""

from __future__ import annotations

import pytest

from jetspark.pipeline.ddl import Column, read_ddl
from jetspark.pipeline.durations import milliseconds
from jetspark.pipeline.environment import substitute
from jetspark.pipeline.templates import quoted, read_template


@pytest.mark.parametrize(
    ("text", "columns", "expression", "pattern"),
    [
        ("alerts", [], "concat('alerts')", "alerts"),
        ("{id}", ["id"], "concat(CAST(`id` AS STRING))", ">"),
        ("a.{b}.{b}", ["b"], "concat('a.', CAST(`b` AS STRING), '.', CAST(`b` AS STRING))", "a.>"),
        ("a.x-{b}.c", ["b"], "concat('a.x-', CAST(`b` AS STRING), '.c')", "a.>"),
        ("{a.city}", ["a"], "concat(CAST(`a`.`city` AS STRING))", ">"),
        ("it's {{x}}\\", [], "concat('it\\'s {x}\\\\')", "it's {x}\\"),
    ],
)
def test_templates(text: str, columns: list[str], expression: str, pattern: str) -> None:
    template = read_template(text)
    assert template.columns == columns
    assert template.expression() == expression
    assert template.pattern() == pattern


@pytest.mark.parametrize("text", ["a.{id", "a.id}", "{}", "{ }", "{a.}", "{{id}", "{a{b}}"])
def test_templates_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"single|empty"):
        read_template(text)


def test_names_are_quoted() -> None:
    assert quoted("a`b") == "`a``b`"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500 ms", 500),
        ("1 second", 1000),
        ("5s", 5000),
        ("1.5 Minutes", 90_000),
        ("2 days", 172_800_000),
    ],
)
def test_durations(text: str, expected: int) -> None:
    assert milliseconds(text) == expected


@pytest.mark.parametrize("text", ["5", "seconds", "-1 s", "5 fortnights", "1 s 2 ms", ""])
def test_durations_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="no time span"):
        milliseconds(text)


def test_ddl() -> None:
    text = (
        "id STRING NOT NULL, `a b`: Decimal ( 12 , 2 ) COMMENT 'an, amount', tags array<string>, "
        "place STRUCT<x: INT, y INT NOT NULL>, m MAP<STRING, ARRAY<INT>>, i INTERVAL DAY TO SECOND"
    )
    assert read_ddl(text) == [
        Column("id", "STRING", False),
        Column("a b", "Decimal(12,2)", True),
        Column("tags", "array<string>", True),
        Column("place", "STRUCT<x:INT,y INT NOT NULL>", True),
        Column("m", "MAP<STRING,ARRAY<INT>>", True),
        Column("i", "INTERVAL DAY TO SECOND", True),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id STRNG", "there is no type STRNG; did you mean 'STRING'?"),
        ("id", "column 'id' has no type"),
        ("id STRING,", "ends too early"),
        ("id STRING amount DOUBLE", "no sense in 'amount'"),
        ("id STRING, ID INT", "column 'ID' is there twice"),
        ("a ARRAY<INT", "'>' is missing"),
        ("a ARRAY", "'<' is missing"),
        ("a MAP<INT>", "',' is missing"),
        ("a STRUCT<>", "a column name is missing before '>'"),
        ("a DECIMAL(1", "')' is missing"),
        ("a INT NOT", "'NULL' is missing"),
        ("a INT COMMENT x", "must be in single quotes"),
        ("", "ends too early"),
        ("= INT", "a column name is missing before '='"),
    ],
)
def test_ddl_that_is_none(text: str, message: str) -> None:
    with pytest.raises(ValueError) as failure:
        read_ddl(text)
    assert message in str(failure.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a ${X} b", "a 1 b"),
        ("${X}${Y:-2}${EMPTY:-3}", "123"),
        ("${Y:-}", ""),
        ("$${X} $X {x}", "${X} $X {x}"),
    ],
)
def test_variables(text: str, expected: str) -> None:
    assert substitute(text, {"X": "1", "EMPTY": ""}) == (expected, [])


@pytest.mark.parametrize(
    ("text", "message"), [("${NOPE}", "variable NOPE is not set"), ("${no pe}", "must be ${NAME}")]
)
def test_variables_that_are_missing(text: str, message: str) -> None:
    _, wrong = substitute(text, {})
    assert len(wrong) == 1
    assert message in wrong[0]
