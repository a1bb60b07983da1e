"""Figures that are measured again and again while a model is trained: what does not change between is prepared once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from recsys_cli.config import EvaluateConfig
from recsys_cli.errors import ConfigError
from recsys_cli.evaluation.cold_items import ColdItems
from recsys_cli.evaluation.cold_start import FoldInScorer, TemporaryIds
from recsys_cli.evaluation.fingerprint import value_hashes
from recsys_cli.evaluation.held_out import HeldOut, hold_out
from recsys_cli.evaluation.measure import ComputeSettings
from recsys_cli.evaluation.new_users import SplitByUser
from recsys_cli.evaluation.ranking import Scorer, rank
from recsys_cli.evaluation.scorers import ModelScorer, why_not
from recsys_cli.evaluation.task import EvaluationTask
from recsys_cli.evaluation.training_context import make_context
from recsys_cli.events import Progress
from recsys_cli.features.schema import FIRST, Role
from recsys_cli.loader import DimensionTables
from recsys_cli.loader.interactions import read_interactions
from recsys_cli.metrics.label_task import TASKS
from recsys_cli.metrics.named import CutOff
from recsys_cli.models.model import Model
from recsys_cli.workspace import PreparedData


def of_rankings(
    model: Model, wanted: CutOff, data: PreparedData, *, config: EvaluateConfig, place: ComputeSettings
) -> Callable[[], float]:
    """Prepare a ranking of the valid split; return what measures a model by it, as `recsys evaluate` does of its warm users.

    Users whom train does not know are left out. Before valid nothing is known of them, so they cannot tell which epoch is best;
    `recsys evaluate` ranks for them too, because a recommender has to serve them. After a split by user there is nobody else: a
    model that folds in is measured on these as `recsys evaluate` does, by the later part of each user's rows after the earlier
    one. For other models there is nothing to measure, and an epoch is chosen by a figure of rows.

    Args:
        model: On its device, and as it is whenever it is measured.
        wanted: The metric and its cut-off.
        data: Whose valid split to rank for.
        config: Whom to rank for, and what they should find.
        place: Where to rank.

    Raises:
        ConfigError: The data cannot be ranked, or there is nothing to find.
    """
    rows = read_interactions(data, "valid", cold_items=True).observed()
    if model.folds_in and not np.any(rows.user_idx >= FIRST):
        by_user = SplitByUser.read(data, "valid", seed=config.seed)
        if by_user.num_folded:
            return _of_new_users(model, wanted, data, by_user, config=config, place=place)
    met, cold = read_interactions(data, "train", cold_items=True).observed(), ColdItems.of(data)
    candidates = cold.candidates(met)
    users = value_hashes(data, data.schema.only(Role.USER))
    held_out = hold_out(
        rows, met, candidates=candidates, num_items=cold.first + cold.number, config=config, user_hashes=users
    )
    tables = DimensionTables(data, device=place.device)
    if (reason := why_not(model, held_out, tables, data.schema, device=place.device)) is not None:
        all_new = not np.any(rows.user_idx >= FIRST)
        raise _not_measured(wanted, reason, model, data, all_new=all_new)
    places = torch.from_numpy(candidates).to(place.device)

    def measure() -> float:
        scorer = ModelScorer(model, tables, data.schema, places, batch_size=config.batch_size)
        return _mean(wanted, held_out, scorer, place)

    return measure


def _of_new_users(
    model: Model,
    wanted: CutOff,
    data: PreparedData,
    by_user: SplitByUser,
    *,
    config: EvaluateConfig,
    place: ComputeSettings,
) -> Callable[[], float]:
    """Prepare a ranking for users whom train does not know; what measures it leaves the model with the history of train."""
    asked, tables, schema = (
        EvaluationTask.of(by_user, "valid", config),
        DimensionTables(data, device=place.device),
        data.schema,
    )
    if (reason := why_not(model, asked.held_out, tables, schema, device=place.device)) is not None:
        raise _not_measured(wanted, reason, model, data, all_new=False)
    candidates = torch.from_numpy(asked.held_out.candidates).to(place.device)
    loans = TemporaryIds(
        asked.new_users, by_user.cold.hidden(by_user.history), schema.only(Role.USER).own_ids, tables.join
    )
    known = make_context(data, "train", device=place.device, tables=tables, read=by_user.hidden(by_user.before))

    def make() -> ModelScorer:
        return ModelScorer(model, tables, schema, candidates, batch_size=config.batch_size)

    def measure() -> float:
        try:
            return _mean(wanted, asked.held_out, FoldInScorer(model, make, by_user.new, loans, candidates), place)
        finally:
            model.set_context(known)

    return measure


def _mean(wanted: CutOff, held_out: HeldOut, scorer: Scorer, place: ComputeSettings) -> float:
    def progress(done: int) -> None:
        name = f"{wanted.metric.name}@{wanted.k}"
        place.emit(Progress(f"rank for {name}", done, len(held_out.user_idx), unit="users"))

    hits, _ = rank(held_out, scorer, cut_off=wanted.k, progress=progress)
    return float(wanted.metric.compute(hits, wanted.k).mean())


def _not_measured(wanted: CutOff, reason: str, model: Model, data: PreparedData, *, all_new: bool) -> ConfigError:
    """Return the error of a ranking that cannot be measured; the hint names figures that this model has."""
    default = TASKS[data.schema.label.task].default.name
    has_loss = model.rows == "interactions"
    later = "; only recsys evaluate ranks for users whom train does not know" if all_new else ""
    return ConfigError(
        f"{wanted.metric.name}@{wanted.k} cannot be measured: {reason}",
        hint=f"set train.monitor to {default}{' or loss' if has_loss else ''}{later}",
    )
