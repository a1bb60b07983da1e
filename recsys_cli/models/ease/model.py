"""EASE."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from recsys_cli.batch import Ragged
from recsys_cli.features.schema import Role, Schema
from recsys_cli.models.ease.config import Config
from recsys_cli.models.ease.penalty import choose_penalty, dtype_of, invert_
from recsys_cli.models.interaction_matrix import InteractionMatrix
from recsys_cli.models.item_to_item import DenseWeights, ItemToItemModel, ItemWeights, add_rows, gram, rows_of
from recsys_cli.models.model import Progress

_BLOCK = 1 << 22
"""Elements of folded-in user vectors per block."""
_DENSE_BYTES = {torch.float64: 14, torch.float32: 6}
"""Bytes per item pair while fitting: the weights in float32, the matrix to invert unless in place, and 2 of the penalty search."""
_BYTES_OF_A_USER = 20
"""Bytes per (item, user) pair with few users: a row and a vector in float64, and the final vector in float32."""


class Model(ItemToItemModel):
    """B minimizes |X - XB|² + λ|B|² with a zero diagonal, for the interaction matrix X (Steck 2019, eq. 8).

    With P = (XᵀX + λ)⁻¹ it is B = 1 - P diag(P)⁻¹.
    """

    deterministic = True
    learnt: DenseWeights | LowRankWeights

    def __init__(self, config: Config, schema: Schema) -> None:
        budget = config.memory_mib << 20
        num_users, num_items = (len(schema.only(role).own_ids) for role in (Role.USER, Role.ITEM))
        most = most_items(num_users, budget) if config.max_items is None else config.max_items
        super().__init__(schema, positive_only=config.positive_only, max_items=min(num_items, most))
        self.config = config
        self._users = self.user.own_ids
        self._fits_float64 = _DENSE_BYTES[torch.float64] * self.num_items**2 <= budget
        few = num_users < self.num_items <= _fit_with(num_users, budget)
        self.learnt = LowRankWeights(self.num_items, num_users) if few else DenseWeights(self.num_items)

    def learn(self, matrix: InteractionMatrix, progress: Progress) -> None:
        """Choose the penalty if the config has none, and solve the linear system."""
        progress(0, 3)
        counts = gram(matrix, out=self.learnt.weights) if isinstance(self.learnt, DenseWeights) else None
        progress(1, 3)
        penalty = self.config.regularization
        if penalty is None:
            penalty = choose_penalty(matrix, counts)
            self.chosen = {"regularization": penalty}
        progress(2, 3)
        if isinstance(self.learnt, LowRankWeights):
            rows = matrix.dense(self._users.start, self._users.stop, dtype=torch.float64)
            self.learnt.solve(rows, penalty)
        else:
            counts = self.learnt.weights
            system = counts.to(dtype_of(counts, penalty) if self._fits_float64 else torch.float32)
            system.diagonal().add_(penalty)
            invert_(system).div_(-system.diagonal().clone()).fill_diagonal_(0)
            counts.copy_(system)
        progress(3, 3)


def most_items(num_users: int, budget: int) -> int:
    """Return the maximum number of items, with dense or low-rank weights, within a memory budget in bytes."""
    return max(1, math.isqrt(budget // _DENSE_BYTES[torch.float32]), _fit_with(num_users, budget))


def _fit_with(num_users: int, budget: int) -> int:
    """Return the maximum number of items with vectors of R users, within a budget in bytes."""
    return budget // (_BYTES_OF_A_USER * max(1, num_users))


class LowRankWeights(ItemWeights):
    """The weights of EASE in factored form, for fewer users than items, never written out.

    By Woodbury's identity P = (1 - VᵀV) / λ with V = L⁻¹X and LLᵀ = XXᵀ + λ. For a row x of X, and with the shares d =
    λ diag(P) = 1 - |v|² of the columns v of V, xB = x - (x - xVᵀV) / d. With R users the factors take 4 R C bytes.
    """

    vectors: Tensor
    shares: Tensor

    def __init__(self, num_items: int, num_users: int) -> None:
        super().__init__()
        self.register_buffer("vectors", torch.zeros(num_items, num_users))
        self.register_buffer("shares", torch.ones(num_items))

    def solve(self, rows: Tensor, regularization: float) -> None:
        """Fit the factors to the rows of all users; shape (R, C), float64."""
        products = rows @ rows.T
        products.diagonal().add_(regularization)
        vectors = torch.linalg.solve_triangular(torch.linalg.cholesky(products), rows, upper=False)
        self.vectors.copy_(vectors.T)
        self.shares.copy_(1 - vectors.square().sum(0))

    def sums(self, histories: Ragged) -> Tensor:
        """Fold in the users, and multiply them with all items."""
        sums = (add_rows(self.vectors, histories) @ self.vectors.T).div_(self.shares)
        sums[rows_of(histories), histories.values] += 1 - 1 / self.shares[histories.values]
        return sums

    def sums_of_pairs(self, histories: Ragged, items: Tensor) -> Tensor:
        """Fold in the users, and multiply each with one item."""
        row = rows_of(histories)
        products, own = torch.zeros(2, len(items), device=items.device)
        step = max(1, _BLOCK // self.vectors.shape[1])
        for start in range(0, len(items), step):
            users = slice(start, min(start + step, len(items)))
            folded = add_rows(self.vectors, histories.span(users.start, users.stop))
            products[users] = (folded * self.vectors[items[users]]).sum(1)
        own.index_add_(0, row, (histories.values == items[row]).float())
        return (products - own) / self.shares[items] + own
