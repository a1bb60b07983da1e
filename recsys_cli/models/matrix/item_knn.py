"""ItemKNN."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from recsys_cli.batch import Ragged
from recsys_cli.features.schema import Schema
from recsys_cli.models.configs.matrix import ItemKNNConfig
from recsys_cli.models.interaction_matrix import InteractionMatrix, starts, transpose
from recsys_cli.models.item_to_item import ItemToItemModel, ItemWeights, rows_of
from recsys_cli.models.model import Progress

_BLOCK = 1 << 21
"""Similarities per block; small enough to stay in the CPU cache between operations."""
_LEAST = 1e-12
"""Minimum shrinkage, against division by zero."""


class ItemKNN(ItemToItemModel):
    """An item's score is the sum of its weighted cosine similarities, by common users, to the user history's nearest neighbors."""

    deterministic = True
    learnt: Neighbors

    def __init__(self, config: ItemKNNConfig, schema: Schema) -> None:
        super().__init__(schema, positive_only=config.positive_only, max_items=None)
        self.config = config
        self.learnt = Neighbors(self.num_items, min(config.num_neighbors, max(1, self.num_items - 1)))

    def learn(self, matrix: InteractionMatrix, progress: Progress) -> None:
        """Multiply blocks of columns with all columns, and keep the largest similarities of each."""
        if not matrix.num_items:
            return
        values = self._weights(matrix)
        lengths = torch.bincount(matrix.items, values.square(), minlength=matrix.num_items).sqrt().float()
        by_user = Ragged(matrix.items, matrix.offsets, values)
        by_item, nearest = transpose(by_user, matrix.num_items), []
        step = max(1, _BLOCK // max(1, matrix.num_items))
        products, scale = torch.empty(2, min(step, matrix.num_items), matrix.num_items, device=values.device)
        shrinkage = lengths.new_tensor(max(self.config.shrinkage, _LEAST))
        for start in range(0, matrix.num_items, step):
            stop = min(start + step, matrix.num_items)
            block = _multiply(by_item.span(start, stop), by_user, out=products[: stop - start])
            if self.config.normalize:
                block /= torch.addr(shrinkage, lengths[start:stop], lengths, out=scale[: stop - start])
            block.diagonal(start).zero_()
            nearest.append(block.topk(self.learnt.number, dim=1))
            progress(stop, matrix.num_items)
        self.learnt.keep(
            torch.cat([block.indices for block in nearest]), torch.cat([block.values for block in nearest])
        )

    def _weights(self, matrix: InteractionMatrix) -> Tensor:
        """Return the weight of each element of the matrix; float32.

        Items are the documents and users the terms: idf = log(number of items) - log(1 + items of the user). BM25 multiplies idf
        by (k1 + 1) / (k1 (1 - b + b length / mean length) + 1) (Robertson and Zaragoza, 2009, eq. 3.15).
        """
        if self.config.weighting == "none":
            return torch.ones(len(matrix.items), device=matrix.items.device)
        lengths = matrix.offsets.diff()
        idf = (matrix.num_items / (1.0 + lengths)).log().clamp(min=0).repeat_interleave(lengths)
        if self.config.weighting == "tfidf":
            return idf
        k1, b, popularity = self.config.k1, self.config.b, matrix.counts.float()
        longer = 1 - b + b * popularity / popularity.mean()
        return idf * ((k1 + 1) / (k1 * longer + 1))[matrix.items]


class Neighbors(ItemWeights):
    """Nearest neighbors as a sparse matrix: rows are items of the history, columns the items they are a neighbor of.

    With K neighbors per item it takes 20 C K bytes.
    """

    places: Tensor
    weights: Tensor

    def __init__(self, num_items: int, number: int) -> None:
        super().__init__()
        self.num_items, self.number = num_items, number
        self.register_buffer("places", torch.zeros(2, num_items * number, dtype=torch.int64))
        self.register_buffer("weights", torch.zeros(num_items * number))

    def keep(self, neighbors: Tensor, similarities: Tensor) -> None:
        """Store the neighbors of all items and their similarities; shape (C, K) each."""
        sources, order = neighbors.flatten().sort(stable=True)
        self.places.copy_(torch.stack([sources, torch.div(order, self.number, rounding_mode="floor")]))
        self.weights.copy_(similarities.flatten()[order])

    def sums(self, histories: Ragged) -> Tensor:
        """Multiply the interaction matrix with the neighbor matrix."""
        near = Ragged(self.places[1], starts(self.places[0], self.num_items), self.weights)
        return _multiply(histories, near, out=self.weights.new_empty(len(histories.offsets) - 1, self.num_items))

    def sums_of_pairs(self, histories: Ragged, items: Tensor) -> Tensor:
        """Look up the weight between each item of the history and the item, by binary search."""
        row = rows_of(histories)
        keys = self.places[0] * self.num_items + self.places[1]
        pairs = histories.values * self.num_items + items[row]
        index = torch.searchsorted(keys, pairs).clamp(max=len(keys) - 1)
        weights = self.weights[index].masked_fill(keys[index] != pairs, 0.0)
        return torch.zeros(len(items), device=items.device).index_add_(0, row, weights)


def _multiply(left: Ragged, right: Ragged, *, out: Tensor) -> Tensor:
    """Return the product of two sparse matrices, given as lists of columns per row, in a dense output."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        first = _matrix(left, len(right.offsets) - 1)
        second = _matrix(right, out.shape[1])
        if out.device.type == "cpu" and torch.backends.mkl.is_available():
            # Only MKL accumulates into the dense output: a quarter of the time of a sparse result and its conversion.
            return torch.addmm(out, first, second, beta=0, out=out)
        return out.copy_(torch.sparse.mm(first.to_sparse_coo(), second.to_sparse_coo()).to_dense())


def _matrix(rows: Ragged, num_columns: int) -> Tensor:
    weights = torch.ones(len(rows.values), device=rows.values.device) if rows.weights is None else rows.weights
    size = (len(rows.offsets) - 1, num_columns)
    return torch.sparse_csr_tensor(rows.offsets, rows.values, weights, size, check_invariants=False)
