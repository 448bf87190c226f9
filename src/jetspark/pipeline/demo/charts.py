"""Charts as SVG, drawn from numbers alone; light and dark by style sheet.

A chart is a group that a page places where it likes: `figure` puts one into an `<svg>` of its own,
`sheet` several below each other, with the styles, so that the file needs nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["STYLE", "Chart", "bars", "figure", "lines", "sheet", "texts"]

WIDTH = 880
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 20, 62, 34
_HEIGHT = 190  # of the part with the data
_BAR = 26
_LINE = 22
_GAP = 24  # between the charts of a sheet

Points = Sequence[tuple[float, float]]
Label = Callable[[float], str]

STYLE = """
:root { --page: #ffffff; --ink: #1f2328; --soft: #59636e; --grid: #d9dee3;
  --c0: #0969da; --c1: #bc4c00; --c2: #1a7f37; --c3: #8250df; --c4: #59636e; }
@media (prefers-color-scheme: dark) {
  :root { --page: #0d1117; --ink: #e6edf3; --soft: #9198a1; --grid: #2f363d;
    --c0: #58a6ff; --c1: #f0883e; --c2: #3fb950; --c3: #bc8cff; --c4: #9198a1; } }
text { font: 12px system-ui, sans-serif; fill: var(--soft); }
text.title { font-size: 15px; font-weight: 600; fill: var(--ink); }
text.value { fill: var(--ink); }
.grid { stroke: var(--grid); stroke-width: 1; }
.mark { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 3 4; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.area { opacity: 0.15; stroke: none; }
"""


@dataclass(frozen=True)
class Chart:
    """The drawing, and how high it is; all are `WIDTH` wide."""

    title: str
    body: str
    height: int


def lines(
    title: str,
    series: Mapping[str, Points],
    *,
    x_label: Label,
    y_label: Label,
    x_step: float | None = None,
    marks: Mapping[str, float] | None = None,
    area: bool = False,
) -> Chart:
    """Lines over a common axis, with a legend if there are several; `marks` are vertical lines."""
    points = [point for line in series.values() for point in line]
    low, high = min((x for x, _ in points), default=0), max((x for x, _ in points), default=1)
    x_ticks = _ticks(low, high, x_step or _step(high - low))
    top = max((y for _, y in points), default=0)
    y_ticks = _ticks(0, max(top, 1), max(_step(top), 1))
    to_x = _scale(low, high, _LEFT, WIDTH - _RIGHT)
    to_y = _scale(0, y_ticks[-1], _TOP + _HEIGHT, _TOP)
    parts = [_title(title), _legend(list(series)) if len(series) > 1 else ""]
    for y in y_ticks:
        parts.append(_line("grid", _LEFT, to_y(y), WIDTH - _RIGHT, to_y(y)))
        parts.append(_text(y_label(y), _LEFT - 8, to_y(y) + 4, anchor="end"))
    parts += [
        _text(x_label(x), to_x(x), _TOP + _HEIGHT + 20, anchor="middle")
        for x in x_ticks
        if low <= x <= high
    ]
    for name, x in (marks or {}).items():
        if low <= x <= high:
            parts.append(_line("mark", to_x(x), _TOP - 4, to_x(x), _TOP + _HEIGHT))
            parts.append(_mark_label(name, to_x(x)))
    for number, (name, line) in enumerate(series.items()):
        parts.append(_path(name, [(to_x(x), to_y(y)) for x, y in line], number, area=area))
    return Chart(title, "\n".join(filter(None, parts)), _TOP + _HEIGHT + _BOTTOM)


def bars(title: str, values: Mapping[str, float], *, label: Label) -> Chart:
    """A horizontal bar for each value."""
    top = _TOP - 20
    to_x = _scale(0, max(values.values(), default=0) or 1, 0, WIDTH - _LEFT - _RIGHT - 110)
    parts = [_title(title)]
    for number, (name, value) in enumerate(values.items()):
        y = top + number * _BAR
        width = max(to_x(value), 1)
        parts.append(_text(name, _LEFT - 8, y + 15, anchor="end"))
        parts.append(
            f'<rect x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR - 6}" rx="3" '
            f'fill="var(--c0)"/>'
        )
        parts.append(_text(label(value), _LEFT + width + 8, y + 15, kind="value"))
    return Chart(title, "\n".join(parts), top + len(values) * _BAR + 10)


def texts(title: str, rows: Sequence[tuple[str, str, str, str]]) -> Chart:
    """Lines of a text, two numbers and a verdict."""
    parts = [_title(title)]
    for number, (text, left, right, verdict) in enumerate(rows):
        y = _TOP - 16 + number * _LINE
        parts.append(_text(text, _LEFT, y, kind="value"))
        parts.append(_text(left, 600, y, kind="value", anchor="end"))
        parts.append(_text(right, 740, y, kind="value", anchor="end"))
        parts.append(_text(verdict, 770, y))
    return Chart(title, "\n".join(parts), _TOP - 16 + len(rows) * _LINE)


def figure(chart: Chart) -> str:
    """An `<svg>` for a page that has the styles."""
    return (
        f'<svg viewBox="0 0 {WIDTH} {chart.height}" width="100%" role="img" '
        f'aria-label="{escape(chart.title)}">\n{chart.body}\n</svg>'
    )


def sheet(charts: Sequence[Chart]) -> str:
    """An SVG file with all of them."""
    parts, y = [], _GAP
    for chart in charts:
        parts.append(f'<g transform="translate(0 {y})">\n{chart.body}\n</g>')
        y += chart.height + _GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" '
        f'height="{y}">\n<style>{STYLE}</style>\n'
        f'<rect width="{WIDTH}" height="{y}" fill="var(--page)"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _step(span: float) -> float:
    """A round number that goes into the span about five times."""
    if span <= 0:
        return 1
    magnitude = 10.0 ** math.floor(math.log10(span / 5))
    return next(
        factor * magnitude for factor in (1, 2, 5, 10, 20) if span / (factor * magnitude) <= 6
    )


def _ticks(low: float, high: float, step: float) -> list[float]:
    """The multiples of the step, from below `low` to above `high`."""
    return [n * step for n in range(math.floor(low / step), math.ceil(high / step) + 1)]


def _scale(low: float, high: float, begin: float, end: float) -> Callable[[float], float]:
    span = (high - low) or 1
    return lambda value: begin + (value - low) / span * (end - begin)


def _title(text: str) -> str:
    return _text(text, _LEFT, 18, kind="title")


def _legend(names: Sequence[str]) -> str:
    parts, x = [], float(_LEFT)
    for number, name in enumerate(names):
        parts.append(f'<rect x="{x}" y="33" width="14" height="4" fill="var(--c{number})"/>')
        parts.append(_text(name, x + 20, 40))
        x += 44 + 7 * len(name)
    return "\n".join(parts)


def _mark_label(name: str, x: float) -> str:
    near_end = x > WIDTH - 160
    return _text(name, x + (-6 if near_end else 6), _TOP + 8, anchor="end" if near_end else "start")


def _path(name: str, points: Points, number: int, *, area: bool) -> str:
    if not points:
        return ""
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    drawn = (
        f'<polyline class="line" stroke="var(--c{number})" points="{line}">'
        f"<title>{escape(name)}</title></polyline>"
    )
    if not area:
        return drawn
    floor = _TOP + _HEIGHT
    return (
        f'<polygon class="area" fill="var(--c{number})" '
        f'points="{points[0][0]:.1f},{floor} {line} {points[-1][0]:.1f},{floor}"/>\n{drawn}'
    )


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(text: str, x: float, y: float, *, kind: str = "", anchor: str = "start") -> str:
    css = f' class="{kind}"' if kind else ""
    return f'<text{css} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
