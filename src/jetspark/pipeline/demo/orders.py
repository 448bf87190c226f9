"""The orders of the demo: the same ones for the same seed, with no clock and no I/O.

A day of a shop in eight countries. The backlog is the morning; the live part begins at noon, where
one second of the demo is one minute of the shop. Live events are not all as they should be:

=========  =======================================================================================
kind       what it is
=========  =======================================================================================
order      an order
late       an order whose time is up to half an hour ago
duplicate  an earlier message once more, with the same message id: the server does not store it
repeat     an earlier order once more, with another message id: the server does store it
malformed  broken JSON, wrong types, missing fields, no text, nothing at all
=========  =======================================================================================
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import NamedTuple

__all__ = ["COUNTRIES", "KINDS", "MIDDAY", "Event", "Orders"]

MIDDAY = datetime(2026, 11, 27, 12, tzinfo=UTC)
"""When the live part begins."""

COUNTRIES = ("de", "fr", "it", "es", "nl", "at", "pt", "ie")
KINDS = ("order", "late", "duplicate", "repeat", "malformed")

_WEIGHTS = (28, 22, 15, 13, 9, 6, 4, 3)  # of the countries
_MORNING = timedelta(hours=4)
_RISE = 0.7  # below 1: the later, the more orders
_LATEST = 30 * 60  # seconds that a late order may be late
_REMEMBERED = 1000  # orders that may be sent again
_LARGE = 0.01  # the share of orders that are large
_MIX = (0.02, 0.02, 0.01, 0.03)  # of malformed, duplicate, repeat and late among live events
_MALFORMED, _DUPLICATE, _REPEAT, _LATE = accumulate(_MIX)


class Event(NamedTuple):
    """A message to publish."""

    kind: str
    subject: str
    msg_id: str
    data: bytes
    cents: int
    """The amount of the order; 0 if it is none."""


class Orders:
    """Makes the events of one demo, one after the other."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._countries = [
            country
            for country, weight in zip(COUNTRIES, _WEIGHTS, strict=True)
            for _ in range(weight)
        ]
        self._number = 0
        self._recent: deque[Event] = deque(maxlen=_REMEMBERED)

    def backlog(self, count: int) -> Iterator[Event]:
        """So many orders, spread over the morning, more and more of them."""
        begin, length = MIDDAY - _MORNING, _MORNING.total_seconds()
        for number in range(count):
            yield self._order("order", begin, (number / count) ** _RISE * length)

    def live(self, count: int, *, rate: float) -> Iterator[Event]:
        """So many events of all kinds, of which there are `rate` in a minute of the shop."""
        step = 60 / rate
        for number in range(count):
            yield self._live_event(number * step)

    def _live_event(self, seconds: float) -> Event:
        chance = self._random.random()
        if chance < _MALFORMED:
            return self._malformed()
        if chance < _REPEAT and self._recent:
            earlier = self._random.choice(self._recent)
            if chance < _DUPLICATE:
                return earlier._replace(kind="duplicate")
            self._number += 1
            return earlier._replace(kind="repeat", msg_id=f"r-{self._number:07d}")
        if chance < _LATE:
            ago = self._random.uniform(60, _LATEST)
            return self._order("late", MIDDAY, seconds - ago)
        event = self._order("order", MIDDAY, seconds)
        self._recent.append(event)
        return event

    def _order(self, kind: str, begin: datetime, seconds: float) -> Event:
        chance = self._random.random
        self._number += 1
        number = f"o-{self._number:07d}"
        country = self._countries[int(chance() * 100)]
        items = 1 + int(chance() * chance() * 6)
        cents = items * (490 + int(chance() * chance() * 9000))
        if chance() < _LARGE:
            cents *= 20
        at = (begin + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")
        data = (
            f'{{"id":"{number}","customer":"c-{int(chance() * 50000):05d}",'
            f'"country":"{country}","channel":"{"web" if chance() < 0.7 else "shop"}",'
            f'"items":{items},"amount":{cents // 100}.{cents % 100:02d},"currency":"EUR",'
            f'"at":"{at[:-6]}Z"}}'
        )
        return Event(kind, f"demo.orders.{country}", number, data.encode(), cents)

    def _malformed(self) -> Event:
        self._number += 1
        number = f"m-{self._number:07d}"
        data = self._random.choice(_BROKEN)
        return Event("malformed", "demo.orders.unknown", number, data, 0)


_BROKEN = (
    b'{"id":"o-1","customer":"c-00007","country":"de","items":2,"amo',  # cut off
    b'{"id":"o-2","country":"fr","items":1,"amount":"a lot","at":"2026-11-27T12:00:00Z"}',
    b'{"id":"o-3","country":"it","items":1,"amount":9.90,"at":"yesterday"}',
    b'{"id":"o-4","country":"nl","items":3,"at":"2026-11-27T12:00:00Z"}',  # no amount
    b"id=o-5;country=es;amount=12.50",  # another format
    b"\x89PNG\r\n\x1a\n\x00\x00\xff\xfe",  # bytes that are no text
    b"",
)
