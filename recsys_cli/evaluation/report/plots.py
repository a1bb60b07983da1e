"""Plots of the evaluation report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from recsys_cli.evaluation.report.history import TrainingHistory
from recsys_cli.evaluation.report.recommended import CONSUMED, CutOffChart
from recsys_cli.evaluation.result import Curve, Estimate, Estimates
from recsys_cli.metrics.named import title_of
from recsys_cli.page import Axis, BarGroup, LineSeries, bars, chart

_UNIT = (0.0, 1.0)


def loss(history: TrainingHistory) -> Markup:
    """Plot the loss over steps; empty without a history."""
    marks = [
        LineSeries(*_points(history.step_loss), name="train", thin=True),
        LineSeries(*_points(history.valid_loss), name="valid", markers=True),
        LineSeries(*_points(history.train_loss), name="train, by epoch", markers=True),
    ]
    return chart("Loss over steps", marks, x=Axis("step"), y=Axis("loss"))


def learning(history: TrainingHistory) -> dict[str, Markup]:
    """Plot each validation metric over steps; none for closed-form models."""
    charts = {}
    for name, curve in history.valid.items():
        title = title_of(name)
        # same colour as the validation loss
        mark = LineSeries(*_points(curve), name="valid", markers=True, color=2)
        charts[title] = chart(f"{title} over steps", [mark], x=Axis("step"), y=Axis(title))
    return charts if len(history.train_loss.x) else {}


def reliability(curve: Curve, name: str) -> Markup:
    """Plot the mean label over the mean prediction; empty without a curve, as for non-probabilistic models."""
    if not curve.x:
        return Markup("")
    marks = [
        LineSeries(*_points(curve), name=name, markers=True),
        LineSeries(_UNIT, _UNIT, name="calibrated", dashed=True),
    ]
    return chart("Reliability curve", marks, x=_unit("mean prediction"), y=_unit("mean label"))


def roc(curves: Mapping[str, Curve]) -> Markup:
    """Plot the ROC curves of all systems."""
    marks = [LineSeries(*_points(curve), name=name) for name, curve in curves.items()]
    return chart("ROC curves", marks, x=_unit("false positive rate"), y=_unit("true positive rate"))


def precision_recall(curves: Mapping[str, Curve]) -> Markup:
    """Plot the precision-recall curves of all systems."""
    marks = [LineSeries(*_points(curve), name=name) for name, curve in curves.items()]
    return chart("Precision-recall curves", marks, x=_unit("recall"), y=_unit("precision"))


def at_k(by_cut_off: CutOffChart, metric: str, *, label: str = "") -> Markup:
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


def cohorts(estimates: Mapping[str, Mapping[str, Estimates]], metric: str, title: str) -> Markup:
    """Plot a metric by cohort with intervals."""
    by_cohort = {name: systems for name, systems in estimates.items() if any(metric in one for one in systems.values())}
    undefined = Estimate(value=None)
    groups = [
        _group(system, [systems.get(system, {}).get(metric, undefined) for systems in by_cohort.values()])
        for system in dict.fromkeys(system for systems in by_cohort.values() for system in systems)
    ]
    return bars(f"{title} by cohort", list(by_cohort), groups, x=Axis(f"{title}, with 95 % confidence interval"))


def popularity(curves: Mapping[str, Curve]) -> Markup:
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
