"""Sources and sinks over Spark Connect."""

from __future__ import annotations

import json
import sys
import sysconfig
from pathlib import Path

import pytest

import jetspark
from tests.support.spark_cluster import bare_python, connect_server, run_spark

from .conftest import Streams

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parents[2]
LIBRARIES = Path(sysconfig.get_path("purelib"))
ROWS = 300

BARE_CLIENT = """
import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
source = spark.read.format("jetstream").option("stream", sys.argv[2]).load()
rows = source.selectExpr("CAST(data AS STRING)").collect()
spark.stop()
with open(sys.argv[3], "w") as file:
    file.writelines(f"{data}\\n" for data, in rows)
"""


def test_a_client_of_spark_connect(streams: Streams, tmp_path: Path) -> None:
    source, target = streams.new(), streams.new(allow_direct=True)
    for number in range(3):
        streams.publish(source, ROWS // 3, subject=f"s{number}", first=number * ROWS // 3)
    published = [(f"{source}.s{number * 3 // ROWS}", str(number)) for number in range(ROWS)]
    job = {
        "servers": streams.server.url,
        "source": source,
        "target": target,
        "bucket": f"{source}_kv",
        "checkpoint": str(tmp_path / "checkpoint"),
    }

    async def create(js: jetspark.JetStream) -> None:
        await js.create_key_value(bucket=job["bucket"])

    async def stored(js: jetspark.JetStream) -> list[tuple[str, str]]:
        stream = await js.get_stream(target)
        messages = stream.direct_get_batch(seq=1, batch=10 * ROWS)
        return [(message.subject, message.data.decode()) async for message in messages]

    streams.edit(create)
    result = tmp_path / "result.json"
    command = [sys.executable, "-m", "tests.support.spark_connect", json.dumps(job), str(result)]
    # With SPARK_TESTING the server of Spark Connect takes a free port; otherwise it is 15002.
    run_spark(
        command, tmp_path / "client.log", timeout=540, PYTHONPATH=str(ROOT), SPARK_TESTING="1"
    )

    found = json.loads(result.read_text())
    assert found["session"].startswith("pyspark.sql.connect.")
    assert found["read"] == sorted(map(list, published))
    numbers = [data for _, data in published]
    assert streams.edit(stored) == [
        (f"{target}.{sequence}", number) for sequence, number in enumerate(numbers, start=1)
    ]
    assert found["kept"] == sorted(
        [f"key.{sequence}", number] for sequence, number in enumerate(numbers, start=1)
    )
    assert f"there is no stream 'NOWHERE' on {streams.server.url}" in found["missing"]


@pytest.mark.faults
def test_a_client_without_jetspark(streams: Streams, tmp_path: Path) -> None:
    """What a query needs is on the server, where NATS is seen from, too."""
    stream = streams.new()
    streams.publish(stream, ROWS)
    script, output = tmp_path / "client.py", tmp_path / "rows.txt"
    script.write_text(BARE_CLIENT)
    python = bare_python(tmp_path / "python", LIBRARIES)
    with connect_server(tmp_path / "server.log", NATS_URL=streams.server.url) as url:
        command = [str(python), str(script), url, stream, str(output)]
        run_spark(command, tmp_path / "client.log")
    assert [int(line) for line in output.read_text().splitlines()] == list(range(1, ROWS + 1))
