"""Reading creds files and seed files.

A creds file holds two blocks, each between a line of dashes with BEGIN and one with END: the
user's JWT and the seed of its nkey. All text outside the blocks is for people. A seed file is the
seed alone, with or without such lines around it.

Messages name the file and what is missing, never a part of its content.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from jetspark.errors import InvalidOptionError

from .nkeys import validate_seed

__all__ = ["Creds", "load_creds", "load_seed", "parse_creds", "parse_seed"]

_BEGIN = re.compile(r"\s*-{3,}\s*BEGIN\b([^-]*)")
_END = re.compile(r"\s*-{3,}\s*END\b")
_JWT = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+", re.ASCII)
_SEED = re.compile(r"S[A-Z]\w{20,}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Creds:
    """A user's JWT and the seed that proves it; neither appears in the repr."""

    jwt: str = field(repr=False)
    seed: str = field(repr=False)


def parse_creds(text: str, *, source: str) -> Creds:
    """Parse the content of a creds file; `source` names it in errors."""
    blocks = _blocks(text, source)
    jwt = next((block for block in blocks if _JWT.fullmatch(block)), None)
    if jwt is None:
        raise InvalidOptionError(
            f"{source}: no user JWT; a creds file has a block 'BEGIN NATS USER JWT'"
        )
    seed = next((block for block in blocks if _SEED.fullmatch(block)), None)
    if seed is None:
        raise InvalidOptionError(
            f"{source}: no nkey seed; a creds file has a block 'BEGIN USER NKEY SEED'"
        )
    validate_seed(seed, source=source)
    return Creds(jwt, seed)


def parse_seed(text: str, *, source: str) -> str:
    """Parse the content of a seed file, plain or between BEGIN and END; `source` names it."""
    candidates = _blocks(text, source) or [line.strip() for line in text.splitlines()]
    seed = next((line for line in candidates if _SEED.fullmatch(line)), None)
    if seed is None:
        raise InvalidOptionError(f"{source}: no nkey seed; a seed is a line that begins with SU")
    validate_seed(seed, source=source)
    return seed


def load_creds(path: str | os.PathLike[str]) -> Creds:
    """Read and parse a creds file."""
    return parse_creds(_read(path, "creds file"), source=f"creds file {os.fspath(path)!r}")


def load_seed(path: str | os.PathLike[str]) -> str:
    """Read and parse a seed file."""
    return parse_seed(_read(path, "seed file"), source=f"seed file {os.fspath(path)!r}")


def _blocks(text: str, source: str) -> list[str]:
    blocks: list[str] = []
    label: str | None = None
    lines: list[str] = []
    for line in text.splitlines():
        if label is None:
            if begin := _BEGIN.match(line):
                label = begin[1].strip()
                lines = []
        elif _END.match(line):
            blocks.append("".join(lines))
            label = None
        else:
            lines.append(line.strip())
    if label is not None:
        raise InvalidOptionError(f"{source}: the block {label!r} has no END line; the file was cut")
    return blocks


def _read(path: str | os.PathLike[str], what: str) -> str:
    try:
        return Path(os.path.expanduser(path)).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        reason = "it is not a text file"
    except OSError as error:
        reason = error.strerror or type(error).__name__
    except ValueError:
        reason = "it is not a valid path"
    raise InvalidOptionError(f"{what} {os.fspath(path)!r} cannot be read: {reason}")
