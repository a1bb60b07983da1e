"""Item-to-item models (EASE, SLIM, item-kNN): scores are sums of item-item weights over the user's history.

Users have no vectors, so a longer history is folded in without retraining.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.batch import Batch, Ragged
from recsys_cli.features.schema import Role, Schema
from recsys_cli.models.interaction_matrix import InteractionMatrix, spans
from recsys_cli.models.model import LeftOut, Model, Progress, TrainingContext, unheard

_MOST = 1 << 22
"""Elements of user histories per block."""


class ItemWeights(nn.Module, ABC):
    """Weights between C items, numbered from 0."""

    @abstractmethod
    def sums(self, histories: Ragged) -> Tensor:
        """Return for each user and item the sum of weights between the user's history and the item.

        Args:
            histories: The items of U users.

        Returns:
            Shape (U, C), float32.
        """

    @abstractmethod
    def sums_of_pairs(self, histories: Ragged, items: Tensor) -> Tensor:
        """Return the same for one item a user; items (U,), sums (U,)."""


class ItemToItemModel(Model):
    """Closed-form model whose score is the sum of item-item weights between the user's history and the item.

    The score is 0 for items outside the model, and for users without a history.

    Args:
        schema: Has a user and an item.
        positive_only: Whether to ignore interactions that are not positive, see `Interactions.positive`.
        max_items: Most items of the model, by number of users; None for all.
    """

    rows = "all"
    scoring = "catalog"
    folds_in = True
    kept: Tensor
    learnt: ItemWeights

    def __init__(self, schema: Schema, *, positive_only: bool, max_items: int | None) -> None:
        super().__init__()
        self.user, self.item = schema.only(Role.USER), schema.only(Role.ITEM)
        self._positive_only = positive_only
        self._histories: InteractionMatrix | None = None
        self._place = torch.empty(0, dtype=torch.int64)
        own = len(self.item.own_ids)
        self.register_buffer("kept", torch.zeros(own if max_items is None else min(own, max_items), dtype=torch.int64))

    @property
    def num_items(self) -> int:
        """C, the number of items of the model."""
        return len(self.kept)

    @abstractmethod
    def learn(self, matrix: InteractionMatrix, progress: Progress) -> None:
        """Set `learnt`, the weights.

        Args:
            matrix: Interactions of train, items numbered from 0 to C - 1, the most popular first.
            progress: Called with the state of the work.
        """

    def fit(self, context: TrainingContext, *, progress: Progress = unheard) -> None:
        """Choose the items and learn their weights."""
        matrix = self._matrix(context)
        counts = matrix.counts[self.item.own_ids.start : self.item.own_ids.stop]
        order = counts.argsort(descending=True, stable=True)
        self.kept.copy_(order[: self.num_items] + self.item.own_ids.start)
        self._number_items()
        self.learn(matrix.renamed(self._place, num_items=self.num_items), progress)

    def set_context(self, context: TrainingContext) -> None:
        """Take the user histories."""
        self._number_items()
        matrix = self._matrix(context)
        self.left_out = self._left_out(matrix)
        self._histories = matrix.renamed(self._place, num_items=self.num_items)

    def score(self, batch: Batch) -> Tensor:
        """Return the sum for each row, shape (B,); after `set_context`."""
        users, items = batch.features[self.user.name], batch.features[self.item.name]
        assert isinstance(users, Tensor)
        assert isinstance(items, Tensor)
        assert self._histories is not None, "call set_context first"
        users, places = users.long(), self._place[items.long()]
        scores = torch.zeros(len(places), device=places.device)
        for rows in spans(self._histories.offsets_of(users), most=_MOST):
            scores[rows] = self.learnt.sums_of_pairs(self._histories.of_users(users[rows]), places[rows].clamp(min=0))
        return scores.masked_fill(places < 0, 0.0)

    def scores(self, users: Tensor, items: Tensor) -> Tensor:
        """Return the sum for each user and item, shape (U, I)."""
        assert self._histories is not None, "call set_context first"
        sums = self.learnt.sums(self._histories.of_users(users))
        return F.pad(sums, (0, 1))[:, self._place[items]]  # the place -1 is that of the zeros behind

    def _matrix(self, context: TrainingContext) -> InteractionMatrix:
        return InteractionMatrix.of(
            context.interactions(), self.user, self.item, positive_only=self._positive_only, device=self.device
        )

    def _left_out(self, matrix: InteractionMatrix) -> LeftOut | None:
        """Count items of the matrix without weights."""
        counts = matrix.counts
        others = counts.clone()
        others[self.kept] = 0
        items, interactions = int(others.count_nonzero()), float(others.sum())
        if not items:
            return None
        return LeftOut(items, int(counts.count_nonzero()), interactions / float(counts.sum()))

    def _number_items(self) -> None:
        self._place = torch.full((int(self.item.cardinality or 0),), -1, device=self.device)
        self._place[self.kept] = torch.arange(self.num_items, device=self.device)


class DenseWeights(ItemWeights):
    """A weight of every item for every other.

    Args:
        num_items: C; it takes 4 C² bytes.
    """

    weights: Tensor

    def __init__(self, num_items: int) -> None:
        super().__init__()
        self.register_buffer("weights", torch.zeros(num_items, num_items))

    def sums(self, histories: Ragged) -> Tensor:
        """Add up rows of the weights."""
        return add_rows(self.weights, histories)

    def sums_of_pairs(self, histories: Ragged, items: Tensor) -> Tensor:
        """Pick weights one by one."""
        row = rows_of(histories)
        return torch.zeros(len(items), device=items.device).index_add_(
            0, row, self.weights[histories.values, items[row]]
        )


def add_rows(table: Tensor, lists: Ragged) -> Tensor:
    """Return the sum of a table's rows for each list of row numbers; table (N, D), sums (U, D)."""
    return F.embedding_bag(lists.values, table, lists.offsets, mode="sum", include_last_offset=True)


def rows_of(lists: Ragged) -> Tensor:
    """Return which list each element is of; shape (N,)."""
    return torch.arange(len(lists.offsets) - 1, device=lists.offsets.device).repeat_interleave(lists.offsets.diff())


def gram(matrix: InteractionMatrix, *, block: int = 1 << 23, out: Tensor | None = None) -> Tensor:
    """Return the number of users with both items of each pair, exactly; shape (C, C), float32.

    Rows of users are multiplied with their zeros: that is faster than it looks, and it is what graphics cards are for.

    Args:
        matrix: C items, and fewer than 2**24 users.
        block: How many numbers of rows are held at once.
        out: Where to write it; shape (C, C), float32.
    """
    size = matrix.num_items
    counts = torch.zeros(size, size, device=matrix.items.device) if out is None else out.zero_()
    step = max(1, block // max(1, size))
    for start in range(0, matrix.num_users, step):
        rows = matrix.dense(start, min(start + step, matrix.num_users))
        counts.addmm_(rows.T, rows)
    return counts
