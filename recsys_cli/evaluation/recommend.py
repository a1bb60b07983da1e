"""Recommendations for users, and nearest items, from a trained model."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from recsys_cli.batch import Batch
from recsys_cli.evaluation.cold_items import ColdItems
from recsys_cli.evaluation.held_out import by_train_rows, for_users
from recsys_cli.evaluation.pointwise import predict
from recsys_cli.evaluation.ranking import rank_blocks
from recsys_cli.evaluation.scorers import ModelScorer, cannot_rank
from recsys_cli.evaluation.training_context import make_context
from recsys_cli.features.schema import Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.loader import DimensionTables
from recsys_cli.loader.reading import groups_of
from recsys_cli.loader.records import Layout, read_records
from recsys_cli.models.model import Model, TrainingContext
from recsys_cli.workspace import PreparedData


@dataclass(frozen=True)
class ScoredItem:
    """An encoded item with the model's score, or the cosine similarity of two vectors."""

    item_idx: int
    score: float


class TopItems(NamedTuple):
    """Recommendations for U users in N rows, best first: ascending user index, rank from 1, encoded item, score."""

    user: npt.NDArray[np.int64]
    rank: npt.NDArray[np.int64]
    item_idx: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]

    @classmethod
    def none(cls) -> TopItems:
        """Return an empty result."""
        ints = np.empty(0, np.int64)
        return cls(ints, ints, ints, np.empty(0, np.float32))


class RecommendingModel:
    """A model with training context, ready to recommend.

    Args:
        model: In evaluation mode, on the CPU.
        earlier: Splits of its context: train, plus valid if test is held out.
        batch_size: Pairs scored at once; affects only memory.
        history: Interactions of the requested user or item, which suffice for a model with fold-in; None loads all
            interactions.
    """

    def __init__(
        self,
        model: Model,
        data: PreparedData,
        *,
        earlier: Collection[str],
        batch_size: int,
        history: Interactions | None = None,
    ) -> None:
        self._model = model
        self._schema = data.schema
        self._tables = DimensionTables(data)
        self._batch_size = batch_size
        self._cold = ColdItems.of(data)
        if model.folds_in and history is not None and len(history):
            model.set_context(TrainingContext(lambda: self._cold.hidden(history), self._tables.join))
        else:
            model.set_context(make_context(data, *earlier, tables=self._tables))

    @property
    def model(self) -> Model:
        """The model, with its training context."""
        return self._model

    @property
    def why_not(self) -> str | None:
        """The reason against recommendations, as a clause without a full stop; None if the model can."""
        return cannot_rank(self._model, self._tables, self._schema, device="cpu")

    @property
    def has_vectors(self) -> bool:
        """Whether the model has item vectors, and so nearest items."""
        return self._model.scoring == "dot_product"

    def recommend(
        self, user_idx: int, *, counts: npt.NDArray[np.int64], seen: Collection[int], k: int
    ) -> list[ScoredItem]:
        """Return the top-k items for a user, best first, ranked as in an evaluation; requires `why_not` to be None.

        Candidates are items with a train row by `counts` (num_items,), plus cold items for content-based models;
        encoded seen items are filtered.

        Raises:
            TrainingError: A score is not finite.
        """
        items = np.fromiter(seen, np.int32, len(seen))
        history = Interactions(np.full(len(items), user_idx, np.int32), items, np.ones(len(items), np.float32))
        best = self.recommend_to(np.array([user_idx]), counts=counts, history=history, k=k)
        return [ScoredItem(int(item), float(score)) for item, score in zip(best.item_idx, best.scores, strict=True)]

    def recommend_to(
        self, user_idx: npt.NDArray[np.int64], *, counts: npt.NDArray[np.int64], history: Interactions, k: int
    ) -> TopItems:
        """Return the top-k items of distinct users (U,), without those of the history; see `recommend`."""
        cold = self._cold.rows if self._model.by_content else self._cold.rows[:0]
        candidates = np.concatenate([by_train_rows(counts), cold])
        scorer = ModelScorer(
            self._model, self._tables, self._schema, torch.from_numpy(candidates), batch_size=self._batch_size
        )
        blocks = rank_blocks(for_users(user_idx, history, candidates=candidates), scorer, cut_off=k)
        tops = [_top_items(start, best, scores.numpy(), candidates) for start, _, best, scores in blocks]
        return TopItems(*(np.concatenate(parts) for parts in zip(TopItems.none(), *tops, strict=True)))

    def score_rows(self, path: Path, schema: Schema) -> npt.NDArray[np.float32]:
        """Score every row of a parquet file of a fitted plan, joined columns included, in order; shape (N,).

        Raises:
            DataError: The file has another schema.
            TrainingError: A score is not finite.
        """
        columns = schema.features
        groups = groups_of(path, columns)
        records = read_records(Layout.of(columns, groups), groups)
        starts = range(0, records.num_rows, self._batch_size)
        batches = (Batch(records.span(start, start + self._batch_size), {}) for start in starts)
        return predict(self._model, batches)

    def nearest(self, item_idx: int, *, k: int) -> list[ScoredItem]:
        """Return the items with the highest cosine similarity to an item, without itself; requires `has_vectors`."""
        own = self._schema.only(Role.ITEM).own_ids
        items = np.concatenate([np.arange(own.start, own.stop), self._cold.rows if self._model.by_content else ()])
        items = items.astype(np.int64)
        own_index = int(np.searchsorted(items, item_idx))
        with torch.inference_mode():
            vectors = torch.nn.functional.normalize(self._model.item_vectors(torch.from_numpy(items)), dim=1)
            cosines = (vectors @ vectors[own_index]).numpy()
        best = np.argsort(-cosines, kind="stable")
        return [ScoredItem(int(items[p]), float(cosines[p])) for p in best if p != own_index][:k]

    def knows(self, item_idx: int) -> bool:
        """Whether the model distinguishes an item from others, by its id or by content."""
        return self._model.by_content or not self._cold.among(np.array(item_idx))


def _top_items(
    start: int, places: npt.NDArray[np.int64], scores: npt.NDArray[np.float32], candidates: npt.NDArray[np.int64]
) -> TopItems:
    """Return the rankings (B, P) of a block as rows, without padding."""
    row, rank = np.nonzero(places >= 0)
    place = places[row, rank]
    return TopItems(row + start, rank + 1, candidates[place], scores[row, place])
