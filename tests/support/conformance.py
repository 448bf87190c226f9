"""Marks a test as the proof of one statement of a design document.

`scripts/generate_conformance.py` collects the marks into `docs/conformance.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def conformance(document: str, section: str, behaviour: str) -> Callable[[F], F]:
    """Say which statement a test proves; may be used several times on one test."""

    def mark(test: F) -> F:
        rows: list[tuple[str, str, str]] = getattr(test, "conformance_rows", [])
        test.conformance_rows = [(document, section, behaviour), *rows]  # type: ignore[attr-defined]
        return test

    return mark
