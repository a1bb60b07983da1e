"""How near items are: products of the columns of who has met what, weighted as words of texts are, and the best of each item."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from recsys_cli.batch import Ragged
from recsys_cli.features.schema import Schema
from recsys_cli.models.history import History
from recsys_cli.models.item_knn.config import Config
from recsys_cli.models.item_to_item import ItemToItem, ItemWeights, rows_of
from recsys_cli.models.model import Progress

_BLOCK = 1 << 24
"""Products of items that are held at once."""


class Model(ItemToItem):
    """An item's score is the sum of its nearness to those of its nearest items that the user has met."""

    deterministic = True
    learnt: Neighbours

    def __init__(self, config: Config, schema: Schema) -> None:
        super().__init__(schema, positive_only=config.positive_only, max_items=None)
        self.config = config
        self.learnt = Neighbours(self.num_items, min(config.neighbours, max(1, self.num_items - 1)))

    def learn(self, history: History, progress: Progress) -> None:
        """Multiply some columns with all columns at a time, and keep the largest products of each."""
        values = self._weights(history)
        users = torch.arange(history.num_users, device=values.device).repeat_interleave(history.offsets.diff())
        size = (history.num_users, history.num_items)
        columns = _matrix(users, history.items, values, size).coalesce()
        lengths = torch.bincount(history.items, values.square(), minlength=history.num_items).sqrt().float()
        by_item, nearest = columns.t().coalesce(), []
        step = max(1, _BLOCK // max(1, history.num_items))
        for start in range(0, history.num_items, step):
            stop = min(start + step, history.num_items)
            products = _product(_rows(by_item, start, stop), columns)
            if self.config.normalize:
                products /= torch.outer(lengths[start:stop], lengths).add_(self.config.shrinkage).clamp_(min=1e-12)
            products.diagonal(start).zero_()
            nearest.append(products.topk(self.learnt.number, dim=1))
            progress(stop, history.num_items)
        self.learnt.keep(
            torch.cat([block.indices for block in nearest]), torch.cat([block.values for block in nearest])
        )

    def _weights(self, history: History) -> Tensor:
        """Return how much each element of the history counts; float32.

        Items are the texts and users the words: idf = log(number of items) - log(1 + items of the user); bm25 weighs a word that
        is there once by (k1 + 1) / (k1 (1 - b + b length / mean length) + 1) times idf (Robertson and Zaragoza, 2009, eq. 3.15).
        """
        if self.config.weighting == "none":
            return torch.ones(len(history.items), device=history.items.device)
        lengths = history.offsets.diff()
        idf = (history.num_items / (1.0 + lengths)).log().clamp(min=0).repeat_interleave(lengths)
        if self.config.weighting == "tfidf":
            return idf
        k1, b, popularity = self.config.k1, self.config.b, history.counts.float()
        longer = 1 - b + b * popularity / popularity.mean()
        return idf * ((k1 + 1) / (k1 * longer + 1))[history.items]


class Neighbours(ItemWeights):
    """The nearest items of each item, as a sparse matrix: its rows are what was met, its columns the items that it is near to.

    Args:
        num_items: C.
        number: K, how many neighbours an item has; it takes 20 C K bytes.
    """

    places: Tensor
    weights: Tensor

    def __init__(self, num_items: int, number: int) -> None:
        super().__init__()
        self.num_items, self.number = num_items, number
        self.register_buffer("places", torch.zeros(2, num_items * number, dtype=torch.int64))
        self.register_buffer("weights", torch.zeros(num_items * number))

    def keep(self, neighbours: Tensor, nearness: Tensor) -> None:
        """Keep the neighbours of all items, and how near they are; shape (C, K) each."""
        items = torch.arange(self.num_items, device=neighbours.device).repeat_interleave(self.number)
        size = (self.num_items, self.num_items)
        matrix = _matrix(neighbours.flatten(), items, nearness.flatten(), size).coalesce()
        self.places.copy_(matrix.indices())
        self.weights.copy_(matrix.values())

    def sums(self, met: Ragged) -> Tensor:
        """Multiply the matrix of who has met what with that of neighbours."""
        ones = torch.ones(len(met.values), device=met.values.device)
        who = _matrix(rows_of(met), met.values, ones, (len(met.offsets) - 1, self.num_items))
        size = (self.num_items, self.num_items)
        near = torch.sparse_coo_tensor(self.places, self.weights, size, is_coalesced=True, check_invariants=False)
        return _product(who, near)

    def sums_of_pairs(self, met: Ragged, items: Tensor) -> Tensor:
        """Look each item up among those that what its user has met is near to."""
        row = rows_of(met)
        known = self.places[0] * self.num_items + self.places[1]
        wanted = met.values * self.num_items + items[row]
        place = torch.searchsorted(known, wanted).clamp(max=len(known) - 1)
        found = self.weights[place].masked_fill(known[place] != wanted, 0.0)
        return torch.zeros(len(items), device=items.device).index_add_(0, row, found)


def _matrix(rows: Tensor, columns: Tensor, values: Tensor, size: tuple[int, int]) -> Tensor:
    return torch.sparse_coo_tensor(torch.stack([rows, columns]), values, size, check_invariants=False)


def _rows(matrix: Tensor, start: int, stop: int) -> Tensor:
    """Return some rows of a coalesced sparse matrix."""
    (rows, columns), values = matrix.indices(), matrix.values()
    first, last = torch.searchsorted(rows, torch.tensor([start, stop], device=rows.device)).tolist()
    return _matrix(rows[first:last] - start, columns[first:last], values[first:last], (stop - start, matrix.shape[1]))


def _product(left: Tensor, right: Tensor) -> Tensor:
    """Return the product of two sparse matrices, with its zeros."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")  # torch's own way through it
        if left.device.type == "cpu" and torch.backends.mkl.is_available():
            # MKL alone adds up in the dense result at once: a quarter of the time of a sparse result that is made dense.
            zeros = torch.zeros(left.shape[0], right.shape[1])
            return torch.addmm(zeros, left.to_sparse_csr(), right.to_sparse_csr())
        return torch.sparse.mm(left, right).to_dense()
