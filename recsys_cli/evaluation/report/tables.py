"""The tables of figures: how a number and its interval are written, and which of a line is best."""

from __future__ import annotations

import math
from dataclasses import dataclass

from recsys_cli.evaluation.result import Estimate, Estimates
from recsys_cli.metrics import BEYOND, GROUPED, POINTWISE, RANKING
from recsys_cli.metrics.metric import Better
from recsys_cli.metrics.named import ARROWS, best_of


@dataclass(frozen=True)
class Cell:
    """A figure in a table."""

    value: str
    interval: str
    is_best: bool


@dataclass(frozen=True)
class Row:
    """A line of a table."""

    title: str
    hint: str
    cells: list[Cell]


_HINTS: dict[Better | None, str] = {
    "higher": "higher is better",
    "lower": "lower is better",
    "one": "1 is right",
    None: "neither more nor less is better in itself",
}
_SAMPLED = "sampled_"
_NOTHING = Estimate(value=None)


def pointwise_rows(systems: dict[str, Estimates]) -> list[Row]:
    """Return a line for each metric that a system has; scores that are no logits have none of probabilities."""
    known: dict[str, tuple[str, Better]] = {name: (metric.title, metric.better) for name, metric in POINTWISE.items()}
    known |= {name: (metric.title, "higher") for name, metric in GROUPED.items()}
    return [
        Row(
            f"{title} {ARROWS[better]}",
            _HINTS[better],
            _cells([found.get(name, _NOTHING) for found in systems.values()], better),
        )
        for name, (title, better) in known.items()
        if any(name in found for found in systems.values())
    ]


def ranking_rows(systems: dict[str, Estimates]) -> list[Row]:
    """Return a line for each ranking metric and cut-off, or for each figure of what is recommended."""
    names = dict.fromkeys(name for found in systems.values() for name in found)
    rows = []
    for name in names:
        beyond = BEYOND.get(name.removeprefix(_SAMPLED).partition("@")[0])
        better = beyond.better if beyond else "higher"
        cells = _cells([found.get(name, _NOTHING) for found in systems.values()], better)
        rows.append(Row(f"{ranking_title(name)} {ARROWS[better]}".rstrip(), _HINTS[better], cells))
    return rows


def metric_title(name: str) -> str:
    """Return what people call a metric of rows or of rankings."""
    known = POINTWISE.get(name) or GROUPED.get(name)
    return known.title if known else ranking_title(name) if "@" in name else name


def ranking_title(name: str) -> str:
    """Return what people call a ranking metric with its cut-off, and that it is of sampled candidates where it is."""
    metric, _, k = name.removeprefix(_SAMPLED).partition("@")
    known = RANKING.get(metric) or BEYOND.get(metric)
    return f"{'sampled ' if name.startswith(_SAMPLED) else ''}{known.title if known else metric}@{k}"


def _cells(estimates: list[Estimate], better: Better | None) -> list[Cell]:
    best = best_of([(one.value, one.low, one.high) for one in estimates], better)
    return [
        Cell(number(one.value), _interval(one), is_best=is_best) for one, is_best in zip(estimates, best, strict=True)
    ]


def number(value: float | None) -> str:
    """Write a figure; a dash where it is not defined. Shares have four places, larger figures fewer."""
    if value is None:
        return "–"
    places = next(places for bound, places in ((10, 4), (100, 2), (10_000, 1), (math.inf, 0)) if abs(value) <= bound)
    return f"{value:,.{places}f}"


def _interval(estimate: Estimate) -> str:
    return "" if estimate.low is None else f"{number(estimate.low)} – {number(estimate.high)}"
