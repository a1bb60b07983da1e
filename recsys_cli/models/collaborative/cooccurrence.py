"""Where users and items are by who met what alone: nothing of how it went."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from recsys_cli.errors import MissingExtraError

try:
    from scipy.sparse import csr_matrix
except ImportError as _error:
    raise MissingExtraError.for_extra("lightgbm", what="collaborative features") from _error

_SPARE = 8
"""Directions that are looked for beside those that are wanted; they make the wanted ones exact sooner."""
_ROUNDS = 6
"""How often the matrix is multiplied by, to and fro."""


def positions(pairs: tuple[Tensor, Tensor], sizes: tuple[int, int], *, dim: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return a vector of length 1 for each user and item; users who met the same items are near to each other, and so are items.

    They are the singular vectors, times the singular values, of the matrix that has 1 / sqrt(1 + rows of the user) where a user met
    an item; found by subspace iteration (Halko, Martinsson and Tropp, "Finding structure with randomness", 2011).

    Args:
        pairs: Users and items of N rows, int64.
        sizes: U and I: ids are below.
        dim: D.
        seed: Where the iteration begins; plays no part but for the last digits.

    Returns:
        Shapes (U, D) and (I, D), float64; zeros for ids without rows.
    """
    users, items = (side.numpy() for side in pairs)
    met = csr_matrix((np.ones(len(users)), (users, items)), shape=sizes)
    met.data[:] = 1.0  # however often
    rows = np.diff(met.indptr)
    met.data *= np.repeat(1 / np.sqrt(1 + rows), rows)
    width = min(dim + _SPARE, *sizes)
    back = met.T.tocsr()
    directions = np.random.default_rng(seed).standard_normal((sizes[1], width))
    for _ in range(_ROUNDS):
        directions = np.linalg.qr(back @ (met @ directions))[0]
    left, values, right = np.linalg.svd(met @ directions, full_matrices=False)
    found = []
    for vectors in (left * values, directions @ right.T * values):
        wanted = np.zeros((len(vectors), dim))
        wanted[:, : min(dim, width)] = vectors[:, :dim]
        found.append(torch.from_numpy(wanted / np.sqrt(np.square(wanted).sum(1, keepdims=True) + 1e-6)))
    return found[0], found[1]
