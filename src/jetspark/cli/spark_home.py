"""A Spark home whose Python is the installed package.

Spark's workers import pyspark from a zip in its home, which has no compiled code: each of the many
processes of a query compiles it again, which takes longer than all the rest of its start. A home
without that zip makes them import the package that is installed, compiled once.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

__all__ = ["use_spark_home"]

_PARTS = ("bin", "jars", "sbin")


def use_spark_home(folder: Path) -> None:
    """Make a home of links in a folder and name it in SPARK_HOME, unless the user has named one."""
    found = find_spec("pyspark")
    if "SPARK_HOME" in os.environ or found is None or found.origin is None:
        return
    package = Path(found.origin).parent
    if not all((package / part).is_dir() for part in _PARTS):
        return  # not installed with pip: it is somewhere else, and finds it by itself
    home = folder.absolute() / "spark-home"
    try:
        home.mkdir(parents=True, exist_ok=True)
        for part in _PARTS:
            link = home / part
            if link.is_symlink() and link.readlink() != package / part:
                link.unlink()  # of another environment
            if not link.is_symlink():
                link.symlink_to(package / part)
    except OSError:
        return  # it is only a matter of speed
    os.environ["SPARK_HOME"] = str(home)
