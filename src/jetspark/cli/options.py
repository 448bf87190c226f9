"""The options that many commands take: where NATS is, which Spark, how to tell.

A command declares a parameter of one of these classes and is decorated with `takes`; on the command
line the parameter becomes one option for each field of the class.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import textwrap
import typing
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["NatsOptions", "OutputOptions", "SparkOptions", "examples", "takes"]

_NATS = "Where NATS is"
_SPARK = "Where Spark is"
_OUTPUT = "Output"


@dataclass(frozen=True, kw_only=True)
class NatsOptions:
    """Which NATS system, and who we are there."""

    server: Annotated[
        str | None,
        typer.Option(
            "--server",
            "-s",
            help="URLs of servers, with commas between. Else --context, NATS_URL, the selected "
            "context, or an embedded server.",
            rich_help_panel=_NATS,
        ),
    ] = None
    context: Annotated[
        str | None,
        typer.Option(
            help="A context of the nats command line, by name or path.", rich_help_panel=_NATS
        ),
    ] = None
    creds: Annotated[
        Path | None,
        typer.Option(help="A creds file.", rich_help_panel=_NATS, envvar="NATS_CREDS"),
    ] = None
    nkey: Annotated[
        Path | None,
        typer.Option(help="A file with an nkey seed.", rich_help_panel=_NATS, envvar="NATS_NKEY"),
    ] = None
    user: Annotated[
        str | None, typer.Option(help="User name.", rich_help_panel=_NATS, envvar="NATS_USER")
    ] = None
    password: Annotated[
        str | None,
        typer.Option(help="Password.", rich_help_panel=_NATS, envvar="NATS_PASSWORD"),
    ] = dataclasses.field(default=None, repr=False)
    token: Annotated[
        str | None, typer.Option(help="Token.", rich_help_panel=_NATS, envvar="NATS_TOKEN")
    ] = dataclasses.field(default=None, repr=False)
    tls_ca: Annotated[
        Path | None,
        typer.Option(help="The CA to trust (PEM).", rich_help_panel=_NATS, envvar="NATS_CA"),
    ] = None
    tls_cert: Annotated[
        Path | None,
        typer.Option(help="Our certificate (PEM).", rich_help_panel=_NATS, envvar="NATS_CERT"),
    ] = None
    tls_key: Annotated[
        Path | None,
        typer.Option(help="The key of it (PEM).", rich_help_panel=_NATS, envvar="NATS_KEY"),
    ] = None
    domain: Annotated[
        str | None, typer.Option(help="The JetStream domain.", rich_help_panel=_NATS)
    ] = None


@dataclass(frozen=True, kw_only=True)
class SparkOptions:
    """Which Spark runs the job; local by default."""

    master: Annotated[
        str | None,
        typer.Option(
            help="The master, such as spark://host:7077 or local[4].", rich_help_panel=_SPARK
        ),
    ] = None
    remote: Annotated[
        str | None,
        typer.Option(help="A Spark Connect server, sc://host:15002.", rich_help_panel=_SPARK),
    ] = None
    conf: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="A setting of Spark; again for more.", rich_help_panel=_SPARK
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """How a command tells what it does."""

    json: Annotated[
        bool, typer.Option("--json", help="Print JSON, for scripts.", rich_help_panel=_OUTPUT)
    ] = False
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", help="Print no progress.", rich_help_panel=_OUTPUT),
    ] = False
    verbose: Annotated[
        bool,
        typer.Option("--verbose", help="Show all of an error.", rich_help_panel=_OUTPUT),
    ] = False


_GROUPS: dict[object, type] = {group: group for group in (NatsOptions, SparkOptions, OutputOptions)}


def takes(command: Callable[..., None]) -> Callable[..., None]:
    """Turn the parameters of a command that are option classes into options.

    >>> @takes
    ... def ls(nats: NatsOptions) -> None: ...
    >>> "server" in inspect.signature(ls).parameters
    True
    """
    hints = typing.get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, type] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        group = _GROUPS.get(hints[name])
        if group is None:
            parameters.append(
                parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
            )
            continue
        groups[name] = group
        parameters.extend(_parameters(group))

    @functools.wraps(command)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(
                **{field.name: values.pop(field.name) for field in dataclasses.fields(group)}
            )
        command(**values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


@functools.cache
def _parameters(group: type) -> list[inspect.Parameter]:
    """The options of a class."""
    hints = typing.get_type_hints(group, include_extras=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(field.name, kind, default=field.default, annotation=hints[field.name])
        for field in dataclasses.fields(group)
    ]


def examples(lines: str) -> str:
    """The epilog of a command: lines that may be copied, with remarks after `#`.

    >>> examples("    jetspark server --port 0  # a free port")
    'jetspark server --port 0  # a free port'
    """
    return textwrap.dedent(lines).strip()
