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
from recsys_cli.metrics.metric import Floats, ScoreCounts
from recsys_cli.models.model import Model
from recsys_cli.workspace import PreparedData

POINTS = 200


def roc_curve(tally: ScoreCounts) -> Curve:
    """Return true over false positive rate for falling thresholds, (0, 0) to (1, 1); empty for rows of one class."""
    small = tally.compressed(POINTS)
    positive, negative = small.positive[::-1], small.negative[::-1]
    if not positive.sum() or not negative.sum():
        return Curve(x=(), y=())
    return _curve(_rates(negative), _rates(positive))


def precision_recall_curve(tally: ScoreCounts) -> Curve:
    """Return precision over recall for falling thresholds; empty for rows of one class.

    It starts at recall 0 with the precision of the highest score: a random part of tied rows has it on average.
    """
    small = tally.compressed(POINTS)
    positive, negative = small.positive[::-1], small.negative[::-1]
    if not positive.sum() or not negative.sum():
        return Curve(x=(), y=())
    precision = np.cumsum(positive) / np.cumsum(positive + negative)
    return _curve(_rates(positive), np.append(precision[0], precision))


def reliability_curve(tally: ScoreCounts) -> Curve:
    """Return the mean label over the mean prediction of bins of equal mass."""
    return _curve(*reliability(tally))


def _rates(counts: Floats) -> Floats:
    return np.append(0.0, np.cumsum(counts) / counts.sum())


def _curve(x: Floats, y: Floats) -> Curve:
    return Curve(x=tuple(x.round(6).tolist()), y=tuple(y.round(6).tolist()))


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
    """Scores (N,), estimates, ROC and precision-recall curves by system, and the model's reliability curve.

    Numeric labels have no curves.
    """

    scores: dict[str, npt.NDArray[np.floating]]
    estimates: dict[str, Estimates]
    roc: dict[str, Curve]
    precision_recall: dict[str, Curve]
    reliability: Curve


def measure_rows(
    logits: npt.NDArray[np.float32], rows: LabeledRows, *, config: EvaluateConfig, probabilistic: bool = True
) -> MeasuredRows:
    """Measure the model, by its scores (N,) of the held-out rows, and the baselines.

    Of scores that do not predict the label only the order is measured, and for numeric labels nothing.
    """
    if rows.held_out.mean is not None:
        return _measure_numbers(logits, rows, config=config, predicts=probabilistic)
    systems: dict[str, npt.NDArray[np.floating]] = {MODEL: logits}
    for name, baseline in BASELINES.items():
        systems[name] = baseline.fit(rows.train, num_items=rows.num_items).logits(rows.held_out)
    clusters = Clusters.of_users(rows.held_out.user_idx)
    scored = {name: ScoredRows.of(rows.held_out.labels, scores, clusters) for name, scores in systems.items()}
    metrics, by_user = extended(METRICS, config.metrics), extended(GROUPED, config.metrics)
    of_order = {name: metric for name, metric in metrics.items() if not metric.of_probabilities}
    return MeasuredRows(
        scores=systems,
        estimates={
            name: pointwise_estimates(
                one,
                metrics if probabilistic or name != MODEL else of_order,
                resamples=config.bootstrap,
                seed=config.seed,
            )
            | _by_user(systems[name], rows.held_out, by_user)
            | (rows.impressions.estimates(rows.held_out.labels, systems[name]) if rows.impressions else {})
            for name, one in scored.items()
        },
        roc={name: roc_curve(one.tally) for name, one in scored.items()},
        precision_recall={name: precision_recall_curve(one.tally) for name, one in scored.items()},
        reliability=reliability_curve(scored[MODEL].tally) if probabilistic else Curve(x=(), y=()),
    )


def _measure_numbers(
    numbers: npt.NDArray[np.float32], rows: LabeledRows, *, config: EvaluateConfig, predicts: bool
) -> MeasuredRows:
    systems: dict[str, npt.NDArray[np.floating]] = {MODEL: numbers} if predicts else {}
    for name, baseline in BASELINES_OF_NUMBERS.items():
        systems[name] = baseline.fit(rows.train, num_items=rows.num_items).numbers(rows.held_out)
    clusters = Clusters.of_users(rows.held_out.user_idx)
    scored = {
        name: ScoredRows.of_errors(rows.held_out.labels, predictions, clusters) for name, predictions in systems.items()
    }
    estimates = {
        name: pointwise_estimates(
            one, extended(OF_NUMBERS, config.metrics), resamples=config.bootstrap, seed=config.seed
        )
        for name, one in scored.items()
    }
    return MeasuredRows(systems, {MODEL: {}} | estimates, roc={}, precision_recall={}, reliability=Curve(x=(), y=()))


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
