"""Factors of users and items: alternating least squares of labels, and embeddings of co-occurrence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

_MAX_ROWS = 1 << 16
"""Maximum rows per group, padding included; bounds memory."""
_OVERSAMPLING = 8
"""Additional singular vectors in the iteration, for faster convergence of the others."""
_POWER_ITERATIONS = 6
"""Number of subspace iterations."""


@dataclass(frozen=True)
class Group:
    """Ids with similar numbers of rows.

    Attributes:
        ids: The ids, shape (G,).
        rows: Indices of their rows, padded to the longest with row 0, shape (G, L).
        mask: Mask of rows, False at padding, shape (G, L).
    """

    ids: Tensor
    rows: Tensor
    mask: Tensor


def factorize(
    pairs: tuple[Tensor, Tensor], values: Tensor, sizes: tuple[int, int], *, dim: int, l2: float, rounds: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Return user and item factors by alternating least squares over the observed pairs.

    Minimizes Σ (value - p_u q_i)² + l2 (Σ |p_u|² + Σ |q_i|²) (Zhou et al., "Large-scale parallel collaborative filtering for the
    Netflix prize", 2008; here with the same penalty for all ids).

    Args:
        pairs: Users and items of N rows, int64.
        values: Shape (N,), float64.
        sizes: U and I, exclusive upper bounds of the ids.
        dim: D.
        l2: The penalty.
        rounds: Number of alternations.
        seed: Seed of the initial item factors.

    Returns:
        Shapes (U, D) and (I, D), float64; zeros for ids without rows.
    """
    users, items = pairs
    generator = torch.Generator().manual_seed(seed)
    of_items = torch.randn(sizes[1], dim, generator=generator, dtype=torch.float64) / dim**0.5
    of_users = of_items[:0]
    by_user, by_item = grouped(users, sizes[0]), grouped(items, sizes[1])
    for _ in range(rounds):
        of_users = ridge(by_user, of_items, items, values, size=sizes[0], l2=l2)
        of_items = ridge(by_item, of_users, users, values, size=sizes[1], l2=l2)
    return of_users, of_items


def grouped(ids: Tensor, size: int) -> list[Group]:
    """Group row indices by id, for `ridge`.

    Args:
        ids: Id of each row, int64, shape (N,).
        size: Exclusive upper bound of the ids.
    """
    return list(_groups(ids, size))


def _groups(ids: Tensor, size: int) -> Iterator[Group]:
    """Cut the ids with rows into groups; the longest has at most about twice the rows of the shortest."""
    order = torch.argsort(ids, stable=True)
    counts = torch.bincount(ids, minlength=size)
    starts = counts.cumsum(0) - counts
    by_count = torch.argsort(counts, stable=True)
    by_count = by_count[counts[by_count] > 0]
    lengths = counts[by_count].tolist()
    for start, stop in pairwise(_cuts(lengths)):
        group, longest = by_count[start:stop], lengths[stop - 1]
        index = torch.arange(longest)
        mask = index < counts[group, None]
        yield Group(group, order[(starts[group, None] + index).where(mask, 0)], mask)


def _cuts(lengths: list[int]) -> list[int]:
    """Return the boundaries of groups in ascending lengths."""
    cuts = [0]
    for index, length in enumerate(lengths):
        first = lengths[cuts[-1]]
        if index > cuts[-1] and (length > 2 * first + 2 or length * (index - cuts[-1] + 1) > _MAX_ROWS):
            cuts.append(index)
    return [*cuts, len(lengths)] if lengths else [0]


def ridge(groups: list[Group], vectors: Tensor, other: Tensor, values: Tensor, *, size: int, l2: float) -> Tensor:
    """Return a ridge regression per id: of its rows' values on the vectors of the other side.

    Args:
        groups: Row indices by id, from `grouped`.
        vectors: Vectors of the other side, shape (O, D).
        other: Id of the other side in each row, shape (N,).
        values: Shape (N,), float64.
        size: S, as for `grouped`.
        l2: The penalty.

    Returns:
        Weights, shape (S, D); zeros for ids without rows.
    """
    weights = vectors.new_zeros(size, vectors.shape[1])
    for group in groups:
        inputs = vectors[other[group.rows]] * group.mask.unsqueeze(2)
        targets = (values[group.rows] * group.mask).unsqueeze(2)
        if (length := inputs.shape[1]) < (dim := inputs.shape[2]):  # fewer rows than weights: solve the smaller system
            outer = inputs @ inputs.mT + l2 * torch.eye(length, dtype=inputs.dtype)
            solution = inputs.mT @ torch.linalg.solve(outer, targets)
        else:
            inner = inputs.mT @ inputs + l2 * torch.eye(dim, dtype=inputs.dtype)
            solution = torch.linalg.solve(inner, inputs.mT @ targets)
        weights[group.ids] = solution.squeeze(2)
    return weights


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
    for _ in range(_POWER_ITERATIONS):
        directions = np.linalg.qr(transposed @ (matrix @ directions))[0]
    left, values, right = np.linalg.svd(matrix @ directions, full_matrices=False)
    sides = []
    for vectors in (left * values, directions @ right.T * values):
        padded = np.zeros((len(vectors), dim))
        padded[:, : min(dim, width)] = vectors[:, :dim]
        sides.append(torch.from_numpy(padded / np.sqrt(np.square(padded).sum(1, keepdims=True) + 1e-6)))
    return sides[0], sides[1]
