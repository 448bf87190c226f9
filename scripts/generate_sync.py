"""Writes src/jetspark/sync/_generated.py, the blocking classes, from the async ones.

python scripts/generate_sync.py          writes the file
python scripts/generate_sync.py --check  fails if it is not up to date

A class of the public API gets a blocking twin if anything in it is awaited or iterated over
asynchronously, or leads to such a class. The twin has the same methods, properties and attributes
with the same parameters, types and docstrings, without `await`. What a new class or method needs is
found out by itself; what cannot be known is in the tables below, and in `sync_source`.
"""

from __future__ import annotations

import ast
import builtins
import copy
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from scripts.sync_source import (  # noqa: E402
    Function,
    Member,
    Module,
    Twins,
    Unknown,
    decorators,
    full_name,
    module_of,
    names_in,
    origin,
    resolve,
    unquote,
)

TARGET = ROOT / "src" / "jetspark" / "sync" / "_generated.py"

# Written by hand, and where.
HANDWRITTEN = {"PublishAckFuture": "_futures"}
# Messages are made in such numbers that it counts how long that takes.
STRUCTS = {"Message"}
# Of these, a step of the iteration may be given up at any time without a loss.
TAKEN_TOGETHER = {"Subscription", "MessageStream", "KeyValueWatcher", "ObjectWatcher"}
# What they fetch is given back if an interrupt comes.
FETCHING = {"PullConsumer", "PullSubscription"}
# Iterators whose items are many messages each: nothing is taken ahead.
ONE_AT_A_TIME = {"sequence"}
# What ends an iteration, by way of which method of the runtime.
ENDS = {"stop": "self._stop", "drain": "self._drain"}
# What differs from the pattern; {call} is the call of the async method.
BODIES = {
    "Client.close": """
        self._thread.finish(self._async.close)""",
    "Client.publish": """
        if (headers or reply) is None and self._async.put(subject, data):
            return
        self._thread.run({call})""",
    "JetStream.publish_async": """
        return PublishAckFuture(
            publish_async(self._async, self._thread, subject, data, options), self._thread
        )""",
    "JetStream.publish_async_pending": """
        return publish_pending(self._async)""",
    "JetStreamMessage.ack": """
        acknowledge(self._async, self._thread)""",
    "Subscription.unsubscribe": """
        if limit is None:
            self._stop({call})
        else:
            self._thread.run({call})""",
    "Subscription.pending_messages": """
        return self._async.pending_messages + len(self._hand)""",
    "KeyValueWatcher.initial_done": """
        return self._async.initial_done and None not in self._hand""",
    "ObjectWatcher.initial_done": """
        return self._async.initial_done and None not in self._hand""",
}
BODIES["PushSubscription.unsubscribe"] = BODIES["Subscription.unsubscribe"]
# What documentation says in other words than those of the language.
WORDS = [
    (r"\basync (?=with |for )", ""),
    (r"\(await ([\w.]+\([^()]*\))\)", r"\1"),
    (r"\bawait (?=\w|\()", ""),
    (r"\(([\w.]+\([^()]*\))\)\.", r"\1."),
    (r" \(plain or async\)", ""),
    (r", plain or asynchronous;", ";"),
    (r"to be awaited later", "to be waited for later"),
    (r"because nobody has awaited its(\s+)future", r"because nobody has asked its\1future"),
    (r"from one task at a(\s+)time", r"from one thread at a\1time"),
]
# Attributes that say nothing about themselves.
DOCS = {
    "client": "The client that it belongs to.",
    "consumer": "The consumer that the messages come from.",
    "data": "The payload.",
    "id": "The id under which the server knows it.",
    "queue": "The queue group, if there is one.",
    "raw_headers": "The headers as they came, None if there are none.",
    "raw_reply": "The subject for an answer as it came, None if there is none.",
    "raw_subject": "The subject as it came.",
    "subject": "The subject.",
}
HEADER = '''"""The blocking classes, made by `python scripts/generate_sync.py` from the async ones.

Do not edit: change the async classes and run the script.
"""
'''


