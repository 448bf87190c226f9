"""Reads what the pipeline of the demo left: the other side of the books. Without Spark."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

from jetspark.sync import JetStream

from .books import Evidence, Order, Totals
from .places import ALERTS, BUCKET, DEAD, ORDERS

__all__ = ["collect", "read_alerts", "read_archive", "read_bucket", "read_dead"]


def collect(js: JetStream, archive: Path, *, dropped_late: int) -> Evidence:
    """All that the books need."""
    return Evidence(
        stored=js.get_stream(ORDERS).cached_info.state.messages,
        archive=read_archive(archive),
        dead=read_dead(js),
        bucket=read_bucket(js),
        alerts=read_alerts(js),
        dropped_late=dropped_late,
    )


def read_archive(folder: Path) -> list[Order]:
    """The orders in the Parquet files; none if there are no files."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    files = sorted(str(file) for file in folder.rglob("*.parquet"))
    if not files:
        return []
    columns = ["_sequence", "id", "country", "amount", "at"]
    table = ds.dataset(files, format="parquet").to_table(columns=columns)
    times = table.column("at").cast(pa.timestamp("us", tz="UTC"), safe=False)
    return [
        Order(sequence, id, country, _cents(amount), minute)
        for sequence, id, country, amount, minute in zip(
            *(table.column(name).to_pylist() for name in columns[:-1]),
            pc.strftime(times, format="%Y-%m-%d-%H%M").to_pylist(),
            strict=True,
        )
    ]


def read_dead(js: JetStream) -> list[int]:
    """The sequence of each order that was dead-lettered."""
    letters = js.get_stream(DEAD).direct_get_batch(subject="dead.demo.orders")
    return [int(letter.headers["Jetspark-Sequence"]) for letter in letters]


def read_bucket(js: JetStream) -> dict[str, Totals]:
    """The revenue that the pipeline keeps."""
    found = {}
    with js.key_value(BUCKET).watch(ignore_deletes=True) as entries:
        for entry in entries:
            if entry is None:
                break
            value = json.loads(entry.value, parse_float=Decimal, parse_int=Decimal)
            found[entry.key] = Totals(int(value["orders"]), _cents(value["revenue"]))
    return found


def read_alerts(js: JetStream) -> list[str]:
    """The order of each alert."""
    alerts = js.get_stream(ALERTS).direct_get_batch(subject="demo.alerts.>")
    return [str(json.loads(alert.data)["id"]) for alert in alerts]


def _cents(amount: Decimal) -> int:
    return int(amount * 100)
