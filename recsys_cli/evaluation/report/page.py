"""The HTML page of an evaluation: tables, plots and learning curves."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Any

from markupsafe import Markup

from recsys_cli.evaluation.compare.comparison import correction
from recsys_cli.evaluation.report.rankings import CONSUMED, METRICS, CutOffChart, RankingSection
from recsys_cli.evaluation.result import (
    MODEL,
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
from recsys_cli.metrics.lists import PSNDCG
from recsys_cli.metrics.metric import Better
from recsys_cli.metrics.named import ARROWS, BINARY, REGRESSION, best_of, better_of, title_of
from recsys_cli.page import Axis, BarGroup, Headline, LineSeries, bars, chart
from recsys_cli.page import render as render_page


@dataclass(frozen=True)
class TrainingHistory:
    """Metrics of a training over steps.

    Attributes:
        step_loss: Training loss since the last point.
        valid: Validation metrics at the end of an epoch, by name: `auc`, `ndcg@10`.
    """

    step_loss: Curve
    train_loss: Curve
    valid_loss: Curve
    valid: dict[str, Curve]


def read_history(path: Path) -> TrainingHistory:
    """Read metrics.jsonl; a missing file, or a truncated last line, leaves the points before it."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    records = [record for record in map(_parse, lines) if record is not None]
    steps = [record for record in records if record.get("event") == "step"]
    epochs = [record for record in records if record.get("event") == "epoch"]
    measured = [record["valid"] for record in epochs if isinstance(record.get("valid"), dict)]
    names = dict.fromkeys(name for valid in measured for name in valid if name != "loss")
    curves = {name: _history_curve(epochs, "valid", name) for name in names}
    return TrainingHistory(
        step_loss=_history_curve(steps, "loss"),
        train_loss=_history_curve(epochs, "train_loss"),
        valid_loss=_history_curve(epochs, "valid", "loss"),
        valid={name: curve for name, curve in curves.items() if curve.x},
    )


