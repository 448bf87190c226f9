"""A pipeline on a Spark cluster and a NATS cluster, of which a node is killed on the way."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import jetspark
from jetspark.server import NatsCluster, run_cluster
from tests.support.spark_cluster import standalone_cluster
from tests.support.streams import caught_up, leader_of

COUNT = 6000
PIPELINE = """
name: cluster
trigger: 1 second
checkpoint: {folder}/checkpoints
dead_letter: {{stream: DEAD}}
spark: {{conf: {{spark.sql.shuffle.partitions: 2}}}}
sources:
  orders:
    stream: ORDERS
    schema: id LONG NOT NULL, country STRING, cents LONG
    options: {{maxOffsetsPerTrigger: 1000}}
transforms:
  totals: {{sql: "SELECT country, sum(cents) AS cents FROM orders GROUP BY country"}}
  large: {{sql: SELECT * FROM orders WHERE cents > 900}}
sinks:
  archive: {{from: orders, format: parquet, path: "{folder}/archive"}}
  by_country: {{from: totals, bucket: TOTALS, key: "{{country}}", mode: update}}
  alerts: {{from: large, stream: ALERTS, subject: "alerts.{{country}}"}}
"""


def order(number: int) -> bytes:
    if number % 50 == 0:
        return b"not an order"
    return json.dumps(
        {"id": number, "country": ("de", "fr", "it")[number % 3], "cents": number % 1000}
    ).encode()


GOOD = [json.loads(order(number)) for number in range(1, COUNT + 1) if number % 50]


async def _prepare(urls: str) -> None:
    async with await jetspark.connect(urls) as nc:
        js = nc.jetstream(timeout=20)
        for name, subjects in (("ORDERS", "orders"), ("DEAD", "dead.>"), ("ALERTS", "alerts.>")):
            await js.create_stream(name=name, subjects=[subjects], num_replicas=3)
        await js.create_key_value(bucket="TOTALS", replicas=3)


async def _publish(urls: str, first: int, last: int) -> None:
    async with await jetspark.connect(urls) as nc:
        js = nc.jetstream()
        for number in range(first, last + 1):
            await js.publish_async("orders", order(number), msg_id=str(number), retries=-1)
        await js.publish_async_complete(timeout=120)


async def _found(urls: str) -> dict[str, Any]:
    async with await jetspark.connect(urls) as nc:
        js = nc.jetstream(timeout=20)
        alerts = await (await js.get_stream("ALERTS")).ordered_consumer()
        ids = []
        while messages := await alerts.fetch_no_wait(1000):
            ids += [json.loads(message.data)["id"] for message in messages]
        totals = await js.key_value("TOTALS")
        keys = [key async for key in totals.keys()]  # noqa: SIM118
        return {
            "dead": (await js.get_stream("DEAD")).cached_info.state.messages,
            "alerts": ids,
            "totals": {
                key: json.loads(entry.value)["cents"]
                for key, entry in (await totals.get_many(keys)).items()
            },
        }


def found(urls: str) -> dict[str, Any]:
    """What the sinks have."""
    for _ in range(10):
        try:
            return asyncio.run(_found(urls))
        except jetspark.errors.JetSparkError as error:
            if not error.retryable:
                raise
            time.sleep(1)
    return asyncio.run(_found(urls))


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 400
    while not condition():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        time.sleep(1)


def expected() -> dict[str, Any]:
    totals: dict[str, int] = {}
    for row in GOOD:
        totals[row["country"]] = totals.get(row["country"], 0) + row["cents"]
    return {
        "dead": COUNT - len(GOOD),
        "alerts": [row["id"] for row in GOOD if row["cents"] > 900],
        "totals": totals,
    }


@pytest.mark.faults
@pytest.mark.timeout(1200)
def test_the_books_of_a_pipeline_on_clusters(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "pipeline.yml").write_text(PIPELINE.format(folder=tmp_path))
    log = tmp_path / "run.log"
    with run_cluster(3) as nats, standalone_cluster(workers=2, cores=3) as cluster:
        urls = ",".join(server.url for server in nats.servers)
        asyncio.run(_prepare(urls))
        asyncio.run(_publish(urls, 1, COUNT // 2))
        command = [sys.executable, "-m", "jetspark.cli", "run", "pipeline.yml", "--server", urls]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, "--master", cluster.master_url, "--json"],
                cwd=tmp_path,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
                stdout=output,
                stderr=output,
            )
        try:
            wait_for(lambda: found(urls)["dead"] > 0, process, log)
            kill_the_leader(nats)
            asyncio.run(_publish(urls, COUNT // 2 + 1, COUNT))
            wait_for(lambda: in_order(found(urls)) == expected(), process, log)
            wait_for(lambda: archived(spark, tmp_path) >= len(GOOD), process, log)
            process.send_signal(signal.SIGTERM)
            assert process.wait(300) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()
        # What is there after the end, nothing twice.
        for stream in ("ALERTS", "KV_TOTALS"):
            asyncio.run(caught_up(nats, stream))
        assert in_order(found(urls)) == expected()
    rows = spark.read.parquet(str(tmp_path / "archive")).select("id", "country", "cents").collect()
    assert sorted(row.asDict()["id"] for row in rows) == [row["id"] for row in GOOD]


def in_order(books: dict[str, Any]) -> dict[str, Any]:
    return {**books, "alerts": sorted(books["alerts"])}


def archived(spark: SparkSession, folder: Path) -> int:
    if not list(folder.glob("archive/_spark_metadata/*")):
        return 0
    return spark.read.parquet(str(folder / "archive")).count()


def kill_the_leader(nats: NatsCluster) -> None:
    """Kill the node that leads the stream of orders."""

    async def leader() -> int:
        async with await jetspark.connect(nats.url) as nc:
            return await leader_of(nc.jetstream(), "ORDERS", nats)

    nats.kill(asyncio.run(leader()))
