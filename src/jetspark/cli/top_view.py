"""What `jetspark top` shows: facts of two moments become a picture, and the picture a screen. Pure.

A `Moment` is what was collected at a time. `picture` compares it with the one before, which gives
rates, and sorts by activity; `render` and `as_json` show the result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

__all__ = [
    "Account",
    "Consumer",
    "Moment",
    "Picture",
    "Pipeline",
    "Stream",
    "as_json",
    "picture",
    "render",
]

_STALE = 30.0  # seconds without a sign of a pipeline


@dataclass(frozen=True, kw_only=True)
class Stream:
    """A stream; the rates are of the time between two moments."""

    name: str
    messages: int
    bytes: int
    last_sequence: int
    consumers: int
    leader: str = ""
    rate: float | None = None
    """Messages a second that came."""


@dataclass(frozen=True, kw_only=True)
class Consumer:
    """A consumer."""

    stream: str
    name: str
    pending: int
    """Messages that it has not delivered yet."""
    ack_pending: int
    redelivered: int
    delivered: int
    """Deliveries so far."""
    paused: bool = False
    rate: float | None = None
    """Deliveries a second."""

    @property
    def lag(self) -> int:
        """What is still to be done: not delivered, or not acknowledged."""
        return self.pending + self.ack_pending


@dataclass(frozen=True, kw_only=True)
class Account:
    """What the account uses."""

    streams: int = 0
    consumers: int = 0
    memory: int = 0
    storage: int = 0
    max_memory: int = -1
    max_storage: int = -1


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """A query of a running pipeline, as that reports it."""

    pipeline: str
    query: str
    host: str
    state: str
    rows: int
    rate: float | None
    lag: int | None
    dead: int
    updated: datetime | None


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What was collected at a time."""

    at: float
    """By a clock that does not jump, in seconds."""
    time: datetime
    servers: str
    version: str = ""
    problem: str = ""
    """Why this is not up to date; empty if it is."""
    account: Account = Account()
    streams: Sequence[Stream] = ()
    consumers: Sequence[Consumer] = ()
    pipelines: Sequence[Pipeline] = ()
    unasked: int = 0
    """Streams whose consumers were not asked for, because there are so many."""


@dataclass(frozen=True)
class Picture:
    """A moment with rates, the busiest first."""

    moment: Moment
    streams: list[Stream]
    consumers: list[Consumer]
    pipelines: list[Pipeline]


def picture(now: Moment, before: Moment | None = None) -> Picture:
    """What is to be shown of a moment, compared with the one before."""
    seconds = now.at - before.at if before is not None else 0.0
    streams = list(now.streams)
    consumers = list(now.consumers)
    if before is not None and seconds > 0:
        sequences = {stream.name: stream.last_sequence for stream in before.streams}
        deliveries = {(one.stream, one.name): one.delivered for one in before.consumers}
        streams = [
            dataclasses.replace(
                stream,
                rate=_rate(stream.last_sequence, sequences.get(stream.name), seconds),
            )
            for stream in streams
        ]
        consumers = [
            dataclasses.replace(
                one, rate=_rate(one.delivered, deliveries.get((one.stream, one.name)), seconds)
            )
            for one in consumers
        ]
    return Picture(
        now,
        sorted(streams, key=lambda one: (-(one.rate or 0), -one.messages, one.name)),
        sorted(consumers, key=lambda one: (-(one.rate or 0), -one.lag, one.stream, one.name)),
        sorted(now.pipelines, key=lambda one: (one.pipeline, one.query)),
    )


def _rate(now: int, before: int | None, seconds: float) -> float | None:
    """What came a second; a counter that began anew says nothing."""
    return None if before is None or now < before else (now - before) / seconds


def as_json(shown: Picture) -> dict[str, Any]:
    """The picture for scripts."""
    moment = shown.moment
    return {
        "time": _iso(moment.time),
        "servers": moment.servers,
        "version": moment.version,
        "problem": moment.problem or None,
        "account": dataclasses.asdict(moment.account),
        "streams": [dataclasses.asdict(stream) for stream in shown.streams],
        "consumers": [{**dataclasses.asdict(one), "lag": one.lag} for one in shown.consumers],
        "pipelines": [
            {**dataclasses.asdict(one), "updated": _iso(one.updated)} for one in shown.pipelines
        ],
        "unasked": moment.unasked,
    }


