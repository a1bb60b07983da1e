"""What a model says of one user or one item when it is asked directly: the best items, and the nearest ones."""

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
from recsys_cli.evaluation.held_out import for_users, most_met
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
    """An item with a number.

    Attributes:
        item_idx: Encoded item.
        score: The model's score, or how near it is: the cosine of two vectors.
    """

    item_idx: int
    score: float


class TopItems(NamedTuple):
    """Recommendations to U users, a row for each, best first.

    Attributes:
        user: Index of the user, ascending; shape (N,).
        rank: From 1; shape (N,).
        item_idx: Encoded item; shape (N,).
        scores: The model's score, float32; shape (N,).
    """

    user: npt.NDArray[np.int64]
    rank: npt.NDArray[np.int64]
    item_idx: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]

    @classmethod
    def none(cls) -> TopItems:
        """Return no rows."""
        ints = np.empty(0, np.int64)
        return cls(ints, ints, ints, np.empty(0, np.float32))


class RecommendingModel:
    """A model that is ready to be asked.

    Args:
        model: In evaluation mode, on the CPU.
        data: That it was trained on.
        earlier: The splits whose rows it may know: train, and valid too where test is what is held out.
        batch_size: Pairs scored at a time; changes nothing but memory.
        met: What is known of the user or item that it will be asked about, which is all that a model that folds in has to know;
            None to tell it of everybody.
    """

    def __init__(
        self,
        model: Model,
        data: PreparedData,
        *,
        earlier: Collection[str],
        batch_size: int,
        met: Interactions | None = None,
    ) -> None:
        self._model = model
        self._schema = data.schema
        self._tables = DimensionTables(data)
        self._batch_size = batch_size
        self._cold = ColdItems.of(data)
        if model.folds_in and met is not None and len(met):
            model.set_context(TrainingContext(lambda: self._cold.hidden(met), self._tables.join))
        else:
            model.set_context(make_context(data, *earlier, tables=self._tables))

    @property
    def model(self) -> Model:
        """The model, with its training context."""
        return self._model

    @property
    def why_not(self) -> str | None:
        """Why the model cannot recommend, as a sentence without its dot; None where it can."""
        return cannot_rank(self._model, self._tables, self._schema, device="cpu")

    @property
    def has_vectors(self) -> bool:
        """Whether it has vectors of items, so that there are nearest ones."""
        return self._model.scoring == "dot_product"

    def recommend(
        self, user_idx: int, *, counts: npt.NDArray[np.int64], seen: Collection[int], k: int
    ) -> list[ScoredItem]:
        """Return the best items for a user, best first, as an evaluation ranks them; not where `why_not` says why.

        Args:
            user_idx: Encoded user.
            counts: How many rows of train each encoded item has; those that have some are candidates, and for
                models that look at features items of the joined table that train does not know. Shape (num_items,).
            seen: Encoded items to leave out, because the user has met them.
            k: How many at most.

        Raises:
            TrainingError: A score is no number.
        """
        items = np.fromiter(seen, np.int32, len(seen))
        history = Interactions(np.full(len(items), user_idx, np.int32), items, np.ones(len(items), np.float32))
        best = self.recommend_to(np.array([user_idx]), counts=counts, history=history, k=k)
        return [ScoredItem(int(item), float(score)) for item, score in zip(best.item_idx, best.scores, strict=True)]

    def recommend_to(
        self, user_idx: npt.NDArray[np.int64], *, counts: npt.NDArray[np.int64], history: Interactions, k: int
    ) -> TopItems:
        """Return the top-k items of many users; see `recommend`.

        Args:
            user_idx: Encoded users, each once; shape (U,).
            counts: As for `recommend`.
            history: Rows with the seen items.
            k: Cut-off.
        """
        cold = self._cold.rows if self._model.by_content else self._cold.rows[:0]
        candidates = np.concatenate([most_met(counts), cold])
        scorer = ModelScorer(
            self._model, self._tables, self._schema, torch.from_numpy(candidates), batch_size=self._batch_size
        )
        blocks = rank_blocks(for_users(user_idx, history, candidates=candidates), scorer, cut_off=k)
        found = [_top_items(start, best, scores.numpy(), candidates) for start, _, best, scores in blocks]
        return TopItems(*(np.concatenate(parts) for parts in zip(TopItems.none(), *found, strict=True)))

    def score_rows(self, path: Path, schema: Schema) -> npt.NDArray[np.float32]:
        """Score every row of a parquet file that a fitted plan has written, in order; shape (N,).

        Args:
            path: The file, joined columns included.
            schema: Its columns.

        Raises:
            DataError: The file is not of this schema.
            TrainingError: A score is not a finite number.
        """
        columns = schema.features
        groups = groups_of(path, columns)
        records = read_records(Layout.of(columns, groups), groups)
        starts = range(0, records.num_rows, self._batch_size)
        batches = (Batch(records.span(start, start + self._batch_size), {}) for start in starts)
        return predict(self._model, batches)

    def nearest(self, item_idx: int, *, k: int) -> list[ScoredItem]:
        """Return the items whose vectors point most in an item's direction, by cosine, without itself; it `has_vectors`."""
        own = self._schema.only(Role.ITEM).own_ids
        items = np.concatenate([np.arange(own.start, own.stop), self._cold.rows if self._model.by_content else ()])
        items = items.astype(np.int64)
        at = int(np.searchsorted(items, item_idx))
        with torch.inference_mode():
            vectors = torch.nn.functional.normalize(self._model.item_vectors(torch.from_numpy(items)), dim=1)
            cosines = (vectors @ vectors[at]).numpy()
        best = np.argsort(-cosines, kind="stable")
        return [ScoredItem(int(items[p]), float(cosines[p])) for p in best if p != at][:k]

    def knows(self, item_idx: int) -> bool:
        """Whether the model can tell an item from others: it has an id, or the model looks at features."""
        return self._model.by_content or not self._cold.among(np.array(item_idx))


def _top_items(
    start: int, places: npt.NDArray[np.int64], scores: npt.NDArray[np.float32], candidates: npt.NDArray[np.int64]
) -> TopItems:
    """Return the rankings (B, P) of a block as rows, without what is behind their ends."""
    row, rank = np.nonzero(places >= 0)
    there = places[row, rank]
    return TopItems(row + start, rank + 1, candidates[there], scores[row, there])
