"""Puts the page together: which figures stand where, and how a number is written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from recsys_cli.evaluation.metrics import POINTWISE
from recsys_cli.evaluation.report import plots
from recsys_cli.evaluation.report.history import History
from recsys_cli.evaluation.report.recommended import METRICS, Shown
from recsys_cli.evaluation.report.tables import number, pointwise_rows, ranking_rows, ranking_title
from recsys_cli.evaluation.result import MODEL, Estimates, Evaluation
from recsys_cli.page import render as render_page


@dataclass(frozen=True)
class Headline:
    """A figure on top of the page."""

    title: str
    value: str
    remark: str


def render(
    evaluation: Evaluation,
    *,
    history: History,
    config: str,
    manifest: dict[str, Any],
    shown: Shown | None = None,
) -> str:
    """Write the report as one HTML document that loads nothing.

    Args:
        evaluation: What was measured.
        history: What training measured.
        config: The run's config, as YAML.
        manifest: The run's manifest.
        shown: What the page shows of the rankings; None where there are none.
    """
    return render_page(
        "report.html.j2",
        package=__package__,
        evaluation=evaluation,
        counts=evaluation.counts,
        headlines=_headlines(evaluation),
        pointwise=pointwise_rows(evaluation.pointwise),
        ranking=ranking_rows(evaluation.ranking),
        figures=_figures(evaluation, history, shown),
        over_k=METRICS,
        shown_k=min(evaluation.config.k),
        users=shown.users if shown else [],
        config=config,
        manifest=manifest,
        manifest_text=json.dumps(manifest, indent=2, default=str),
    )


def _figures(evaluation: Evaluation, history: History, shown: Shown | None) -> dict[str, Markup]:
    """Draw all figures; one that has nothing to show is empty."""
    figures = {
        "reliability": plots.reliability(evaluation.reliability),
        "roc": plots.roc(evaluation.roc),
        "precision_recall": plots.precision_recall(evaluation.precision_recall),
        "loss": plots.loss(history),
        "auc": plots.area(history),
    }
    if evaluation.ranking:
        names = [f"{name}@{k}" for name in ("hr", "ndcg", "mrr", "recall") for k in sorted(set(evaluation.config.k))]
        figures["ranking"] = plots.ranking(evaluation.ranking, {name: ranking_title(name) for name in names})
    if shown is not None:
        figures["popularity"] = plots.popularity(shown.popularity)
        for metric in shown.at_k.estimates:
            figures[f"{metric}_at_k"] = plots.at_k(shown.at_k, metric)
    return figures


def _headlines(evaluation: Evaluation) -> list[Headline]:
    """Choose what a reader wants first: the model's figure, and beside it that of the best baseline."""
    found = [_headline("AUC", "auc", evaluation.pointwise)]
    found.append(_headline("log loss", "log_loss", evaluation.pointwise))
    k = min(evaluation.config.k)
    found += [
        _headline(f"{title}@{k}", f"{name}@{k}", evaluation.ranking) for title, name in (("NDCG", "ndcg"), ("HR", "hr"))
    ]
    return [headline for headline in found if headline is not None]


def _headline(title: str, name: str, systems: dict[str, Estimates]) -> Any:
    if MODEL not in systems:
        return None
    others = {system: found[name].value for system, found in systems.items() if system != MODEL}
    values = {system: value for system, value in others.items() if value is not None}
    choose = min if name in POINTWISE and POINTWISE[name].better == "lower" else max
    best = choose(values, key=lambda system: values[system], default=None)
    remark = "" if best is None else f"{best}: {number(values[best])}"
    return Headline(title, number(systems[MODEL][name].value), remark)
