"""The HTML page of an evaluation: tables, reliability and learning curves."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from markupsafe import Markup

from recsys_cli.evaluation.compare.comparison import correction
from recsys_cli.evaluation.report.users import ExampleUser
from recsys_cli.evaluation.result import (
    Curve,
    Estimate,
    Estimates,
    Evaluation,
    StageFigures,
    marked,
    renamed,
    repeats_baseline,
)
from recsys_cli.evaluation.task import positive_in_words, repeat_note
from recsys_cli.metrics import GROUPED, POINTWISE
from recsys_cli.metrics.metric import Better
from recsys_cli.metrics.named import BINARY, REGRESSION, best_of, better_of, heading_of, title_of
from recsys_cli.page import Axis, Headline, LineSeries, chart, stacked
from recsys_cli.page import render as render_page

Row = list[str]
"""Cells of a table, the title first."""
_UNDEFINED = Estimate(value=None)


def metric_rows(systems: dict[str, Estimates]) -> list[Row]:
    """Return a row for each metric defined for any system; pointwise metrics in their usual order."""
    first = [*POINTWISE, *GROUPED]
    names = dict.fromkeys(name for some in systems.values() for name, one in some.items() if one.value is not None)
    rows = []
    for name in sorted(names, key=lambda name: first.index(name) if name in first else len(first)):
        cells = _cells([estimates.get(name, _UNDEFINED) for estimates in systems.values()], better_of(name))
        rows.append([heading_of(name), *cells])
    return rows


def stage_rows(stages: Sequence[StageFigures]) -> list[Row]:
    """Return a row for each stage of a model: k, recall, NDCG, gain of the whole model, and its verdict."""
    return [
        [
            stage.name,
            "" if stage.k is None else f"{stage.k:,}",
            *("" if one is None else _cell(one) for one in (stage.recall, stage.ndcg)),
            _gain(stage),
            stage.significance,
        ]
        for stage in stages
    ]


def _gain(stage: StageFigures) -> str:
    if stage.gain is None:
        return ""
    interval = f"{stage.gain_low:+.4f} – {stage.gain_high:+.4f}"
    return stacked(f"{stage.gain:+.4f}", interval, is_best=stage.verdict == "better")


def _cells(estimates: list[Estimate], better: Better | None) -> list[str]:
    best = best_of([(one.value, one.low, one.high) for one in estimates], better)
    return [_cell(one, is_best=is_best) for one, is_best in zip(estimates, best, strict=True)]


def _cell(one: Estimate, *, is_best: bool = False) -> str:
    interval = "" if one.low is None else f"{number(one.low)} – {number(one.high)}"
    return stacked(number(one.value), interval, is_best=is_best)


def number(value: float | None) -> str:
    """Format a metric: four decimals up to 10, fewer above, a dash if undefined."""
    if value is None:
        return "–"
    decimals = next(
        decimals for bound, decimals in ((10, 4), (100, 2), (10_000, 1), (math.inf, 0)) if abs(value) <= bound
    )
    return f"{value:,.{decimals}f}"


def cohort_rows(cohorts: Mapping[str, Mapping[str, Estimates]], metric: str) -> list[Row]:
    """Return a row for each cohort with a metric of any system; `cohorts` has estimates by system."""
    systems = dict.fromkeys(system for by_system in cohorts.values() for system in by_system)
    return [
        [name, *_cells([by_system.get(system, {}).get(metric, _UNDEFINED) for system in systems], better_of(metric))]
        for name, by_system in cohorts.items()
        if any(metric in estimates for estimates in by_system.values())
    ]


def plot_learning(history: Sequence[Mapping[str, Any]]) -> dict[str, Markup]:
    """Plot loss and validation metrics of the epochs over steps, by title; none of closed-form models."""
    if all(epoch["train_loss"] is None for epoch in history):
        return {}
    steps = [epoch["step"] for epoch in history]
    losses = [
        _series(steps, [epoch["train_loss"] for epoch in history], name="train"),
        _series(steps, [epoch["valid"].get("loss") for epoch in history], name="valid"),
    ]
    charts = {"Loss": chart("Loss over steps", losses, x=Axis("step"), y=Axis("loss"))}
    for name in dict.fromkeys(name for epoch in history for name in epoch["valid"] if name != "loss"):
        title, values = title_of(name), [epoch["valid"].get(name) for epoch in history]
        curve = _series(steps, values, name="valid", color=2)  # the color of its loss
        charts[title] = chart(f"{title} over steps", [curve], x=Axis("step"), y=Axis(title))
    return charts


def _series(x: Sequence[int], y: Sequence[float | None], **style: Any) -> LineSeries:
    points = [(step, value) for step, value in zip(x, y, strict=True) if value is not None and math.isfinite(value)]
    return LineSeries([step for step, _ in points], [value for _, value in points], markers=True, **style)


def plot_reliability(curve: Curve, name: str) -> Markup:
    """Plot the mean label over the mean prediction; empty without a curve, as for non-probabilistic models."""
    if not curve.x:
        return Markup("")
    x, y = (Axis(label, low=0.0, high=1.0) for label in ("mean prediction", "mean label"))
    calibrated = LineSeries((0.0, 1.0), (0.0, 1.0), name="calibrated", dashed=True)
    return chart("Reliability curve", [LineSeries(curve.x, curve.y, name=name, markers=True), calibrated], x=x, y=y)


def render(evaluation: Evaluation, *, config: str, manifest: dict[str, Any], users: Sequence[ExampleUser] = ()) -> str:
    """Return the report as one self-contained HTML document."""
    own = marked(evaluation.model, evaluation.selected)
    name = partial(renamed, own=own, is_repeated=repeats_baseline(evaluation.ranking, own))
    evaluation = _called(evaluation, name)
    of_rows, of_ranking = _main_metrics(evaluation)[0], f"{evaluation.config.label}ndcg@{min(evaluation.config.k)}"
    return render_page(
        "report.html.j2",
        package=__package__,
        evaluation=evaluation,
        counts=evaluation.counts,
        headlines=_headlines(evaluation, own),
        pointwise=metric_rows(evaluation.pointwise),
        reliability=plot_reliability(evaluation.reliability, own),
        repeats=repeat_note(evaluation.split, evaluation.counts, evaluation.config),
        ranking=metric_rows(evaluation.ranking),
        beyond=metric_rows(evaluation.beyond),
        stages=stage_rows(evaluation.stages),
        correction=correction(sum(stage.verdict is not None for stage in evaluation.stages)),
        cohorts=[(c.name, c.about, f"{c.rows:,}", f"{c.users:,}" if c.users else "–") for c in evaluation.cohorts],
        cohort_ranking=cohort_rows({c.name: c.ranking for c in evaluation.cohorts}, of_ranking),
        cohort_pointwise=cohort_rows({c.name: c.pointwise for c in evaluation.cohorts}, of_rows),
        learning=plot_learning(manifest["history"]),
        main=(title_of(of_rows), title_of(of_ranking)),
        shown_k=min(evaluation.config.k),
        users=users,
        positive=positive_in_words(evaluation.label_mean),
        config=config,
        manifest=manifest,
        manifest_text=json.dumps(manifest, indent=2, default=str),
    )


def _called(evaluation: Evaluation, name: Callable[[Mapping[str, Any]], dict[str, Any]]) -> Evaluation:
    """Return the evaluation with the model's own name."""
    cohorts = tuple(
        cohort.model_copy(update={part: name(getattr(cohort, part)) for part in ("pointwise", "ranking")})
        for cohort in evaluation.cohorts
    )
    parts = {part: name(getattr(evaluation, part)) for part in ("pointwise", "ranking", "beyond")}
    return evaluation.model_copy(update={"cohorts": cohorts, **parts})


