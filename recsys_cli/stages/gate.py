"""The gate of `recsys update`: yesterday's model and today's on the same latest rows, which neither has seen, paired by user."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recsys_cli.config import EvaluateConfig, RunConfig
from recsys_cli.etl.prepare import Preparation
from recsys_cli.evaluation.compare.outcomes import Outcomes
from recsys_cli.evaluation.loaded_run import config_of, model_of
from recsys_cli.evaluation.measure import ComputeSettings, measure
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.events import Emit
from recsys_cli.features.schema import Role
from recsys_cli.metrics.named import better_of
from recsys_cli.models import kind_of
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.stages.etl import data_key
from recsys_cli.training import hardware
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace, key_of

_FEWEST = 6
"""Users below which nothing is significant."""


@dataclass(frozen=True)
class Gate:
    """The comparison of two models on the latest rows.

    Attributes:
        metric: Name of the metric.
        users: Users ranked by both models, or users with rows.
        yesterday: The metric of yesterday's model; `today` of the new one.
        low: Lower end of the 95 % interval of the difference, today minus yesterday; `high` the upper end.
        worst: Highest accepted loss.
        passed: Whether today's model is not shown to be worse by more than `worst`.
    """

    metric: str
    users: int
    yesterday: float
    today: float
    low: float
    high: float
    worst: float
    passed: bool

    @property
    def verdict(self) -> str:
        """The verdict in words: `passed` excludes no loss, as few users show little."""
        if self.users < _FEWEST:
            return "passed, too few users to compare"
        return f"passed, not shown to be worse by more than {self.worst:.4f}" if self.passed else "refused"

    @property
    def gain(self) -> float:
        """How much better today's model is."""
        return (self.today - self.yesterday) * (1 if better_of(self.metric) != "lower" else -1)


def outcomes(run: TrainedRun, data: PreparedData, emit: Emit) -> tuple[str, Rankings]:
    """Return the metric of a run's kind of model, and its rankings and scores on the held-out rows of prepared data."""
    config = config_of(run)
    settings = ComputeSettings(hardware.device(config.train.device), config.train.memory_mib, emit)
    evaluation = EvaluateConfig(**{**config.evaluate.model_dump(), "split": "test", "targets": "all"})
    model = model_of(run, config, data).to(settings.device)
    _, rankings = measure(model, data, evaluation, compute=settings, baselines=False)
    metric = "log_loss" if kind_of(config.model.name).probabilistic else f"ndcg@{min(evaluation.k)}"
    return metric, rankings


def figures_of(metric: str, rankings: Rankings, data: PreparedData) -> dict[str, float | None]:
    """Return figures of one model: its metric, mean and deviation of its scores, and the share of the items in a top 10."""
    found, logits = Outcomes.of(rankings, metrics={metric}), rankings.logits
    figures: dict[str, float | None] = {"value": found.value(metric) if metric in found.metrics else None}
    if len(logits):
        figures |= {"score": float(logits.mean()), "spread": float(logits.std())}
    if len(rankings.users):
        shown = np.unique(rankings.items[rankings.systems[0]][:, :10])
        figures["coverage"] = np.count_nonzero(shown) / (data.schema.only(Role.ITEM).cardinality or 1)
    return figures


def judge(metric: str, yesterday: Rankings, today: Rankings, *, tolerance: float, config: EvaluateConfig) -> Gate:
    """Compare two models, paired by the users that both rank, or by rows clustered by user."""
    first, other = (Outcomes.of(one, metrics={metric}) for one in (yesterday, today))
    if metric in first.users and metric in other.users:
        first, other = _on_common_users(metric, (first, yesterday), (other, today))
    if metric not in first.metrics or metric not in other.metrics:
        return Gate(metric, 0, 0.0, 0.0, 0.0, 0.0, 0.0, passed=True)
    tested = other.minus(first, [metric], resamples=config.bootstrap, seed=config.seed)[metric]
    users = len(first.users[metric]) if metric in first.users else first.clusters.count
    before = first.value(metric)
    worst = tolerance * abs(before)
    is_worse = tested.low > worst if better_of(metric) == "lower" else tested.high < -worst
    passed = users < _FEWEST or not is_worse
    return Gate(metric, users, before, other.value(metric), tested.low, tested.high, worst, passed)


def _on_common_users(
    metric: str, first: tuple[Outcomes, Rankings], other: tuple[Outcomes, Rankings]
) -> tuple[Outcomes, Outcomes]:
    """Return the outcomes of the users that both rank, in one order."""
    hashes, others = (np.unique(rankings.user_hashes) for _, rankings in (first, other))
    _, *places = np.intersect1d(hashes, others, assume_unique=True, return_indices=True)
    (one, _), (two, _) = first, other
    chosen = [
        Outcomes.of_users({metric: outcome.users[metric][place]})
        for outcome, place in zip((one, two), places, strict=True)
    ]
    return chosen[0], chosen[1]


def prepared_as(run: TrainedRun, config: RunConfig, workspace: Workspace, emit: Emit) -> PreparedData:
    """Prepare the rows of a config by the fitted plan of a run's data, unless that is done: for scores of new rows."""
    base = workspace.data_of(run)
    own = config_of(run)
    key = key_of("as", base.key, data_key(config, workspace))
    data = workspace.data(key)
    if data.is_made(key):
        return data
    old = own.model_copy(update={"split": config.split, "dataset": config.dataset, "etl": config.etl})
    raw = workspace.raw(config.dataset.name)
    manifest = {"key": key, "dataset": config.dataset.name, "recipe": key, "files_read": {}}
    with workspace.scratch() as scratch, workspace.create(data, manifest) as folder:
        fitted = FittedPlan.read(base.folder)
        manifest |= Preparation(old, raw.folder, scratch, folder, emit, fitted=fitted).run()
    return data
