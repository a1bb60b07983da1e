"""Sparse item-item weights."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from recsys_cli.batch import Ragged
from recsys_cli.models.item_to_item import ItemWeights, rows_of

_FEW = 4
"""Items per element of histories from which on their rows are added one by one."""
_BUFFERED = 3
"""Multiple of the kept weights in memory."""


class Neighbors(ItemWeights):
    """Weights to near items as a sparse matrix: rows are items of the history, columns the items they are a neighbor of.

    With K neighbors per item, on average, it takes 20 C K bytes.
    """

    places: Tensor
    weights: Tensor

    def __init__(self, num_items: int, number: int) -> None:
        super().__init__()
        self.num_items, self.number = num_items, number
        self._indexed: tuple[object, tuple[Tensor, Tensor]] | None = None
        self.register_buffer("places", torch.zeros(2, num_items * number, dtype=torch.int64))
        self.register_buffer("weights", torch.zeros(num_items * number))

    def keep(self, keys: Tensor, weights: Tensor) -> None:
        """Store at most C K weights; the key of row s and column j is s C + j, each at most once."""
        keys, order = keys.sort()
        self.places.fill_(self.num_items - 1)  # a weight of 0 at the end of the diagonal fills the rest
        self.places[:, : len(keys)] = torch.stack([keys // self.num_items, keys % self.num_items])
        self.weights.zero_()[: len(keys)] = weights[order]

    def sums(self, histories: Ragged) -> Tensor:
        """Multiply the interaction matrix with the neighbor matrix."""
        size, num_users = self.num_items, len(histories.offsets) - 1
        near = Ragged(self.places[1], self._index()[0], self.weights)
        if _FEW * len(histories.values) > size:
            return multiply(histories, near, out=self.weights.new_empty(num_users, size))
        lists = near.picked(
            histories.values
        )  # few rows, where the conversion of the matrix would take most of the time
        row = rows_of(histories).repeat_interleave(lists.offsets.diff())
        assert lists.weights is not None
        sums = self.weights.new_zeros(num_users * size).index_add_(0, row * size + lists.values, lists.weights)
        return sums.view(num_users, size)

    def sums_of_pairs(self, histories: Ragged, items: Tensor) -> Tensor:
        """Look up the weight between each item of the history and the item, by binary search."""
        row, keys = rows_of(histories), self._index()[1]
        pairs = histories.values * self.num_items + items[row]
        index = torch.searchsorted(keys, pairs).clamp(max=len(keys) - 1)
        weights = self.weights[index].masked_fill(keys[index] != pairs, 0.0)
        return torch.zeros(len(items), device=items.device).index_add_(0, row, weights)

    def _index(self) -> tuple[Tensor, Tensor]:
        """Return the row pointers and the keys; computed once for the same places."""
        state = self.places.data_ptr(), self.places._version
        if self._indexed is None or self._indexed[0] != state:
            rows = torch.arange(self.num_items + 1, device=self.places.device)
            index = torch.searchsorted(self.places[0], rows), self.places[0] * self.num_items + self.places[1]
            self._indexed = state, index
        return self._indexed[1]


def multiply(left: Ragged, right: Ragged, *, out: Tensor) -> Tensor:
    """Return the product of two sparse matrices, given as lists of columns per row, in a dense output."""
    first = sparse_matrix(left, len(right.offsets) - 1)
    second = sparse_matrix(right, out.shape[1])
    if out.device.type == "cpu" and torch.backends.mkl.is_available():
        # Only MKL accumulates into the dense output: a quarter of the time of a sparse result and its conversion.
        return torch.addmm(out, first, second, beta=0, out=out)
    return out.copy_(torch.sparse.mm(first.to_sparse_coo(), second.to_sparse_coo()).to_dense())


def sparse_matrix(rows: Ragged, num_columns: int) -> Tensor:
    """Return a sparse matrix in CSR from lists of columns per row, with weights 1 if they have none."""
    weights = torch.ones(len(rows.values), device=rows.values.device) if rows.weights is None else rows.weights
    size = (len(rows.offsets) - 1, num_columns)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(rows.offsets, rows.values, weights, size, check_invariants=False)


class Largest:
    """The weights of the largest magnitude, in bounded memory.

    Attributes:
        least: Magnitude that added weights must exceed to be kept.
    """

    def __init__(self, number: int) -> None:
        self.least = 0.0
        self._number, self._buffered = number, 0
        self._parts: list[tuple[Tensor, Tensor]] = []

    def add(self, keys: Tensor, weights: Tensor) -> None:
        """Add weights with their keys."""
        large = weights.abs() > self.least
        self._parts.append((keys[large], weights[large]))
        self._buffered += len(self._parts[-1][0])
        if self._buffered > _BUFFERED * self._number:
            self._parts = [self.kept()]
            self._buffered = self._number
            self.least = float(self._parts[0][1].abs().min())

    def kept(self) -> tuple[Tensor, Tensor]:
        """Return the keys and the weights."""
        keys, weights = (torch.cat(column) for column in zip(*self._parts, strict=True))
        top = weights.abs().topk(min(self._number, len(weights))).indices
        return keys[top], weights[top]
