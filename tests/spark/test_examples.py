"""The examples for Spark give what they promise, in the session of the tests."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jetspark.server import NatsServer

EXAMPLES = Path(__file__).parents[2] / "examples"
PRINTED = {
    "spark_stream_to_parquet": """
        read up to {"ARCHIVED": 500} of {"ARCHIVED": 500}
        500 orders, 500 numbers
        read up to {"ARCHIVED": 1000} of {"ARCHIVED": 1000}
        1000 orders, 1000 numbers
    """,
    "spark_replay": """
        1000 messages in the stream
        1000 messages in the stream
        replayed.7 replay b'{"device":"7'
    """,
    "spark_windowed_totals": """
        rome.1769860800 {"total":30.0,"sales":30} after 1 updates
        rome.1769860860 {"total":30.0,"sales":30} after 2 updates
        rome.1769860920 {"total":30.0,"sales":30} after 1 updates
    """,
    "spark_enrichment": """
        9 orders are enriched
        rome {"number":6,"customer":"1","name":"Ada","city":"rome"}
        oslo {"number":7,"customer":"2","name":"Bo","city":"oslo"}
        unknown {"number":8,"customer":"3"}
    """,
}


@pytest.mark.parametrize("name", PRINTED)
def test_an_example(
    name: str, spark: SparkSession, nats: NatsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.main(spark, nats.url)
    expected = [line.strip() for line in PRINTED[name].strip().splitlines()]
    assert capsys.readouterr().out.splitlines() == expected


def test_no_example_is_forgotten() -> None:
    declarative = "spark_declarative"  # in test_declarative.py
    assert {path.stem for path in EXAMPLES.glob("spark_*")} == {*PRINTED, declarative}
