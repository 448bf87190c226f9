"""How the commands get their options."""

from __future__ import annotations

import inspect
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from jetspark.cli.help import HelpfulCommand
from jetspark.cli.options import NatsOptions, OutputOptions, SparkOptions, examples, takes

seen: list[object] = []


@takes
def command(
    nats: NatsOptions,
    spark: SparkOptions,
    output: OutputOptions,
    name: Annotated[str, typer.Argument()],
    count: Annotated[int, typer.Option(min=1)] = 3,
) -> None:
    """Note what it was called with."""
    seen.append((nats, spark, output, name, count))


app = typer.Typer(pretty_exceptions_enable=False)
app.command()(command)


def call(*arguments: str, **env: str) -> tuple[NatsOptions, SparkOptions, OutputOptions, str, int]:
    seen.clear()
    result = CliRunner().invoke(app, arguments, env=env)
    assert result.exit_code == 0, result.output
    [found] = seen
    assert isinstance(found, tuple)
    return found


def test_classes_become_options() -> None:
    parameters = inspect.signature(command).parameters
    assert {"server", "password", "tls_ca", "master", "conf", "json", "name", "count"} <= {
        *parameters
    }
    assert not {"nats", "spark", "output"} & {*parameters}


def test_without_options_all_are_as_the_classes_say() -> None:
    assert call("x") == (NatsOptions(), SparkOptions(), OutputOptions(), "x", 3)


def test_options_come_in_their_classes() -> None:
    nats, spark, output, name, count = call(
        *("x", "--server", "nats://a,nats://b", "--domain", "hub", "--creds", "me.creds"),
        *("--master", "local[2]", "--conf", "a=b", "--conf", "c=d", "--json", "-q", "--count", "5"),
    )
    assert (nats.server, nats.domain, str(nats.creds)) == ("nats://a,nats://b", "hub", "me.creds")
    assert (spark.master, spark.remote, spark.conf) == ("local[2]", None, ["a=b", "c=d"])
    assert (output.json, output.quiet, output.verbose) == (True, True, False)
    assert (name, count) == ("x", 5)


def test_secrets_may_be_in_the_environment_and_are_not_shown() -> None:
    nats, *_ = call("x", NATS_USER="me", NATS_PASSWORD="hush", NATS_TOKEN="quiet")
    assert (nats.user, nats.password, nats.token) == ("me", "hush", "quiet")
    assert "hush" not in repr(nats)
    assert "quiet" not in repr(nats)


@pytest.mark.parametrize("arguments", [["x", "--nope"], ["x", "--count", "0"], []])
def test_wrong_usage(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


def test_the_help_has_groups_of_options_and_examples_as_they_are() -> None:
    app = typer.Typer(rich_markup_mode=None)

    @app.command(cls=HelpfulCommand, epilog=examples("\n    tool one [x]  # a\n    tool two '*'\n"))
    @takes
    def tool(spark: SparkOptions, name: str, count: int = 3) -> None:
        """Do it."""

    text = CliRunner().invoke(app, ["--help"]).output
    headings = [line for line in text.splitlines() if line and not line.startswith(" ")]
    assert headings[1:] == ["Arguments:", "Options:", "Where Spark is:", "Examples:"]
    assert text.endswith("\nExamples:\n  tool one [x]  # a\n  tool two '*'\n")
    assert "--count" in text[text.index("\nOptions:") : text.index("\nWhere Spark is:")]
    assert "--conf KEY=VALUE" in text[text.index("\nWhere Spark is:") :]
