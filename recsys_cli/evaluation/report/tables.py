"""Metric tables of the report: values, intervals, and the best of a row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from recsys_cli.evaluation.result import Estimate, Estimates, StageFigures
from recsys_cli.metrics import GROUPED, POINTWISE
from recsys_cli.metrics.lists import PSNDCG
from recsys_cli.metrics.metric import Better
from recsys_cli.metrics.named import ARROWS, best_of, better_of, title_of


@dataclass(frozen=True)
class TableCell:
    """A metric of one system."""

    value: str
    interval: str
    is_best: bool


@dataclass(frozen=True)
class TableRow:
    """A metric of all systems."""

    title: str
    hint: str
    cells: list[TableCell]


_HINTS: dict[Better | None, str] = {
    "higher": "higher is better",
    "lower": "lower is better",
    "one": "1 is best",
    None: "neither higher nor lower is better in itself",
}
_UNDEFINED = Estimate(value=None)


def metric_rows(systems: dict[str, Estimates]) -> list[TableRow]:
    """Return a row for each metric of any system; pointwise metrics in their usual order."""
    first = [*POINTWISE, *GROUPED]
    names = dict.fromkeys(name for estimates in systems.values() for name in estimates)
    rows = []
    for name in sorted(names, key=lambda name: first.index(name) if name in first else len(first)):
        better = better_of(name)
        cells = _cells([estimates.get(name, _UNDEFINED) for estimates in systems.values()], better)
        rows.append(TableRow(f"{title_of(name)} {ARROWS[better]}".rstrip(), _HINTS[better], cells))
    return rows


def ranking_rows(ranking: dict[str, Estimates], beyond: dict[str, Estimates]) -> tuple[list[TableRow], list[TableRow]]:
    """Return the rows of accuracy metrics, each PSNDCG below its NDCG, and the rows of the other metrics of rankings."""
    accuracy: dict[str, Estimates] = {system: {} for system in ranking}
    for system, estimates in ranking.items():
        for name, estimate in estimates.items():
            accuracy[system][name] = estimate
            debiased = name.replace("ndcg@", f"{PSNDCG.name}@")
            if debiased in beyond.get(system, {}):
                accuracy[system][debiased] = beyond[system][debiased]
    others = {
        system: {name: one for name, one in estimates.items() if name not in accuracy.get(system, {})}
        for system, estimates in beyond.items()
    }
    return metric_rows(accuracy), metric_rows(others)


def stage_rows(stages: Sequence[StageFigures]) -> list[TableRow]:
    """Return a row for each stage of a model: k, recall, NDCG, gain of the whole model, and its verdict."""
    return [
        TableRow(
            stage.name,
            "",
            [
                TableCell("" if stage.k is None else f"{stage.k:,}", "", is_best=False),
                *(_optional(one) for one in (stage.recall, stage.ndcg)),
                _gain(stage),
                TableCell(stage.significance, "", is_best=False),
            ],
        )
        for stage in stages
    ]


def _optional(one: Estimate | None) -> TableCell:
    return TableCell(*("", "") if one is None else (number(one.value), _interval(one)), is_best=False)


def _gain(stage: StageFigures) -> TableCell:
    if stage.gain is None:
        return _optional(None)
    interval = f"{stage.gain_low:+.4f} – {stage.gain_high:+.4f}"
    return TableCell(f"{stage.gain:+.4f}", interval, is_best=stage.verdict == "better")


def _cells(estimates: list[Estimate], better: Better | None) -> list[TableCell]:
    best = best_of([(one.value, one.low, one.high) for one in estimates], better)
    return [
        TableCell(number(one.value), _interval(one), is_best=is_best)
        for one, is_best in zip(estimates, best, strict=True)
    ]


def number(value: float | None) -> str:
    """Format a metric: four decimals up to 10, fewer above, a dash if undefined."""
    if value is None:
        return "–"
    decimals = next(
        decimals for bound, decimals in ((10, 4), (100, 2), (10_000, 1), (math.inf, 0)) if abs(value) <= bound
    )
    return f"{value:,.{decimals}f}"


def _interval(estimate: Estimate) -> str:
    return "" if estimate.low is None else f"{number(estimate.low)} – {number(estimate.high)}"
