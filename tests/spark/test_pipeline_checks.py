"""What a pipeline is checked for on the server and on disk, and the commands for that; no Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import jetspark.sync
from jetspark.cli.failures import Status
from jetspark.cli.main import app
from jetspark.errors import InvalidPipelineError, PipelineBusyError
from jetspark.pipeline import job, starter
from jetspark.pipeline.problems import Problems
from jetspark.pipeline.server_checks import check_system, local_path
from jetspark.server import NatsServer, run_server
from tests.support.clients import unique
from tests.support.pipelines import LocalSystem, pipeline_file


@pytest.fixture(scope="module")
def system() -> Iterator[LocalSystem]:
    with run_server() as server:
        system = LocalSystem(server)
        with system.jetstream() as js:
            js.create_stream(name="ORDERS", subjects=["orders.>"])
            js.create_stream(name="LOST", subjects=["lost.>"])
            js.create_key_value(bucket="totals")
            js.create_object_store(bucket="files")
        yield system


@pytest.fixture
def js(system: LocalSystem) -> Iterator[jetspark.sync.JetStream]:
    with system.jetstream() as js:
        yield js


HEAD = """
name: orders
checkpoint: {path}/checkpoint
"""
SOURCE = """
sources:
  s: {{stream: ORDERS, schema: "id STRING, country STRING"}}
"""
GOOD = HEAD + SOURCE + "sinks: {{k: {{from: s, bucket: totals, key: '{{id}}'}}}}"

MISTAKES = {
    "a stream": (
        GOOD.replace("ORDERS", "ORDRES"),
        ":6:15: source 's': there is no stream 'ORDRES'; did you mean 'ORDERS'?",
    ),
    "subjects": (
        GOOD.replace("ORDERS,", "ORDERS, subjects: sales.>,"),
        ":6:15: source 's': stream 'ORDERS' has no subject like 'sales.>'; it has orders.>",
    ),
    "a bucket": (
        GOOD.replace("totals", "total"),
        ":7:30: sink 'k': there is no bucket 'total'; did you mean 'totals'?",
    ),
    "a store": (
        HEAD + SOURCE + "sinks: {{k: {{from: s, objects: file, name: '{{id}}', content: id}}}}",
        ":7:31: sink 'k': there is no object store 'file'; did you mean 'files'?",
    ),
    "a subject": (
        HEAD + SOURCE + "sinks: {{k: {{from: s, stream: ORDERS, subject: 'x.{{id}}'}}}}",
        "sink 'k': stream 'ORDERS' does not store subjects like 'x.>'; it has orders.>",
    ),
    "dead letters": (
        GOOD.replace("checkpoint:", "dead_letter: {{stream: LOST}}\ncheckpoint:"),
        "dead_letter: stream 'LOST' does not store 'dead.orders.>'; add it to the subjects",
    ),
    "no dead letters": (
        GOOD.replace("checkpoint:", "dead_letter: {{stream: NONE, create: false}}\ncheckpoint:"),
        "dead_letter: there is no stream 'NONE'; there are: LOST, ORDERS",
    ),
    "a checkpoint": (GOOD.replace("{path}/checkpoint", "{path}/file/x"), "file is no directory"),
    "a path": (
        HEAD + SOURCE + "sinks: {{k: {{from: s, format: parquet, path: '{path}/file/y'}}}}",
        "sink 'k': path '",
    ),
    "a source's path": (
        HEAD
        + "sources: {{s: {{format: csv, schema: a INT, path: '{path}/none'}}}}\n"
        + "sinks: {{k: {{from: s, console: true}}}}",
        "source 's': there is no ",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_what_is_missing(case: str, system: LocalSystem, tmp_path: Path) -> None:
    text, expected = MISTAKES[case]
    (tmp_path / "file").touch()
    pipeline = pipeline_file(tmp_path, text.format(path=tmp_path))
    with pytest.raises(InvalidPipelineError) as failure:
        job.check(pipeline, system)
    (line,) = failure.value.lines()
    assert expected in line
    assert not failure.value.passing


def test_checks_create_nothing_and_runs_do(
    system: LocalSystem, js: jetspark.sync.JetStream, tmp_path: Path
) -> None:
    text = (
        HEAD
        + SOURCE
        + """
sinks:
  a: {{from: s, stream: NEW, subject: "new.{{id}}", create: true}}
  b: {{from: s, bucket: new, key: "{{id}}", create: true}}
  c: {{from: s, objects: new, name: "{{id}}", content: country, create: true}}
"""
    )
    pipeline = pipeline_file(tmp_path, text.format(path=tmp_path))
    before = set(js.stream_names())
    job.check(pipeline, system)
    assert set(js.stream_names()) == before
    for _ in range(2):
        problems = Problems("p.yml")
        assert check_system(pipeline, system, problems, create=True) > 1_000_000
        assert problems.found == []
    assert set(js.stream_names()) - before == {"NEW", "KV_new", "OBJ_new", "DEAD"}
    assert js.get_stream("NEW").config.subjects == ["new.>"]
    for name in ("NEW", "DEAD"):
        js.delete_stream(name)


def test_a_server_that_is_away_may_come_back(tmp_path: Path) -> None:
    with run_server() as server:
        system = LocalSystem(server)
    pipeline = pipeline_file(tmp_path, GOOD.format(path=tmp_path))
    with pytest.raises(InvalidPipelineError, match="cannot be used") as failure:
        job.check(pipeline, system)
    assert failure.value.passing


def test_a_checkpoint_is_used_by_one_at_a_time(tmp_path: Path) -> None:
    pipeline = pipeline_file(tmp_path, GOOD.format(path=tmp_path))
    with job._checkpoint(pipeline) as path, pytest.raises(PipelineBusyError, match="already"):
        assert path == str(tmp_path / "checkpoint")
        with job._checkpoint(pipeline):
            pass
    with job._checkpoint(pipeline):
        pass


def test_paths() -> None:
    assert local_path("a/b") == Path("a/b")
    assert local_path("file:///a/b") == Path("/a/b")
    assert local_path("file:/a/b") == Path("/a/b")
    assert local_path("s3a://bucket/b") is None


def test_init_and_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The starter is good as it is written, and is not written over."""
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    with run_server() as own:  # its streams have names that others have, too
        made = runner.invoke(app, ["init", "new", "--server", own.url, "--json"])
        assert made.exit_code == 0, made.output
        assert json.loads(made.stdout)["messages"] == len(starter.sample_orders())
        monkeypatch.chdir(tmp_path / "new")
        checked = runner.invoke(app, ["check", "--no-spark", "--server", own.url])
        assert checked.exit_code == 0, checked.output
        assert "pipeline.yml is good (SQL was not checked)" in checked.stdout
        monkeypatch.chdir(tmp_path)
        again = runner.invoke(app, ["init", "new", "--server", own.url])
    assert again.exit_code == Status.USAGE
    assert "exists already; name another directory" in again.output


def test_the_check_command_tells_all_problems(
    nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = unique("none").replace(".", "_")
    Path("p.yml").write_text(f"name: a b\nsources: {{s: {{stream: {name}}}}}\n")
    result = CliRunner().invoke(app, ["check", "p.yml", "--server", nats.url])
    assert result.exit_code == Status.USAGE
    assert "p.yml has 3 problems; nothing was started" in result.output
    for place in ("p.yml:1:1: ", "p.yml:1:7: ", "p.yml:2:11: "):
        assert place in result.output
