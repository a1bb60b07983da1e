"""Monitored metric of a run by name; training does not import evaluation."""

from __future__ import annotations

from dataclasses import replace

from recsys_cli.config import EvaluateConfig
from recsys_cli.errors import ConfigError
from recsys_cli.evaluation.measure import ComputeSettings
from recsys_cli.evaluation.validation_metric import of_rankings
from recsys_cli.events import Emit, Message
from recsys_cli.features.schema import Column
from recsys_cli.metrics import PointwiseMetric
from recsys_cli.metrics.named import TASKS, CutOff, find_metric
from recsys_cli.models.model import Model
from recsys_cli.training.objective import Monitor
from recsys_cli.workspace import PreparedData


def monitor_of(name: str, data: PreparedData, model: Model, *, repeats: bool, emit: Emit) -> Monitor:
    """Return the monitored metric.

    Ranking metrics use the default users of `recsys evaluate`: of the evaluate section, a run depends on `repeats` alone.

    Raises:
        ConfigError: The metric does not exist for this label, or the data has no rankings.
    """
    metric, monitor = find_metric(name), order_of(name)
    label = data.schema.label
    task = TASKS[label.task]
    if isinstance(metric, PointwiseMetric):
        metric = task.metrics.get(name, metric)
        if metric.of_errors != label.is_regression:
            raise _of_other_task(name, label)
    if metric is None or metric is task.default or not data.rows("valid"):
        return monitor
    if isinstance(metric, CutOff):
        settings = ComputeSettings(device=model.device, emit=emit)
        ranked = of_rankings(model, metric, data, config=EvaluateConfig(repeats=repeats), compute=settings)
        return replace(monitor, measure=lambda _: ranked())
    return replace(monitor, measure=lambda scored: metric.of_rows(scored.labels, scored.scores))


def monitor_or_fallback(
    name: str, data: PreparedData, model: Model, *, default: str | None, repeats: bool, emit: Emit
) -> Monitor:
    """Return the monitored metric; a model's own default falls back to the default of the label, with a warning.

    The default is recognized by its value, because the config of a run contains all defaults.

    Raises:
        ConfigError: The metric is not measurable, and not the default.
    """
    fallback = TASKS[data.schema.label.task].default.name
    try:
        return monitor_of(name, data, model, repeats=repeats, emit=emit)
    except ConfigError as error:
        if name != default or name == fallback:
            raise
        note = f"{fallback} selects the best epoch, or the loss if {fallback} is undefined"
        emit(Message(f"{error.message}; {note} (train.monitor)", "warning"))
    return monitor_of(fallback, data, model, repeats=repeats, emit=emit)


def metric_after_fit(name: str, data: PreparedData, model: Model, *, repeats: bool, emit: Emit) -> Monitor:
    """Return the validation metric of a closed-form model; one that is not measurable is skipped with a warning."""
    try:
        return monitor_of(name, data, model, repeats=repeats, emit=emit)
    except ConfigError as error:
        emit(Message(f"{error.message}, so it is not measured after fitting", "warning"))
    return monitor_of(TASKS[data.schema.label.task].default.name, data, model, repeats=repeats, emit=emit)


def order_of(name: str) -> Monitor:
    """Return the monitored metric with its direction only."""
    metric = find_metric(name)
    if metric is None:
        return Monitor(name, "lower")
    return Monitor(name, "higher" if isinstance(metric, CutOff) else metric.better)


def _of_other_task(name: str, label: Column) -> ConfigError:
    kinds = {False: "binary", True: "numeric"}
    return ConfigError(
        f"{name} is a metric of {kinds[not label.is_regression]} labels, "
        f"but the label {label.name} is {kinds[label.is_regression]}",
        hint=f"set train.monitor to {', '.join(TASKS[label.task].metrics)}, loss, or a ranking metric such as ndcg@10",
    )
