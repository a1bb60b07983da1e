"""The largest weights of EASE, for catalogs whose item pairs do not fit in memory.

Columns of (XᵀX + λ)⁻¹ are solved by preconditioned conjugate gradients from sparse products with X (Hestenes and Stiefel, 1952),
some at a time, and of all weights the largest are kept.
"""

from __future__ import annotations

import torch
from torch import Tensor

from recsys_cli.batch import Ragged
from recsys_cli.models.interaction_matrix import InteractionMatrix, transpose
from recsys_cli.models.item_to_item import gram
from recsys_cli.models.matrix.inverse import inverse_of
from recsys_cli.models.matrix.neighbors import Largest, sparse_matrix
from recsys_cli.models.model import Progress

_HEAD = 256
"""Most popular items, whose exact inverse is in the preconditioner: their counts vary most."""
_TOLERANCE, _ROUNDING = 0.1, 1e-5
"""Residual of a solved column relative to that after the first step, which finds little more than the diagonal, or to the column of
the identity; in the norm of the preconditioner."""
_MAX_STEPS = 100
_BLOCK = 16, 128
"""Columns solved at a time, on the CPU and on a GPU. On two cores 160 columns take twice the time of 16, which fit the cache."""


def largest_weights(
    matrix: InteractionMatrix, penalty: float, *, number: int, progress: Progress
) -> tuple[Tensor, Tensor]:
    """Return the `number` largest weights, from item s to item j, with the keys s C + j.

    Item indices are by popularity, most popular first.
    """
    system, largest, size = System(matrix, penalty), Largest(number), matrix.num_items
    rows = torch.arange(size, device=matrix.items.device)
    block = _BLOCK[matrix.items.device.type == "cuda"]
    for start in range(0, size, block):
        columns = rows[start : start + block]
        weights = system.solve(columns)
        own = columns, columns - start
        weights.div_(-weights[own])
        weights[own] = 0
        # keys only of those that may stay: most weights of a column are small
        large = (weights.abs() > largest.least).nonzero(as_tuple=True)
        largest.add(large[0] * size + columns[large[1]], weights[large])
        progress(int(columns[-1]) + 1, size)
    return largest.kept()


class System:
    """The matrix XᵀX + λ, and its preconditioner: the inverse between the most popular items, and the diagonal of the others."""

    def __init__(self, matrix: InteractionMatrix, penalty: float) -> None:
        lists = Ragged(matrix.items, matrix.offsets)
        self.rows = sparse_matrix(lists, matrix.num_items)
        self.columns = sparse_matrix(transpose(lists, matrix.num_items), matrix.num_users)
        self.penalty = penalty
        self.diagonal = matrix.counts.unsqueeze(1) + penalty
        self.head = inverse_of(gram(matrix.first(_HEAD)), penalty).float()

    def times(self, vectors: Tensor) -> Tensor:
        """Multiply the matrix with vectors, shape (C, S)."""
        return (self.columns @ (self.rows @ vectors)).add_(vectors, alpha=self.penalty)

    def precondition(self, vectors: Tensor) -> Tensor:
        """Multiply the preconditioner with vectors, shape (C, S)."""
        product, head = vectors / self.diagonal, len(self.head)
        product[:head] = self.head @ vectors[:head]
        return product

    def solve(self, columns: Tensor) -> Tensor:
        """Return some columns of the inverse by conjugate gradients; shape (C, S)."""
        residual = torch.zeros(len(self.diagonal), len(columns), device=columns.device)
        residual[columns, torch.arange(len(columns), device=columns.device)] = 1
        solved = torch.zeros_like(residual)
        direction = self.precondition(residual)
        norm = (residual * direction).sum(0)
        bound, tiny = _ROUNDING**2 * norm, torch.finfo(norm.dtype).tiny
        for steps in range(1, _MAX_STEPS + 1):
            product = self.times(direction)
            step = norm / (direction * product).sum(0).clamp(min=tiny)
            solved.addcmul_(direction, step)
            residual.addcmul_(product, -step)
            near = self.precondition(residual)
            last, norm = norm, (residual * near).sum(0)
            if bool((norm <= bound).all()):
                break
            if steps == 1:
                bound = bound.maximum(_TOLERANCE**2 * norm)
            direction.mul_(norm / last.clamp(min=tiny)).add_(near)
        return solved
