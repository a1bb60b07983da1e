"""The monitored metric of a run, by name: training does not import evaluation, so the stages connect them."""

from __future__ import annotations

from dataclasses import replace

from recsys_cli.config import EvaluateConfig
from recsys_cli.errors import ConfigError
from recsys_cli.evaluation.measure import ComputeSettings
from recsys_cli.evaluation.validation_metric import of_rankings
from recsys_cli.events import Emit, Message
from recsys_cli.features.schema import Column
from recsys_cli.metrics import PointwiseMetric
from recsys_cli.metrics.label_task import TASKS
from recsys_cli.metrics.named import CutOff, find_metric
from recsys_cli.models.model import Model
from recsys_cli.training.objective import Monitor
from recsys_cli.workspace import PreparedData


def monitor_of(name: str, data: PreparedData, model: Model, *, emit: Emit) -> Monitor:
    """Prepare the metric that selects the best epoch.

    Rankings are for the default users of `recsys evaluate`, because a run depends on no evaluate section.

    Args:
        name: As in `train.monitor`.
        data: To rank on.
        model: The model to measure, on its device.
        emit: Receives the progress of rankings.

    Raises:
        ConfigError: There is no such metric of this label, or the data cannot be ranked.
    """
    metric, found = find_metric(name), order_of(name)
    label = data.schema.label
    task = TASKS[label.task]
    if isinstance(metric, PointwiseMetric):
        metric = task.metrics.get(name, metric)
        if metric.of_errors != label.is_regression:
            raise _of_other_task(name, label)
    if metric is None or metric is task.default or not data.rows("valid"):
        return found
    if isinstance(metric, CutOff):
        place = ComputeSettings(device=model.device, emit=emit)
        ranked = of_rankings(model, metric, data, config=EvaluateConfig(), compute=place)
        return replace(found, measure=lambda _: ranked())
    return replace(found, measure=lambda scored: metric.of_rows(scored.labels, scored.scores))


def monitor_or_usual(name: str, data: PreparedData, model: Model, *, default: str | None, emit: Emit) -> Monitor:
    """Prepare the metric that selects the best epoch; a model's own default falls back to that of the label.

    The default is recognized by its value, because the config of a run spells all defaults out.

    Args:
        name: As in `train.monitor`.
        data: To rank on.
        model: The model to measure, on its device.
        default: Monitored metric of the model's Config; None if it has none of its own.
        emit: Receives a warning about the fallback, and the progress of rankings.

    Raises:
        ConfigError: The metric is not measurable, and not the default.
    """
    usual = TASKS[data.schema.label.task].default.name
    try:
        return monitor_of(name, data, model, emit=emit)
    except ConfigError as error:
        if name != default or name == usual:
            raise
        instead = f"{usual} decides which epoch is best, or the loss where {usual} is not defined"
        emit(Message(f"{error.message}; {instead} (train.monitor)", "warning"))
    return monitor_of(usual, data, model, emit=emit)


def metric_after_fit(name: str, data: PreparedData, model: Model, *, emit: Emit) -> Monitor:
    """Prepare the validation metric of a closed-form model; without epochs to select, one that is not measurable is skipped."""
    try:
        return monitor_of(name, data, model, emit=emit)
    except ConfigError as error:
        emit(Message(f"{error.message}, so it is not measured after fitting", "warning"))
    return monitor_of(TASKS[data.schema.label.task].default.name, data, model, emit=emit)


def order_of(name: str) -> Monitor:
    """Return the order of epochs by a metric, without preparing to measure it.

    Raises:
        ConfigError: There is no such metric.
    """
    metric = find_metric(name)
    if metric is None:
        return Monitor(name, "lower")
    return Monitor(name, "higher" if isinstance(metric, CutOff) else metric.better)


def _of_other_task(name: str, label: Column) -> ConfigError:
    labels = {False: "labels of 0 and 1", True: "labels that are numbers"}
    is_number = label.is_regression
    return ConfigError(
        f"{name} is a figure of {labels[not is_number]}, and the label {label.name} is {'a number' if is_number else '0 or 1'}",
        hint=f"set train.monitor to {', '.join(TASKS[label.task].metrics)}, loss, or a figure of rankings such as ndcg@10",
    )
