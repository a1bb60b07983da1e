"""Monitored metric of a run by name, and its rankings of the valid split; training does not import evaluation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from recsys_cli.config import EvaluateConfig
from recsys_cli.errors import ConfigError
from recsys_cli.evaluation.held_out import HeldOut, hold_out, value_hashes
from recsys_cli.evaluation.measure import ComputeSettings
from recsys_cli.evaluation.new_users import ColdItems, SplitByUser
from recsys_cli.evaluation.ranking import ModelScorer, Scorer, rank, why_not
from recsys_cli.evaluation.systems import Systems
from recsys_cli.evaluation.task import EvaluationTask
from recsys_cli.events import Emit, Message, Progress
from recsys_cli.features.schema import FIRST, Column, Role
from recsys_cli.loader import DimensionTables
from recsys_cli.loader.interactions import read_interactions
from recsys_cli.metrics import PointwiseMetric
from recsys_cli.metrics.named import TASKS, CutOff, find_metric
from recsys_cli.models.model import Model
from recsys_cli.training.objective import Monitor
from recsys_cli.workspace import PreparedData


def of_rankings(
    model: Model, metric: CutOff, data: PreparedData, *, config: EvaluateConfig, compute: ComputeSettings
) -> Callable[[], float]:
    """Prepare a ranking of the valid split; return a function that computes the metric for the current weights.

    Cold-start users are left out, unlike in `recsys evaluate`: without interactions before valid they do not help to
    choose an epoch. After a split by user all users are cold-start users: a model with fold-in ranks the later part
    of each user's rows after the earlier one, as in `recsys evaluate`. Other models need a pointwise metric.
    """
    rows = read_interactions(data, "valid", cold_items=True).observed()
    if model.folds_in and not np.any(rows.user_idx >= FIRST):
        by_user = SplitByUser.read(data, "valid", config)
        if by_user.num_folded:
            return _of_new_users(model, metric, data, by_user, config=config, compute=compute)
    train, cold = read_interactions(data, "train", cold_items=True).observed(), ColdItems.of(data)
    candidates = cold.candidates(train)
    users = value_hashes(data, data.schema.only(Role.USER))
    held_out = hold_out(
        rows, train, candidates=candidates, num_items=cold.first + cold.number, config=config, user_hashes=users
    )
    tables = DimensionTables(data, device=compute.device)
    if (reason := why_not(model, held_out, tables, data.schema, device=compute.device)) is not None:
        all_new = not np.any(rows.user_idx >= FIRST)
        raise _not_measured(metric, reason, model, data, all_new=all_new)
    items = torch.from_numpy(candidates).to(compute.device)

    def measure() -> float:
        scorer = ModelScorer(model, tables, data.schema, items, batch_size=config.batch_size)
        return _mean(metric, held_out, scorer, compute)

    return measure


def _of_new_users(
    model: Model, metric: CutOff, data: PreparedData, by_user: SplitByUser, *,
    config: EvaluateConfig, compute: ComputeSettings,
) -> Callable[[], float]:  # fmt: skip
    """Prepare a ranking for cold-start users; measuring it restores the model's train context."""
    task = EvaluationTask.of(by_user, "valid", config)
    systems = Systems(model, data, "valid", by_user, task.new_users, config, compute.device)
    if (reason := why_not(model, task.held_out, systems.tables, data.schema, device=compute.device)) is not None:
        raise _not_measured(metric, reason, model, data, all_new=False)

    def measure() -> float:
        try:
            return _mean(metric, task.held_out, systems.scorer(model), compute)
        finally:
            model.set_context(systems.context)

    return measure


def _mean(metric: CutOff, held_out: HeldOut, scorer: Scorer, compute: ComputeSettings) -> float:
    def progress(done: int) -> None:
        name = f"{metric.metric.name}@{metric.k}"
        compute.emit(Progress(f"rank for {name}", done, len(held_out.user_idx), unit="users"))

    hits, _ = rank(held_out, scorer, cut_off=metric.k, progress=progress)
    return float(metric.metric.compute(hits, metric.k).mean())


def _not_measured(metric: CutOff, reason: str, model: Model, data: PreparedData, *, all_new: bool) -> ConfigError:
    """Return the error for an unavailable ranking metric, with available metrics."""
    default = TASKS[data.schema.label.task].default.name
    has_loss = model.rows == "interactions"
    cold_start = "; only recsys evaluate ranks for cold-start users" if all_new else ""
    return ConfigError(
        f"{metric.metric.name}@{metric.k} cannot be measured: {reason}",
        hint=f"set train.monitor to {default}{' or loss' if has_loss else ''}{cold_start}",
    )


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
    """Return the monitored metric; one that is not measurable falls back to the default of the label, with a warning.

    Of a gradient-trained model only its own default does. It is recognized by its value, because the config of a run
    contains all defaults.

    Raises:
        ConfigError: The metric is not measurable, and not the default.
    """
    fallback = TASKS[data.schema.label.task].default.name
    try:
        return monitor_of(name, data, model, repeats=repeats, emit=emit)
    except ConfigError as error:
        if model.rows == "all":
            note = ", so it is not measured after fitting"
        elif name == default != fallback:
            note = f"; {fallback} selects the best epoch, or the loss if {fallback} is undefined (train.monitor)"
        else:
            raise
        emit(Message(error.message + note, "warning"))
    return monitor_of(fallback, data, model, repeats=repeats, emit=emit)


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
