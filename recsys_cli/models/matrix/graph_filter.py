"""Low-pass filters of the item graph, in closed form (GF-CF, Turbo-CF)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from recsys_cli.batch import Ragged
from recsys_cli.features.schema import Schema
from recsys_cli.models.configs.matrix import GraphFilterConfig
from recsys_cli.models.interaction_matrix import InteractionMatrix
from recsys_cli.models.item_to_item import ItemToItemModel, add_rows
from recsys_cli.models.matrix.neighbors import Largest, Neighbors
from recsys_cli.models.model import Progress

_BLOCK = 1 << 22
"""Pairs of items per block of products."""
_OVERSAMPLED, _ITERATIONS = 16, 4
"""Vectors beyond those wanted, and power iterations, of the randomized singular vectors (Halko et al. 2011)."""


class GraphFilter(ItemToItemModel):
    """Scores are x (P̄ + w D⁻¹ᐟ² V Vᵀ D¹ᐟ²) for a history x.

    P = R̃ᵀR̃ is the item graph of R̃ = D_u^-a X D_i^(a-1), P̄ its elementwise power (Turbo-CF), V the first singular vectors of
    D_u^-½ X D_i^-½, an ideal low-pass filter (GF-CF), and D = D_i the numbers of users.
    """

    deterministic = True
    learnt: FilterWeights

    def __init__(self, config: GraphFilterConfig, schema: Schema) -> None:
        super().__init__(schema, positive_only=config.positive_only, max_items=None)
        self.config = config
        number = min(config.num_neighbors, max(1, self.num_items - 1))
        self.learnt = FilterWeights(self.num_items, number, config.embedding_dim)

    def learn(self, matrix: InteractionMatrix, progress: Progress) -> None:
        """Multiply the normalized interactions by blocks of items, and find their singular vectors."""
        config, size, device = self.config, self.num_items, matrix.items.device
        if not len(matrix.items):
            return
        rows, largest = _normalized(matrix, config.normalization), Largest(len(self.learnt.weights))
        columns, step = rows.T.tocsr(), max(1, _BLOCK // size)
        for start in range(0, size, step):
            block = (columns[start : start + step] @ rows).tocoo()
            item, other = torch.from_numpy(block.row).long() + start, torch.from_numpy(block.col).long()
            weights = torch.from_numpy(block.data**config.power).masked_fill_(item == other, 0.0)
            largest.add((item * size + other).to(device), weights.to(device))
            progress(min(start + step, size), size)
        self.learnt.keep(*largest.kept())
        if config.embedding_dim:
            users = matrix.counts.clamp(min=1).sqrt().unsqueeze(1)
            vectors = torch.from_numpy(_singular_vectors(_normalized(matrix, 0.5), config.embedding_dim)).to(device)
            self.learnt.of_history.zero_()[:, : vectors.shape[1]] = config.smooth * vectors / users
            self.learnt.of_items.zero_()[:, : vectors.shape[1]] = vectors * users


class FilterWeights(Neighbors):
    """Weights to near items, and between all items the products of vectors, 8 C D bytes."""

    of_history: Tensor
    of_items: Tensor

    def __init__(self, num_items: int, number: int, dim: int) -> None:
        super().__init__(num_items, number)
        self.register_buffer("of_history", torch.zeros(num_items, dim))
        self.register_buffer("of_items", torch.zeros(num_items, dim))

    def sums(self, histories: Ragged) -> Tensor:
        """Add both parts."""
        return super().sums(histories).addmm_(add_rows(self.of_history, histories), self.of_items.T)

    def sums_of_pairs(self, histories: Ragged, items: Tensor) -> Tensor:
        """Add both parts."""
        products = (add_rows(self.of_history, histories) * self.of_items[items]).sum(1)
        return super().sums_of_pairs(histories, items) + products


def _normalized(matrix: InteractionMatrix, power: float) -> Any:
    """Return D_u^-a X D_i^(a-1) in the format of SciPy."""
    from scipy.sparse import csr_matrix  # a slow import, needed only to fit

    lengths, counts = matrix.offsets.diff(), matrix.counts
    values = lengths[matrix.users].double() ** -power * counts[matrix.items].double() ** (power - 1)
    parts = (values.float(), matrix.items, matrix.offsets)
    return csr_matrix(tuple(part.cpu().numpy() for part in parts), shape=(matrix.num_users, matrix.num_items))


def _singular_vectors(rows: Any, number: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the first right singular vectors, shape (C, D), fewer if the matrix has fewer, by power iterations from one start."""
    size = rows.shape[1]
    draw = np.random.default_rng(0).standard_normal((size, min(number + _OVERSAMPLED, *rows.shape)), np.float32)
    for _ in range(_ITERATIONS):
        draw = np.linalg.qr(rows.T @ (rows @ draw))[0]
    products = rows @ draw
    order = np.linalg.eigh(products.T @ products)[1][:, ::-1]  # ascending, so the last first
    found: np.ndarray[Any, np.dtype[np.float32]] = draw @ order[:, :number]
    return found