def _parse(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _history_curve(records: Sequence[dict[str, Any]], *path: str) -> Curve:
    """Return the values at a path of keys, over the steps."""
    points = [(_number(record.get("step")), _number(reduce(_get, path, record))) for record in records]
    complete = [(x, y) for x, y in points if x is not None and y is not None]
    return Curve(x=tuple(x for x, _ in complete), y=tuple(y for _, y in complete))


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


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
    """Return a row for each metric defined for any system; pointwise metrics in their usual order."""
    first = [*POINTWISE, *GROUPED]
    names = dict.fromkeys(name for some in systems.values() for name, one in some.items() if one.value is not None)
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
    return TableCell(*("", "") if one is None else (number(one.value), _interval_of(one)), is_best=False)


def _gain(stage: StageFigures) -> TableCell:
    if stage.gain is None:
        return _optional(None)
    interval = f"{stage.gain_low:+.4f} – {stage.gain_high:+.4f}"
    return TableCell(f"{stage.gain:+.4f}", interval, is_best=stage.verdict == "better")


def _cells(estimates: list[Estimate], better: Better | None) -> list[TableCell]:
    best = best_of([(one.value, one.low, one.high) for one in estimates], better)
    return [
        TableCell(number(one.value), _interval_of(one), is_best=is_best)
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


def _interval_of(estimate: Estimate) -> str:
    return "" if estimate.low is None else f"{number(estimate.low)} – {number(estimate.high)}"


_UNIT = (0.0, 1.0)


def plot_loss(history: TrainingHistory) -> Markup:
    """Plot the loss over steps; empty without a history."""
    marks = [
        LineSeries(*_points(history.step_loss), name="train", thin=True),
        LineSeries(*_points(history.valid_loss), name="valid", markers=True),
        LineSeries(*_points(history.train_loss), name="train, by epoch", markers=True),
    ]
    return chart("Loss over steps", marks, x=Axis("step"), y=Axis("loss"))


def plot_learning(history: TrainingHistory) -> dict[str, Markup]:
    """Plot each validation metric over steps; none for closed-form models."""
    charts = {}
    for name, curve in history.valid.items():
        title = title_of(name)
        # same colour as the validation loss
        mark = LineSeries(*_points(curve), name="valid", markers=True, color=2)
        charts[title] = chart(f"{title} over steps", [mark], x=Axis("step"), y=Axis(title))
    return charts if len(history.train_loss.x) else {}


def plot_reliability(curve: Curve, name: str) -> Markup:
    """Plot the mean label over the mean prediction; empty without a curve, as for non-probabilistic models."""
    if not curve.x:
        return Markup("")
    marks = [
        LineSeries(*_points(curve), name=name, markers=True),
        LineSeries(_UNIT, _UNIT, name="calibrated", dashed=True),
    ]
    return chart("Reliability curve", marks, x=_unit("mean prediction"), y=_unit("mean label"))


def plot_curves(curves: Mapping[str, Curve], title: str, x: str, y: str) -> Markup:
    """Plot a curve of all systems between 0 and 1, such as ROC or precision over recall."""
    marks = [LineSeries(*_points(curve), name=name) for name, curve in curves.items()]
    return chart(title, marks, x=_unit(x), y=_unit(y))


def plot_at_k(by_cut_off: CutOffChart, metric: str, *, label: str = "") -> Markup:
    """Plot a ranking metric of all systems over the cut-off, with intervals as bands."""
    marks = []
    for system, estimates in by_cut_off.estimates[metric].items():
        points = [
            (k, e.value, e.low, e.high) for k, e in zip(by_cut_off.k, estimates, strict=True) if e.value is not None
        ]
        marks.append(
            LineSeries(
                [k for k, *_ in points],
                [value for _, value, _, _ in points],
                name=system,
                band=[(v if low is None else low, v if high is None else high) for _, v, low, high in points],
            )
        )
    title = title_of(f"{label}{metric}@k")
    return chart(f"{title} over k", marks, x=Axis("k"), y=Axis(title, low=0.0))


def plot_cohorts(estimates: Mapping[str, Mapping[str, Estimates]], metric: str, title: str) -> Markup:
    """Plot a metric by cohort with intervals."""
    by_cohort = {name: systems for name, systems in estimates.items() if any(metric in one for one in systems.values())}
    undefined = Estimate(value=None)
    groups = [
        _group(system, [systems.get(system, {}).get(metric, undefined) for systems in by_cohort.values()])
        for system in dict.fromkeys(system for systems in by_cohort.values() for system in systems)
    ]
    return bars(f"{title} by cohort", list(by_cohort), groups, x=Axis(f"{title}, with 95 % confidence interval"))


def plot_popularity(curves: Mapping[str, Curve]) -> Markup:
    """Plot the share of recommendations of the most popular items, next to their share of interactions."""
    systems = [LineSeries(*_points(curve), name=name) for name, curve in curves.items() if name != CONSUMED]
    marks = [*systems, LineSeries(*_points(curves[CONSUMED]), name=CONSUMED, dashed=True)]
    x = Axis("items, most popular first", kind="log")
    return chart("Share of the most popular items", marks, x=x, y=Axis("share", kind="share", low=0.0, high=1.0))


def _group(system: str, estimates: Sequence[Estimate]) -> BarGroup:
    """Return the bars of a system, without estimates that have no interval."""
    has_interval = [e.value is not None and e.low is not None and e.high is not None for e in estimates]
    return BarGroup(
        system,
        [e.value if drawable else None for e, drawable in zip(estimates, has_interval, strict=True)],
        [(e.low, e.high) if e.low is not None and e.high is not None else None for e in estimates],
    )


def _points(curve: Curve) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return curve.x, curve.y


def _unit(label: str) -> Axis:
    return Axis(label, low=0.0, high=1.0)


def render(
    evaluation: Evaluation,
    *,
    history: TrainingHistory,
    config: str,
    manifest: dict[str, Any],
    rankings: RankingSection | None = None,
) -> str:
    """Return the report as one self-contained HTML document."""
    headlines = _headlines(evaluation)
    own = marked(evaluation.model, evaluation.selected)
    name = partial(renamed, own=own, is_repeated=repeats_baseline(evaluation.ranking, own))
    evaluation = _called(evaluation, name)
    ranking, beyond = ranking_rows(evaluation.ranking, evaluation.beyond)
    rankings = rankings and rankings.called(name)
    return render_page(
        "report.html.j2",
        package=__package__,
        evaluation=evaluation,
        counts=evaluation.counts,
        headlines=headlines,
        pointwise=metric_rows(evaluation.pointwise),
        repeats=repeat_note(evaluation.split, evaluation.counts, evaluation.config),
        ranking=ranking,
        beyond=beyond,
        stages=stage_rows(evaluation.stages),
        correction=correction(sum(stage.verdict is not None for stage in evaluation.stages)),
        cohorts=[(c.name, c.about, f"{c.rows:,}", f"{c.users:,}" if c.users else "–") for c in evaluation.cohorts],
        figures=_figures(evaluation, own, history, rankings),
        learning=plot_learning(history),
        over_k=METRICS,
        shown_k=min(evaluation.config.k),
        users=rankings.users if rankings else [],
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
    parts = ("pointwise", "ranking", "beyond", "roc", "precision_recall")
    return evaluation.model_copy(
        update={"cohorts": cohorts} | {part: name(getattr(evaluation, part)) for part in parts}
    )


def _figures(
    evaluation: Evaluation, own: str, history: TrainingHistory, rankings: RankingSection | None
) -> dict[str, Markup]:
    """Plot all figures; those without data are empty."""
    figures = {
        "reliability": plot_reliability(evaluation.reliability, own),
        "roc": plot_curves(evaluation.roc, "ROC curves", "false positive rate", "true positive rate"),
        "precision_recall": plot_curves(evaluation.precision_recall, "Precision-recall curves", "recall", "precision"),
        "loss": plot_loss(history),
    }
    if rankings is not None:
        figures["popularity"] = plot_popularity(rankings.popularity)
        for metric in rankings.at_k.estimates:
            figures[f"{metric}_at_k"] = plot_at_k(rankings.at_k, metric, label=evaluation.config.label)
    return figures | _cohort_figures(evaluation)


def _cohort_figures(evaluation: Evaluation) -> dict[str, Markup]:
    name = f"{evaluation.config.label}ndcg@{min(evaluation.config.k)}"
    cohorts, rows = {cohort.name: cohort for cohort in evaluation.cohorts}, _main_metrics(evaluation)[0]
    return {
        "cohort_ranking": plot_cohorts({n: c.ranking for n, c in cohorts.items()}, name, title_of(name)),
        "cohort_rows": plot_cohorts({n: c.pointwise for n, c in cohorts.items()}, rows, POINTWISE[rows].title),
    }


def _headlines(evaluation: Evaluation) -> list[Headline]:
    """Select the main metrics of the model, each with the best baseline."""
    headlines = [_headline(POINTWISE[name].title, name, evaluation.pointwise) for name in _main_metrics(evaluation)]
    label, k = evaluation.config.label, min(evaluation.config.k)
    names = [f"{label}{name}@{k}" for name in ("ndcg", "hr")]
    headlines += [_headline(title_of(name), name, evaluation.ranking) for name in names]
    return [headline for headline in headlines if headline is not None]


def _main_metrics(evaluation: Evaluation) -> tuple[str, ...]:
    task = BINARY if evaluation.label_mean is None else REGRESSION
    return tuple(name for name in task.headlines if name in task.metrics)


def _headline(title: str, name: str, systems: dict[str, Estimates]) -> Headline | None:
    if name not in systems.get(MODEL, {}):
        return None
    others = {system: metrics[name].value for system, metrics in systems.items() if system != MODEL and name in metrics}
    values = {system: value for system, value in others.items() if value is not None}
    better = better_of(name)
    best = (min if better == "lower" else max)(values, key=lambda system: values[system], default=None)
    own = systems[MODEL][name]
    if best is None or own.value is None:
        return Headline(title, number(own.value), "")
    is_best, other_is_best = best_of([(one.value, one.low, one.high) for one in (own, systems[best][name])], better)
    words = "level with" if is_best == other_is_best else "better than" if is_best else "worse than"
    return Headline(title, number(own.value), f"{words} {best}: {number(values[best])}", is_lost=words == "worse than")
