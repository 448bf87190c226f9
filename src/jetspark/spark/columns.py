"""The columns that rows must have to be written."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import StructType

from jetspark.errors import InvalidOptionError

__all__ = ["check_columns"]


def check_columns(
    schema: StructType, allowed: Mapping[str, set[str]], needed: set[str], sink: str
) -> tuple[str, ...]:
    """The columns of rows to write; raises for what the sink has no use for, or lacks."""
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name, kind in types.items():
        if name not in allowed:
            raise InvalidOptionError(
                f"{sink}: there is no use for column {name!r}; the sink takes "
                f"{', '.join(allowed)}: select these"
            )
        if kind not in allowed[name]:
            raise InvalidOptionError(
                f"{sink}: column {name!r} must be {' or '.join(sorted(allowed[name]))}, "
                f"not {kind}; cast it"
            )
    for name in allowed:
        if name in needed and name not in types:
            raise InvalidOptionError(f"{sink}: there is no column {name!r}; the sink needs it")
    return tuple(types)
