"""The command `recsys evaluate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recsys_cli.cli.completion import complete_run_or_config
from recsys_cli.cli.params import Force, Overrides, joined
from recsys_cli.cli.quantities import duration, figure
from recsys_cli.cli.session import Session
from recsys_cli.cli.tables import line, notes, table

if TYPE_CHECKING:
    from rich.console import Console

    from recsys_cli.config import RunConfig
    from recsys_cli.evaluation.result import Counts
    from recsys_cli.metrics.named import IntervalEstimate
    from recsys_cli.workspace import TrainedRun

_MARK = "*"
_BETWEEN = 3
"""Spaces between two columns of a table."""
MODEL = "model"
"""Key of the evaluated model in evaluation.json."""


def evaluate(
    ctx: typer.Context,
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN|CONFIG",
            help="Run (name, its beginning or end, or its model) or config. Default: config of the last stage.",
            show_default=False,
            autocompletion=complete_run_or_config,
        ),
    ] = None,
    overrides: Overrides = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="NAME", help="Rank on a cluster, as in etl.cluster.", show_default=False)
    ] = None,
    force: Force = False,
) -> None:
    """Evaluate a trained model against baselines; write a report."""
    from recsys_cli.cli.runs import run_and_config

    session: Session = ctx.obj
    trained, config = run_and_config(session, joined(run, overrides))
    session.report(run_evaluate(session, trained, config, force=force, cluster=cluster), draw)


def run_evaluate(
    session: Session, trained: TrainedRun, config: RunConfig, *, force: bool, cluster: str | None = None
) -> dict[str, Any]:
    """Evaluate a run, with progress; return the evaluation."""
    with session.working("evaluate") as emit:
        from recsys_cli.stages.evaluate import evaluate

        of, slots = config.evaluate, config.recommend.cold_slots
        made = evaluate(
            trained, session.workspace, config=of, cold_slots=slots, force=force, cluster=cluster, emit=emit
        )
    return result(made.artifact, up_to_date=made.up_to_date)


def result(run: TrainedRun, *, up_to_date: bool) -> dict[str, Any]:
    """Return the evaluation and the path of its report as plain values."""
    return {"up_to_date": up_to_date, **run.read_evaluation(), "path": str(run.evaluation), "report": str(run.report)}


def draw(to: Console, result: Mapping[str, Any]) -> None:
    """Draw the main metrics of model and baselines."""
    from recsys_cli.evaluation.result import Counts, marked, renamed, repeats_baseline
    from recsys_cli.metrics.foreign import SAMPLED
    from recsys_cli.metrics.named import headlines

    counts, config = Counts.model_validate(result["counts"]), result["config"]
    of_model = result["pointwise"].get(MODEL, {})
    rows = headlines([name for name, estimate in of_model.items() if estimate["value"] is not None])
    rows += tuple(name for name in of_model if name.startswith("impression_"))
    own = marked(result["model"], result["selected"])
    title = f"{own} of {result['run']} on {result['split']} of {result['dataset']}: {counts.rows:,} rows"
    name = partial(renamed, own=own, is_repeated=repeats_baseline(result["ranking"], own))
    _draw_systems(to, title, name(result["pointwise"]), (*rows, *config.get("metrics", ())))
    label = "" if config["candidates"] == "all" else SAMPLED
    first = [
        f"{label}{name}@{min(config['k'])}" for name in ("ndcg", "psndcg", "hr", "coverage", *config.get("metrics", ()))
    ]
    both = {system: {**figures, **result["beyond"].get(system, {})} for system, figures in result["ranking"].items()}
    _draw_systems(to, f"ranking {ranked_in_words(counts, config)}", name(both), first)
    _draw_stages(to, result.get("stages", ()), first[0])
    cohorts = [{**cohort, "ranking": name(cohort["ranking"])} for cohort in result["cohorts"]]
    _draw_cohorts(to, cohorts, first[0], own=own)
    best = (
        f"{_MARK} best of its line, and all with an interval overlapping the best one's; no mark: all overlap, or are 0"
    )
    line(to, f"{best}; in brackets: 95 % interval; the report has all metrics", style="dim")
    if result["verdict"]:
        line(to, " ".join(result["verdict"]), style="bold")
    if result.get("ceiling"):
        line(to, f"best possible AUC on this data: {result['ceiling']['auc']:.4f}")
    notes(to, result["notes"])
    state = "is up to date" if result["up_to_date"] else f"took {duration(sum(result['seconds'].values()))}"
    line(to, f"evaluation {state}; report: {result['report']}")


def _draw_systems(to: Console, title: str, systems: Mapping[str, Any], metrics: Sequence[str]) -> None:
    """Draw metrics of all systems, the model first, with cells of up to three lines; nothing if the model has none."""
    from recsys_cli.metrics.named import best_of, better_of, heading_of

    metrics = [metric for metric in metrics if metric in next(iter(systems.values()), {})]
    if not metrics:
        return
    for lines in (1, 2, 3):
        cells = []
        for metric in metrics:
            estimates = [estimates.get(metric) for estimates in systems.values()]
            best = best_of([_ends(estimate) for estimate in estimates], better_of(metric))
            cells.append((heading_of(metric), *map(_cell, estimates, best, [lines] * len(best))))
        heads = ("", *systems)
        if _width(heads, cells) <= to.width:
            break
    table(to, title, heads, cells)


def _ends(estimate: Mapping[str, Any] | None) -> IntervalEstimate:
    return (None, None, None) if estimate is None else (estimate["value"], estimate["low"], estimate["high"])


def _width(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    widest = [
        max(len(part) for cell in column for part in cell.split("\n")) for column in zip(heads, *rows, strict=True)
    ]
    return sum(widest) + _BETWEEN * (len(widest) - 1)


def ranked_in_words(counts: Counts, config: Mapping[str, Any]) -> str:
    """Describe candidates and users of a ranking; sampled candidates are always marked."""
    items = counts.candidates_in_words
    if config["candidates"] != "all":
        if config["candidates"] == "given":
            return f"GIVEN candidates (of {items}) for {counts.users_in_words}"
        method = "uniformly" if config["candidates"] == "sampled-uniform" else "by popularity"
        items = f"SAMPLED candidates ({config['sampled_items']:,} of {items}, sampled {method})"
    return f"{items} for {counts.users_in_words}"


def _draw_stages(to: Console, stages: Sequence[Mapping[str, Any]], metric: str) -> None:
    """Draw the stages of a model with several, with the gain of the whole model over each."""
    if not stages:
        return
    from recsys_cli.evaluation.compare.comparison import correction
    from recsys_cli.evaluation.result import StageFigures

    cells = [
        (
            stage["name"],
            f"{stage['k']:,}" if stage["k"] else "",
            *(_cell(stage[part], False, 1) if stage[part] else "" for part in ("recall", "ndcg")),
            ""
            if stage["gain"] is None
            else f"{stage['gain']:+.4f} [{stage['gain_low']:+.4f}, {stage['gain_high']:+.4f}]",
            StageFigures.model_validate(stage).significance,
        )
        for stage in stages
    ]
    title = f"stages, each by its own; gain: {_title(metric)} of the whole model minus that of the stage"
    corrected = correction(sum(stage["verdict"] is not None for stage in stages))
    table(to, ", ".join(filter(None, [title, corrected])), ("", "k", "recall@k", _title(metric), "gain", ""), cells)


def _draw_cohorts(to: Console, cohorts: Sequence[Mapping[str, Any]], metric: str, *, own: str) -> None:
    """Draw the first pointwise metric and one ranking metric of each cohort."""
    own_rows = [item for cohort in cohorts for item in cohort["pointwise"][MODEL].items()]
    first = next((name for name, estimate in own_rows if estimate["value"] is not None), "")
    systems = next((list(cohort["ranking"]) for cohort in cohorts if cohort["ranking"]), [])
    cells = []
    for cohort in cohorts:
        users = f"{cohort['users']:,}" if cohort["users"] else "–"
        figures = [_figure(cohort["ranking"].get(name, {}).get(metric)) for name in systems]
        of_rows = (_figure(cohort["pointwise"][MODEL].get(first)),) if first else ()
        cells.append((cohort["name"], f"{cohort['rows']:,}", *of_rows, *((users, *figures) if systems else ())))
    heads = ("", "rows", *((_title(first),) if first else ()), *(("users", *systems) if systems else ()))
    of_model, of_all = f"{_title(first)} of {own}" if first else "", f"{_title(metric)} of all" if systems else ""
    table(to, f"by cohort: {', '.join(filter(None, [of_model, of_all]))}", heads, cells)


def _figure(estimate: Mapping[str, Any] | None) -> str:
    return figure(None if estimate is None else estimate["value"])


def _title(metric: str) -> str:
    from recsys_cli.metrics.named import title_of

    return title_of(metric)


def _cell(estimate: Mapping[str, Any] | None, is_best: bool, lines: int) -> str:
    """Format an estimate and its interval."""
    if estimate is None or estimate["value"] is None:
        return "–"
    value = f"{_MARK if is_best else ''}{_figure(estimate)}"
    if estimate["low"] is None or estimate["high"] is None:
        return value
    before, between = (" " if lines == 1 else "\n"), (" " if lines < 3 else "\n")
    return f"{value}{before}[{estimate['low']:.4f},{between}{estimate['high']:.4f}]"
