"""SQL as text: its statements, and the tables `stream.X`, `kv.X` and `objects.X` in it. Pure.

Spark resolves names with two parts in its catalog, where such tables cannot be. So each reference
is replaced by the name of a temporary view. Spark itself parses the result; this tokenizer only
knows quotes, comments and where a table may stand, and what it does not understand it leaves alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

__all__ = [
    "KINDS",
    "Rewritten",
    "Table",
    "complete",
    "quoted",
    "reads_payloads",
    "rewrite",
    "split",
    "tables",
]

KINDS = ("stream", "kv", "objects")

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|--(?:\\\n|[^\n])*)
  | (?P<comment>/\*)
  | (?P<raw>[rR]'[^']*'|[rR]"[^"]*")
  | (?P<string>'(?:[^'\\]|\\.|'')*(?:'|\Z)|"(?:[^"\\]|\\.|"")*(?:"|\Z))
  | (?P<quoted>`(?:[^`]|``)*(?:`|\Z))
  | (?P<word>\w+)
  | (?P<other>\|>|.)
    """,
    re.VERBOSE | re.DOTALL,
)

_TABLE_WORDS = frozenset({"FROM", "JOIN", "TABLE", "DESCRIBE", "DESC", "EXTENDED", "INTO", "IN"})
_ENDS = frozenset(
    {
        *("WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET"),
        *("WINDOW", "UNION", "EXCEPT", "INTERSECT", "MINUS", "LATERAL", "SELECT"),
    }
)
"""What ends a list of tables."""
_JOINS = frozenset(
    {
        *("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "SEMI", "ANTI", "NATURAL"),
        *("ON", "USING", "PIVOT", "UNPIVOT"),
    }
)
_PAYLOAD = frozenset({"DATA", "HEADERS", "TEXT", "JSON"})
"""The columns that need more than where a message is in its stream."""
_ALL_COLUMNS = frozenset({"NATURAL", "PIVOT", "UNPIVOT", "TABLE", "IDENTIFIER", "|>"})
"""What uses columns without naming them."""
_FROM_IS_AN_ARGUMENT = frozenset({"EXTRACT", "TRIM", "SUBSTRING", "SUBSTR", "OVERLAY"})


@dataclass(frozen=True, order=True)
class Table:
    """A table that a query names."""

    kind: str
    """One of `KINDS`."""
    name: str
    """Of the stream, bucket or store, as it was written."""

    def __str__(self) -> str:
        return f"{self.kind}.{quoted(self.name)}"


@dataclass(frozen=True)
class Rewritten:
    """A statement for Spark, and the way back from it."""

    sql: str
    edits: tuple[tuple[int, int, int], ...]
    """Where in `sql` a replacement begins, how long it is, and how long what it replaced was."""

    def original(self, index: int) -> int:
        """The place in the original text that a place in `sql` comes from."""
        shift = 0
        for start, length, before in self.edits:
            if index < start:
                break
            if index < start + length:
                return start - shift
            shift += length - before
        return index - shift


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def name(self) -> str | None:
        """What it names, if it can be an identifier."""
        if self.kind == "word":
            return self.text
        return self.text[1:-1].replace("``", "`") if self.kind == "quoted" else None

    @property
    def keyword(self) -> str:
        return self.text.upper() if self.kind == "word" else self.text


@dataclass(frozen=True)
class _Reference:
    table: Table
    start: int
    end: int
    is_table: bool
    """It is what is read; otherwise it may be the qualifier of a column."""
    wants_alias: bool


def quoted(name: str) -> str:
    """A name as it is written in SQL: in backticks unless it is plain.

    >>> quoted("orders"), quoted("my-orders")
    ('orders', '`my-orders`')
    """
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and name.upper() not in _ENDS | _JOINS
    return name if plain else "`" + name.replace("`", "``") + "`"


def split(sql: str) -> list[str]:
    """The statements of a text, which semicolons end.

    >>> split("SELECT ';'; SELECT 2 -- the end;")
    ["SELECT ';'", 'SELECT 2 -- the end;']
    """
    pieces, start = [], 0
    for token in _tokens(sql):
        if token.text == ";":
            pieces.append(sql[start : token.start])
            start = token.end
    pieces.append(sql[start:])
    return [piece.strip() for piece in pieces if any(True for _ in _tokens(piece))]


def complete(text: str) -> bool:
    """Whether a text that is being typed ends with a semicolon, outside quotes and comments."""
    last = None
    for token in _tokens(text):
        last = token
    return last is not None and last.text == ";"


def tables(sql: str) -> list[Table]:
    """The tables that a statement reads, in the order of their names."""
    return sorted({found.table for found in _references(sql) if found.is_table})


def rewrite(sql: str, views: Mapping[Table, str]) -> Rewritten:
    """The statement with views in the place of tables.

    >>> rewrite("SELECT stream.A.x FROM stream.A", {Table("stream", "A"): "v"}).sql
    'SELECT A.x FROM v AS A'
    """
    last = [table.name.lower() for table in views]
    # A table is known by its last name unless two have the same: stream.orders and kv.orders.
    short = {
        table: quoted(table.name) if last.count(table.name.lower()) == 1 else view
        for table, view in views.items()
    }
    pieces: list[str] = []
    edits: list[tuple[int, int, int]] = []
    done = length = 0
    for found in _references(sql):
        if found.table not in views:
            continue
        view, name = views[found.table], short[found.table]
        text = view if found.is_table else name
        if found.wants_alias and name != view:
            text = f"{view} AS {name}"
        pieces += [sql[done : found.start], text]
        length += found.start - done
        edits.append((length, len(text), found.end - found.start))
        length += len(text)
        done = found.end
    return Rewritten("".join([*pieces, sql[done:]]), tuple(edits))


def reads_payloads(sql: str) -> bool:
    """Whether a statement may use the payload or the headers of messages; in doubt it does.

    >>> reads_payloads("SELECT subject, count(*) FROM stream.A GROUP BY 1")
    False
    >>> reads_payloads("SELECT * FROM stream.A")
    True
    """
    tokens = list(_tokens(sql))
    words = [(token.name or token.text).upper() for token in tokens]
    if not words or words[0] not in {"SELECT", "WITH"} or "SELECT" not in words:
        return True
    if not (_PAYLOAD | _ALL_COLUMNS).isdisjoint(words):
        return True
    for index, word in enumerate(words):
        if word != "*" or words[index - 2 : index + 2] == ["COUNT", "(", "*", ")"]:
            continue
        before = tokens[index - 1]
        is_operand = before.kind in {"word", "quoted", "string"} or before.text == ")"
        if not is_operand or before.keyword in {"SELECT", "DISTINCT", "ALL"}:
            return True
    return False


def _tokens(sql: str) -> Iterator[_Token]:
    """What is neither space nor comment."""
    index = 0
    while index < len(sql):
        match = _TOKEN.match(sql, index)
        assert match is not None  # the last rule takes anything
        index = match.end()
        kind = match.lastgroup or ""
        if kind == "comment":
            index = _end_of_comment(sql, index)
        elif kind != "space":
            yield _Token(kind, match[0], match.start())


def _end_of_comment(sql: str, index: int) -> int:
    """Comments nest."""
    depth = 1
    for match in re.compile(r"/\*|\*/").finditer(sql, index):
        depth += 1 if match[0] == "/*" else -1
        if not depth:
            return match.end()
    return len(sql)


def _references(sql: str) -> list[_Reference]:
    """All places where a name begins with one of `KINDS` and has a second part."""
    tokens = list(_tokens(sql))
    places = _table_places(tokens)
    found = []
    for index, token in enumerate(tokens[:-2]):
        kind, name = (token.name or "").lower(), tokens[index + 2].name
        if kind not in KINDS or tokens[index + 1].text != "." or name is None:
            continue
        if index and tokens[index - 1].text == ".":
            continue
        following = tokens[index + 3] if index + 3 < len(tokens) else None
        before = [one.keyword for one in tokens[max(index - 2, 0) : index]]
        in_list = index in places and before[-1] in {"FROM", "JOIN", ",", "("}
        in_list = in_list and before != ["COLUMNS", "FROM"]
        ends = following is None or following.keyword in {",", ")", ";", "|>", *_ENDS, *_JOINS}
        found.append(
            _Reference(
                Table(kind, name),
                token.start,
                tokens[index + 2].end,
                index in places,
                in_list and ends,
            )
        )
    read = {reference.table for reference in found if reference.is_table}
    return [reference for reference in found if reference.table in read]


def _table_places(tokens: list[_Token]) -> set[int]:
    """The indexes of the tokens with which the name of a table may begin."""
    places: set[int] = set()
    in_list = [False]  # for each open parenthesis: whether a comma leads to the next table
    arguments = [False]  # ... whether it holds the arguments of a function that knows FROM
    for index, token in enumerate(tokens):
        before = tokens[index - 1] if index else None
        word = token.keyword
        if word == "(":
            opens_list = index in places
            in_list.append(opens_list)
            arguments.append(before is not None and before.keyword in _FROM_IS_AN_ARGUMENT)
            if opens_list:
                places.add(index + 1)
        elif word == ")":
            if len(in_list) > 1:
                in_list.pop()
                arguments.pop()
        elif word == ",":
            if in_list[-1]:
                places.add(index + 1)
        elif word in _ENDS:
            in_list[-1] = False
        elif word in _TABLE_WORDS and not (before is not None and before.text == "."):
            if not _leads_to_table(tokens[: index + 1], argument=arguments[-1]):
                continue
            in_list[-1] = in_list[-1] or word == "FROM"
            places.add(index + 1)
    return places


def _leads_to_table(tokens: list[_Token], *, argument: bool) -> bool:
    """Whether the last of the tokens, one of `_TABLE_WORDS`, means here what it says."""
    word, before = tokens[-1].keyword, [token.keyword for token in tokens[:-1]]
    if word == "FROM":  # not EXTRACT(DAY FROM x), nor IS DISTINCT FROM x
        return not argument and before[-1:] != ["DISTINCT"]
    if word == "IN":
        return before[-2:] == ["SHOW", "COLUMNS"]
    if word in {"DESCRIBE", "DESC", "EXTENDED"}:  # DESC also orders
        return before in ([], ["DESCRIBE"], ["DESC"])
    return True