class Writer:
    """Writes the twins, and remembers what they import."""

    def __init__(self) -> None:
        self.twins = Twins()
        self.imports: dict[str, set[str]] = {}  # by module; "" is the module itself
        self.type_imports: dict[str, set[str]] = {}  # for the type checker only
        self.type_variables: set[str] = set()
        self.runtime: set[tuple[str, str]] = set()

    def file(self) -> str:
        """The whole file, formatted."""
        kinds = [kind for kind in self.twins.in_order() if kind.__name__ not in HANDWRITTEN]
        classes = [self.twin(kind) for kind in kinds]
        exported = self.exports(kinds)
        fronts = [
            f'    "{full_name(kind)}": {kind.__name__}'
            + ("," if self.twins.item_of_list(kind) is None else "._of,")
            for kind in self.twins.in_order()
            if kind.__name__ != "Client"
        ]
        parts = [
            HEADER,
            "from __future__ import annotations\n",
            self.import_lines(),
            "__all__ = [" + ", ".join(f'"{name}"' for name in sorted(exported)) + "]\n",
            "\n".join(f'{name} = TypeVar("{name}")' for name in sorted(self.type_variables)),
            *classes,
            "FRONTS.update({\n" + "\n".join(fronts) + "\n})\n",
            "MessageCallback: TypeAlias = Callable[[Message], object]\n",
        ]
        return formatted("\n\n".join(parts))

    def exports(self, kinds: list[type]) -> set[str]:
        """The public names: the twins, and everything else as it is."""
        names = {kind.__name__ for kind in kinds} | set(HANDWRITTEN)
        for name in self.twins.public:
            if name not in names and name not in ("connect", "MessageCallback", "errors"):
                self.imports.setdefault("jetspark", set()).add(name)
                names.add(name)
        return names | {"MessageCallback"}

    def import_lines(self) -> str:
        """The imports of the file."""
        self.imports.setdefault("collections.abc", set()).add("Callable")
        self.imports.setdefault("typing", set()).update({"TYPE_CHECKING", "TypeAlias"})
        if self.type_variables:
            self.imports["typing"].update({"Generic", "TypeVar"})
        self.runtime |= {("_base", "FRONTS")}
        self.runtime |= {
            ("_client", name) for name in ("acknowledge", "publish_async", "publish_pending")
        }
        self.runtime |= {(file, name) for name, file in HANDWRITTEN.items()}
        for file, name in self.runtime:
            self.imports.setdefault(f".{file}", set()).add(name)
        lines = import_statements(self.imports)
        if self.type_imports:
            lines += ["if TYPE_CHECKING:"]
            lines += ["    " + line for line in import_statements(self.type_imports)]
            # Annotations can be read without them.
            names = [name.split()[-1] for found in self.type_imports.values() for name in found]
            lines += ["else:", f"    {' = '.join(sorted(names))} = Any"]
        return "\n".join(lines) + "\n"

    def use(self, file: str, name: str) -> str:
        """Import something of the runtime."""
        self.runtime.add((file, name))
        return name

    # -- classes --------------------------------------------------------------------------------

    def twin(self, kind: type) -> str:
        """The blocking class for an async one."""
        name = kind.__name__
        source = module_of(kind.__module__).class_def(name)
        doc = docstring(ast.get_docstring(source, clean=False), 4)
        item = self.twins.item_of_list(kind)
        if item is not None:
            return self.list_twin(kind, doc, item)
        parent = self.twins.parent(kind)
        found = self.twins.own_members(kind)
        parameters = getattr(kind, "__parameters__", ())
        generic = f"[{', '.join(each.__name__ for each in parameters)}]" if parameters else ""
        self.type_variables |= {each.__name__ for each in parameters}
        lines = [f"class {name}({self.bases(kind, parent, found, generic)}):", doc]
        lines.append(f"    _async: {self.async_class(kind)}{generic}")
        if name in STRUCTS:
            lines.append(f"    _thread: {self.use('_thread', 'LoopThread')}")
        if "__anext__" in found:
            lines += self.feed(kind, found["__anext__"])
            if parent is not None:  # whose items are of another type
                item = self.type_text(found["__anext__"].module, found["__anext__"].returns)
                lines += ["    if TYPE_CHECKING:", f"        def __next__(self) -> {item}: ..."]
        for member in found.values():
            text = self.member(kind, member, found)
            if text:
                lines += ["", text]
        if name in STRUCTS:
            lines += ["", "    def __repr__(self) -> str:", "        return repr(self._async)"]
        return "\n".join(lines) + "\n"

    def bases(self, kind: type, parent: type | None, found: dict[str, Member], generic: str) -> str:
        """What the twin inherits from."""
        if kind.__name__ in STRUCTS:
            self.imports.setdefault("", set()).add("msgspec")
            return "msgspec.Struct, gc=False, eq=False"
        if parent is not None:
            options = ", gc=False, eq=False" if parent.__name__ in STRUCTS else ""
            return parent.__name__ + options
        if "__anext__" in found:
            item = self.type_text(found["__anext__"].module, found["__anext__"].returns)
            return f"{self.use('_iterators', 'Feed')}[{item}]"
        base = self.use("_base", "Wrapper")
        return f"{base}, Generic{generic}" if generic else base

    def feed(self, kind: type, member: Member) -> list[str]:
        """How the items of an iteration are taken."""
        lines = []
        for module, name in names_in(member.module, member.returns):
            if (twin := self.twins.name_of(resolve(module.name, name))) is not None:
                lines.append(f"    _item: ClassVar[Any] = {twin}")
                self.imports.setdefault("typing", set()).update({"Any", "ClassVar"})
        if kind.__name__ in TAKEN_TOGETHER:
            lines.append(f"    _most = {self.use('_iterators', 'HAND')}")
        return lines

    def list_twin(self, kind: type, doc: str, item: type) -> str:
        """The twin of a class that is a list of async objects."""
        name, held = kind.__name__, self.twins.name_of(item)
        lines = [f"class {name}(list[{held}]):", doc]
        copied = []
        for member in self.twins.own_members(kind).values():
            annotation = self.type_text(member.module, member.annotation)
            lines.append(f"    {member.name}: {annotation} = None")
            copied.append(f"        made.{member.name} = found.{member.name}")
        lines += [
            "",
            "    @classmethod",
            f"    def _of(cls, found: {self.async_class(kind)}, "
            f"thread: {self.use('_thread', 'LoopThread')}) -> {name}:",
            f"        made = cls([{held}(each, thread) for each in found])",
            *copied,
            "        return made",
        ]
        return "\n".join(lines) + "\n"

    def async_class(self, kind: type) -> str:
        """The name of the async class."""
        if kind.__name__ == "Client":
            return self.use("_client", "LoopClient")
        imports = self.type_imports if module_of(kind.__module__).is_optional else self.imports
        imports.setdefault(kind.__module__, set()).add(f"{kind.__name__} as Async{kind.__name__}")
        return f"Async{kind.__name__}"

    # -- members --------------------------------------------------------------------------------

    def member(self, kind: type, member: Member, found: dict[str, Member]) -> str:
        """A method or property of the twin; nothing if its base class has it."""
        name = member.name
        if name in ("__aiter__", "__anext__"):
            return ""
        if name == "__aenter__":
            lines = ["    def __enter__(self) -> Self:"]
            self.imports.setdefault("typing", set()).add("Self")
            if [ast.unparse(each) for each in member.node.body] != ["return self"]:
                lines.append("        self._enter()")
            return "\n".join([*lines, "        return self"])
        if name == "__aexit__":
            is_feed = "__anext__" in self.twins.all_members(kind)
            end = "self._exit(" if is_feed else "self._thread.finish(self._async.__aexit__, "
            return f"    def __exit__(self, *exc_info: Any) -> None:\n        {end}*exc_info)"
        if member.is_property:
            return self.property(kind, member)
        return "\n\n".join(self.method(kind, member, node) for node in member.nodes)

    def property(self, kind: type, member: Member) -> str:
        """A property of the twin, for a property or an attribute."""
        if member.returns is None:
            where = f"{member.module.name}: {kind.__name__}.{member.name}"
            raise Unknown(f"{where}: annotate it, or list it in INTERNAL")
        doc = member.doc if not member.nodes else ast.get_docstring(member.node, clean=False)
        if doc is None:
            doc = DOCS.get(member.name) or f"`{member.name}` of the async object."
        lines = [
            "    @property",
            f"    def {member.name}(self) -> {self.type_text(member.module, member.returns)}:",
            docstring(doc, 8),
        ]
        body = BODIES.get(f"{kind.__name__}.{member.name}")
        if body is not None:
            return "\n".join([*lines, body.strip("\n")])
        value = f"self._async.{member.name}"
        return "\n".join([*lines, self.returned(member, value)])

    def method(self, kind: type, member: Member, node: Function) -> str:
        """A method of the twin, or one of its overloads."""
        text = f"    def {node.name}({self.parameters(member.module, node)})"
        text += f" -> {self.type_text(member.module, node.returns)}:"
        if "overload" in decorators(node):
            self.imports.setdefault("typing", set()).add("overload")
            return f"    @overload\n{text} ..."
        doc = docstring(ast.get_docstring(node, clean=False), 8)
        return f"{text}\n{doc}\n{self.body(kind, member, node)}"

    def body(self, kind: type, member: Member, node: Function) -> str:
        """The statements of a method."""
        arguments = self.arguments(member.module, node)
        call = f"self._async.{node.name}({arguments})"
        special = BODIES.get(f"{kind.__name__}.{node.name}")
        if special is not None:
            return special.strip("\n").format(call=call)
        is_feed = "__anext__" in self.twins.all_members(kind)
        if is_feed and node.name == "next":
            self.imports.setdefault("typing", set()).add("Any")
            twin = self.type_text(member.module, node.returns)
            return (
                f"        found: {twin} = self._next(self._async.next, timeout)\n"
                "        return found"
            )
        if isinstance(node, ast.AsyncFunctionDef) and not is_generator(node):
            if len(member.nodes) > 1:  # the overloads say nothing of arguments passed on
                any_call = f"method({arguments})"
                return f"        method: Any = self._async.{node.name}\n" + self.returned(
                    member, f"self._thread.run({any_call})"
                )
            if kind.__name__ in FETCHING and node.name in ("fetch", "fetch_no_wait", "next"):
                twin = self.type_text(member.module, node.returns)
                fetched = self.use("_fetch", "fetched")
                return (
                    f"        found: {twin} = {fetched}(self._async, self._thread, {call})\n"
                    "        return found"
                )
            run = ENDS.get(node.name) if is_feed else None
            run = run or "self._thread.run"
            return self.returned(member, f"{run}({call})")
        # What is no coroutine still belongs into the loop.
        value = f"self._thread.call({', '.join(filter(None, [call.partition('(')[0], arguments]))})"
        return self.returned(member, value)

    def returned(self, member: Member, value: str) -> str:
        """The statements that return a value, with twins in the place of async objects."""
        annotation = unquote(member.returns) if member.returns is not None else None
        if annotation is None or ast.unparse(annotation) == "None":
            return f"        {value}"
        made = self.converted(member, annotation, value)
        if made.startswith("wrap("):
            twin = self.type_text(member.module, annotation)
            return f"        found: {twin} = {made}\n        return found"
        return f"        return {made}"

    def converted(self, member: Member, annotation: ast.expr, value: str) -> str:
        """A value of the async API as one of the blocking API."""
        module = member.module
        names = [resolve(where.name, name) for where, name in names_in(module, annotation)]
        twins = [name for name in map(self.twins.name_of, names) if name is not None]
        if isinstance(annotation, ast.Subscript):
            outer = ast.unparse(annotation.value)
            if outer in ("AsyncIterator", "AsyncGenerator"):
                items = self.use("_iterators", "Items")
                arguments = ["self._thread", value]
                if twins:
                    wrap = self.use("_base", "wrap")
                    arguments.append(f"lambda item: {wrap}(item, self._thread)")
                if member.name in ONE_AT_A_TIME:
                    arguments.append("ahead=1")
                return f"{items}({', '.join(arguments)})"
            if outer == "list" and len(twins) == 1:
                return f"[{twins[0]}(item, self._thread) for item in {value}]"
        if not twins:
            return value
        if isinstance(annotation, ast.Name | ast.Subscript) and len(twins) == 1:
            kind = next(kind for kind in names if self.twins.name_of(kind) == twins[0])
            if self.twins.item_of_list(kind) is not None:
                return f"{twins[0]}._of({value}, self._thread)"
            if kind.__name__ != "Client" and not self.has_children(kind):
                return f"{twins[0]}({value}, self._thread)"
        return f"{self.use('_base', 'wrap')}({value}, self._thread)"

    def has_children(self, kind: type) -> bool:
        """Whether a value of that type may need the twin of a subclass."""
        return any(kind in other.__mro__[1:] for other in self.twins.kinds.values())

    # -- parameters -----------------------------------------------------------------------------

    def parameters(self, module: Module, node: Function) -> str:
        """The parameters of a method."""
        arguments = copy.deepcopy(node.args)
        for argument in [
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
            *filter(None, [arguments.vararg, arguments.kwarg]),
        ]:
            if argument.annotation is not None:
                text = self.type_text(module, argument.annotation)
                argument.annotation = ast.parse(text, mode="eval").body
        arguments.defaults = [self.default(module, value) for value in arguments.defaults]
        arguments.kw_defaults = [
            None if value is None else self.default(module, value)
            for value in arguments.kw_defaults
        ]
        return ast.unparse(arguments)

    def default(self, module: Module, value: ast.expr) -> ast.expr:
        """A default, where it is a constant of the module by its value."""
        if isinstance(value, ast.Constant):
            return value
        found: Any = eval(ast.unparse(value), vars(module.module))  # our own source
        if isinstance(found, int | float | str | bytes | tuple):
            return ast.parse(repr(found), mode="eval").body
        if isinstance(value, ast.Name):
            return ast.Name(self.import_type(*origin(module.name, value.id)))
        raise Unknown(f"{module.name}: the default {ast.unparse(value)} cannot be written down")

    def arguments(self, module: Module, node: Function) -> str:
        """The arguments of the call, passed on."""
        args = node.args
        parts = [self.passed(module, argument) for argument in [*args.posonlyargs, *args.args][1:]]
        if args.vararg is not None:
            parts.append(f"*{args.vararg.arg}")
        parts += [f"{each.arg}={self.passed(module, each)}" for each in args.kwonlyargs]
        if args.kwarg is not None:
            parts.append(f"**{args.kwarg.arg}")
        return ", ".join(parts)

    def passed(self, module: Module, argument: ast.arg) -> str:
        """An argument as the async API wants it."""
        name = argument.arg
        if argument.annotation is None:
            return name
        names = names_in(module, argument.annotation)
        words = {found for _, found in names}
        if "AsyncIterable" in words:
            return f"{self.use('_base', 'in_threads')}({name}, self._async._context.client)"
        if "Iterable" in words:
            return f"{self.use('_base', 'in_list')}({name})"
        if "Callable" in words:
            way = "in_worker" if "Awaitable" in words else "in_loop"
            return f"{self.use('_base', way)}({name}, self._thread)"
        if any(self.twins.name_of(resolve(each.name, found)) for each, found in names):
            return f"{self.use('_base', 'unwrap')}({name})"
        return name

    # -- types ----------------------------------------------------------------------------------

    def type_text(self, module: Module, annotation: ast.expr | None) -> str:
        """An annotation for the blocking API."""
        if annotation is None:
            raise Unknown(f"{module.name}: an annotation is missing")
        return ast.unparse(Types(self, module).visit(copy.deepcopy(unquote(annotation))))

    def import_type(self, module: str, name: str | None) -> str:
        """Import a type as it is, and return what it is called."""
        if name is None:
            imports = self.type_imports if module == "pyarrow" else self.imports
            imports.setdefault("", set()).add(module)
            return module
        if self.twins.public.get(name) is getattr(sys.modules.get(module), name, module):
            module = "jetspark"
        optional = module.startswith("jetspark.") and module_of(module).is_optional
        imports = self.type_imports if optional or module == "pyarrow" else self.imports
        imports.setdefault(module, set()).add(name)
        return name


