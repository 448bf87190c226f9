"""The report of the demo: one HTML file that needs nothing else, with the books and charts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from html import escape

from .books import Proof
from .charts import STYLE, Chart, bars, figure, lines, sheet, texts
from .result import Result, euros
from .watch import rates

__all__ = ["as_html", "as_svg"]

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>jetspark demo</title>
<style>{style}
body {{ margin: 0 auto; max-width: 920px; padding: 24px 20px 60px; background: var(--page);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }}
h1 {{ font-size: 24px; margin: 0 0 4px; }} h2 {{ font-size: 17px; margin: 36px 0 8px; }}
p {{ margin: 4px 0; color: var(--soft); }}
.tiles {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 10px;
  margin: 20px 0; }}
.tile {{ border: 1px solid var(--grid); border-radius: 8px; padding: 10px 14px; }}
.tile b {{ display: block; font-size: 19px; }} .tile span {{ color: var(--soft); font-size: 13px; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }}
td, th {{ padding: 5px 10px; border-bottom: 1px solid var(--grid); text-align: left; }}
td.number {{ text-align: right; white-space: nowrap; }} td small {{ color: var(--soft); }}
.ok {{ color: var(--c2); font-weight: 600; }} .failed {{ color: #d1242f; font-weight: 600; }}
code {{ font: 13px ui-monospace, monospace; }}
pre {{ border: 1px solid var(--grid); border-radius: 8px; padding: 10px 14px; overflow-x: auto; }}
svg {{ display: block; margin: 18px 0; }}
</style>
</head>
<body>
<h1>jetspark demo: {verdict}</h1>
<p>{summary}</p>
<div class="tiles">{tiles}</div>
<h2>The books</h2>
<div class="wide"><table>{proofs}</table></div>
<h2>How it went</h2>
{charts}
<h2>How long it took</h2>
<div class="wide"><table>{steps}</table></div>
<h2>Where everything is</h2>
<div class="wide"><table>{where}</table></div>
<h2>What to try next</h2>
{next_steps}
</body>
</html>
"""


def as_html(result: Result, *, made: datetime) -> str:
    """The page."""
    total = sum(result.steps.values())
    return _PAGE.format(
        style=STYLE,
        verdict=_headline(result),
        summary=escape(
            f"{result.sent.messages:,} messages in {total:.0f} s on {result.server}, "
            f"{made:%Y-%m-%d %H:%M} UTC"
        ),
        tiles="".join(
            f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
            for name, value in _tiles(result).items()
        ),
        proofs="".join(_proof_row(proof) for proof in result.proofs),
        charts="\n".join(figure(chart) for chart in _charts(result)),
        steps=_rows((name, f"{seconds:.1f} s") for name, seconds in result.steps.items()),
        where=_rows(result.where().items()),
        next_steps="\n".join(
            f"<p>{escape(what[0].upper() + what[1:])}:</p><pre><code>{escape(command)}</code></pre>"
            for command, what in result.next_steps().items()
        ),
    )


def as_svg(result: Result) -> str:
    """The books and the charts, as a picture."""
    books = [
        (proof.equation, _number(proof, proof.left), _number(proof, proof.right), _verdict(proof))
        for proof in result.proofs
    ]
    return sheet([texts(f"jetspark demo: {_headline(result)}", books), *_charts(result)])


def _headline(result: Result) -> str:
    return "the books balance" if result.balanced else "the books do NOT balance"


def _number(proof: Proof, value: int) -> str:
    return euros(value) if proof.cents else f"{value:,}"


def _verdict(proof: Proof) -> str:
    return "ok" if proof.holds else "FAILED"


def _tiles(result: Result) -> Mapping[str, str]:
    return {
        "messages sent": f"{result.sent.messages:,}",
        "orders archived": f"{len(result.found.archive):,}",
        "dead letters": f"{len(result.found.dead):,}",
        "alerts": f"{len(result.found.alerts):,}",
        "revenue, EUR": euros(result.revenue),
        "rows a second, at most": f"{result.peak:,.0f}",
    }


def _charts(result: Result) -> list[Chart]:
    queries = list(result.samples[-1].rows) if result.samples else []
    moments = {"live": result.live[0], "live ends": result.live[1]}
    return [
        lines(
            "Throughput: rows a second of each query",
            {query: rates(result.samples, query) for query in queries},
            x_label=_seconds,
            y_label=_count,
            marks=moments,
        ),
        lines(
            "Lag: messages that each query has still to read",
            {
                query: [(sample.seconds, sample.lag(query)) for sample in result.samples]
                for query in queries
            },
            x_label=_seconds,
            y_label=_count,
            marks=moments,
        ),
        lines(
            "Revenue of each minute, all countries, EUR",
            {"revenue": _by_minute(result)},
            x_label=lambda minutes: f"{int(minutes) // 60:02d}:{int(minutes) % 60:02d}",
            y_label=_count,
            x_step=30,
            marks={"live": 12 * 60},
            area=True,
        ),
        bars("Revenue by country, EUR", _by_country(result), label=euros),
    ]


def _by_minute(result: Result) -> list[tuple[float, float]]:
    """Euros by minute of the day."""
    cents: Counter[int] = Counter()
    for key, totals in result.found.bucket.items():
        clock = key.rpartition("-")[2]
        cents[int(clock[:2]) * 60 + int(clock[2:])] += totals.cents
    return [(minute, cents[minute] / 100) for minute in sorted(cents)]


def _by_country(result: Result) -> dict[str, float]:
    cents: Counter[str] = Counter()
    for key, totals in result.found.bucket.items():
        cents[key.partition(".")[0]] += totals.cents
    return dict(cents.most_common())


def _proof_row(proof: Proof) -> str:
    sides = "".join(
        f'<td class="number">{_number(proof, value)}<br><small>{escape(name)}</small></td>'
        for value, name in ((proof.left, proof.left_is), (proof.right, proof.right_is))
    )
    css = "ok" if proof.holds else "failed"
    return (
        f"<tr><td>{escape(proof.name)}</td>{sides}"
        f'<td><span class="{css}">{_verdict(proof)}</span></td></tr>\n'
    )


def _rows(pairs: Iterable[tuple[str, str]]) -> str:
    return "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>\n" for name, value in pairs
    )


def _seconds(value: float) -> str:
    return f"{value:g} s"


def _count(value: float) -> str:
    return f"{value:,.0f}"
