"""Write `src/jetspark/error_codes.py` from the server's error catalogue.

    python scripts/generate_error_codes.py CATALOGUE.json

The catalogue is the JSON list that a nats-server release is built with (`server/errors.json` in
its source). Each entry has a `name`, a `code` and an `err_code`.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent.parent / "src" / "jetspark" / "error_codes.py"

HEADER = '''\
"""The error codes of the JetStream API by name.

Made by `python scripts/generate_error_codes.py CATALOGUE.json`; do not edit by hand.

A server never gives a code a new meaning, and every release adds some: an unknown number is not
an error. The comment beside a code is the HTTP-like `code` that comes with it.
"""

from __future__ import annotations

import enum

__all__ = ["ErrorCode"]


class ErrorCode(enum.IntEnum):
    """What `err_code` of an `APIError` stands for."""

'''


def python_name(constant: str) -> str:
    """`JSStreamWrongLastMsgIDErrF` becomes `STREAM_WRONG_LAST_MSG_ID`."""
    # The trailing F marks a description with placeholders.
    words = re.sub(r"(?:Err)?F?$", "", constant.removeprefix("JS"))
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", words)
    return words.upper()


def generate(catalogue: list[dict[str, Any]]) -> str:
    """The text of the module."""
    lines = {}
    for entry in sorted(catalogue, key=lambda entry: int(entry["err_code"])):
        name = python_name(entry["name"])
        if name in lines:
            raise SystemExit(f"two constants become {name}")
        lines[name] = f"    {name} = {entry['err_code']}  # {entry['code']}\n"
    return HEADER + "".join(lines.values())


def main() -> None:
    """Read the catalogue named on the command line and write the module."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    catalogue = json.loads(Path(sys.argv[1]).read_text())
    TARGET.write_text(generate(catalogue))
    print(f"{TARGET.name}: {len(catalogue)} codes")


if __name__ == "__main__":
    main()