class Types(ast.NodeTransformer):
    """Turns an annotation of the async API into that of the blocking one."""

    def __init__(self, writer: Writer, module: Module) -> None:
        self.writer = writer
        self.module = module

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Name twins, import everything else."""
        if hasattr(builtins, node.id):
            return node
        where, what = origin(self.module.name, node.id)
        value = resolve(self.module.name, node.id)
        if isinstance(value, TypeVar):
            self.writer.type_variables.add(node.id)
            return node
        if (twin := self.writer.twins.name_of(value)) is not None:
            return ast.Name(twin)
        if what is not None and where.startswith("jetspark"):
            alias = module_of(where).aliases.get(what)
            words = {name for _, name in names_in(self.module, node)}
            changes = bool(words & {"Awaitable", "AsyncIterable"}) or any(
                self.writer.twins.name_of(resolve(each.name, name))
                for each, name in names_in(self.module, node)
            )
            if alias is not None and changes:
                inner = Types(self.writer, module_of(where))
                found: ast.expr = inner.visit(copy.deepcopy(alias))
                return found
        return ast.Name(self.writer.import_type(where, what))

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Import the module that it is an attribute of."""
        if isinstance(node.value, ast.Name):
            where, what = origin(self.module.name, node.value.id)
            if where == "pyarrow":
                return ast.Name(self.writer.import_type(where, node.attr))
            return ast.Attribute(ast.Name(self.writer.import_type(where, what)), node.attr)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """Make async types plain ones."""
        outer = ast.unparse(node.value)
        if outer in ("AsyncIterator", "AsyncGenerator"):
            inner = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
            name = self.writer.import_type("collections.abc", "Iterator")
            return ast.Subscript(ast.Name(name), self.visit(inner))
        if outer == "Callable" and isinstance(node.slice, ast.Tuple):
            # What a callback returns, be it to be awaited, is of no interest.
            taken, given = node.slice.elts
            given = ast.Name("object") if "Awaitable" in ast.unparse(given) else self.visit(given)
            taken = ast.List([self.visit(each) for each in taken.elts])  # type: ignore[attr-defined]
            self.writer.import_type("collections.abc", "Callable")
            return ast.Subscript(ast.Name("Callable"), ast.Tuple([taken, given]))
        if outer == "Literal":
            self.writer.import_type("typing", "Literal")
            return node
        return ast.Subscript(self.visit(node.value), self.visit(node.slice))

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """Leave out of a union what nobody has without asyncio."""
        parts = [part for part in (node.left, node.right) if not is_async_iterable(part)]
        visited = [self.visit(part) for part in parts]
        return visited[0] if len(visited) == 1 else ast.BinOp(visited[0], ast.BitOr(), visited[1])


