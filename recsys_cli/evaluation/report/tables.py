"""The tables of figures: how a number and its interval are written, and which of a line is best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from recsys_cli.evaluation.result import Estimate, Estimates
from recsys_cli.metrics import GROUPED, POINTWISE
from recsys_cli.metrics.metric import Better
from recsys_cli.metrics.named import ARROWS, best_of, better_of, title_of


@dataclass(frozen=True)
class TableCell:
    """A figure in a table."""

    value: str
    interval: str
    is_best: bool


@dataclass(frozen=True)
class TableRow:
    """A line of a table."""

    title: str
    hint: str
    cells: list[TableCell]


_HINTS: dict[Better | None, str] = {
    "higher": "higher is better",
    "lower": "lower is better",
    "one": "1 is right",
    None: "neither more nor less is better in itself",
}
_NOTHING = Estimate(value=None)


def pointwise_rows(systems: dict[str, Estimates]) -> list[TableRow]:
    """Return a line for each metric that a system has; scores that are no logits have none of probabilities."""
    return _rows(systems, [*POINTWISE, *GROUPED])


def ranking_rows(systems: dict[str, Estimates]) -> list[TableRow]:
    """Return a line for each ranking metric and cut-off, or for each figure of what is recommended."""
    return _rows(systems, [])


def _rows(systems: dict[str, Estimates], first: Sequence[str]) -> list[TableRow]:
    found = dict.fromkeys(name for estimates in systems.values() for name in estimates)
    rows = []
    for name in sorted(found, key=lambda name: first.index(name) if name in first else len(first)):
        better = better_of(name)
        cells = _cells([estimates.get(name, _NOTHING) for estimates in systems.values()], better)
        rows.append(TableRow(f"{title_of(name)} {ARROWS[better]}".rstrip(), _HINTS[better], cells))
    return rows


def _cells(estimates: list[Estimate], better: Better | None) -> list[TableCell]:
    best = best_of([(one.value, one.low, one.high) for one in estimates], better)
    return [
        TableCell(number(one.value), _interval(one), is_best=is_best)
        for one, is_best in zip(estimates, best, strict=True)
    ]


def number(value: float | None) -> str:
    """Write a figure; a dash where it is not defined. Shares have four places, larger figures fewer."""
    if value is None:
        return "–"
    places = next(places for bound, places in ((10, 4), (100, 2), (10_000, 1), (math.inf, 0)) if abs(value) <= bound)
    return f"{value:,.{places}f}"


def _interval(estimate: Estimate) -> str:
    return "" if estimate.low is None else f"{number(estimate.low)} – {number(estimate.high)}"
