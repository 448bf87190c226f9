"""The Spark session of a command, as far as it goes without Spark."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from jetspark.cli import session
from jetspark.cli.failures import CommandError, Status
from jetspark.cli.options import SparkOptions
from jetspark.cli.session import log_path, spark_session


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(options: SparkOptions) -> CommandError:
    with (
        pytest.raises(CommandError) as caught,
        spark_session(options, log_path("test"), name="test"),
    ):
        raise AssertionError("Spark was started")
    return caught.value


@pytest.mark.parametrize("item", ["x", "=1", ""])
def test_a_setting_must_have_a_name_and_a_value(item: str) -> None:
    error = refused(SparkOptions(conf=["a=b", item]))
    assert error.status is Status.USAGE
    assert repr(item) in str(error)


def test_master_and_remote_exclude_each_other() -> None:
    error = refused(SparkOptions(master="local", remote="sc://a"))
    assert error.status is Status.USAGE


def test_spark_needs_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    error = refused(SparkOptions())
    assert error.status is Status.UNAVAILABLE
    assert "needs Java 17 or newer, and there is no java on the PATH" in str(error)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert "there is no java in JAVA_HOME (/nowhere)" in str(refused(SparkOptions()))


@pytest.mark.parametrize("option", ["master", "remote"])
def test_a_spark_that_does_not_answer(option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    scheme = "spark" if option == "master" else "sc"
    url = f"{scheme}://127.0.0.1:{port}"
    error = refused(SparkOptions(master=url) if option == "master" else SparkOptions(remote=url))
    assert error.status is Status.UNAVAILABLE
    assert (
        str(error) == f"nobody answers at {url}; is Spark running there, and is --{option} right?"
    )


def test_one_of_several_masters_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        session._check_reachable(f"spark://127.0.0.1:1,127.0.0.1:{port}", "spark://", "--master")
        session._check_reachable(f"sc://127.0.0.1:{port}/;token=x", "sc://", "--remote")
    session._check_reachable("local[2]", "spark://", "--master")


def test_old_logs_are_removed() -> None:
    folder = Path(".jetspark/logs")
    folder.mkdir(parents=True)
    for number in range(15):
        (folder / f"20260101T0000{number:02}-run-1.log").touch()
    new = log_path("sql")
    new.touch()
    kept = sorted(path.name for path in folder.iterdir())
    assert len(kept) == 10
    assert kept[0] == "20260101T000006-run-1.log"
    assert new.name.endswith(f"-sql-{os.getpid()}.log")


def test_what_is_started_meanwhile_writes_to_the_log() -> None:
    code = """
import os, sys
from pathlib import Path
from jetspark.cli.session import _output_to
print("before")
with _output_to(Path("x.log")):
    os.system("echo noise; echo more >&2")
    print("ours")
os.system("echo after")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("before\nafter\n", "")
    assert Path("x.log").read_text().split() == ["noise", "more", "ours"]
