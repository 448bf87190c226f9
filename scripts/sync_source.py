"""Reads the public async API for `generate_sync`: its classes, and what is in them.

Signatures and types are taken from the sources, because many of the names in them are imported for
the type checker only.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import typing
from dataclasses import dataclass, field, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

# Made for the other modules of the package, although their names do not begin with a line.
INTERNAL = {
    "Client": "on_batch on_server_error on_disconnected on_closed restore",
    "ContextBase": "api",
    "Consumer": "api",
    "StreamReader": "api",
    "PullConsumer": "next_subject pinned pin_id pin unpin give_back",
    "OrderedConsumer": "series create adopt begin_iteration",
    "OrderedPushConsumer": "series create adopt",
    "OrderedPushSubscription": "resume_sequence",
    "Subscription": "deliver end discard",
    "ObjectReader": "open",
}


# The types of attributes that are told by their names.
BY_NAME = {"name": "str", "bucket": "str", "id": "str"}
# The other way round: of these, nothing else is for applications.
PUBLIC = {"Route": "client subject queue"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Unknown(Exception):
    """Something that the generator must be told."""


# -- reading the async API ---------------------------------------------------------------------


class Module:
    """The source of a module, and what the names in it refer to."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.module = importlib.import_module(name)
        path = inspect.getsourcefile(self.module)
        assert path is not None
        self.tree = ast.parse(Path(path).read_text("utf-8"))
        self.imports: dict[str, tuple[str, str | None]] = {}
        self.aliases: dict[str, ast.expr] = {}
        package = name if path.endswith("__init__.py") else name.rpartition(".")[0]
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                origin = node.module or ""
                if node.level:
                    origin = ".".join([package, *([origin] if origin else [])])
                for found in node.names:
                    self.imports[found.asname or found.name] = (origin, found.name)
            elif isinstance(node, ast.Import):
                for found in node.names:
                    self.imports[found.asname or found.name] = (found.name, None)
        for node in self.tree.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
                self.aliases[node.target.id] = node.value
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.aliases[node.targets[0].id] = node.value

    def class_def(self, name: str) -> ast.ClassDef:
        """The source of a class."""
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                return node
        raise Unknown(f"{self.name} has no class {name}")

    @property
    def is_optional(self) -> bool:
        """Whether it needs an extra to be imported."""
        nodes = [
            node
            for outer in self.tree.body
            for node in (outer.body if isinstance(outer, ast.Try) else [outer])
        ]
        return any(
            found.name == "pyarrow"
            for node in nodes
            if isinstance(node, ast.Import)
            for found in node.names
        )


@cache
def module_of(name: str) -> Module:
    """A module, read once."""
    return Module(name)


def origin(module: str, name: str) -> tuple[str, str | None]:
    """Where a name is defined that is used in a module; no second part for a module itself."""
    if not module.startswith("jetspark"):
        return module, name
    found = module_of(module).imports.get(name)
    if found is None:
        value = getattr(module_of(module).module, name, None)
        if inspect.isclass(value) and value.__module__.startswith("jetspark"):
            return value.__module__, value.__qualname__  # errors are re-exported with a star
        return module, name
    if found[1] is None:
        return found[0], None
    return origin(found[0], found[1])


def resolve(module: str, name: str) -> Any:
    """What a name refers to that is used in a module; None if it is none of a module."""
    where, what = origin(module, name)
    value = importlib.import_module(where)
    return value if what is None else getattr(value, what, None)


def full_name(kind: type) -> str:
    """The name of a class with its module."""
    return f"{kind.__module__}.{kind.__qualname__}"


@dataclass
class Member:
    """A method, property or attribute, with where it is defined."""

    name: str
    module: Module
    nodes: list[Function] = field(default_factory=list)
    annotation: ast.expr | None = None  # of an attribute
    doc: str | None = None

    @property
    def node(self) -> Function:
        """The definition; the last one, if there are overloads."""
        return self.nodes[-1]

    @property
    def is_property(self) -> bool:
        """Whether it is read without a call."""
        return not self.nodes or "property" in decorators(self.node)

    @property
    def returns(self) -> ast.expr | None:
        """The type of what it gives."""
        return self.annotation if not self.nodes else self.node.returns


def decorators(node: Function) -> list[str]:
    """The decorators of a function."""
    return [ast.unparse(decorator) for decorator in node.decorator_list]


