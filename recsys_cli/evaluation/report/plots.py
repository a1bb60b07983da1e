"""Which figures a run's report shows, and what stands on their axes."""

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
    """Draw the loss over steps; empty without a history."""
    marks = [
        LineSeries(*_points(history.step_loss), name="train", thin=True),
        LineSeries(*_points(history.valid_loss), name="valid", markers=True),
        LineSeries(*_points(history.train_loss), name="train, by epoch", markers=True),
    ]
    return chart("Loss over steps", marks, x=Axis("step"), y=Axis("loss"))


def learning(history: TrainingHistory) -> dict[str, Markup]:
    """Draw each metric of the validation rows over steps; none of a model that learnt all at once."""
    found = {}
    for name, curve in history.valid.items():
        title = title_of(name)
        # of the same colour as its loss
        mark = LineSeries(*_points(curve), name="valid", markers=True, color=2)
        found[title] = chart(f"{title} over steps", [mark], x=Axis("step"), y=Axis(title))
    return found if len(history.train_loss.x) else {}


def reliability(curve: Curve, name: str) -> Markup:
    """Draw how often what was predicted came true; empty without a curve, as of scores that are no logits."""
    if not curve.x:
        return Markup("")
    marks = [
        LineSeries(*_points(curve), name=name, markers=True),
        LineSeries(_UNIT, _UNIT, name="calibrated", dashed=True),
    ]
    return chart("Reliability curve", marks, x=_unit("mean prediction"), y=_unit("mean label"))


def roc(curves: Mapping[str, Curve]) -> Markup:
    """Draw the trade-off between finding positives and false alarms, for all systems."""
    marks = [LineSeries(*_points(curve), name=name) for name, curve in curves.items()]
    return chart("ROC curves", marks, x=_unit("false positive rate"), y=_unit("true positive rate"))


def precision_recall(curves: Mapping[str, Curve]) -> Markup:
    """Draw how much of what is called positive is, by how many of the positives are found, for all systems."""
    marks = [LineSeries(*_points(curve), name=name) for name, curve in curves.items()]
    return chart("Precision-recall curves", marks, x=_unit("recall"), y=_unit("precision"))


def at_k(found: CutOffChart, metric: str, *, label: str = "") -> Markup:
    """Draw a ranking metric over the cut-off, with intervals as bands, for all systems.

    Args:
        found: The figures.
        metric: Which of them.
        label: What names of metrics begin with, `sampled_` where candidates were drawn.
    """
    marks = []
    for system, estimates in found.estimates[metric].items():
        known = [(k, e.value, e.low, e.high) for k, e in zip(found.k, estimates, strict=True) if e.value is not None]
        marks.append(
            LineSeries(
                [k for k, *_ in known],
                [value for _, value, _, _ in known],
                name=system,
                band=[(v if low is None else low, v if high is None else high) for _, v, low, high in known],
            )
        )
    title = title_of(f"{label}{metric}@k")
    return chart(f"{title} over k", marks, x=Axis("k"), y=Axis(title, low=0.0))


def cohorts(found: Mapping[str, Mapping[str, Estimates]], metric: str, title: str) -> Markup:
    """Draw a metric of parts of the users and items, with intervals, the systems below each other.

    Args:
        found: Estimates by cohort and system.
        metric: Which of them.
        title: What to call it.
    """
    there = {name: systems for name, systems in found.items() if any(metric in each for each in systems.values())}
    nothing = Estimate(value=None)
    groups = [
        _group(system, [systems.get(system, {}).get(metric, nothing) for systems in there.values()])
        for system in dict.fromkeys(system for systems in there.values() for system in systems)
    ]
    return bars(f"{title} by cohort", list(there), groups, x=Axis(f"{title}, with 95 % interval"))


def popularity(curves: Mapping[str, Curve]) -> Markup:
    """Draw which share of all recommendations the most popular items take, against that of what was met."""
    systems = [LineSeries(*_points(curve), name=name) for name, curve in curves.items() if name != CONSUMED]
    marks = [*systems, LineSeries(*_points(curves[CONSUMED]), name=CONSUMED, dashed=True)]
    x = Axis("items, most popular first", kind="log")
    return chart("Share of the most popular items", marks, x=x, y=Axis("share", kind="share", low=0.0, high=1.0))


def _group(system: str, estimates: Sequence[Estimate]) -> BarGroup:
    """Leave out what has no interval, because it says nothing of a mean over users."""
    known = [e.value is not None and e.low is not None and e.high is not None for e in estimates]
    return BarGroup(
        system,
        [e.value if there else None for e, there in zip(estimates, known, strict=True)],
        [(e.low, e.high) if e.low is not None and e.high is not None else None for e in estimates],
    )


def _points(curve: Curve) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return curve.x, curve.y


def _unit(label: str) -> Axis:
    return Axis(label, low=0.0, high=1.0)
