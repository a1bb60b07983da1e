"""What `recsys evaluate` measured: the model beside the baselines, with intervals, and what the figures rest on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from recsys_cli.cli.quantities import duration
from recsys_cli.cli.tables import line, table

if TYPE_CHECKING:
    from rich.console import Console

    from recsys_cli.evaluation.result import Counts
    from recsys_cli.metrics.named import IntervalEstimate
    from recsys_cli.workspace import TrainedRun

_MARK = "*"
_BETWEEN = 3
"""Columns between two columns of a table."""
MODEL = "model"
"""The system that is evaluated, as evaluation.json names it."""


def result(run: TrainedRun, *, up_to_date: bool) -> dict[str, Any]:
    """Gather what the evaluation says."""
    found = {name: value for name, value in run.read_evaluation().items() if name != "files"}
    return {"up_to_date": up_to_date, **found, "path": str(run.evaluation), "report": str(run.report)}


def draw(to: Console, found: Mapping[str, Any]) -> None:
    """Show what a reader wants first, the model beside the baselines; the report and --json have the rest."""
    from recsys_cli.evaluation.result import Counts
    from recsys_cli.evaluation.selection import marked
    from recsys_cli.metrics.foreign import SAMPLED
    from recsys_cli.metrics.label_task import headlines

    counts, config = Counts.model_validate(found["counts"]), found["config"]
    of_model = found["pointwise"].get(MODEL, {})
    rows = headlines([name for name, estimate in of_model.items() if estimate["value"] is not None])
    own = marked(found["model"], found["selected"])
    what = f"{own} of {found['run']} on {found['split']} of {found['dataset']}: {counts.rows:,} rows"
    _draw_systems(to, what, found["pointwise"], (*rows, *config.get("metrics", ())), own=own)
    label = "" if config["candidates"] == "all" else SAMPLED
    first = [f"{label}{name}@{min(config['k'])}" for name in ("ndcg", "hr", "coverage", *config.get("metrics", ()))]
    both = {name: {**figures, **found["beyond"].get(name, {})} for name, figures in found["ranking"].items()}
    _draw_systems(to, f"ranking {ranked_in_words(counts, config)}", both, first, own=own)
    _draw_cohorts(to, found["cohorts"], first[0], own=own)
    best = f"{_MARK} best of its line, and all whose interval overlaps that of the best"
    line(to, f"{best}; in brackets the 95 % interval; the report has all other figures", style="dim")
    if found["verdict"]:
        line(to, " ".join(found["verdict"]), style="bold")
    if found.get("ceiling"):
        line(to, f"the data allows an AUC of {found['ceiling']['auc']:.4f} at best")
    for note in found["notes"]:
        line(to, f"note: {note}", style="yellow")
    state = "was measured before" if found["up_to_date"] else f"took {duration(sum(found['seconds'].values()))}"
    line(to, f"{state}; report: {found['report']}")


def _draw_systems(to: Console, title: str, systems: Mapping[str, Any], metrics: Sequence[str], *, own: str) -> None:
    """Show some figures of all systems, over as many lines as the terminal needs; nothing where the model has none of them.

    Args:
        to: Where.
        title: Of the table.
        systems: Estimates by system.
        metrics: Which of them.
        own: Name of the model.
    """
    from recsys_cli.evaluation.result import renamed
    from recsys_cli.metrics.named import best_of, better_of

    metrics = [metric for metric in metrics if metric in systems.get(MODEL, {})]
    if not metrics:
        return
    for lines in (1, 2, 3):
        cells = []
        for metric in metrics:
            estimates = [estimates.get(metric) for estimates in systems.values()]
            best = best_of([_ends(estimate) for estimate in estimates], better_of(metric))
            cells.append((_heading(metric), *map(_cell, estimates, best, [lines] * len(best))))
        heads = ("", *renamed(systems, own))
        if _width(heads, cells) <= to.width:
            break
    table(to, title, heads, cells)


def _ends(estimate: Mapping[str, Any] | None) -> IntervalEstimate:
    return (None, None, None) if estimate is None else (estimate["value"], estimate["low"], estimate["high"])


def _width(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return the columns that a table needs if no cell is to be broken."""
    widest = [
        max(len(part) for cell in column for part in cell.split("\n")) for column in zip(heads, *rows, strict=True)
    ]
    return sum(widest) + _BETWEEN * (len(widest) - 1)


def ranked_in_words(counts: Counts, config: Mapping[str, Any]) -> str:
    """Say what is ranked and for whom; that candidates are sampled has to stand wherever such figures are shown."""
    items = f"{counts.candidates:,} items"
    if config["candidates"] != "all":
        how = "evenly" if config["candidates"] == "sampled-uniform" else "by popularity"
        items = f"SAMPLED candidates ({config['sampled_items']:,} of {items}, drawn {how})"
    return f"{items} for {counts.users_in_words}"


def _draw_cohorts(to: Console, cohorts: Sequence[Mapping[str, Any]], metric: str, *, own: str) -> None:
    """Show for each cohort how well its rows are predicted, and one figure of its rankings, beside the baselines'."""
    from recsys_cli.evaluation.result import renamed

    first = next((name for cohort in cohorts for name in cohort["pointwise"][MODEL]), "")
    systems = next((list(cohort["ranking"]) for cohort in cohorts if cohort["ranking"]), [])
    cells = []
    for cohort in cohorts:
        users = f"{cohort['users']:,}" if cohort["users"] else "–"
        figures = [_figure(cohort["ranking"].get(name, {}).get(metric)) for name in systems]
        ranked = (users, *figures) if systems else ()
        cells.append((cohort["name"], f"{cohort['rows']:,}", _figure(cohort["pointwise"][MODEL].get(first)), *ranked))
    names = [*renamed(dict.fromkeys(systems), own)]
    heads = ("", "rows", _title(first), *(("users", *names) if systems else ()))
    table(to, f"by cohort: {_title(first)} of {own}{f', {_title(metric)} of all' if systems else ''}", heads, cells)


def _figure(estimate: Mapping[str, Any] | None) -> str:
    return "–" if estimate is None or estimate["value"] is None else f"{estimate['value']:.4f}"


def _title(metric: str) -> str:
    from recsys_cli.metrics.named import title_of

    return title_of(metric)


def _heading(metric: str) -> str:
    """Write a figure's name with an arrow that says which values are better."""
    from recsys_cli.metrics.named import ARROWS, better_of

    return f"{_title(metric)} {ARROWS[better_of(metric)]}".rstrip()


def _cell(estimate: Mapping[str, Any] | None, is_best: bool, lines: int) -> str:
    """Write a figure and its interval, over more lines where the terminal is narrow."""
    if estimate is None or estimate["value"] is None:
        return "–"
    figure = f"{_MARK if is_best else ''}{_figure(estimate)}"
    if estimate["low"] is None or estimate["high"] is None:
        return figure
    before, between = (" " if lines == 1 else "\n"), (" " if lines < 3 else "\n")
    return f"{figure}{before}[{estimate['low']:.4f},{between}{estimate['high']:.4f}]"
