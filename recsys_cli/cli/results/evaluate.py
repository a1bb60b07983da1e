"""What `recsys evaluate` measured: the model beside the baselines, with intervals, and what the figures rest on."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from recsys_cli.cli.quantities import duration
from recsys_cli.cli.tables import line, table

if TYPE_CHECKING:
    from rich.console import Console

    from recsys_cli.evaluation.result import Counts
    from recsys_cli.workspace import TrainedRun

_MARK = "*"
MODEL = "model"
"""The system that is evaluated, as evaluation.json names it."""


def result(run: TrainedRun, *, up_to_date: bool) -> dict[str, Any]:
    """Gather what the evaluation says."""
    found: dict[str, Any] = json.loads(run.evaluation.read_text(encoding="utf-8"))
    return {"up_to_date": up_to_date, **found, "path": str(run.evaluation), "report": str(run.report)}


def draw(to: Console, found: Mapping[str, Any]) -> None:
    """Show model and baselines side by side."""
    from recsys_cli.evaluation.result import Counts

    counts = Counts.model_validate(found["counts"])
    what = f"{found['run']} on {found['split']}"
    _draw_systems(to, f"{what}: {counts.rows:,} rows", found["pointwise"])
    ranked = ranked_in_words(counts, found["config"])
    _draw_systems(to, f"ranking {ranked}", found["ranking"])
    _draw_systems(to, "what the rankings show", found["beyond"])
    _draw_cohorts(to, found["cohorts"])
    line(to, f"{_MARK} best of its line; in brackets the 95 % interval", style="dim")
    if found.get("ceiling"):
        line(to, f"the data allows an AUC of {found['ceiling']['auc']:.4f} at best")
    protocol = found["protocol"]
    line(to, f"protocol: {' '.join(protocol[part] for part in ('candidates', 'seen', 'relevant'))}", style="dim")
    for note in found["notes"]:
        line(to, f"note: {note}", style="yellow")
    state = "was measured before" if found["up_to_date"] else f"took {duration(sum(found['seconds'].values()))}"
    line(to, f"{state}; report: {found['report']}")


def _draw_systems(to: Console, title: str, systems: Mapping[str, Any]) -> None:
    if not systems:
        return
    metrics = list(dict.fromkeys(metric for estimates in systems.values() for metric in estimates))
    lines = 1 if to.width >= 27 * len(systems) + 28 else 2 if to.width >= 19 * len(systems) + 14 else 3
    cells = []
    for metric in metrics:
        estimates = [estimates.get(metric) for estimates in systems.values()]
        best = _best(metric, estimates)
        cells.append((_title(metric), *(_cell(e, best=best, lines=lines) for e in estimates)))
    table(to, title, ("", *systems), cells)


def ranked_in_words(counts: Counts, config: Mapping[str, Any]) -> str:
    """Say what is ranked and for whom; that candidates are sampled has to stand wherever such figures are shown."""
    items = f"{counts.candidates:,} items"
    if config["candidates"] != "all":
        how = "evenly" if config["candidates"] == "sampled-uniform" else "by popularity"
        items = f"SAMPLED candidates ({config['sampled_items']:,} of {items}, drawn {how})"
    return f"{items} for {counts.users_in_words}"


def _draw_cohorts(to: Console, cohorts: Sequence[Mapping[str, Any]]) -> None:
    """Show for each cohort how well its rows are told apart, and one figure of its rankings, beside the baselines'."""
    systems = next((list(cohort["ranking"]) for cohort in cohorts if cohort["ranking"]), [])
    metric = next((name for cohort in cohorts for name in cohort["ranking"].get(MODEL, {}) if "ndcg" in name), "")
    heads = [f"{_title(metric)} {'' if name == MODEL else name}".strip() for name in systems]
    lines = 1 if to.width >= 60 + 27 * len(systems) else 2 if to.width >= 50 + 19 * len(systems) else 3
    cells = []
    for cohort in cohorts:
        auc = _cell(cohort["pointwise"][MODEL]["auc"], best=None, lines=lines)
        figures = [_cell(cohort["ranking"].get(name, {}).get(metric), best=None, lines=lines) for name in systems]
        users = f"{cohort['users']:,}" if cohort["users"] else "–"
        cells.append((cohort["name"], f"{cohort['rows']:,}", auc, *((users, *figures) if systems else ())))
    table(to, "by cohort", ("", "rows", "AUC", *(("users", *heads) if systems else ())), cells)


def _title(metric: str) -> str:
    from recsys_cli.evaluation.metrics.named import title_of

    return title_of(metric)


def _cell(estimate: Mapping[str, Any] | None, *, best: float | None, lines: int) -> str:
    """Write a figure and its interval, over more lines where the terminal is narrow."""
    if estimate is None or estimate["value"] is None:
        return "–"
    figure = f"{_MARK if estimate['value'] == best else ''}{estimate['value']:.4f}"
    if estimate["low"] is None or estimate["high"] is None:
        return figure
    before, between = (" " if lines == 1 else "\n"), (" " if lines < 3 else "\n")
    return f"{figure}{before}[{estimate['low']:.4f},{between}{estimate['high']:.4f}]"


def _best(metric: str, estimates: list[Mapping[str, Any] | None]) -> float | None:
    """Return the value that is best in the metric's own sense; none where only one system was measured."""
    from recsys_cli.evaluation.metrics.named import better_of

    better = better_of(metric)
    values = [float(e["value"]) for e in estimates if e is not None and e["value"] is not None]
    if len(values) < 2 or better is None:
        return None
    match better:
        case "one":
            return min(values, key=lambda value: abs(math.log(value)) if value > 0 else math.inf)
        case "lower":
            return min(values)
        case _:
            return max(values)
