"""Runs the contenders of a benchmark in turns, and reports medians and ratios.

A benchmark is a module of this package that holds one `BENCHMARK`:

    async def ours(job: Job) -> float: ...      # connect, do the job, return the rate
    def limit(job: Job) -> float: ...           # a contender may be blocking as well

    BENCHMARK = Benchmark(title="...", unit="messages/s", messages=200_000, size=128,
                          contenders={"ours": ours, "nats-py": ..., "limit": limit})

Contenders other than "ours" and "limit" are peers. A contender times its own work, without
connecting and warming up, and raises if any message is missing; where it cannot do a variant, it
returns None and is left out of that one. It imports its client itself, because each turn is a fresh
process: no contender inherits the heap, the garbage or the threads of another. All share one
nats-server. On few cores its threads and the client push each other aside, and chance decides who
waits; with `server_cores` it has no more than those.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import pkgutil
import statistics
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from typing import Any, ParamSpec, TypeVar

import benchmarks
from jetspark.server import run_server

MIN_ROUNDS = 3
TURN_TIMEOUT = 600.0
"""Seconds for one turn of an asynchronous contender; blocking ones have socket timeouts."""


@dataclass(frozen=True)
class Job:
    """What every contender is given."""

    url: str
    host: str
    port: int
    messages: int
    size: int
    in_flight: int
    variant: str = ""
    """Which of the benchmark's variants, empty for the main figures."""


Rate = float | None
Contender = Callable[[Job], Rate] | Callable[[Job], Coroutine[Any, Any, Rate]]
Extra = Callable[[Job], dict[str, int]]

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A job, and who does it."""

    title: str
    unit: str
    """Of the rates, of which more is better."""
    messages: int
    """Messages a round unless told otherwise."""
    size: int
    """Bytes of payload unless told otherwise."""
    contenders: Mapping[str, Contender]
    rounds: int = MIN_ROUNDS
    """Unless told otherwise: more where those of one contender differ much."""
    variants: tuple[str, ...] = ()
    """Further figures, each under its name in the summary."""
    prepare: Callable[[Job], None] | None = None
    """Makes, before the first round, what all contenders find."""
    extras: Mapping[str, Extra] = field(default_factory=dict)
    """Figures of ours that are no rates, taken once, each under its name in the summary."""
    needs_server: bool = True


@dataclass(frozen=True)
class Report:
    """The rates of every round, by variant and contender, and the extras."""

    name: str
    benchmark: Benchmark
    job: Job
    rounds: int
    server_cores: int | None
    rates: dict[str, dict[str, list[float]]]
    extras: dict[str, dict[str, int]]


def discover() -> dict[str, Benchmark]:
    """The benchmarks of this package, by name."""
    found = {}
    for module in pkgutil.iter_modules(benchmarks.__path__):
        if not module.name.startswith("_"):
            benchmark = getattr(_load(module.name), "BENCHMARK", None)
            if benchmark is not None:
                found[module.name] = benchmark
    return found


def run(
    name: str,
    benchmark: Benchmark,
    *,
    messages: int,
    size: int,
    in_flight: int,
    rounds: int,
    server_cores: int | None = None,
    only: list[str] | None = None,
) -> Report:
    """Let every contender do the job `rounds` times, in turns."""
    names = [contender for contender in benchmark.contenders if not only or contender in only]
    variants = ("", *benchmark.variants)
    rates: dict[str, dict[str, list[float]]] = {variant: {} for variant in variants}
    extras: dict[str, dict[str, int]] = {}
    with _server(benchmark, server_cores) as (url, host, port):
        job = Job(url, host, port, messages, size, in_flight)
        if benchmark.prepare is not None:
            benchmark.prepare(job)
        for turn in range(rounds):
            print(f"{name}: round {turn + 1} of {rounds}", file=sys.stderr)
            # Nobody always comes first, or always after the same neighbour's disturbance.
            first = turn % len(names)
            for contender in names[first:] + names[:first]:
                for variant in variants:
                    turn_job = replace(job, variant=variant)
                    rate = in_fresh_process(_turn, name, contender, turn_job)
                    if rate is not None:
                        rates[variant].setdefault(contender, []).append(rate)
        if "ours" in names:
            extras = {key: measure(job) for key, measure in benchmark.extras.items()}
    return Report(name, benchmark, job, rounds, server_cores, rates, extras)


def in_fresh_process(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what a function of a module returns in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(function, *args, **kwargs).result()
        except Exception as error:
            error.add_note(f"in {function.__qualname__} with {args}")
            raise


def summary(report: Report) -> dict[str, object]:
    """The JSON object: the main figures, and those of each variant under its name."""
    result: dict[str, object] = {"name": report.name, "unit": report.benchmark.unit}
    result |= _figures(report.rates[""])
    for variant in report.benchmark.variants:
        result[variant] = _figures(report.rates[variant])
    return result | report.extras


def table(report: Report) -> str:
    """The same for people, with the spread over the rounds."""
    job = report.job
    lines = [
        f"{report.name}: {report.benchmark.title}",
        f"{job.messages:,} messages of {job.size} bytes, {report.rounds} rounds, "
        f"{report.benchmark.unit}, the server on {report.server_cores or 'all'} cores",
    ]
    for variant, rates in report.rates.items():
        lines += ["", variant] if variant else [""]
        lines.append(f"{'':<10}{'median':>14}{'lowest':>14}{'highest':>14}")
        for contender, values in rates.items():
            median = statistics.median(values)
            lines.append(
                f"{contender:<10}{median:>14,.0f}{min(values):>14,.0f}{max(values):>14,.0f}"
            )
        figures = _figures(rates)
        for key, text in (("vs_best_peer", "ours / best peer"), ("vs_limit", "ours / limit")):
            if figures[key] is not None:
                lines.append(f"{text}: {figures[key]}")
    for name, extra in report.extras.items():
        lines += ["", name, *(f"{key}: {value:,}" for key, value in extra.items())]
    return "\n".join(lines)


def _figures(rates: dict[str, list[float]]) -> dict[str, object]:
    medians = {name: round(statistics.median(values), 1) for name, values in rates.items()}
    peers = {name: rate for name, rate in medians.items() if name not in ("ours", "limit")}
    ours, limit = medians.get("ours"), medians.get("limit")
    return {
        "ours": ours,
        "peers": peers,
        "limit": limit,
        "vs_best_peer": _ratio(ours, max(peers.values(), default=None)),
        "vs_limit": _ratio(ours, limit),
    }


def _ratio(rate: float | None, other: float | None) -> float | None:
    return None if rate is None or other is None else round(rate / other, 3)


def _load(name: str) -> Any:
    return importlib.import_module(f"{benchmarks.__name__}.{name}")


@contextmanager
def _server(benchmark: Benchmark, cores: int | None) -> Iterator[tuple[str, str, int]]:
    if not benchmark.needs_server:
        yield "", "", 0
        return
    if cores is not None:
        os.environ["GOMAXPROCS"] = str(cores)
    # Slow readers must be measured, not cut off.
    with run_server(max_pending=1024**3, write_deadline=60, ping_interval=600) as server:
        os.environ.pop("GOMAXPROCS", None)  # it is for the server alone
        yield server.url, server.host, server.port


def _turn(name: str, contender: str, job: Job) -> Rate:
    result: Any = _load(name).BENCHMARK.contenders[contender](job)
    if inspect.iscoroutine(result):
        result = asyncio.run(asyncio.wait_for(result, TURN_TIMEOUT))
    return None if result is None else float(result)
