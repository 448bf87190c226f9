"""What callers say about an object, and how they want it: checked before anything is sent."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from jetspark.errors import InvalidArgumentError, InvalidOptionError

from .info import ObjectMeta
from .names import check_object_name

__all__ = ["check_progress", "check_range", "own_fields", "seconds_of", "target_path", "to_meta"]


def to_meta(
    name: str | ObjectMeta,
    description: str | None,
    headers: Mapping[str, str | Sequence[str]] | None,
    metadata: Mapping[str, str] | None,
) -> ObjectMeta:
    """What the owner says, from an object and from single values."""
    if isinstance(name, ObjectMeta):
        meta = name
    else:
        check_object_name(name)
        meta = ObjectMeta(name=name)
    changes: dict[str, Any] = {}
    if description is not None:
        changes["description"] = description
    if headers is not None:
        if not isinstance(headers, Mapping):
            raise InvalidArgumentError(f"headers must be a mapping, not {type(headers).__name__}")
        changes["headers"] = {
            key: [value] if isinstance(value, str) else value for key, value in headers.items()
        }
    if metadata is not None:
        changes["metadata"] = metadata
    meta = meta.replace(**changes) if changes else meta
    check_object_name(meta.name)
    for field in ("description", "headers", "metadata"):
        try:
            msgspec.json.encode(getattr(meta, field))
        except UnicodeEncodeError as error:
            raise InvalidArgumentError(f"{field} is not valid text: {error}") from None
    return meta


def own_fields(meta: ObjectMeta) -> dict[str, Any]:
    """Those fields that belong to the owner."""
    return {
        "name": meta.name,
        "description": meta.description,
        "headers": meta.headers,
        "metadata": meta.metadata,
    }


def check_range(offset: object, length: object) -> None:
    """Refuse what is no part of an object; a length of None is all the rest."""
    if type(offset) is not int or offset < 0:
        raise InvalidOptionError(f"offset must be an int of at least 0, not {offset!r}")
    if length is not None and (type(length) is not int or length < 0):
        raise InvalidOptionError(f"length must be an int of at least 0, or None, not {length!r}")


def seconds_of(timeout: float | timedelta) -> float:
    """How long to wait; refuses what is no such time."""
    if isinstance(timeout, timedelta):
        timeout = timeout.total_seconds()
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise InvalidOptionError(f"timeout must be a number of seconds over 0, not {timeout!r}")
    return timeout


def check_progress(on_progress: object) -> None:
    """Refuse what cannot be told of the progress; nobody would await a coroutine."""
    if on_progress is None:
        return
    if not callable(on_progress):
        raise InvalidArgumentError(f"on_progress must be a function, not {on_progress!r}")
    call = type(on_progress).__call__
    if inspect.iscoroutinefunction(on_progress) or inspect.iscoroutinefunction(call):
        raise InvalidArgumentError("on_progress must be a plain function, not an async one")


def target_path(path: str | os.PathLike[str]) -> Path:
    """The file to write; a directory is none."""
    if not isinstance(path, str | os.PathLike):
        raise InvalidArgumentError(f"path must be a str or a path, not {type(path).__name__}")
    if not os.fspath(path):
        raise InvalidArgumentError("path is empty; give the file to write")
    target = Path(path)
    if not target.name or target.is_dir():
        raise InvalidArgumentError(f"path {str(path)!r} is a directory; add the name of a file")
    return target