SPECIAL = {"__anext__", "__aiter__", "__aenter__", "__aexit__"}


def members(kind: type) -> dict[str, Member]:
    """What a class itself defines for the public."""
    module = module_of(kind.__module__)
    found: dict[str, Member] = {}
    body = module.class_def(kind.__name__).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if not node.name.startswith("_") or node.name in SPECIAL:
                member = found.setdefault(node.name, Member(node.name, module))
                member.nodes.append(node)
            for attribute in attributes(module, node):
                found.setdefault(attribute.name, attribute)
        elif (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and "ClassVar" not in ast.unparse(node.annotation)
        ):
            name = node.target.id
            found[name] = Member(name, module, annotation=node.annotation, doc=text_of(after))
    return {
        name: member
        for name, member in found.items()
        if name in SPECIAL or not name.startswith("_")
    }


def internal(kind: type) -> list[str]:
    """The members of a class that are not for applications."""
    if kind.__name__ in PUBLIC:
        public = PUBLIC[kind.__name__].split()
        return [name for name in [*members(kind), *vars(kind)] if name not in public]
    return INTERNAL.get(kind.__name__, "").split()


def text_of(node: ast.stmt | None) -> str | None:
    """The text below an attribute, which documents it."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return str(node.value.value)
    return None


def attributes(module: Module, method: Function) -> list[Member]:
    """The public attributes that a method sets: all those of `__init__`, else documented ones."""
    found = []
    arguments = [*method.args.posonlyargs, *method.args.args, *method.args.kwonlyargs]
    types = {argument.arg: argument.annotation for argument in arguments}
    for node, after in zip(method.body, [*method.body[1:], None], strict=True):
        target: ast.expr | None = None
        annotation: ast.expr | None = None
        if isinstance(node, ast.AnnAssign):
            target, annotation = node.target, node.annotation
        elif isinstance(node, ast.Assign):
            target = node.targets[0]
        if not (
            isinstance(target, ast.Attribute)
            and isinstance(target.value, ast.Name)
            and target.value.id == "self"
            and not target.attr.startswith("_")
            and (method.name == "__init__" or text_of(after) is not None)
        ):
            continue
        if annotation is None:
            assert isinstance(node, ast.Assign)
            annotation = guess_type(module, node.value, types)
            if annotation is None and target.attr in BY_NAME:
                annotation = ast.Name(BY_NAME[target.attr])
        found.append(Member(target.attr, module, annotation=annotation, doc=text_of(after)))
    return found


def guess_type(
    module: Module, value: ast.expr, types: dict[str, ast.expr | None]
) -> ast.expr | None:
    """The type of what is assigned, where that is plain to see."""
    if isinstance(value, ast.Name):
        return types.get(value.id)
    if isinstance(value, ast.Constant):
        return ast.Name(type(value.value).__name__)
    if not isinstance(value, ast.Call):
        return None
    function = value.func
    if isinstance(function, ast.Attribute):
        function = function.value  # perhaps a class method that makes one
    if isinstance(function, ast.Name) and inspect.isclass(resolve(module.name, function.id)):
        return function
    return None


# -- which classes get a twin --------------------------------------------------------------------


def names_in(module: Module, annotation: ast.expr | None) -> list[tuple[Module, str]]:
    """The names in an annotation, those in type aliases included."""
    found = []
    for node in [] if annotation is None else ast.walk(unquote(annotation)):
        if isinstance(node, ast.Name) and not hasattr(builtins, node.id):
            found.append((module, node.id))
            where, what = origin(module.name, node.id)
            if what is not None and where.startswith("jetspark"):
                alias = module_of(where).aliases.get(what)
                if alias is not None and not isinstance(alias, ast.Call):
                    found += names_in(module_of(where), alias)
    return found


def unquote(annotation: ast.expr) -> ast.expr:
    """An annotation without quotes around it."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return ast.parse(annotation.value, mode="eval").body
    return annotation


ASYNC_TYPES = {"AsyncIterator", "AsyncGenerator", "AsyncIterable", "Awaitable", "Coroutine"}


