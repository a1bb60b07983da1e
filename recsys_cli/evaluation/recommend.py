"""Scores of prepared rows, and nearest items, from a trained model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from recsys_cli.batch import Batch
from recsys_cli.evaluation.cold_items import ColdItems
from recsys_cli.evaluation.pointwise import predict
from recsys_cli.features.schema import Role, Schema
from recsys_cli.loader.reading import groups_of
from recsys_cli.loader.records import Layout, read_records
from recsys_cli.models.model import Model
from recsys_cli.workspace import PreparedData


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
