"""Writes docs/conformance.md from the marks on the tests (see tests/support/conformance.py).

python scripts/generate_conformance.py          writes the file
python scripts/generate_conformance.py --check  fails if it is not up to date
"""

from __future__ import annotations

import importlib
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "conformance.md"
DOCUMENTS = {
    "ADR-13": "ADR-13: pull subscribe internals",
    "ADR-17": "ADR-17: ordered consumers",
    "ADR-15": "ADR-15: JetStream subscribe workflow",
    "ADR-37": "ADR-37: JetStream simplification",
    "RUST": "async-nats: JetStream internals",
    "KV": "ADR-8 and its like: key-value buckets",
    "OBJ": "ADR-20: object stores",
}
INTRODUCTION = """# Conformance

What the design documents of JetStream clients say, and the tests that prove that jetspark does it.
Where a document and the server disagree, the server is right, and the behaviour is described as the
server has it.

This page is made by `python scripts/generate_conformance.py` from marks on the tests.
"""


def rows() -> list[tuple[str, str, str, str]]:
    """Document, section, behaviour and test of every mark."""
    found = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        relative = path.relative_to(ROOT)
        module = importlib.import_module(".".join(relative.with_suffix("").parts))
        for name, test in vars(module).items():
            if name.startswith("test_") and test.__module__ == module.__name__:
                for document, section, behaviour in getattr(test, "conformance_rows", ()):
                    found.append((document, section, behaviour, f"{relative}::{name}"))
    return found


def page() -> str:
    """The whole page."""
    tests: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for document, section, behaviour, test in rows():
        tests[document, section, behaviour].append(test)
    order = list(DOCUMENTS)
    documents = sorted(
        {document for document, _, _ in tests},
        key=lambda name: (order.index(name) if name in order else len(order), name),
    )
    lines = [INTRODUCTION]
    for document in documents:
        lines.append(f"## {DOCUMENTS.get(document, document)}\n")
        lines.append("| section | behaviour | test |")
        lines.append("| --- | --- | --- |")
        for (name, section, behaviour), proofs in sorted(tests.items()):
            if name == document:
                links = "<br>".join(f"`{proof}`" for proof in sorted(proofs))
                cell = behaviour.replace("|", "\\|")
                lines.append(f"| {section} | {cell} | {links} |")
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    """Write the page, or check it."""
    sys.path.insert(0, str(ROOT))
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