class Twins:
    """The classes that get a twin, found from the public names on."""

    def __init__(self) -> None:
        package = importlib.import_module("jetspark")
        public = [getattr(package, name) for name in package.__all__]
        self.public = {name: getattr(package, name) for name in package.__all__}
        self.kinds: dict[str, type] = {}  # by full name
        candidates = [kind for kind in public if inspect.isclass(kind)]
        seen: set[type] = set()
        while candidates:
            kind = candidates.pop()
            if (
                kind in seen
                or not kind.__module__.startswith("jetspark")
                or is_dataclass(kind)  # options and states: nothing in them is done
            ):
                continue
            seen.add(kind)
            candidates += self._mentioned(kind)
        shadowed = {
            base
            for kind in seen
            for base in kind.__mro__[1:]
            if base in seen and base.__name__ == kind.__name__
        }
        self.same = {full_name(base): base.__name__ for base in shadowed}
        self.seen = seen - shadowed
        grew = True
        while grew:
            grew = False
            for kind in self.seen:
                if full_name(kind) not in self.kinds and self._is_async(kind):
                    self.kinds[full_name(kind)] = kind
                    grew = True
        self._adopt_bases()

    def _adopt_bases(self) -> None:
        """Have a base class stand for the one twin that is made of it."""
        users: dict[str, set[str]] = {}
        for kind in self.kinds.values():
            for base in self.bases(kind)[1:]:
                if full_name(base) not in self.kinds:
                    users.setdefault(full_name(base), set()).add(kind.__name__)
        self.same |= {base: names.pop() for base, names in users.items() if len(names) == 1}

    def _mentioned(self, kind: type) -> list[type]:
        """The classes that the members of a class lead to."""
        values = [
            resolve(module.name, name)
            for member in self.all_members(kind).values()
            for module, name in names_in(member.module, member.returns)
        ]
        return [value for value in values if inspect.isclass(value)]

    def all_members(self, kind: type) -> dict[str, Member]:
        """What a class has for the public, with what it inherits."""
        return self._merged(kind, self.bases(kind))

    def _merged(self, kind: type, bases: list[type]) -> dict[str, Member]:
        found: dict[str, Member] = {}
        for base in reversed(bases):
            found |= members(base)
        for base in self.bases(kind):
            for name in internal(base):
                found.pop(name, None)
        return found

    @staticmethod
    def bases(kind: type) -> list[type]:
        """The class and its bases in this package, as far as they can be read."""
        return [
            base
            for base in kind.__mro__
            if base.__module__.startswith("jetspark") and base.__module__ != "jetspark.errors"
        ]

    def _is_async(self, kind: type) -> bool:
        if issubclass(kind, BaseException) or typing.is_typeddict(kind):
            return False
        if self.item_of_list(kind) is not None:
            return self.name_of(self.item_of_list(kind)) is not None
        for member in self.all_members(kind).values():
            if any(isinstance(node, ast.AsyncFunctionDef) for node in member.nodes):
                return True
            if member.name == "client":
                continue  # the way back does not count
            for module, name in names_in(member.module, member.returns):
                value = resolve(module.name, name)
                if name in ASYNC_TYPES or self.name_of(value) is not None:
                    return True
        return hasattr(kind, "__await__")

    @staticmethod
    def item_of_list(kind: type) -> Any:
        """What a class holds that is a list."""
        for base in getattr(kind, "__orig_bases__", ()):
            if typing.get_origin(base) is list:
                return typing.get_args(base)[0]
        return None

    def name_of(self, value: Any) -> str | None:
        """The name of the twin of a class, if it has one."""
        if not inspect.isclass(value):
            return None
        name = full_name(value)
        if name in self.same:
            return self.same[name]
        return value.__name__ if name in self.kinds else None

    def parent(self, kind: type) -> type | None:
        """The class whose twin the twin of a class inherits from."""
        for base in kind.__mro__[1:]:
            if full_name(base) in self.kinds:
                return base
        return None

    def own_members(self, kind: type) -> dict[str, Member]:
        """What the twin must define itself: everything up to the class that it inherits from."""
        parent = self.parent(kind)
        inherited = parent.__mro__ if parent is not None else ()
        return self._merged(kind, [base for base in self.bases(kind) if base not in inherited])

    def in_order(self) -> list[type]:
        """Bases first, otherwise by name."""
        done: list[type] = []
        left = sorted(self.kinds.values(), key=lambda kind: kind.__name__)
        while left:
            for kind in left:
                needs = [self.parent(kind), self.item_of_list(kind)]
                if not any(need in left for need in needs if need is not None):
                    done.append(kind)
                    left.remove(kind)
                    break
        return done
