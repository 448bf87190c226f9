"""YAML that remembers where everything stands, so that each problem can be shown with its line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from .environment import substitute
from .problems import Mark, Problems

__all__ = ["Scalar", "Value", "read_yaml"]

Scalar = str | int | float | bool | None
_STR = "tag:yaml.org,2002:str"
_DEEPEST = 50  # levels; what nests deeper is a mistake, or an alias of itself


@dataclass(frozen=True)
class Value:
    """A node of the file: a scalar, a list or a mapping, and where it begins."""

    mark: Mark
    data: Scalar | list[Value] | dict[str, Value]
    text: str = ""
    """Of a scalar: as it is written, with its variables filled in."""
    text_line: int = 0
    """Of a scalar: the line of the file on which its first line stands."""
    folded: bool = False
    """Of a scalar: whether its lines are not those of the file."""
    keys: dict[str, Mark] = field(default_factory=dict)
    """Of a mapping: where its keys are."""

    @property
    def kind(self) -> str:
        """In words, for messages."""
        if isinstance(self.data, dict):
            return "a mapping"
        return "a list" if isinstance(self.data, list) else "nothing" if self.empty else self.text

    @property
    def empty(self) -> bool:
        """Whether nothing is there, or `null`."""
        return self.data is None


def read_yaml(text: str, environment: Mapping[str, str], problems: Problems) -> Value | None:
    """The content of a file; None, and a problem, if it is no YAML."""
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problems.add(Mark(line, 1), f"the file has a character that YAML does not allow: {error}")
        return None
    try:
        node = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        problems.add(_place(error), f"this is no YAML: {_said(error)}")
        return None
    except RecursionError:
        problems.add(Mark(1, 1), "this is no pipeline: the file nests too deeply")
        return None
    finally:
        loader.dispose()
    if node is None:
        problems.add(Mark(1, 1), "the file is empty; `jetspark init DIR` writes one to begin with")
        return None
    return _Reader(loader, environment, problems).value(node, 0)


def _place(error: yaml.MarkedYAMLError) -> Mark:
    mark = error.problem_mark or error.context_mark
    return Mark(mark.line + 1, mark.column + 1) if mark is not None else Mark(1, 1)


def _said(error: yaml.MarkedYAMLError) -> str:
    parts = [error.context, error.problem]
    said = ", ".join(part for part in parts if part)
    if "\\t" in said or "'\\t'" in said:
        said += "; indent with spaces"
    return said


class _Reader:
    """Turns nodes into values."""

    def __init__(self, loader: Any, environment: Mapping[str, str], problems: Problems) -> None:
        self._loader = loader
        self._environment = environment
        self._problems = problems

    def value(self, node: yaml.Node, depth: int) -> Value:
        mark = Mark(node.start_mark.line + 1, node.start_mark.column + 1)
        if depth > _DEEPEST:
            self._problems.add(mark, "this nests too deeply; does an alias lead to itself?")
            return Value(mark, None)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, mark, depth)
        if isinstance(node, yaml.SequenceNode):
            return Value(mark, [self.value(item, depth + 1) for item in node.value])
        assert isinstance(node, yaml.ScalarNode)
        return self._scalar(node, mark)

    def _mapping(self, node: yaml.MappingNode, mark: Mark, depth: int) -> Value:
        found: dict[str, Value] = {}
        keys: dict[str, Mark] = {}
        for key_node, value_node in node.value:
            key = self.value(key_node, depth + 1)
            if isinstance(key.data, list | dict) or key.empty:
                self._problems.add(key.mark, f"a key must be a word, not {key.kind}")
                continue
            if key.text in found:
                self._problems.add(
                    key.mark,
                    f"{key.text!r} is there twice, first in line {keys[key.text].line}; "
                    "leave one out",
                )
            found[key.text] = self.value(value_node, depth + 1)
            keys[key.text] = key.mark
        return Value(mark, found, keys=keys)

    def _scalar(self, node: yaml.ScalarNode, mark: Mark) -> Value:
        text, wrong = substitute(node.value, self._environment)
        for message in wrong:
            self._problems.add(mark, message)
        block = node.style in ("|", ">")
        plain = node.style is None
        tag = self._loader.resolve(yaml.ScalarNode, text, (plain, not plain))
        return Value(
            mark,
            self._data(tag, text, mark),
            text=text,
            text_line=mark.line + 1 if block else mark.line,
            folded=node.style != "|",
        )

    def _data(self, tag: str, text: str, mark: Mark) -> Scalar:
        kind = tag.removeprefix("tag:yaml.org,2002:")
        if kind == "null":
            return None
        if kind not in ("bool", "int", "float"):
            return text
        node = yaml.ScalarNode(tag, text)
        try:
            data: Scalar = getattr(self._loader, f"construct_yaml_{kind}")(node)
        except ValueError as error:
            self._problems.add(mark, f"{text!r} is no number: {error}")
            return None
        return data
