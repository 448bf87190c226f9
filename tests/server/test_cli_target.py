"""Which NATS system a command works with, and the server of the project."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jetspark.cli import console
from jetspark.cli.options import NatsOptions
from jetspark.cli.target import nats_target, project_server
from jetspark.server import NatsServer

NOTE = Path(".jetspark/server.json")

# Holds the server of the project until stdin ends, and says where it is.
HOLD = """
import sys
from jetspark.cli.target import project_server
with project_server() as url:
    print(url, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of its own, and nothing that names a server."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NATS_URL", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    console.stderr.cache_clear()


def write_context(name: str, *, selected: bool = False, **fields: str) -> None:
    folder = Path("config/nats/context")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(fields))
    if selected:
        (folder.parent / "context.txt").write_text(name)


@contextmanager
def holder() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Another command that uses the server of the project, and the URL that it has."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.communicate(timeout=30)


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def streams_of(options: NatsOptions) -> list[str]:
    with nats_target(options, quiet=True) as target, target.jetstream() as js:
        return list(js.stream_names())


def test_a_server_that_is_named(nats_server: NatsServer, tmp_path: Path) -> None:
    options = NatsOptions(server=nats_server.url, domain="hub", creds=Path("me.creds"))
    with nats_target(options) as target:
        assert target.servers == nats_server.url
        assert target.domain == "hub"
        assert target.connect_options["servers"] == nats_server.url
        assert target.spark_options == {
            "servers": nats_server.url,
            "domain": "hub",
            "creds": str(tmp_path / "me.creds"),
        }
    assert not Path(".jetspark").exists()


def test_names_come_in_an_order(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    write_context("chosen", selected=True, url="nats://selected:4222")
    write_context("other", url="nats://context:4222", jetstream_domain="leaf")

    def servers(options: NatsOptions) -> str:
        with nats_target(options) as target:
            return target.servers

    assert servers(NatsOptions()) == "nats://selected:4222"
    monkeypatch.setenv("NATS_URL", "nats://variable:4222")
    assert servers(NatsOptions()) == "nats://variable:4222"
    assert servers(NatsOptions(context="other")) == "nats://context:4222"
    assert servers(NatsOptions(server="nats://option:4222")) == "nats://option:4222"
    with nats_target(NatsOptions(context="other")) as target:
        assert (target.domain, target.spark_options["domain"]) == ("leaf", "leaf")
    with nats_target(NatsOptions(context="other", domain="mine")) as target:
        assert target.domain == "mine"


def test_several_servers(nats_server: NatsServer) -> None:
    options = NatsOptions(server=f"nats://127.0.0.1:1,{nats_server.url}")
    assert isinstance(streams_of(options), list)


def test_the_server_of_the_project_keeps_its_data(capsys: pytest.CaptureFixture[str]) -> None:
    with nats_target(NatsOptions()) as target, target.jetstream() as js:
        js.create_stream(name="KEPT", subjects=["kept"])
        assert NOTE.exists()
    assert not NOTE.exists()
    said = capsys.readouterr().err
    assert said.startswith("no server given: started nats-server ")
    assert said.count("\n") == 1
    assert streams_of(NatsOptions()) == ["KEPT"]


def test_a_second_command_joins(capsys: pytest.CaptureFixture[str]) -> None:
    with holder() as (_, url):
        with project_server() as joined:
            assert joined == url
        assert capsys.readouterr().err == f"using the server that another command started, {url}\n"
        with project_server(quiet=True) as again:  # the other one still has it
            assert again == url
        assert capsys.readouterr().err == ""


def test_a_command_that_was_killed_is_followed_by_another() -> None:
    with holder() as (process, url):
        process.kill()
        process.wait()
    assert NOTE.exists()
    with project_server(quiet=True) as new:
        assert new != url
        assert json.loads(NOTE.read_text())["url"] == new


@pytest.mark.parametrize(
    "note",
    [
        "",
        "{",
        "{}",
        '{"url": "nats://127.0.0.1:1", "name": "x", "pid": 999999999}',
        json.dumps({"url": "nats://127.0.0.1:1", "name": "x", "pid": os.getpid()}),
    ],
    ids=["empty", "broken", "other", "gone", "another program"],
)
def test_what_was_left_behind_does_not_matter(note: str) -> None:
    NOTE.parent.mkdir()
    NOTE.write_text(note)
    (NOTE.parent / "server.lock").touch()
    assert streams_of(NatsOptions()) == []


def test_jetspark_server_until_a_signal(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "jetspark.cli", "server", "--port", "0", "--store", "data"]
    process = subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        told = json.loads(process.stdout.readline())
        assert streams_of(NatsOptions(server=told["url"])) == []
        assert told["store"] == str(tmp_path / "data")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()
    wait_for(lambda: not Path(f"/proc/{told['pid']}").exists())
