"""What a run is after, from its config and its data: training and evaluation do not know each other, so they meet here."""

from __future__ import annotations

from dataclasses import replace

from recsys_cli.config import EvaluateConfig, TrainConfig
from recsys_cli.errors import ConfigError
from recsys_cli.evaluation.measure import Place
from recsys_cli.evaluation.monitored import of_rankings
from recsys_cli.events import Emit, Message
from recsys_cli.features.schema import Column
from recsys_cli.loader.balance import negatives_per_positive
from recsys_cli.metrics import PointwiseMetric
from recsys_cli.metrics.label_task import TASKS
from recsys_cli.metrics.named import CutOff, find_metric
from recsys_cli.models.model import Model
from recsys_cli.training.goal import Goal, Monitor
from recsys_cli.workspace import PreparedData


def goal_of(config: TrainConfig, data: PreparedData, model: Model, *, emit: Emit) -> Goal:
    """Work out what to be after.

    Args:
        config: What is monitored, and what rows count.
        data: Where negative and positive rows are counted, and users and items are read for a ranking.
        model: What is trained, on the device where to rank.
        emit: Is told how rankings go.

    Raises:
        ConfigError: There is no such metric of this label, or the data cannot be ranked.
        DataError: There is nothing to balance.
    """
    weight, label = config.positive_weight, data.schema.label
    return Goal(
        label=label.name,
        monitor=_monitor(config.monitor, data, model, emit),
        positive_weight=negatives_per_positive(data, label) if weight == "balanced" else weight,
        label_smoothing=config.label_smoothing,
        numbers=frozenset(column.name for column in data.schema.labels if column.is_regression),
    )


def goal_or_usual(config: TrainConfig, data: PreparedData, model: Model, *, default: str | None, emit: Emit) -> Goal:
    """Work out what to be after; where the model's own default cannot be measured, the usual figure of rows takes its place.

    The default is known by its value: a config that a stage has written down spells all defaults out.

    Args:
        config: What is monitored, and what rows count.
        data: As of `goal_of`.
        model: What is trained.
        default: What the model's Config monitors where a config says nothing; None where that is the usual figure.
        emit: Is told of the figure that takes the place.

    Raises:
        ConfigError: Something other than the default is wanted, and cannot be measured.
        DataError: There is nothing to balance.
    """
    try:
        return goal_of(config, data, model, emit=emit)
    except ConfigError as error:
        usual = TASKS[data.schema.label.task].default.name
        if config.monitor != default or config.monitor == usual:
            raise
        instead = f"{usual} decides which epoch is best, or the loss where {usual} is not defined"
        emit(Message(f"{error.message}; {instead} (train.monitor)", "warning"))
        return goal_of(config.model_copy(update={"monitor": usual}), data, model, emit=emit)


def yardstick(name: str) -> Monitor:
    """Return how epochs are compared by a metric, without what it takes to measure it.

    Raises:
        ConfigError: There is no such metric.
    """
    metric = find_metric(name)
    if metric is None:
        return Monitor(name, "lower")
    return Monitor(name, "higher" if isinstance(metric, CutOff) else metric.better)


def _monitor(name: str, data: PreparedData, model: Model, emit: Emit) -> Monitor:
    """Prepare what decides which epoch is best.

    Rankings are for the users that evaluation takes where nothing else is said: a run depends on its train section alone.
    """
    metric, found = find_metric(name), yardstick(name)
    label = data.schema.label
    task = TASKS[label.task]
    if isinstance(metric, PointwiseMetric):
        metric = task.metrics.get(name, metric)
        if metric.of_errors != label.is_regression:
            raise _of_other_task(name, label)
    if metric is None or metric is task.default or not data.rows("valid"):
        return found
    if isinstance(metric, CutOff):
        place = Place(device=model.device, emit=emit)
        ranked = of_rankings(model, metric, data, config=EvaluateConfig(), place=place)
        return replace(found, measure=lambda _: ranked())
    return replace(found, measure=lambda scored: metric.of_rows(scored.labels, scored.scores))


def _of_other_task(name: str, label: Column) -> ConfigError:
    labels = {False: "labels of 0 and 1", True: "labels that are numbers"}
    is_number = label.is_regression
    return ConfigError(
        f"{name} is a figure of {labels[not is_number]}, and the label {label.name} is {'a number' if is_number else '0 or 1'}",
        hint=f"set train.monitor to {', '.join(TASKS[label.task].metrics)}, loss, or a figure of rankings such as ndcg@10",
    )