def render(shown: Picture, *, height: int | None = None, hint: str = "") -> RenderableType:
    """The picture for a screen of so many lines; without a height, all of it."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [_title(shown, hint)]
    if shown.moment.problem:
        parts.append(Text(shown.moment.problem, style="bold red"))
    sections: tuple[tuple[str, list[Any], Callable[[list[Any]], Table]], ...] = (
        ("queries of pipelines", shown.pipelines, lambda rows: _pipelines(rows, shown.moment.time)),
        ("streams", shown.streams, _streams),
        ("consumers", shown.consumers, _consumers),
    )
    sizes = _shares([len(rows) for _, rows, _ in sections], height)
    for (what, rows, table), size in zip(sections, sizes, strict=True):
        if rows:
            parts.append(table(rows[:size]))
        if len(rows) > size:
            parts.append(Text(f" and {len(rows) - size:,} more {what}", style="dim"))
    if shown.moment.unasked:
        note = f" the consumers of {shown.moment.unasked:,} quieter streams are not shown"
        parts.append(Text(note, style="dim"))
    if not shown.streams:
        parts.append(Text(" there are no streams", style="dim"))
    return Group(*parts)


def _title(shown: Picture, hint: str) -> RenderableType:
    from rich.text import Text

    moment, account = shown.moment, shown.moment.account
    server = f"nats-server {moment.version}  " if moment.version else ""
    first = f"{moment.servers}  {server}{_iso(moment.time.replace(microsecond=0))}"
    used = [
        f"{account.streams:,} streams",
        f"{account.consumers:,} consumers",
        f"storage {_share(account.storage, account.max_storage)}",
        f"memory {_share(account.memory, account.max_memory)}",
    ]
    title = Text.assemble((first, "bold"), f"\n{', '.join(used)}", overflow="ellipsis")
    if hint:
        title.append(f"   {hint}", style="dim")
    return title


def _streams(streams: list[Stream]) -> Table:
    table = _table("stream", "messages>", "bytes>", "msgs/s>", "consumers>", "leader")
    for one in streams:
        table.add_row(
            _text(one.name),
            f"{one.messages:,}",
            size_text(one.bytes),
            rate_text(one.rate),
            f"{one.consumers:,}",
            _text(one.leader or "-"),
            style=None if one.rate else "dim",
        )
    return table


def _consumers(consumers: list[Consumer]) -> Table:
    table = _table(
        "consumer", "stream", "pending>", "ack pending>", "redelivered>", "lag>", "msgs/s>"
    )
    for one in consumers:
        table.add_row(
            _text(one.name + (" (paused)" if one.paused else "")),
            _text(one.stream),
            f"{one.pending:,}",
            f"{one.ack_pending:,}",
            _text(f"{one.redelivered:,}", "yellow" if one.redelivered else ""),
            f"{one.lag:,}",
            rate_text(one.rate),
            style=None if one.rate or one.lag else "dim",
        )
    return table


def _pipelines(pipelines: list[Pipeline], now: datetime) -> Table:
    table = _table("pipeline", "query", "state", "rows>", "rows/s>", "lag>", "dead>", "host")
    for one in pipelines:
        silent = one.updated is None or (now - one.updated).total_seconds() > _STALE
        table.add_row(
            _text(one.pipeline),
            _text(one.query),
            _text(f"silent since {_iso(one.updated)}", "yellow") if silent else _text(one.state),
            f"{one.rows:,}",
            rate_text(one.rate),
            "-" if one.lag is None else f"{one.lag:,}",
            _text(f"{one.dead:,}", "red" if one.dead else ""),
            _text(one.host),
        )
    return table


def _table(*columns: str) -> Table:
    """A table with these columns; those with `>` stand to the right."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold cyan")
    for name in columns:
        justify: Literal["left", "right"] = "right" if name.endswith(">") else "left"
        table.add_column(name.rstrip(">"), justify=justify, no_wrap=True, overflow="ellipsis")
    return table


def _text(text: str, style: str = "") -> Text:
    """A cell as it is: names may have brackets."""
    from rich.text import Text

    return Text(text, style=style)


def _shares(counts: list[int], height: int | None) -> list[int]:
    """How many rows each table gets of a screen: few rows are all shown, many share the rest."""
    if height is None:
        return counts
    there = [count for count in counts if count]
    room = max(height - 4 - 5 * len(there), len(there))  # title, heads, and what is left out
    sizes = [0] * len(counts)
    for index in sorted(range(len(counts)), key=lambda index: counts[index]):
        if counts[index]:
            sizes[index] = min(counts[index], max(room // len(there), 1))
            room -= sizes[index]
            there.pop()
    return sizes


def size_text(count: int) -> str:
    """Bytes for people.

    >>> size_text(512), size_text(234_467)
    ('512 B', '229.0 KiB')
    """
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def rate_text(rate: float | None) -> str:
    """Something a second; `-` is not known."""
    if rate is None:
        return "-"
    return f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:.1f}"


def _share(used: int, most: int) -> str:
    return size_text(used) + (f" of {size_text(most)}" if most > 0 else "")


def _iso(time: datetime | None) -> str:
    if time is None:
        return "-"
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")
