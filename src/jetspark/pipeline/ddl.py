"""Schemas in DDL, `id STRING, amount DOUBLE`: checked without Spark, so mistakes show early."""

from __future__ import annotations

import re
from typing import NamedTuple

from .problems import did_you_mean

__all__ = ["Column", "read_ddl"]

_SIMPLE = (
    "STRING",
    "VARCHAR",
    "CHAR",
    "BINARY",
    "BOOLEAN",
    "TINYINT",
    "BYTE",
    "SMALLINT",
    "SHORT",
    "INT",
    "INTEGER",
    "BIGINT",
    "LONG",
    "FLOAT",
    "REAL",
    "DOUBLE",
    "DECIMAL",
    "DEC",
    "NUMERIC",
    "DATE",
    "TIME",
    "TIMESTAMP",
    "TIMESTAMP_NTZ",
    "TIMESTAMP_LTZ",
    "VARIANT",
    "INTERVAL",
    "VOID",
)
_NESTED = ("ARRAY", "MAP", "STRUCT")
_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|([A-Za-z0-9_]+)|('(?:[^'\\]|\\.)*')|([<>(),:])|(\S))")


class Column(NamedTuple):
    """A column of a schema."""

    name: str
    type: str
    """As it was written, without needless spaces."""
    nullable: bool


def read_ddl(text: str) -> list[Column]:
    """The columns of a schema; raises `ValueError` with what is wrong.

    >>> [column.name for column in read_ddl("id STRING NOT NULL, tags ARRAY<STRING>")]
    ['id', 'tags']
    """
    parser = _Parser(text)
    columns = [parser.column()]
    while parser.take(","):
        columns.append(parser.column())
    if parser.token:
        raise ValueError(f"there is no sense in {parser.token!r}; write name TYPE, name TYPE, ...")
    seen: set[str] = set()
    for column in columns:
        if column.name.lower() in seen:
            raise ValueError(f"column {column.name!r} is there twice")
        seen.add(column.name.lower())
    return columns


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens: list[str] = [next(filter(None, found)) for found in _TOKEN.findall(text)]
        self._tokens.append("")
        self._next = 0

    @property
    def token(self) -> str:
        """The next one; empty at the end."""
        return self._tokens[self._next]

    def take(self, word: str) -> bool:
        """Step over a word, if it is the next one."""
        if self.token.upper() != word:
            return False
        self._next += 1
        return True

    def expect(self, word: str, after: str) -> None:
        if not self.take(word):
            raise ValueError(f"{word!r} is missing after {after!r}, before {self.token!r}")

    def name(self) -> str:
        token = self.token
        if token.startswith("`"):
            name = token[1:-1].replace("``", "`")
        elif re.fullmatch(r"[A-Za-z0-9_]+", token):
            name = token
        else:
            raise ValueError(f"a column name is missing before {token!r}" if token else _ENDS)
        self._next += 1
        return name

    def column(self) -> Column:
        """`name [:] TYPE [NOT NULL] [COMMENT '...']`."""
        name = self.name()
        self.take(":")
        begin = self._next
        self.type(name)
        words = " ".join(self._tokens[begin : self._next])
        kind = re.sub(r"\s*([<>(),:])\s*", r"\1", words)
        nullable = True
        if self.take("NOT"):
            self.expect("NULL", "NOT")
            nullable = False
        if self.take("COMMENT"):
            if not self.token.startswith("'"):
                raise ValueError(f"COMMENT of column {name!r} must be in single quotes")
            self._next += 1
        return Column(name, kind, nullable)

    def type(self, column: str) -> None:
        word = self.token.upper()
        if not word or word in {",", ")", ">"}:
            raise ValueError(f"column {column!r} has no type; write {column} STRING, or another")
        self._next += 1
        if word in _SIMPLE:
            if word == "INTERVAL":
                while re.fullmatch(r"(?i)year|month|day|hour|minute|second|to", self.token):
                    self._next += 1
            elif self.take("("):
                while re.fullmatch(r"\d+|,", self.token):
                    self._next += 1
                self.expect(")", word)
        elif word in _NESTED:
            self.nested(word, column)
        else:
            advice = did_you_mean(word, (*_SIMPLE, *_NESTED))
            raise ValueError(f"column {column!r}: there is no type {word}; {advice}")

    def nested(self, word: str, column: str) -> None:
        self.expect("<", word)
        if word == "STRUCT":
            self.column()
            while self.take(","):
                self.column()
        else:
            self.type(column)
            if word == "MAP":
                self.expect(",", "the type of the keys of a MAP")
                self.type(column)
        self.expect(">", word)


_ENDS = "the schema ends too early; write name TYPE, name TYPE, ..."
