"""Writes docs/spark-options.md from the tables of options in src/jetspark/spark.

python scripts/generate_spark_options.py          writes the file
python scripts/generate_spark_options.py --check  fails if it is not up to date

A table is a tuple of options that a module exports under a name that ends with `_OPTIONS`; the
format that it belongs to is the module's `SOURCE` or `SINK`.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path
from typing import Any

import jetspark.spark
from jetspark.spark.connection import CONNECTION_OPTIONS
from jetspark.spark.options import Option

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "spark-options.md"
FORMATS = ("jetstream", "jetstream-kv", "jetstream-objects")
TITLES = {
    "READ_OPTIONS": "reading",
    "BATCH_OPTIONS": "reading, batch queries only",
    "STREAM_READ_OPTIONS": "reading, streaming queries only",
    "QUEUE_OPTIONS": "reading work queues, streaming queries only",
    "WRITE_OPTIONS": "writing",
}
INTRODUCTION = """# Options of the Spark sources

Names may be written in any case. An option that is misspelt, missing or wrong is an error before a
job starts, which says what it takes. [spark.md](spark.md) explains how they are used.

This page is made by `python scripts/generate_spark_options.py` from the code that reads the
options.
"""

Table = tuple[Option[Any], ...]


def tables() -> dict[str, dict[str, Table]]:
    """The tables of each format, by title."""
    found: dict[str, dict[str, Table]] = {name: {} for name in FORMATS}
    for info in pkgutil.iter_modules(jetspark.spark.__path__):
        module = importlib.import_module(f"{jetspark.spark.__name__}.{info.name}")
        source = getattr(module, "SOURCE", None) or getattr(module, "SINK", None)
        for name in getattr(module, "__all__", ()):
            if name.endswith("_OPTIONS") and source is not None:
                found[source][title(name)] = getattr(module, name)
    order = list(TITLES.values())
    return {
        source: dict(sorted(own.items(), key=lambda item: order.index(item[0])))
        for source, own in found.items()
    }


def title(name: str) -> str:
    """What a table of that name is about."""
    endings = [ending for ending in TITLES if name.endswith(ending)]
    if not endings:
        raise SystemExit(f"{name}: say what this table is about, in TITLES")
    return TITLES[max(endings, key=len)]  # STREAM_READ_OPTIONS also ends like READ_OPTIONS


def page() -> str:
    """The whole page."""
    lines = [INTRODUCTION]
    for source, own in tables().items():
        for about, table in own.items():
            lines += [f"## `{source}`: {about}", ""]
            lines += rows(option for option in table if option not in CONNECTION_OPTIONS)
    lines += ["## Connecting, all formats", "", *rows(CONNECTION_OPTIONS)]
    return "\n".join(lines)


def rows(options: Any) -> list[str]:
    """A table of Markdown."""
    lines = ["| option | takes | default | |", "| --- | --- | --- | --- |"]
    for option in options:
        default = "required" if option.required else option.shown_default or "-"
        about = f"{option.about} Never shown." if option.secret else option.about
        cells = (f"`{option.name}`", option.kind.takes, default, about)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return [*lines, ""]


def main() -> int:
    """Write the page, or check it."""
    text = page()
    if "--check" in sys.argv[1:]:
        if PAGE.exists() and PAGE.read_text() == text:
            return 0
        print(f"{PAGE.relative_to(ROOT)} is out of date: run python {sys.argv[0]}")
        return 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
