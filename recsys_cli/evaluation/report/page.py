"""The HTML page of an evaluation."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from markupsafe import Markup

from recsys_cli.evaluation.compare.format import correction
from recsys_cli.evaluation.protocol_text import positive_in_words, repeat_note
from recsys_cli.evaluation.report import plots
from recsys_cli.evaluation.report.history import TrainingHistory
from recsys_cli.evaluation.report.recommended import METRICS, RankingSection
from recsys_cli.evaluation.report.tables import metric_rows, number, ranking_rows, stage_rows
from recsys_cli.evaluation.result import MODEL, Estimates, Evaluation, renamed, repeats_baseline
from recsys_cli.evaluation.selection import marked
from recsys_cli.metrics import POINTWISE
from recsys_cli.metrics.named import BINARY, REGRESSION, best_of, better_of, title_of
from recsys_cli.page import Headline
from recsys_cli.page import render as render_page


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
        repeats=repeat_note(evaluation.split, evaluation.counts),
        ranking=ranking,
        beyond=beyond,
        stages=stage_rows(evaluation.stages),
        correction=correction(sum(stage.verdict is not None for stage in evaluation.stages)),
        cohorts=[(c.name, c.about, f"{c.rows:,}", f"{c.users:,}" if c.users else "–") for c in evaluation.cohorts],
        figures=_figures(evaluation, own, history, rankings),
        learning=plots.learning(history),
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
        "reliability": plots.reliability(evaluation.reliability, own),
        "roc": plots.roc(evaluation.roc),
        "precision_recall": plots.precision_recall(evaluation.precision_recall),
        "loss": plots.loss(history),
    }
    if rankings is not None:
        figures["popularity"] = plots.popularity(rankings.popularity)
        for metric in rankings.at_k.estimates:
            figures[f"{metric}_at_k"] = plots.at_k(rankings.at_k, metric, label=evaluation.config.label)
    return figures | _cohort_figures(evaluation)


def _cohort_figures(evaluation: Evaluation) -> dict[str, Markup]:
    name = f"{evaluation.config.label}ndcg@{min(evaluation.config.k)}"
    cohorts, rows = {cohort.name: cohort for cohort in evaluation.cohorts}, _main_metrics(evaluation)[0]
    return {
        "cohort_ranking": plots.cohorts({n: c.ranking for n, c in cohorts.items()}, name, title_of(name)),
        "cohort_rows": plots.cohorts({n: c.pointwise for n, c in cohorts.items()}, rows, POINTWISE[rows].title),
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
    words = "level with" if is_best and other_is_best else "better than" if is_best else "worse than"
    return Headline(title, number(own.value), f"{words} {best}: {number(values[best])}", is_lost=not is_best)