def _headlines(evaluation: Evaluation, own: str) -> list[Headline]:
    """Select the main metrics of the model `own`, each with the best baseline."""
    headlines = [_headline(name, evaluation.pointwise, own) for name in _main_metrics(evaluation)]
    label, k = evaluation.config.label, min(evaluation.config.k)
    names = [f"{label}{name}@{k}" for name in ("ndcg", "hr")]
    headlines += [_headline(name, evaluation.ranking, own) for name in names]
    return [headline for headline in headlines if headline is not None]


def _main_metrics(evaluation: Evaluation) -> tuple[str, ...]:
    task = BINARY if evaluation.label_mean is None else REGRESSION
    return tuple(name for name in task.headlines if name in task.metrics)


def _headline(name: str, systems: dict[str, Estimates], model: str) -> Headline | None:
    if name not in systems.get(model, {}):
        return None
    others = {system: metrics[name].value for system, metrics in systems.items() if system != model and name in metrics}
    values = {system: value for system, value in others.items() if value is not None}
    better = better_of(name)
    best = (min if better == "lower" else max)(values, key=lambda system: values[system], default=None)
    title, own = title_of(name), systems[model][name]
    if best is None or own.value is None:
        return Headline(title, number(own.value), "")
    is_best, other_is_best = best_of([(one.value, one.low, one.high) for one in (own, systems[best][name])], better)
    words = "level with" if is_best == other_is_best else "better than" if is_best else "worse than"
    return Headline(title, number(own.value), f"{words} {best}: {number(values[best])}", is_lost=words == "worse than")
