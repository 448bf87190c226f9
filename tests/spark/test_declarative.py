"""The example of a declarative pipeline, run as its README says: the rows of tables and sink."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import jetspark
from jetspark.server import NatsServer, run_server
from tests.support.spark_cluster import run_spark

from .conftest import Streams

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark_declarative"
CITIES = ("rome", "oslo")
COMMAND = ("spark-pipelines", "run", "--conf", "spark.sql.catalogImplementation=hive")


class Pipeline:
    """The example, in a folder and with a server of its own: its streams have fixed names."""

    def __init__(self, folder: Path, server: NatsServer) -> None:
        shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
        spec = folder / "spark-pipeline.yml"
        text = spec.read_text()
        assert "file:///tmp/orders-pipeline" in text
        spec.write_text(text.replace("/tmp/orders-pipeline", str(folder / "storage")))
        self._folder = folder
        self._streams = Streams(server)
        self.orders: list[dict[str, Any]] = []

    def create_streams(self) -> None:
        """As the README says."""

        async def create(js: jetspark.JetStream) -> None:
            await js.create_stream(name="ORDERS", subjects=["orders.>"])
            await js.create_stream(name="LARGE_ORDERS", subjects=["large.>"], allow_direct=True)

        self._streams.edit(create)

    def publish(self, count: int) -> None:
        """Publish more orders."""
        first = len(self.orders)
        new = [
            {"number": number, "city": CITIES[number % 2], "total": number * 10.0}
            for number in range(first, first + count)
        ]

        async def publish(js: jetspark.JetStream) -> None:
            for order in new:
                await js.publish("orders.new", json.dumps(order).encode())

        self._streams.edit(publish)
        self.orders += new

    def run(self) -> None:
        """Run it until everything is taken."""
        # With SPARK_TESTING the server of Spark Connect takes a free port; otherwise it is 15002.
        variables = {"NATS_URL": self._streams.server.url, "SPARK_TESTING": "1"}
        command = [*COMMAND, "--conf", "spark.ui.enabled=false"]
        run_spark(command, self._folder / "run.log", timeout=540, **variables)

    def table(self, name: str, by: str) -> list[dict[str, Any]]:
        """The rows of a table, in the order of a column."""
        rows = pq.read_table(self._folder / "spark-warehouse" / name).to_pylist()
        return sorted(rows, key=lambda row: row[by])

    def large(self) -> list[tuple[str, dict[str, Any]]]:
        """The messages of the sink."""

        async def read(js: jetspark.JetStream) -> list[tuple[str, dict[str, Any]]]:
            messages = (await js.get_stream("LARGE_ORDERS")).direct_get_batch(seq=1, batch=1000)
            return [(message.subject, json.loads(message.data)) async for message in messages]

        found: list[tuple[str, dict[str, Any]]] = self._streams.edit(read)
        return found

    def check(self) -> None:
        """Compare with what was published."""
        rows = self.table("orders", "sequence")
        assert [row.pop("sequence") for row in rows] == list(range(1, len(self.orders) + 1))
        assert all(row.pop("timestamp") for row in rows)
        assert rows == self.orders
        by_city = {
            city: [order["total"] for order in self.orders if order["city"] == city]
            for city in CITIES
        }
        assert self.table("totals", "city") == [
            {"city": city, "orders": len(totals), "total": sum(totals)}
            for city, totals in sorted(by_city.items())
        ]
        assert self.large() == [
            (f"large.{order['city']}", order) for order in self.orders if order["total"] >= 100
        ]


@pytest.mark.timeout(1200)
@pytest.mark.faults
def test_a_pipeline_is_run_and_run_again(tmp_path: Path) -> None:
    with run_server() as server:
        pipeline = Pipeline(tmp_path / "pipeline", server)
        pipeline.create_streams()
        for _ in range(2):
            pipeline.publish(15)
            pipeline.run()
            pipeline.check()
