"""What `jetspark run` prints, which NATS and Spark it takes, and the Spark home of local runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jetspark.cli import progress
from jetspark.cli.failures import CommandError, Status
from jetspark.cli.options import SparkOptions
from jetspark.cli.pipelines import pipeline_errors, spark_of
from jetspark.cli.progress import Shown, pipeline_shown, summary
from jetspark.cli.spark_home import use_spark_home
from jetspark.errors import PipelineFailedError
from jetspark.pipeline.parse import parse
from jetspark.pipeline.problems import Mark, Problem, Problems, pipeline_error
from jetspark.pipeline.progress import Progress, QueryProgress
from jetspark.pipeline.spec import Pipeline

PROGRESS = Progress(
    "orders",
    12.34,
    (
        QueryProgress("orders", "source", "running", 1500, 0.0, 0, 3, 0, 2),
        QueryProgress("archive", "sink", "running", 1500, 250.0, 20, 0, 0, 2),
        QueryProgress("totals", "sink", "waiting", 1000, 0.0, None, 2, 5, 2),
    ),
)


def pipeline(more: str = "") -> Pipeline:
    problems = Problems("p.yml")
    text = "name: a\nsources: {s: {format: rate}}\nsinks: {k: {from: s, console: true}}\n"
    found = parse(text + more, problems, {})
    assert found is not None
    assert problems.found == []
    return found


def test_the_end_of_a_run() -> None:
    assert summary(PROGRESS, "DEAD") == [
        "pipeline orders: 12.3 s",
        "  orders: 3 rows that could not be parsed",
        "  archive: 1,500 rows, 20 still to read",
        "  totals: 1,000 rows, 2 that could not be written, 5 too late for their window",
        "  5 dead letters are in stream DEAD, with reasons",
    ]


def test_a_log_has_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_LINE_EVERY", 0.0)
    with pipeline_shown(quiet=False) as shown:
        shown.tell(PROGRESS)
        shown.tell(PROGRESS)  # nothing new
        shown.say("a remark")
        shown.show("screen", 7, ["id", "[b]"], [["1", "[x]"]], 30)
    output = capsys.readouterr()
    assert output.err.splitlines() == [
        "12 s: orders (dead letters) 3; archive 1,500 rows (250/s, lag 20); "
        "totals 1,000 rows (0/s, 2 dead, 5 late, waiting)",
        "a remark",
    ]
    assert "screen, batch 7, the first 1 of 30 rows" in output.out
    assert "[b]" in output.out
    assert "[x]" in output.out


def test_quiet(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_LINE_EVERY", 0.0)
    shown = Shown(None, quiet=True)
    shown.tell(PROGRESS)
    shown.say("a remark")
    assert capsys.readouterr().err == ""


def test_errors_for_people() -> None:
    problem, passing = Problem(Mark(1, 2), "wrong"), Problem(Mark(1, 1), "away", True)
    with (
        pytest.raises(CommandError, match=r"p\.yml has 2 problems") as failure,
        pipeline_errors(None),
    ):
        raise pipeline_error("p.yml", [problem, passing])
    assert failure.value.status is Status.USAGE
    assert failure.value.details == "p.yml:1:1: away\np.yml:1:2: wrong"
    with pytest.raises(CommandError, match="has 1 problem;") as failure, pipeline_errors(None):
        raise pipeline_error("p.yml", [passing])
    assert failure.value.status is Status.UNAVAILABLE
    for retryable, status in ((True, Status.UNAVAILABLE), (False, Status.FAILED)):
        with pytest.raises(CommandError) as failure, pipeline_errors(Path("x.log")):
            raise PipelineFailedError("it failed", retryable=retryable)
        assert (failure.value.status, failure.value.log) == (status, Path("x.log"))


def test_which_spark() -> None:
    options, conf = spark_of(pipeline(), SparkOptions())
    assert (options.master, conf) == (None, {"spark.sql.shuffle.partitions": "8"})
    given = pipeline("spark: {master: 'spark://x', conf: {a: b}}")
    options, conf = spark_of(given, SparkOptions())
    assert (options.master, conf) == ("spark://x", {"a": "b"})
    options, conf = spark_of(given, SparkOptions(remote="sc://y"))
    assert (options.master, options.remote, conf) == (None, "sc://y", {"a": "b"})


def test_a_spark_home_without_the_zip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "")  # so that what is there now comes back in the end
    monkeypatch.delenv("SPARK_HOME")
    use_spark_home(tmp_path)
    home = Path(os.environ["SPARK_HOME"])
    assert (home / "bin" / "spark-submit").is_file()
    assert list((home / "jars").glob("spark-core*.jar"))
    assert not (home / "python").exists()
    (home / "jars").unlink()
    (home / "jars").symlink_to(tmp_path)  # of another environment
    monkeypatch.delenv("SPARK_HOME")
    use_spark_home(tmp_path)
    assert list((home / "jars").glob("spark-core*.jar"))
    monkeypatch.setenv("SPARK_HOME", "/mine")
    use_spark_home(tmp_path)
    assert os.environ["SPARK_HOME"] == "/mine"
