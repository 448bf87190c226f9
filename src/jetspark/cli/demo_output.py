"""What `jetspark demo` prints in the end: the books, what is where, and what to try next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetspark.cli import console
from jetspark.pipeline.demo.result import Result, euros

if TYPE_CHECKING:
    from jetspark.pipeline.demo.books import Proof

__all__ = ["print_result"]


def print_result(result: Result, *, options: str, report: bool) -> None:
    """The books, what is where, and what to try next, on stdout."""
    out = console.out()
    out.print(f"{'the books':<42} {'left':>14} {'right':>14}")
    for proof in result.proofs:
        out.print(_line(proof))
    verdict = (
        "[bold green]the books balance[/]"
        if result.balanced
        else "[bold red]the books do NOT balance[/]"
    )
    total = sum(result.steps.values())
    times = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in result.steps.items())
    out.print(f"\n{verdict}: {result.sent.messages:,} messages in {total:.0f} s ({times})\n")
    for name, place in result.where().items():
        out.print(f"  {name:<13} {place}", markup=False)
    if report:
        out.print(f"  {'report':<13} {result.places.report}", markup=False)
    out.print("\nTry next:")
    for command, what in result.next_steps(options).items():
        out.print(f"\n  # {what}\n  {command}", markup=False)


def _line(proof: Proof) -> str:
    show = euros if proof.cents else "{:,}".format
    verdict = "[green]ok[/]" if proof.holds else "[bold red]FAILED[/]"
    return f"{proof.equation:<42} {show(proof.left):>14} {show(proof.right):>14}  {verdict}"
