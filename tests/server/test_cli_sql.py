"""`jetspark sql` as far as it goes without Spark: lists, errors, and the prompt."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import jetspark.sync
from jetspark.cli import console
from jetspark.cli.options import SparkOptions
from jetspark.cli.sql import Runner, Shape
from jetspark.cli.sql_prompt import HISTORY, Prompt
from jetspark.pipeline.tables import Tables
from jetspark.server import NatsServer, run_server


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with run_server() as server:
        with jetspark.sync.connect(server.url) as nc:
            js = nc.jetstream()
            js.create_stream(name="ORDERS", subjects=["orders"])
            js.create_key_value(bucket="my-rates")
            js.create_object_store(bucket="files")
        yield server


@pytest.fixture
def tables(server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tables]:
    monkeypatch.chdir(tmp_path)
    console.out.cache_clear()
    console.stderr.cache_clear()
    with jetspark.sync.connect(server.url) as nc:
        yield Tables(nc.jetstream(), {"servers": server.url})


def sql(
    server: NatsServer, folder: Path, *arguments: str, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the command where there is no Java: Spark cannot be started."""
    env = {**os.environ, "PATH": "", "JAVA_HOME": "/nowhere", "NATS_URL": server.url}
    command = [sys.executable, "-m", "jetspark.cli", "sql", *arguments]
    return subprocess.run(
        command, cwd=folder, env=env, input=stdin, capture_output=True, text=True, timeout=100
    )


def test_tables_are_listed_without_spark(server: NatsServer, tmp_path: Path) -> None:
    done = sql(
        server, tmp_path, "show tables; SHOW TABLES IN kv; SHOW TABLES LIKE 'obj*'", "--json"
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    names = ["stream.ORDERS", "kv.`my-rates`", "objects.files"]
    assert [row["table"] for row in rows] == [*names, "kv.`my-rates`", "objects.files"]
    assert rows[0]["messages"] == 0
    assert (done.returncode, done.stderr) == (0, "")


def test_unknown_tables_are_found_before_spark_is_started(
    server: NatsServer, tmp_path: Path
) -> None:
    done = sql(server, tmp_path, "-", stdin="SELECT 1; SELECT * FROM stream.ORDER")
    assert done.returncode == 2
    assert done.stderr == "error: there is no stream 'ORDER'; did you mean stream.ORDERS?\n"


def test_a_query_needs_java(server: NatsServer, tmp_path: Path) -> None:
    done = sql(server, tmp_path, "SELECT 1", "--quiet")
    assert done.returncode == 3
    assert done.stderr.startswith("error: Spark needs Java 17 or newer, and there is no java in ")
    assert done.stderr.count("\n") == 1


def type_in(tables: Tables, *lines: str | type[BaseException]) -> list[str]:
    """Type lines into the prompt, and get the prompts that were shown."""
    prompts: list[str] = []
    rest = iter(lines)

    def read(prompt: str) -> str:
        prompts.append(prompt)
        line = next(rest, EOFError)
        if isinstance(line, str):
            return line
        raise line

    with Runner(tables, SparkOptions(), Shape()) as runner:
        Prompt(runner, tables, read=read).run()
    assert next(rest, None) is None
    return prompts


def test_the_prompt(tables: Tables, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = type_in(
        tables,
        "\\d",
        "",
        "SHOW",
        "  TABLES IN objects; -- these",
        "SELECT * FROM",
        KeyboardInterrupt,
        "SELECT * FROM kv.nope; SHOW TABLES;",
        "\\x",
        "\\?",
    )
    first, more = "jetspark> ", "   ...> "
    assert prompts == [first, first, first, more, first, more, first, first, first, first]
    out, err = capsys.readouterr()
    assert [line.split(" | ")[0].strip() for line in out.splitlines()] == [
        *("table", "---------------+----------+-------+------"),
        *("stream.ORDERS", "kv.`my-rates`", "objects.files"),
        *("table", "---------------+----------+-------+------", "objects.files"),
    ]
    assert "(3 rows)" in err
    assert "error: there is no bucket 'nope'; there are kv.`my-rates`" in err
    assert "there is no command \\x" in err
    assert err.count("as many lines as it takes") == 2


def test_leaving_the_prompt(tables: Tables) -> None:
    assert type_in(tables, "\\q") == ["jetspark> "]
    assert type_in(tables) == ["jetspark> "]
    assert HISTORY.exists()


def test_names_are_completed(tables: Tables) -> None:
    with Runner(tables, SparkOptions(), Shape()) as runner:
        prompt = Prompt(runner, tables)
        found = [prompt._complete("str", 0), prompt._complete("str", 1), prompt._complete("sel", 0)]
    assert found == ["stream.ORDERS", None, "SELECT"]
