"""SQL as text: statements, the tables in them, and the statement that Spark gets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspark.pipeline.sql_text import (
    Table,
    complete,
    quoted,
    reads_payloads,
    rewrite,
    split,
    tables,
)

ORDERS, RATES, FILES = Table("stream", "ORDERS"), Table("kv", "rates"), Table("objects", "my-files")
VIEWS = {ORDERS: "v1", RATES: "v2", FILES: "v3"}


def spark_sql(sql: str) -> str:
    return rewrite(sql, {table: VIEWS[table] for table in tables(sql)}).sql


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT * FROM stream.ORDERS", "SELECT * FROM v1 AS ORDERS"),
        ("select * from STREAM.ORDERS;", "select * from v1 AS ORDERS;"),
        ("SELECT * FROM `stream`.`ORDERS`", "SELECT * FROM v1 AS ORDERS"),
        ("SELECT * FROM stream . ORDERS", "SELECT * FROM v1 AS ORDERS"),
        ("SELECT * FROM stream.ORDERS o", "SELECT * FROM v1 o"),
        ("SELECT * FROM stream.ORDERS AS o", "SELECT * FROM v1 AS o"),
        ("SELECT * FROM objects.`my-files`", "SELECT * FROM v3 AS `my-files`"),
        (
            "SELECT stream.ORDERS.a, ORDERS.b FROM stream.ORDERS WHERE stream.ORDERS.c > 1",
            "SELECT ORDERS.a, ORDERS.b FROM v1 AS ORDERS WHERE ORDERS.c > 1",
        ),
        (
            "SELECT * FROM stream.ORDERS o JOIN kv.rates r ON o.a = r.b, objects.`my-files` f",
            "SELECT * FROM v1 o JOIN v2 r ON o.a = r.b, v3 f",
        ),
        (
            "SELECT * FROM stream.ORDERS LEFT JOIN kv.rates USING (key) GROUP BY 1",
            "SELECT * FROM v1 AS ORDERS LEFT JOIN v2 AS rates USING (key) GROUP BY 1",
        ),
        ("SELECT * FROM (stream.ORDERS, kv.rates)", "SELECT * FROM (v1 AS ORDERS, v2 AS rates)"),
        (
            "SELECT (SELECT max(value) FROM kv.rates) m FROM stream.ORDERS",
            "SELECT (SELECT max(value) FROM v2 AS rates) m FROM v1 AS ORDERS",
        ),
        (
            "WITH rates AS (SELECT * FROM kv.rates) SELECT * FROM rates, stream.ORDERS",
            "WITH rates AS (SELECT * FROM v2 AS rates) SELECT * FROM rates, v1 AS ORDERS",
        ),
        (
            "SELECT * FROM stream.ORDERS TABLESAMPLE (10 ROWS) AS o",
            "SELECT * FROM v1 TABLESAMPLE (10 ROWS) AS o",
        ),
        (
            "SELECT key FROM kv.rates UNION ALL SELECT name FROM objects.`my-files`",
            "SELECT key FROM v2 AS rates UNION ALL SELECT name FROM v3 AS `my-files`",
        ),
        ("FROM stream.ORDERS |> LIMIT 1", "FROM v1 AS ORDERS |> LIMIT 1"),
        ("FROM stream.ORDERS SELECT 1", "FROM v1 AS ORDERS SELECT 1"),
        ("DESCRIBE stream.ORDERS", "DESCRIBE v1"),
        ("desc extended kv.rates", "desc extended v2"),
        ("DESCRIBE TABLE kv.rates", "DESCRIBE TABLE v2"),
        ("TABLE kv.rates", "TABLE v2"),
        ("SHOW COLUMNS IN kv.rates", "SHOW COLUMNS IN v2"),
        ("SHOW COLUMNS FROM kv.rates", "SHOW COLUMNS FROM v2"),
        (
            "CREATE TEMPORARY VIEW big AS SELECT * FROM stream.ORDERS",
            "CREATE TEMPORARY VIEW big AS SELECT * FROM v1 AS ORDERS",
        ),
        (
            'SELECT \'FROM stream.ORDERS\', "a \\" kv.rates" /* kv.rates /* */ */ FROM kv.rates',
            'SELECT \'FROM stream.ORDERS\', "a \\" kv.rates" /* kv.rates /* */ */ FROM v2 AS rates',
        ),
        (
            "SELECT 1 -- FROM stream.ORDERS\nFROM kv.rates -- the end",
            "SELECT 1 -- FROM stream.ORDERS\nFROM v2 AS rates -- the end",
        ),
        ("SELECT r'\\' FROM kv.rates", "SELECT r'\\' FROM v2 AS rates"),
    ],
)
def test_tables_become_views(sql: str, expected: str) -> None:
    assert spark_sql(sql) == expected


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "SELECT stream.subject FROM other AS stream",
        "WITH kv AS (SELECT 1 AS key) SELECT kv.key FROM kv WHERE kv.key IN (1)",
        "SELECT json.kv.rates FROM x",
        "SELECT extract(DAY FROM stream.time), trim(BOTH FROM kv.name) FROM x AS stream, y AS kv",
        "SELECT * FROM x AS stream WHERE a IS NOT DISTINCT FROM stream.b",
        "SELECT * FROM catalog.stream.ORDERS",
        "SELECT a FROM x AS stream ORDER BY a DESC, stream.b",
        "SELECT * FROM stream",
        "SELECT * FROM stream.",
        "SELECT stream.a IN (stream.b) FROM x AS stream WHERE b IN (1, stream.c)",
    ],
)
def test_what_is_no_table_is_left_alone(sql: str) -> None:
    assert tables(sql) == []
    assert rewrite(sql, {}).sql == sql


def test_namesakes_of_two_kinds_are_told_apart() -> None:
    sql = "SELECT stream.a.x, kv.A.y FROM stream.a JOIN kv.A"
    views = {Table("stream", "a"): "v1", Table("kv", "A"): "v2"}
    assert tables(sql) == sorted(views)
    assert rewrite(sql, views).sql == "SELECT v1.x, v2.y FROM v1 JOIN v2"


def test_places_lead_back_to_what_was_written() -> None:
    sql = "SELECT stream.ORDERS.x,\n  y FROM stream.ORDERS WHERE z"
    rewritten = rewrite(sql, VIEWS)
    assert rewritten.sql == "SELECT ORDERS.x,\n  y FROM v1 AS ORDERS WHERE z"
    for word in ("SELECT", "y FROM", "WHERE", "z"):
        assert rewritten.original(rewritten.sql.index(word)) == sql.index(word)
    assert rewritten.original(rewritten.sql.index("v1") + 1) == sql.index("stream.ORDERS WHERE")


@given(st.text())
def test_any_text_can_be_looked_at(text: str) -> None:
    found = tables(text)
    rewritten = rewrite(text, dict.fromkeys(found, "v"))
    if not found:
        assert rewritten.sql == text
    assert all(isinstance(statement, str) for statement in split(text))
    complete(text)


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("", []),
        (" ; -- nothing\n;", []),
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT ';', `;`; SELECT 2 /* ; */; ", ["SELECT ';', `;`", "SELECT 2 /* ; */"]),
    ],
)
def test_statements(text: str, statements: list[str]) -> None:
    assert split(text) == statements


@pytest.mark.parametrize(
    ("text", "done"),
    [
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 1; -- and a remark", True),
        ("SELECT ';", False),
        ('SELECT ";', False),
        ("SELECT `;", False),
        ("SELECT 1 -- ;", False),
        ("SELECT 1 /* ;", False),
        ("", False),
    ],
)
def test_whether_a_statement_is_complete(text: str, done: bool) -> None:
    assert complete(text) is done


@pytest.mark.parametrize(
    ("sql", "payloads"),
    [
        ("SELECT subject, count(*) FROM stream.A GROUP BY subject", False),
        ("select max(sequence) * 2, COUNT ( * ) from stream.A where subject = 'data'", False),
        ("WITH a AS (SELECT sequence s FROM stream.A) SELECT s * s FROM a", False),
        ("SELECT subject FROM stream.A ORDER BY json.id", True),
        ("SELECT `data` FROM stream.A", True),
        ("SELECT subject FROM stream.A WHERE Text LIKE 'x'", True),
        ("SELECT * FROM stream.A", True),
        ("SELECT DISTINCT * FROM stream.A", True),
        ("SELECT 1, * FROM stream.A", True),
        ("SELECT a.* FROM stream.A a", True),
        ("SELECT to_json(struct(*)) FROM stream.A", True),
        ("SELECT 1 FROM stream.A NATURAL JOIN kv.b", True),
        ("FROM stream.A |> LIMIT 1", True),
        ("TABLE stream.A", True),
        ("SELECT 1 FROM stream.A UNION ALL TABLE stream.A", True),
        ("DESCRIBE stream.A", True),
        ("CREATE TEMPORARY VIEW v AS SELECT subject FROM stream.A", True),
        ("", True),
    ],
)
def test_whether_payloads_are_read(sql: str, payloads: bool) -> None:
    assert reads_payloads(sql) is payloads


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("orders", "orders"),
        ("my-orders", "`my-orders`"),
        ("1st", "`1st`"),
        ("join", "`join`"),
        ("a`b", "`a``b`"),
    ],
)
def test_names_in_sql(name: str, text: str) -> None:
    assert quoted(name) == text