def is_async_iterable(node: ast.expr) -> bool:
    """Whether a type is an async iterable."""
    return isinstance(node, ast.Subscript) and ast.unparse(node.value) == "AsyncIterable"


def is_generator(node: Function) -> bool:
    """Whether calling a function gives an iterator."""
    return any(isinstance(each, ast.Yield) for each in ast.walk(node))


def docstring(text: str | None, indent: int) -> str:
    """A docstring that does not speak of asyncio."""
    if text is None:
        raise Unknown("a public name has no docstring")
    for pattern, replacement in WORDS:
        text = re.sub(pattern, replacement, text)
    quoted = text.replace("\\", "\\\\")
    return f'{" " * indent}"""{quoted}"""'


def import_statements(imports: dict[str, set[str]]) -> list[str]:
    """Import so much from so many modules."""
    lines = [f"import {name}" for name in sorted(imports.get("", ()))]
    return lines + [
        f"from {module} import {', '.join(sorted(imports[module]))}"
        for module in sorted(imports)
        if module
    ]


def formatted(text: str) -> str:
    """The text with sorted imports and in the style of the project."""
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent)) or shutil.which("ruff")
    if ruff is None:
        raise Unknown("ruff is not installed")
    for command in (["check", "--fix-only", "--select=I,F401"], ["format"]):
        run = [ruff, *command, "--quiet", f"--stdin-filename={TARGET}", "-"]
        result = subprocess.run(run, input=text, capture_output=True, text=True, cwd=ROOT)
        if result.returncode:
            raise Unknown(result.stderr or result.stdout)
        text = result.stdout
    return text


def main() -> int:
    """Write the file, or check it."""
    text = Writer().file()
    if "--check" in sys.argv[1:]:
        if TARGET.exists() and TARGET.read_text("utf-8") == text:
            return 0
        print(f"{TARGET.relative_to(ROOT)} is out of date: run python {sys.argv[0]}")
        return 1
    TARGET.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
