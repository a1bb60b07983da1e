"""Item-to-item models (EASE, SLIM, ItemKNN): scores are sums of item-item weights over the user history.

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
from recsys_cli.models.model import LeftOut, Model, Progress, TrainingContext, no_progress, pair_ids

_MAX_ELEMENTS = 1 << 22
"""Maximum elements of user histories per block."""
_PRODUCTS_OF_A_PAIR = 1_500
"""Products of a dense multiplication in the time of adding one pair of items."""


class ItemWeights(nn.Module, ABC):
    """Weights between C items, with indices from 0."""

    @abstractmethod
    def sums(self, histories: Ragged) -> Tensor:
        """Return the sums of weights from each history of item indices to all items, shape (U, C), float32."""

    @abstractmethod
    def sums_of_pairs(self, histories: Ragged, items: Tensor) -> Tensor:
        """Return the score of one item per user; items (U,), sums (U,)."""


class ItemToItemModel(Model):
    """Closed-form model with a sum of item-item weights over the user history as its score, 0 for items outside the model.

    `positive_only` keeps `Interactions.positive`; `max_items` limits the items by number of users, None for all.
    """

    rows = "all"
    loss_options = frozenset()
    scoring = "catalog"
    folds_in = True
    kept: Tensor
    learnt: ItemWeights

    def __init__(self, schema: Schema, *, positive_only: bool, max_items: int | None) -> None:
        super().__init__()
        self.user, self.item = schema.only(Role.USER), schema.only(Role.ITEM)
        self._positive_only = positive_only
        self._histories: InteractionMatrix | None = None
        self._index = torch.empty(0, dtype=torch.int64)
        own = len(self.item.own_ids)
        self.register_buffer("kept", torch.zeros(own if max_items is None else min(own, max_items), dtype=torch.int64))

    @property
    def num_items(self) -> int:
        """C, the number of items of the model."""
        return len(self.kept)

    @abstractmethod
    def learn(self, matrix: InteractionMatrix, progress: Progress) -> None:
        """Fit `learnt`, the weights, to train, with item indices from 0 to C - 1 by popularity, most popular first."""

    def fit(self, context: TrainingContext, *, progress: Progress = no_progress) -> None:
        """Choose the items and fit their weights."""
        matrix = self._matrix(context)
        counts = matrix.counts[self.item.own_ids.start : self.item.own_ids.stop]
        order = counts.argsort(descending=True, stable=True)
        self.kept.copy_(order[: self.num_items] + self.item.own_ids.start)
        self._index_items()
        self.learn(matrix.renumbered(self._index, num_items=self.num_items), progress)

    def set_context(self, context: TrainingContext) -> None:
        """Set the user histories."""
        self._index_items()
        matrix = self._matrix(context)
        self.left_out = self._left_out(matrix)
        self._histories = matrix.renumbered(self._index, num_items=self.num_items)

    def score(self, batch: Batch) -> Tensor:
        """Return the sum for each row, shape (B,); after `set_context`."""
        assert self._histories is not None, "call set_context first"
        users, items = pair_ids(batch, self.user, self.item)
        indices = self._index[items]
        scores = torch.zeros(len(indices), device=indices.device)
        for rows in spans(self._histories.offsets_of(users), max_elements=_MAX_ELEMENTS):
            scores[rows] = self.learnt.sums_of_pairs(self._histories.of_users(users[rows]), indices[rows].clamp(min=0))
        return scores.masked_fill(indices < 0, 0.0)

    def scores(self, users: Tensor, items: Tensor) -> Tensor:
        """Return the sum of weights for each user and item, shape (U, I)."""
        assert self._histories is not None, "call set_context first"
        sums = self.learnt.sums(self._histories.of_users(users))
        return F.pad(sums, (0, 1))[:, self._index[items]]  # index -1 is the appended column of zeros

    def weights_between(self, items: Tensor, others: Tensor) -> Tensor:
        """Return the weight of each item in the score of each other item; (H,) and (K,) to (H, K), after `set_context`.

        Weights of items outside the model are 0.
        """
        of, to = self._index[items].repeat_interleave(len(others)), self._index[others].repeat(len(items))
        lists = Ragged(of.clamp(min=0), torch.arange(len(of) + 1, device=of.device))
        weights = self.learnt.sums_of_pairs(lists, to.clamp(min=0))
        return weights.masked_fill((of < 0) | (to < 0), 0.0).view(len(items), len(others))

    def _matrix(self, context: TrainingContext) -> InteractionMatrix:
        return InteractionMatrix.of(
            context.interactions(), self.user, self.item, positive_only=self._positive_only, device=self.device
        )

    def _left_out(self, matrix: InteractionMatrix) -> LeftOut | None:
        counts = matrix.counts
        others = counts.clone()
        others[self.kept] = 0
        items, interactions = int(others.count_nonzero()), float(others.sum())
        if not items:
            return None
        return LeftOut(items, int(counts.count_nonzero()), interactions / float(counts.sum()))

    def _index_items(self) -> None:
        self._index = torch.full((int(self.item.cardinality or 0),), -1, device=self.device)
        self._index[self.kept] = torch.arange(self.num_items, device=self.device)


class DenseWeights(ItemWeights):
    """Dense item-item weights, 4 C² bytes."""

    weights: Tensor

    def __init__(self, num_items: int) -> None:
        super().__init__()
        self.register_buffer("weights", torch.zeros(num_items, num_items))

    def sums(self, histories: Ragged) -> Tensor:
        """Sum rows of the weights."""
        return add_rows(self.weights, histories)

    def sums_of_pairs(self, histories: Ragged, items: Tensor) -> Tensor:
        """Gather single weights and sum them."""
        row = rows_of(histories)
        return torch.zeros(len(items), device=items.device).index_add_(
            0, row, self.weights[histories.values, items[row]]
        )


def add_rows(table: Tensor, lists: Ragged) -> Tensor:
    """Return the sum, weighted by `lists.weights`, of a table's rows per list of row indices; table (N, D), sums (U, D)."""
    return F.embedding_bag(
        lists.values, table, lists.offsets, mode="sum", per_sample_weights=lists.weights, include_last_offset=True
    )


def rows_of(lists: Ragged) -> Tensor:
    """Return the list index of each element; shape (N,)."""
    return torch.repeat_interleave(lists.offsets.diff())


def gram(matrix: InteractionMatrix, *, block: int = 1 << 20, out: Tensor | None = None) -> Tensor:
    """Return XᵀX of the interaction matrix X: exact counts of common users, shape (C, C), float32.

    Sparse rows add 1 for each pair of their items, one item after another to stay in the cache; others are multiplied in dense
    blocks. Exact below 2**24 users.
    """
    size, lengths = matrix.num_items, matrix.offsets.diff()
    counts = torch.zeros(size, size, device=matrix.items.device) if out is None else out.zero_()
    if int(lengths.square().sum()) * _PRODUCTS_OF_A_PAIR > int(lengths.count_nonzero()) * size**2:
        step = max(1, 4 * block // max(1, size))
        for start in range(0, matrix.num_users, step):
            rows = matrix.dense(start, min(start + step, matrix.num_users))
            counts.addmm_(rows.T, rows)
        return counts
    audiences = matrix.transpose()
    items, ones = audiences.users, counts.new_ones(1)
    for elements in spans(matrix.offsets_of(audiences.items), max_elements=block):
        lists = matrix.of_users(audiences.items[elements])
        pairs = (items[elements] * size).repeat_interleave(lists.offsets.diff()).add_(lists.values)
        counts.view(-1).index_add_(0, pairs, ones.expand(len(pairs)))
    return counts
