"""Every proof of the demo holds for true books, and fails for each way of tampering with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

import jetspark
from jetspark.pipeline.demo.books import LARGE_CENTS, Evidence, Order, Totals, prove, revenue_of
from jetspark.pipeline.demo.evidence import read_archive
from jetspark.pipeline.demo.flow import Sent
from jetspark.pipeline.demo.orders import Event, Orders


def _order(event: Event, sequence: int) -> Order:
    order = json.loads(event.data, parse_float=Decimal)
    minute = order["at"][:16].replace("T", "-").replace(":", "")
    return Order(sequence, order["id"], order["country"], event.cents, minute)


def _true_books() -> tuple[Sent, Evidence]:
    """What a pipeline without a fault would leave."""
    sent, ids, archive, dead = Sent(), set[str](), list[Order](), list[int]()
    orders = Orders(3)
    sequence = 0
    for event in [*orders.backlog(500), *orders.live(2000, rate=1000)]:
        stored = event.msg_id not in ids
        ids.add(event.msg_id)
        sequence += stored
        sent.note(event, jetspark.PublishAck("S", sequence, duplicate=not stored))
        if stored and event.kind == "malformed":
            dead.append(sequence)
        elif stored:
            archive.append(_order(event, sequence))
    alerts = sorted({order.id for order in archive if order.cents >= LARGE_CENTS})
    return sent, Evidence(sequence, archive, dead, revenue_of(archive), alerts)


def _failed(sent: Sent, found: Evidence) -> set[str]:
    return {proof.name for proof in prove(sent, found) if not proof.holds}


STORED = "every message was stored, or was a duplicate"
REFUSED = "each duplicate was refused, and nothing else"
COMPLETE = "everything stored is archived or dead-lettered"
ONCE = "nothing is missing, nothing is there twice"
DEAD = "only the malformed are dead-lettered"
AMOUNTS = "the amounts are equal"
BUCKET = "the bucket equals the archive, entry by entry"
REVENUE = "the revenue is equal, each order once"
LATE = "no late order was left out"
ALERTS = "each large order raised one alert"


def test_true_books_balance() -> None:
    sent, found = _true_books()
    assert _failed(sent, found) == set()
    assert {proof.name for proof in prove(sent, found)} == {
        *(STORED, REFUSED, COMPLETE, ONCE, DEAD),
        *(AMOUNTS, BUCKET, REVENUE, LATE, ALERTS),
    }
    assert sent.orders == len(found.archive)
    assert len(found.alerts) > 5


def test_a_repeated_order_counts_once() -> None:
    order = Order(1, "o-1", "de", 1000, "2026-11-27-1200")
    again = order._replace(sequence=2)
    other = order._replace(sequence=3, id="o-2", cents=500)
    assert revenue_of([order, again, other]) == {"de.2026-11-27-1200": Totals(2, 1500)}


def _changed_bucket(found: Evidence, change: Callable[[Totals], Totals]) -> Evidence:
    key = sorted(found.bucket)[3]
    return replace(found, bucket={**found.bucket, key: change(found.bucket[key])})


def _without_key(found: Evidence) -> Evidence:
    key = sorted(found.bucket)[3]
    return replace(found, bucket={k: v for k, v in found.bucket.items() if k != key})


def _dearer(found: Evidence) -> Evidence:
    first, *others = found.archive
    return replace(found, archive=[first._replace(cents=first.cents + 1), *others])


Tamper = Callable[[Evidence], Evidence]


@pytest.mark.parametrize(
    ("tamper", "failed"),
    [
        (lambda f: replace(f, stored=f.stored - 1), {STORED, COMPLETE, ONCE}),
        (lambda f: replace(f, archive=f.archive[:-1]), {COMPLETE, ONCE, AMOUNTS, BUCKET, REVENUE}),
        (lambda f: replace(f, archive=[*f.archive, f.archive[0]]), {COMPLETE, ONCE, AMOUNTS}),
        (
            # One lost, another one twice: the counts alone do not show it.
            lambda f: replace(f, archive=[*f.archive[1:], f.archive[1]]),
            {ONCE, AMOUNTS, BUCKET, REVENUE},
        ),
        (lambda f: replace(f, dead=f.dead[1:]), {COMPLETE, ONCE, DEAD}),
        (lambda f: replace(f, dead=[*f.dead, f.dead[0]]), {COMPLETE, ONCE, DEAD}),
        (lambda f: replace(f, dead=[f.dead[1], *f.dead[1:]]), {ONCE}),
        (_dearer, {AMOUNTS, BUCKET, REVENUE}),
        (_without_key, {BUCKET, REVENUE}),
        (
            lambda f: replace(f, bucket={**f.bucket, "xx.2026-11-27-1200": Totals(1, 0)}),
            {BUCKET},
        ),
        (lambda f: _changed_bucket(f, lambda t: Totals(t.orders + 1, t.cents)), {BUCKET}),
        (lambda f: _changed_bucket(f, lambda t: Totals(t.orders, t.cents + 1)), {BUCKET, REVENUE}),
        (lambda f: replace(f, alerts=f.alerts[1:]), {ALERTS}),
        (lambda f: replace(f, alerts=[*f.alerts, f.alerts[0]]), {ALERTS}),
        (lambda f: replace(f, alerts=[*f.alerts, "o-nobody"]), {ALERTS}),
        (lambda f: replace(f, dropped_late=1), {LATE}),
    ],
)
def test_tampering_shows(tamper: Tamper, failed: set[str]) -> None:
    sent, found = _true_books()
    assert _failed(sent, tamper(found)) == failed


def test_a_message_that_is_refused_wrongly_shows() -> None:
    sent, found = _true_books()
    sent.refused += 1
    assert _failed(sent, found) == {STORED, REFUSED}


def test_no_files_are_no_orders(tmp_path: Path) -> None:
    assert read_archive(tmp_path / "archive") == []
