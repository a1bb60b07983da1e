"""Scores of rows, pointwise metrics of the model and the baselines on the same rows, and nearest items."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from recsys_cli.batch import Batch
from recsys_cli.config import EvaluateConfig
from recsys_cli.errors import TrainingError
from recsys_cli.evaluation.baselines import OF_NUMBERS as BASELINES_OF_NUMBERS
from recsys_cli.evaluation.baselines import POINTWISE as BASELINES
from recsys_cli.evaluation.baselines import log_odds
from recsys_cli.evaluation.intervals import Clusters, Impressions, ScoredRows, pointwise_estimates, weighted_estimate
from recsys_cli.evaluation.new_users import ColdItems
from recsys_cli.evaluation.ranking import NOT_A_NUMBER
from recsys_cli.evaluation.result import MODEL, Curve, Estimates
from recsys_cli.features.schema import FIRST, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.loader.reading import groups_of
from recsys_cli.loader.records import Layout, read_records
from recsys_cli.metrics import GROUPED, OF_NUMBERS, GroupedMetric
from recsys_cli.metrics import POINTWISE as METRICS
from recsys_cli.metrics.foreign import extended
from recsys_cli.metrics.labels import reliability
from recsys_cli.metrics.metric import ScoreCounts
from recsys_cli.models.model import Model
from recsys_cli.workspace import PreparedData


def predict(
    model: Model, batches: Iterable[Batch], *, progress: Callable[[int], None] | None = None
) -> npt.NDArray[np.float32]:
    """Score every row, in the order of the batches; shape (N,).

    Raises:
        TrainingError: A score is not finite.
    """
    parts: list[npt.NDArray[np.float32]] = []
    done = 0
    with torch.inference_mode():
        for batch in batches:
            parts.append(model.score(batch).float().cpu().numpy())
            done += batch.num_rows
            if progress is not None:
                progress(done)
    logits = np.concatenate(parts) if parts else np.empty(0, np.float32)
    if not np.isfinite(logits).all():
        raise TrainingError(
            f"{np.count_nonzero(~np.isfinite(logits)):,} of {len(logits):,} scores of the model are not finite",
            hint=NOT_A_NUMBER,
        )
    return logits


@dataclass(frozen=True)
class LabeledRows:
    """Held-out rows, and train rows for the baselines; item ids are below `num_items`.

    Cold-start users have a distinct id here (see `NewUsers`): rows of one user are one cluster.
    """

    held_out: Interactions
    train: Interactions
    num_items: int
    impressions: Impressions | None = None


@dataclass(frozen=True)
class MeasuredRows:
    """Scores (N,) and estimates by system, and the model's reliability curve, empty for numeric labels."""

    scores: dict[str, npt.NDArray[np.floating]]
    estimates: dict[str, Estimates]
    reliability: Curve


def measure_rows(
    scores: npt.NDArray[np.float32], rows: LabeledRows, *, config: EvaluateConfig, probabilistic: bool = True
) -> MeasuredRows:
    """Measure the model, by its scores (N,) of the held-out rows, and the baselines.

    Of scores that do not predict the label only the order is measured, and for numeric labels nothing.
    """
    held_out, of_numbers = rows.held_out, rows.held_out.mean is not None
    systems: dict[str, npt.NDArray[np.floating]] = {MODEL: scores} if probabilistic or not of_numbers else {}
    for name, baseline in (BASELINES_OF_NUMBERS if of_numbers else BASELINES).items():
        numbers = baseline.fit(rows.train, num_items=rows.num_items).numbers(held_out)
        systems[name] = numbers if of_numbers else log_odds(numbers)
    clusters, group = Clusters.of_users(held_out.user_idx), ScoredRows.of_errors if of_numbers else ScoredRows.of
    scored = {name: group(held_out.labels, predicted, clusters) for name, predicted in systems.items()}
    metrics = extended(OF_NUMBERS if of_numbers else METRICS, config.metrics)
    of_order = {name: metric for name, metric in metrics.items() if not metric.of_probabilities}
    estimates: dict[str, Estimates] = {MODEL: {}}
    for name, one in scored.items():
        chosen = metrics if probabilistic or name != MODEL else of_order
        estimates[name] = pointwise_estimates(one, chosen, resamples=config.bootstrap, seed=config.seed)
        if not of_numbers:
            estimates[name] |= _by_user(systems[name], held_out, extended(GROUPED, config.metrics))
            estimates[name] |= rows.impressions.estimates(held_out.labels, systems[name]) if rows.impressions else {}
    has_curve = probabilistic and not of_numbers
    return MeasuredRows(systems, estimates, _reliability(scored[MODEL].tally) if has_curve else Curve())


def _reliability(tally: ScoreCounts) -> Curve:
    """Return the mean label over the mean prediction of bins of equal mass."""
    x, y = (tuple(values.round(6).tolist()) for values in reliability(tally))
    return Curve(x=x, y=y)


def _by_user(scores: npt.NDArray[np.floating], rows: Interactions, metrics: Mapping[str, GroupedMetric]) -> Estimates:
    has_id = rows.user_idx >= FIRST
    users, labels, known_scores = rows.user_idx[has_id], rows.labels[has_id], scores[has_id]
    return {name: weighted_estimate(*metric.compute(users, labels, known_scores)) for name, metric in metrics.items()}


@dataclass(frozen=True)
class ScoredItem:
    """An encoded item with the cosine similarity of two vectors."""

    item_idx: int
    score: float


def score_rows(model: Model, path: Path, schema: Schema, *, batch_size: int) -> npt.NDArray[np.float32]:
    """Score every row of a parquet file of a fitted plan, joined columns included, in order; shape (N,).

    Raises:
        DataError: The file has another schema.
        TrainingError: A score is not finite.
    """
    columns = [*schema.features, *schema.select(lambda column: column.name == model.timestamp)]
    groups = groups_of(path, columns)
    records = read_records(Layout.of(columns, groups), groups)
    starts = range(0, records.num_rows, batch_size)
    return predict(model, (Batch(records.span(start, start + batch_size), {}) for start in starts))


def nearest(model: Model, data: PreparedData, item_idx: int, *, k: int) -> list[ScoredItem]:
    """Return the items with the highest cosine similarity to an item, without itself, by a dot-product model."""
    own = data.schema.only(Role.ITEM).own_ids
    items = np.concatenate([np.arange(own.start, own.stop), ColdItems.of(data).rows if model.by_content else ()])
    items = items.astype(np.int64)
    own_index = int(np.searchsorted(items, item_idx))
    with torch.inference_mode():
        vectors = torch.nn.functional.normalize(model.item_vectors(torch.from_numpy(items)), dim=1)
        cosines = (vectors @ vectors[own_index]).numpy()
    best = np.argsort(-cosines, kind="stable")
    return [ScoredItem(int(items[p]), float(cosines[p])) for p in best if p != own_index][:k]


def knows(model: Model, data: PreparedData, item_idx: int) -> bool:
    """Whether a model distinguishes an item from others, by its id or by content."""
    return model.by_content or not ColdItems.of(data).among(np.array(item_idx))
