"""The orders of the demo are the same for the same seed, and of the kinds that are promised."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime, timedelta
from decimal import Decimal

from jetspark.pipeline.demo.orders import COUNTRIES, KINDS, MIDDAY, Event, Orders


def _events(seed: int = 1) -> tuple[list[Event], list[Event]]:
    orders = Orders(seed)
    return list(orders.backlog(3000)), list(orders.live(5000, rate=1000))


def test_a_seed_gives_the_same_events_again() -> None:
    assert _events(7) == _events(7)
    assert _events(7) != _events(8)


def test_the_backlog_is_orders_of_the_morning() -> None:
    backlog, _ = _events()
    assert {event.kind for event in backlog} == {"order"}
    assert len({event.msg_id for event in backlog}) == len(backlog)
    times = []
    for event in backlog:
        order = json.loads(event.data, parse_float=Decimal)
        assert order["id"] == event.msg_id
        assert order["amount"] * 100 == event.cents
        assert event.subject == f"demo.orders.{order['country']}"
        times.append(datetime.fromisoformat(order["at"]))
    assert {event.subject.rpartition(".")[2] for event in backlog} == set(COUNTRIES)
    assert times == sorted(times)
    assert times[0] == MIDDAY - timedelta(hours=4)
    assert times[-1] < MIDDAY


def test_the_live_part_has_all_kinds() -> None:
    _, live = _events()
    counts = Counter(event.kind for event in live)
    assert set(counts) == set(KINDS)
    assert counts["order"] > 0.85 * len(live)


def test_duplicates_are_earlier_messages_and_repeats_are_earlier_orders() -> None:
    _, live = _events()
    seen: dict[str, bytes] = {}
    for event in live:
        if event.kind == "duplicate":
            assert seen[event.msg_id] == event.data
        else:
            assert event.msg_id not in seen
        if event.kind == "repeat":
            assert event.data in seen.values()
        seen[event.msg_id] = event.data


def test_late_orders_are_at_most_half_an_hour_late() -> None:
    _, live = _events()
    newest = MIDDAY
    for event in live:
        if event.kind in ("malformed", "duplicate", "repeat"):
            continue
        at = datetime.fromisoformat(json.loads(event.data)["at"])
        if event.kind == "late":
            assert timedelta(minutes=0.9) < newest - at <= timedelta(minutes=30)
        newest = max(newest, at)


def test_malformed_events_are_no_orders() -> None:
    _, live = _events()
    malformed = {event.data for event in live if event.kind == "malformed"}
    assert b"" in malformed
    assert len(malformed) == 7
    for data in malformed:
        try:
            order = json.loads(data)
        except ValueError:  # also bytes that are no text
            continue
        assert order.get("amount", "a lot") == "a lot" or order["at"] == "yesterday"


def test_nothing_is_wanted_nothing_is_made() -> None:
    assert list(Orders(1).backlog(0)) == []
    assert list(Orders(1).live(0, rate=10)) == []
