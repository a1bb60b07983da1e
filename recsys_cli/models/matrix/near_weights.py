"""The weights of EASE between near items only, for catalogs whose item pairs do not fit in memory.

The column of item j is a ridge regression on its neighbors S instead of on all other items: the column of (XᵀX + λ)⁻¹ restricted
to S (Steck, "Markov Random Fields for Collaborative Filtering", 2019). S has popular items too, near items share one S and its
factors, and of all weights the largest are kept.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from recsys_cli.models.interaction_matrix import InteractionMatrix
from recsys_cli.models.matrix.inverse import columns_of_inverse
from recsys_cli.models.model import Progress

# NDCG@10 on valid of near weights and of all, last item out: .0517 and .0509 on Amazon Toys, .0949 and .0949 on MovieTweetings,
# .0657 and .0681 on Gowalla around New York. Without popular items Gowalla has .0643; twice the pool takes three times as long.
POOL = 1_000
"""Maximum near items of a regression."""
_OWN, _NEAR, _POPULAR = 100, 200, 200
"""Nearest items of each item in its regression, the nearest that may share it, and the popular items of all regressions."""
_BLOCK = 1 << 22
"""Pairs of items per block of products."""
_BUFFERED = 3
"""Multiple of the kept weights in memory."""
Ids = npt.NDArray[np.integer]


class Products:
    """Numbers of common users of items, from the interaction matrix and the counts of its H most popular items."""

    def __init__(self, matrix: InteractionMatrix, head: Tensor) -> None:
        from scipy.sparse import csr_matrix  # a slow import, needed only to fit

        offsets, items = matrix.offsets.cpu().numpy(), matrix.items.cpu().numpy()
        shape = matrix.num_users, matrix.num_items
        self.rows = csr_matrix((np.ones(len(items), np.float32), items, offsets), shape=shape)
        self.columns = self.rows.T.tocsr()
        self.users = np.diff(self.columns.indptr).astype(np.float32)
        self.head = head

    def of(self, items: Ids) -> Tensor:
        """Return the counts between items, ascending; shape (S, S)."""
        number = int(np.searchsorted(items, len(self.head)))
        popular = torch.from_numpy(items[:number]).to(self.head.device)
        counts = self.head.new_zeros(len(items), len(items))
        counts[:number, :number] = self.head[popular.unsqueeze(1), popular]
        if number < len(items):
            rare = (self.columns[items[number:]] @ self.rows)[:, items].toarray()
            counts[number:] = torch.from_numpy(rare).to(counts.device)
            counts[:number, number:] = counts[number:, :number].T
        return counts

    def nearest(self, penalty: float) -> Ids:
        """Return the nearest items of each item j, nearest first, or -1; shape (C, N).

        Nearness of s is how much more of the variance of j it explains than by chance: (common - expected) / √(users of s + λ).
        """
        size = len(self.users)
        share = self.users / max(1, int((np.diff(self.rows.indptr) > 0).sum()))
        scale, step = 1 / np.sqrt(self.users + penalty), max(1, _BLOCK // max(1, size))
        nearest = np.full((size, _NEAR), -1, np.int32)
        for start in range(0, size, step):
            block = self.columns[start : start + step] @ self.rows
            block.sort_indices()  # of items as near, the more popular one is first
            for item, (first, last) in enumerate(pairwise(block.indptr), start):
                others = block.indices[first:last]
                gain = (block.data[first:last] - share[item] * self.users[others]) * scale[others]
                gain[others == item] = -np.inf
                near = others[(-gain).argsort(kind="stable")[: min(_NEAR, len(others) - 1)]]
                nearest[item, : len(near)] = near
        return nearest


def near_weights(products: Products, penalty: float, *, number: int, progress: Progress) -> tuple[Tensor, Tensor]:
    """Return the `number` largest weights, from item s to item j, with the keys s C + j.

    Item indices are by popularity, most popular first.
    """
    nearest, size, device = products.nearest(penalty), len(products.users), products.head.device
    largest, done, popular = Largest(number), np.zeros(size, bool), np.arange(min(_POPULAR, size))
    for seed in range(size):
        if done[seed]:
            continue
        near = nearest[seed][nearest[seed] >= 0]
        columns, items = pool_of(np.append(seed, near[~done[near]]), nearest[:, :_OWN])
        done[columns] = True
        items = np.union1d(items, popular)
        at = torch.from_numpy(np.searchsorted(items, columns)).to(device)
        inverse = columns_of_inverse(products.of(items), penalty, at)
        own = at, torch.arange(len(at), device=device)
        weights = -inverse / inverse[own]
        weights[own] = 0
        keys = torch.from_numpy(items[:, None] * size + columns).to(device)
        largest.add(keys.flatten(), weights.float().flatten())
        progress(int(done.sum()), size)
    return largest.kept()


def pool_of(candidates: Ids, nearest: Ids) -> tuple[Ids, Ids]:
    """Return the first candidates whose own and near items, all together, are at most `POOL`, and these items, ascending."""
    lists = np.column_stack([candidates, nearest[candidates]]).astype(np.int64)
    items, first = np.unique(lists, return_index=True)
    place = (first // lists.shape[1])[items >= 0]
    sizes = np.bincount(place, minlength=len(candidates)).cumsum()
    number = max(1, int((sizes <= POOL).sum()))
    return candidates[:number], items[items >= 0][place < number]


class Largest:
    """The weights of the largest magnitude, in bounded memory."""

    def __init__(self, number: int) -> None:
        self._number, self._buffered, self._least = number, 0, 0.0
        self._parts: list[tuple[Tensor, Tensor]] = []

    def add(self, keys: Tensor, weights: Tensor) -> None:
        """Add weights with their keys."""
        keep = weights.abs() > self._least
        self._parts.append((keys[keep], weights[keep]))
        self._buffered += len(self._parts[-1][0])
        if self._buffered > _BUFFERED * self._number:
            self._parts = [self.kept()]
            self._buffered = self._number
            self._least = float(self._parts[0][1].abs().min())

    def kept(self) -> tuple[Tensor, Tensor]:
        """Return the keys and the weights."""
        keys, weights = (torch.cat(column) for column in zip(*self._parts, strict=True))
        top = weights.abs().topk(min(self._number, len(weights))).indices
        return keys[top], weights[top]
