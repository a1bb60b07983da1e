"""SLIM (Ning and Karypis, 2011) by coordinate descent."""

from __future__ import annotations

import torch
from torch import Tensor

from recsys_cli.features.schema import Schema
from recsys_cli.models.configs.matrix import SLIMConfig
from recsys_cli.models.interaction_matrix import InteractionMatrix
from recsys_cli.models.item_to_item import DenseWeights, ItemToItemModel, gram
from recsys_cli.models.model import Progress

_BLOCK = 64
"""Coordinates between updates of all other residuals, by one matrix product instead of many."""
_MAX_COLUMNS = 1024
"""Columns per block."""


def columns(
    products: Tensor, start: int, stop: int, *, l1: float, l2: float, tolerance: float, max_sweeps: int
) -> Tensor:
    """Return non-negative elastic-net weights of columns start, …, stop - 1 regressed on the others, shape (C, stop - start).

    Cyclic coordinate descent (Friedman, Hastie and Tibshirani, "Regularization Paths for Generalized Linear Models via
    Coordinate Descent", 2010, section 2.2), vectorized over columns, until no weight changes by more than `tolerance`.
    `products` is the Gram matrix XᵀX, shape (C, C), without zeros on its diagonal.
    """
    residuals = products[:, start:stop].clone()  # Xᵀ(x - Xw) for each column x and its weights w
    weights = torch.zeros_like(residuals)
    own = torch.arange(start, stop, device=products.device)
    for _ in range(max_sweeps):
        change = 0.0
        for first in range(0, len(products), _BLOCK):
            last = min(first + _BLOCK, len(products))
            before = weights[first:last].clone()
            _sweep(
                products[first:last, first:last], residuals[first:last], weights[first:last], own - first, l1=l1, l2=l2
            )
            changes = weights[first:last] - before
            residuals.addmm_(products[:, first:last], changes, alpha=-1)
            change = max(change, float(changes.abs().max()))
        if change <= tolerance:
            break
    return weights


def _sweep(products: Tensor, residuals: Tensor, weights: Tensor, own: Tensor, *, l1: float, l2: float) -> None:
    """Update a block of c coordinates of n columns in turn, in place, from its Gram matrix and its residuals.

    `own` is the index in the block of each column itself, below 0 or above c - 1 if outside; shape (n,).
    """
    current = residuals.clone()
    for index in range(len(products)):
        square = products[index, index]
        best = ((current[index] + square * weights[index] - l1) / (square + l2)).clamp_(min=0)
        best.masked_fill_(own == index, 0.0)
        rest = slice(index + 1, None)
        current[rest].addr_(products[rest, index], weights[index] - best)
        weights[index] = best


class SLIM(ItemToItemModel):
    """W minimizes ½|X - XW|² + β/2 |W|² + λ|W|₁ with W >= 0 and a zero diagonal (Ning and Karypis 2011, eq. 3)."""

    deterministic = True
    learnt: DenseWeights

    def __init__(self, config: SLIMConfig, schema: Schema) -> None:
        super().__init__(schema, positive_only=config.positive_only, max_items=config.max_items)
        self.config = config
        self.learnt = DenseWeights(self.num_items)

    def learn(self, matrix: InteractionMatrix, progress: Progress) -> None:
        """Solve for blocks of columns of W."""
        config, counts = self.config, gram(matrix)
        # A non-zero weight needs more than λ common users, so items with fewer users are skipped.
        size = int((counts.diagonal() > config.l1).sum())
        counts = counts[:size, :size].contiguous()
        self.learnt.weights.zero_()
        for start in range(0, size, _MAX_COLUMNS):
            stop = min(start + _MAX_COLUMNS, size)
            self.learnt.weights[:size, start:stop] = columns(
                counts,
                start,
                stop,
                l1=config.l1,
                l2=config.l2,
                tolerance=config.tolerance,
                max_sweeps=config.max_sweeps,
            )
            progress(stop, size)
