"""Co-occurrence embeddings of users and items, from the interaction matrix without labels."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_OVERSAMPLING = 8
"""Additional singular vectors in the iteration, for faster convergence of the others."""
_ITERATIONS = 6
"""Number of subspace iterations."""


def positions(pairs: tuple[Tensor, Tensor], sizes: tuple[int, int], *, dim: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return a vector of length 1 for each user and item, near to each other for users with common items and vice versa.

    They are singular vectors times singular values of the interaction matrix with 1 / sqrt(1 + rows of the user) per element, by
    subspace iteration (Halko, Martinsson and Tropp, "Finding structure with randomness", 2011).

    Args:
        pairs: Users and items of N rows, int64.
        sizes: U and I, exclusive upper bounds of the ids.
        dim: D.
        seed: Seed of the initial subspace; affects the last digits only.

    Returns:
        Shapes (U, D) and (I, D), float64; zeros for ids without rows.
    """
    from scipy.sparse import csr_matrix  # a slow import, needed only to fit

    users, items = (side.numpy() for side in pairs)
    matrix = csr_matrix((np.ones(len(users)), (users, items)), shape=sizes)
    matrix.data[:] = 1.0  # repeated interactions count once
    rows = np.diff(matrix.indptr)
    matrix.data *= np.repeat(1 / np.sqrt(1 + rows), rows)
    width = min(dim + _OVERSAMPLING, *sizes)
    transposed = matrix.T.tocsr()
    directions = np.random.default_rng(seed).standard_normal((sizes[1], width))
    for _ in range(_ITERATIONS):
        directions = np.linalg.qr(transposed @ (matrix @ directions))[0]
    left, values, right = np.linalg.svd(matrix @ directions, full_matrices=False)
    sides = []
    for vectors in (left * values, directions @ right.T * values):
        padded = np.zeros((len(vectors), dim))
        padded[:, : min(dim, width)] = vectors[:, :dim]
        sides.append(torch.from_numpy(padded / np.sqrt(np.square(padded).sum(1, keepdims=True) + 1e-6)))
    return sides[0], sides[1]
