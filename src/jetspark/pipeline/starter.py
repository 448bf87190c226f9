"""What `jetspark init` writes: a commented pipeline that runs, and orders for it."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jetspark.sync import JetStream

__all__ = ["FILES", "STREAM", "publish", "sample_orders", "write_files"]

FILES = ("pipeline.yml", "orders.jsonl")
STREAM = "ORDERS"
_COUNT = 500
_BROKEN = {100: '{"id": "o-100", "amount": "a lot"}', 200: "not JSON", 300: '{"id": "o-300"'}
_COUNTRIES = ("de", "fr", "it", "es", "pl")


def sample_orders() -> list[str]:
    """A few hundred orders, of which some are broken."""
    chance = random.Random(7)
    begin = datetime(2026, 1, 31, 12, tzinfo=UTC)
    return [
        _BROKEN.get(number)
        or json.dumps(
            {
                "id": f"o-{number}",
                "country": chance.choice(_COUNTRIES),
                "amount": round(chance.lognormvariate(3.5, 0.9), 2),
                "at": (begin + timedelta(seconds=2 * number)).isoformat(),
            }
        )
        for number in range(1, _COUNT + 1)
    ]


def write_files(directory: Path) -> None:
    """Write the pipeline and the orders."""
    pipeline, orders = (directory / name for name in FILES)
    orders.write_text("\n".join(sample_orders()) + "\n")
    pipeline.write_text(_PIPELINE)


def publish(js: JetStream, orders: Path) -> int:
    """Publish the lines of a file as orders; returns how many the stream has."""
    js.create_or_update_stream(name=STREAM, subjects=["orders.>"])
    for number, line in enumerate(orders.read_text().splitlines()):
        # An id for each: to do it again publishes nothing twice.
        js.publish_async("orders.new", line.encode(), msg_id=f"sample-{number}")
    js.publish_async_complete()
    return js.get_stream(STREAM).cached_info.state.messages


_PIPELINE = """\
# A pipeline: orders from a stream, through SQL, into a bucket, files and another stream.
#
#   jetspark check pipeline.yml    what is wrong with it
#   jetspark run pipeline.yml      run it; run it again and it continues where it stopped

name: orders

# Where NATS is. Without it: --server, NATS_URL, the selected context of the nats command line, or
# a server that is started here, with its data in .jetspark. ${NAME} is an environment variable.
# server: ${NATS_URL:-nats://localhost:4222}

# available-now reads what is there and ends. "5 seconds" goes on and looks that often.
trigger: available-now

# What cannot be parsed or written goes here, with the reason. Three of the orders are broken.
dead_letter: {stream: DEAD}

sources:
  orders:
    stream: ORDERS
    subjects: orders.>
    payload: json
    # The columns of the JSON; or write: schema: infer
    schema: id STRING NOT NULL, country STRING, amount DOUBLE, at TIMESTAMP
    # How late an order may be and still count.
    watermark: {column: at, delay: 10 minutes}

transforms:
  # Each is a view that those below it can use. All of Spark's SQL is there.
  large:
    sql: SELECT id, country, amount, at FROM orders WHERE amount > 100

  totals:
    sql: |
      SELECT country, count(*) AS orders, round(sum(amount), 2) AS revenue
      FROM orders
      GROUP BY country

sinks:
  # Parquet files. `from` is a source or a transform.
  archive: {from: orders, format: parquet, path: archive}

  # A bucket with a key for each country, kept up to date. The value is JSON of the other columns.
  by_country: {from: totals, bucket: country_totals, key: "{country}", mode: update, create: true}

  # A message for each large order. The payload is JSON of the row.
  alerts: {from: large, stream: ALERTS, subject: "alerts.{country}", create: true}

  # The terminal.
  screen: {from: totals, console: true, mode: update}
"""
