"""Figures that are measured again and again while a model is trained: what does not change between is prepared once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch

from recsys_cli.config import EvaluateConfig
from recsys_cli.errors import ConfigError
from recsys_cli.evaluation.held_out import candidate_items, hold_out
from recsys_cli.evaluation.measure import Place
from recsys_cli.evaluation.metrics import OF_NUMBERS, PointwiseMetric
from recsys_cli.evaluation.metrics.named import CutOff
from recsys_cli.evaluation.problem import value_hashes
from recsys_cli.evaluation.ranking import rank
from recsys_cli.evaluation.scorers import ModelScorer, why_not
from recsys_cli.evaluation.tally import Tally
from recsys_cli.events import Progress
from recsys_cli.features.schema import FIRST, Role
from recsys_cli.loader import Tables
from recsys_cli.loader.interactions import read_interactions
from recsys_cli.models.model import Model
from recsys_cli.workspace import PreparedData


def of_rows(metric: PointwiseMetric, labels: npt.NDArray[np.float32], logits: npt.NDArray[np.float32]) -> float:
    """Return a figure of rows, as `recsys evaluate` has it; NaN where it is not defined.

    Args:
        metric: What to measure.
        labels: Of rows, shape (N,); above 0.5 they count as 1, unless the metric is of numbers.
        logits: Their scores, shape (N,).
    """
    if metric in OF_NUMBERS.values():
        return metric.compute(Tally.of_errors(labels, logits))
    return metric.compute(Tally.of((labels > 0.5).astype(np.float32), logits))


def of_rankings(
    model: Model, wanted: CutOff, data: PreparedData, *, config: EvaluateConfig, place: Place
) -> Callable[[], float]:
    """Prepare a ranking of the valid split; return what measures a model by it, as `recsys evaluate` does of its warm users.

    Users whom train does not know are left out. Before valid nothing is known of them, so they cannot tell which epoch is best;
    `recsys evaluate` ranks for them too, because a recommender has to serve them. After a split by user there is nobody else,
    and so nothing to measure: an epoch is chosen by a figure of rows there.

    Args:
        model: On its device, and as it is whenever it is measured.
        wanted: The metric and its cut-off.
        data: Whose valid split to rank for.
        config: Whom to rank for, and what they should find.
        place: Where to rank.

    Raises:
        ConfigError: The data cannot be ranked, or there is nothing to find.
    """
    num_items = int(data.schema.only(Role.ITEM).cardinality or 0)
    met, rows = read_interactions(data, "train").met(), read_interactions(data, "valid").met()
    candidates = candidate_items(met, num_items=num_items)
    users = value_hashes(data, data.schema.only(Role.USER))
    held_out = hold_out(rows, met, candidates=candidates, num_items=num_items, config=config, user_hashes=users)
    tables = Tables(data, device=place.device)
    name = f"{wanted.metric.name}@{wanted.k}"
    if (reason := why_not(model, held_out, tables, data.schema, device=place.device)) is not None:
        all_new = not np.any(rows.user_idx >= FIRST)
        later = "; only recsys evaluate ranks for users whom train does not know" if all_new else ""
        raise ConfigError(f"{name} cannot be measured: {reason}", hint=f"set train.monitor to auc or loss{later}")
    places = torch.from_numpy(candidates).to(place.device)

    def progress(done: int) -> None:
        place.emit(Progress(f"rank for {name}", done, len(held_out.user_idx), unit="users"))

    def measure() -> float:
        scorer = ModelScorer(model, tables, data.schema, places, batch_size=config.batch_size)
        hits, _ = rank(held_out, scorer, cut_off=wanted.k, progress=progress)
        return float(wanted.metric.compute(hits, wanted.k).mean())

    return measure
