"""The tables of figures: how a number and its interval are written, and which of a line is best."""

from __future__ import annotations

from dataclasses import dataclass

from recsys_cli.evaluation.metrics import POINTWISE, RANKING
from recsys_cli.evaluation.metrics.metric import Better
from recsys_cli.evaluation.result import Estimate, Estimates


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


_HINTS: dict[Better, str] = {"higher": "higher is better", "lower": "lower is better", "one": "1 is right"}


def pointwise_rows(systems: dict[str, Estimates]) -> list[Row]:
    """Return a line for each metric that all systems have."""
    return [
        Row(metric.title, _HINTS[metric.better], _cells([found[name] for found in systems.values()], metric.better))
        for name, metric in POINTWISE.items()
        if all(name in found for found in systems.values())
    ]


def ranking_rows(systems: dict[str, Estimates]) -> list[Row]:
    """Return a line for each ranking metric and cut-off."""
    names = next(iter(systems.values()), {})
    return [
        Row(ranking_title(name), "higher is better", _cells([found[name] for found in systems.values()], "higher"))
        for name in names
    ]


def ranking_title(name: str) -> str:
    """Return what people call a ranking metric with its cut-off."""
    metric, _, k = name.partition("@")
    return f"{RANKING[metric].title if metric in RANKING else metric}@{k}"


def _cells(estimates: list[Estimate], better: Better) -> list[Cell]:
    badness = [_badness(estimate, better) for estimate in estimates]
    known = [value for value in badness if value is not None]
    return [
        Cell(number(e.value), _interval(e), is_best=len(known) > 1 and value is not None and value == min(known))
        for e, value in zip(estimates, badness, strict=True)
    ]


def _badness(estimate: Estimate, better: Better) -> float | None:
    if estimate.value is None:
        return None
    return {"higher": -estimate.value, "lower": estimate.value, "one": abs(estimate.value - 1)}[better]


def number(value: float | None) -> str:
    """Write a figure; a dash where it is not defined."""
    return "–" if value is None else f"{value:.4f}"


def _interval(estimate: Estimate) -> str:
    return "" if estimate.low is None else f"{number(estimate.low)} – {number(estimate.high)}"
