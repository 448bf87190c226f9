"""The blocking classes are made from the async ones, all of them, and speak of nothing async."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import pytest

import jetspark
import jetspark.sync
from jetspark.sync import _generated
from scripts.generate_sync import HANDWRITTEN
from scripts.sync_source import SPECIAL, Twins, internal

ROOT = Path(__file__).parents[2]
TWINS = Twins()
KINDS = sorted(TWINS.kinds.values(), key=lambda kind: kind.__name__)


def twin(kind: type) -> Any:
    return getattr(_generated, kind.__name__)


def test_the_generated_file_is_up_to_date() -> None:
    command = [sys.executable, "scripts/generate_sync.py", "--check"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_public_name_is_there() -> None:
    assert set(jetspark.__all__) <= set(jetspark.sync.__all__)
    for name in jetspark.sync.__all__:
        assert getattr(jetspark.sync, name) is not None


def test_what_is_not_async_is_the_same() -> None:
    changed = {kind.__name__ for kind in KINDS} | {"connect", "MessageCallback"}
    for name in set(jetspark.__all__) - changed:
        assert getattr(jetspark.sync, name) is getattr(jetspark, name), name


def test_everything_that_is_used_with_await_has_a_twin() -> None:
    found = set()
    for name in jetspark.__all__:
        value = getattr(jetspark, name)
        if inspect.isclass(value) and value.__module__.startswith("jetspark"):
            functions = vars(value).values()
            if any(map(inspect.iscoroutinefunction, functions)) or hasattr(value, "__anext__"):
                found.add(name)
    assert len(found) > 12
    assert found - {"ConnectOptions"} <= {kind.__name__ for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__name__))
def test_no_method_or_property_is_missing(kind: type) -> None:
    hidden = {name for base in TWINS.bases(kind) for name in internal(base)}
    public = {
        name
        for base in TWINS.bases(kind)
        for name in vars(base)
        if not name.startswith("_") and name not in hidden
    }
    missing = {name for name in public if not hasattr(twin(kind), name)}
    assert not missing
    renamed = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__anext__": "__next__"}
    for name, plain in renamed.items():
        assert hasattr(kind, name) == hasattr(twin(kind), plain)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__name__))
def test_methods_take_the_same_arguments(kind: type) -> None:
    if kind.__name__ in HANDWRITTEN:
        return  # it waits, so it takes timeouts
    for name, member in TWINS.all_members(kind).items():
        if member.is_property or name in SPECIAL:
            continue
        theirs = inspect.signature(getattr(kind, name)).parameters.values()
        mine = inspect.signature(getattr(twin(kind), name)).parameters.values()
        assert [(each.name, each.kind, each.default) for each in mine] == [
            (each.name, each.kind, each.default) for each in theirs
        ], name


def test_connect_takes_the_same_options() -> None:
    mine, theirs = map(inspect.signature, (jetspark.sync.connect, jetspark.connect))
    assert mine.parameters == theirs.parameters
    assert mine.return_annotation is jetspark.sync.Client
    assert theirs.return_annotation is jetspark.Client


def test_types_can_be_read() -> None:
    for kind in (getattr(jetspark.sync, name) for name in jetspark.sync.__all__):
        if inspect.isclass(kind) and kind.__module__ == _generated.__name__:
            typing.get_type_hints(kind)
            for function in filter(inspect.isfunction, vars(kind).values()):
                typing.get_type_hints(function)


def test_nothing_in_it_is_async() -> None:
    for name, value in vars(_generated).items():
        assert not inspect.iscoroutinefunction(value), name
        if inspect.isclass(value) and value.__module__ == _generated.__name__:
            for member in vars(value).values():
                assert not inspect.iscoroutinefunction(member), name


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__name__))
def test_docstrings_do_not_speak_of_asyncio(kind: type) -> None:
    words = re.compile(r"\bawait|\basync\b|\basynchronous|\bAsync")
    texts = [inspect.getdoc(twin(kind))]
    texts += [inspect.getdoc(member) for member in vars(twin(kind)).values()]
    for text in filter(None, texts):
        assert not words.search(text), text


def test_examples_in_docstrings_are_python() -> None:
    for kind in KINDS:
        source = inspect.getdoc(twin(kind)) or ""
        lines = re.findall(r"^(?:>>>|\.\.\.) (.*)$", source, re.MULTILINE)
        compile("\n".join(lines), kind.__name__, "exec")


def test_jetspark_alone_does_not_import_it() -> None:
    code = "import sys, jetspark; sys.exit('jetspark.sync' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_it_needs_no_extra() -> None:
    code = "import sys, jetspark.sync; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
