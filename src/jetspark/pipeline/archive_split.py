"""Which directory of an archive a message goes to: by the day it was stored, and by its subject.

The names are those of Hive, `day=2026-11-16/token=orders`, which all tools understand. The token is
not called after the column `subject`, which they would take it for.
"""

from __future__ import annotations

from datetime import date, timedelta
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["NO_TOKEN", "split"]

NO_TOKEN = "__HIVE_DEFAULT_PARTITION__"
"""What null is called in the name of a directory: the subject has no such token."""

LONGEST_NAME = 200  # bytes; file systems allow 255
_EPOCH = date(1970, 1, 1)


def split(rows: pa.RecordBatch, by_token: int) -> list[tuple[str, pa.RecordBatch]]:
    """Divide rows among directories; those of each are in their order."""
    days = rows.column("timestamp").cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
    tokens, names = _tokens(rows.column("subject"), by_token)
    bounds = pc.min_max(days)
    if len(names) == 1 and bounds["min"] == bounds["max"]:
        return [(_directory(bounds["min"].as_py(), names[0]), rows)]
    groups = pc.add(pc.multiply(days, len(names)), tokens)
    order = pc.sort_indices(groups)  # which is stable
    rows = rows.take(order)
    runs = pc.run_end_encode(groups.take(order))
    parts, start = [], 0
    for end, group in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
        day, token = divmod(group, len(names))
        parts.append((_directory(day, names[token]), rows.slice(start, end - start)))
        start = end
    return parts


def _tokens(subjects: pa.Array, number: int) -> tuple[pa.Array, list[str]]:
    """For each row the number of its token, and the names of the tokens."""
    if not number:
        return pa.repeat(pa.scalar(0, pa.int64()), len(subjects)), [""]
    encoded = subjects.dictionary_encode()
    names = [_name(subject, number) for subject in encoded.dictionary.to_pylist()]
    numbers = {name: place for place, name in enumerate(dict.fromkeys(names))}
    places = pa.array([numbers[name] for name in names], pa.int64())
    return places.take(encoded.indices), list(numbers)


def _name(subject: str, number: int) -> str:
    tokens = subject.split(".")
    name = quote(tokens[number - 1], safe=" !@$&()+,;-_~") if len(tokens) >= number else ""
    return name if 0 < len(name) <= LONGEST_NAME else NO_TOKEN


def _directory(day: int, token: str) -> str:
    name = f"day={_EPOCH + timedelta(days=day)}"
    return f"{name}/token={token}" if token else name
