"""Reads the keys of a mapping: each problem is noted, and reading goes on."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TypeVar

from .ddl import Column, read_ddl
from .durations import milliseconds
from .problems import Mark, Problems, did_you_mean
from .templates import Template, read_template
from .yaml_lines import Value

__all__ = ["Fields"]

E = TypeVar("E", bound=Enum)


class Fields:
    """A mapping of the file, such as a source."""

    def __init__(self, value: Value, what: str, problems: Problems) -> None:
        self.mark = value.mark
        self.what = what
        self._problems = problems
        self._values: dict[str, Value] = {}
        self._marks = value.keys
        if isinstance(value.data, dict):
            self._values = value.data
        elif not value.empty:
            problems.add(value.mark, f"{what} must be a mapping of keys, not {value.kind}")

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def items(self) -> Iterable[tuple[str, Value, Mark]]:
        """Keys, values, and where the keys are."""
        return [(key, value, self._marks[key]) for key, value in self._values.items()]

    def wrong(self, key: str, message: str) -> None:
        """Note a problem with the value of a key, or with the lack of it."""
        self._problems.add(self.at(key), f"{self.what}: {message}")

    def at(self, key: str) -> Mark:
        """Where the value of a key is; else where the mapping is."""
        value = self._values.get(key)
        return value.mark if value is not None else self.mark

    def allow(self, known: Iterable[str], others: Iterable[str] = ()) -> None:
        """Refuse other keys; `others` are those that exist elsewhere, and make no sense here."""
        names, misplaced = list(known), set(others)
        for key, mark in self._marks.items():
            if key in names:
                continue
            if key in misplaced:
                self._problems.add(mark, f"{self.what}: {key!r} makes no sense here; leave it out")
            else:
                advice = did_you_mean(key, names)
                self._problems.add(mark, f"{self.what}: there is no key {key!r}; {advice}")

    def value(self, key: str) -> Value | None:
        """What a key has, unless that is nothing."""
        value = self._values.get(key)
        return None if value is None or value.empty else value

    def text(self, key: str, *, required: str = "") -> str | None:
        """A text; if it is missing and required, that is said with an example."""
        value = self._values.get(key)
        if value is not None and isinstance(value.data, list | dict):
            self.wrong(key, f"{key!r} must be a text, not {value.kind}")
            return None
        if value is None or value.empty or not value.text.strip():
            if required:
                self.wrong(key, f"{key!r} is missing; write {required}")
            return None
        return value.text.strip()

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false."""
        value = self.value(key)
        if value is None:
            return default
        if not isinstance(value.data, bool):
            self.wrong(key, f"{key!r} must be true or false, not {value.kind}")
            return default
        return value.data

    def texts(self, key: str) -> list[str]:
        """One text, or a list of them."""
        value = self.value(key)
        if value is None:
            return []
        items = value.data if isinstance(value.data, list) else [value]
        if isinstance(value.data, dict) or any(
            item.empty or isinstance(item.data, list | dict) for item in items
        ):
            self.wrong(key, f"{key!r} must be a text or a list of texts")
            return []
        return [item.text.strip() for item in items]

    def options(self, key: str) -> dict[str, str]:
        """A mapping of texts, for Spark."""
        value = self.value(key)
        if value is None:
            return {}
        found = {}
        for name, item, _ in Fields(value, f"{self.what}: {key}", self._problems).items():
            if item.empty or isinstance(item.data, list | dict):
                self._problems.add(item.mark, f"{self.what}: {key} {name!r} must have a value")
            else:
                found[name] = str(item.data).lower() if isinstance(item.data, bool) else item.text
        return found

    def choice(self, key: str, kinds: type[E], default: E) -> E:
        """One of a few words."""
        text = self.text(key)
        if text is None:
            return default
        for kind in kinds:
            if text.lower() == kind.value:
                return kind
        words = [str(kind.value) for kind in kinds]
        self.wrong(key, f"{key!r} must be {', '.join(words[:-1])} or {words[-1]}, not {text!r}")
        return default

    def span(self, key: str, *, required: str = "") -> int | None:
        """A time span, in milliseconds."""
        text = self.text(key, required=required)
        if text is None:
            return None
        try:
            return milliseconds(text)
        except ValueError as error:
            self.wrong(key, f"{key!r}: {error}")
            return None

    def template(self, key: str, *, required: str = "") -> Template | None:
        """A template with columns."""
        text = self.text(key, required=required)
        if text is None:
            return None
        try:
            return read_template(text)
        except ValueError as error:
            self.wrong(key, f"{key!r}: {error}")
            return None

    def templates(self, key: str) -> dict[str, Template]:
        """A mapping of templates."""
        value = self.value(key)
        if value is None:
            return {}
        fields = Fields(value, f"{self.what}: {key}", self._problems)
        found = {name: fields.template(name, required="a text") for name, _, _ in fields.items()}
        return {name: template for name, template in found.items() if template is not None}

    def ddl(self, key: str, text: str) -> tuple[Column, ...] | None:
        """The columns of a schema."""
        try:
            return tuple(read_ddl(text))
        except ValueError as error:
            self.wrong(key, f"{key!r}: {error}")
            return None
