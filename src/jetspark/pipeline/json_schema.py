"""The schema of JSON payloads, from a sample of them. Pure.

What differs from message to message becomes the narrowest type that holds all of it: numbers become
doubles, and what has nothing in common becomes the text of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

__all__ = ["infer"]

_LONG = 2**63
_DECIMAL = 10**38

Kind = str | dict[str, Any] | list[Any] | None
"""A name of a type, the fields of an object, the one kind of an array, or None: only nulls."""


def infer(payloads: Iterable[bytes]) -> str | None:
    """The schema of payloads that are JSON objects, or else arrays, as DDL; None if none is.

    >>> infer([b'{"id": 1, "city": "Oslo"}', b'{"id": 2.5}', b"no JSON"])
    'struct<`id`: double, `city`: string>'
    """
    objects: Kind = None
    arrays: Kind = None
    for payload in payloads:
        found = _kind_of_payload(payload)
        if isinstance(found, dict):
            objects = _merge(objects, found)
        elif isinstance(found, list):
            arrays = _merge(arrays, found)
    kind = objects or arrays
    return _ddl(kind) if kind else None


def _kind_of_payload(payload: bytes) -> Kind:
    try:
        return _kind(json.loads(payload))
    except (ValueError, RecursionError):
        return None


def _kind(value: object) -> Kind:
    match value:
        case None:
            return None
        case bool():
            return "boolean"
        case int():
            if -_LONG <= value < _LONG:
                return "bigint"
            return "decimal(38,0)" if abs(value) < _DECIMAL else "string"
        case float():
            return "double"
        case dict():
            return {name: _kind(item) for name, item in value.items()}
        case list():
            merged: Kind = None
            for item in value:
                merged = _merge(merged, _kind(item))
            return [merged]
        case _:
            return "string"


def _merge(one: Kind, other: Kind) -> Kind:
    if one is None or one == other:
        return other
    if other is None:
        return one
    if isinstance(one, dict) and isinstance(other, dict):
        return {name: _merge(one.get(name), other.get(name)) for name in {**one, **other}}
    if isinstance(one, list) and isinstance(other, list):
        return [_merge(one[0], other[0])]
    kinds = {kind for kind in (one, other) if isinstance(kind, str)}
    if len(kinds) == 2 and kinds <= {"bigint", "decimal(38,0)", "double"}:
        return "double" if "double" in kinds else "decimal(38,0)"
    return "string"


def _ddl(kind: Kind) -> str:
    match kind:
        case dict() if kind:
            fields = ", ".join(f"{_quoted(name)}: {_ddl(item)}" for name, item in kind.items())
            return f"struct<{fields}>"
        case [item]:
            return f"array<{_ddl(item)}>"
        case str():
            return kind
        case _:
            return "string"  # nothing is known of it


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
