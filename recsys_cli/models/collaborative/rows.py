"""Inputs of collaborative features: rows of users, items, labels and categories, and factors of users and items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

import numpy as np
import torch
from torch import Tensor

from recsys_cli.batch import Batch, as_lists
from recsys_cli.features.schema import PADDING, Column, Role, Schema

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


class Categories:
    """The categorical columns except user and item, with one common range of category indices.

    Columns are sorted by name, low-cardinality ones first, independent of the order of the schema.

    Args:
        schema: The prepared columns.
        max_categories: Maximum cardinality of a small column.

    Attributes:
        columns: Small columns, then the others.
        num_small: Number of small columns.
        starts: Index of each column's id 0, then the total; one more than columns.
    """

    def __init__(self, schema: Schema, max_categories: int) -> None:
        columns = [column for column in schema.categorical if column.role is Role.FEATURE]
        self.columns = sorted(columns, key=lambda column: (_size(column) > max_categories, column.name))
        self.num_small = sum(_size(column) <= max_categories for column in columns)
        self.starts = [0]
        for column in self.columns:
            self.starts.append(self.starts[-1] + _size(column))

    @property
    def small(self) -> Sequence[Column]:
        """Columns with one feature per category."""
        return self.columns[: self.num_small]

    @property
    def num_small_categories(self) -> int:
        """Total number of categories of the small columns."""
        return self.starts[self.num_small]

    def __len__(self) -> int:
        return self.starts[-1]


def _size(column: Column) -> int:
    return int(column.cardinality or 0)


@dataclass(frozen=True)
class Elements:
    """The categories of rows, one element per row and category.

    Attributes:
        row: Row index, shape (M,), int64.
        column: Column index, shape (M,).
        category: Index in the common range, shape (M,).
        weight: Weight, shape (M,), float64.
    """

    row: Tensor
    column: Tensor
    category: Tensor
    weight: Tensor

    @classmethod
    def of(cls, batch: Batch, categories: Categories) -> Self:
        """Extract the elements of a batch, without padding."""
        parts: list[tuple[Tensor, ...]] = []
        for number, column in enumerate(categories.columns):
            lists = as_lists(batch.features[column.name])
            mask = lists.values != PADDING
            ids = lists.values[mask].long()
            row = torch.repeat_interleave(lists.offsets.diff())[mask]
            weight = torch.ones_like(ids) if lists.weights is None else lists.weights[mask]
            parts.append((row, torch.full_like(row, number), ids + categories.starts[number], weight.double()))
        if not parts:
            empty = torch.zeros(0, dtype=torch.int64)
            return cls(empty, empty, empty, empty.double())
        return cls(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))

    def select(self, mask: Tensor) -> Self:
        """Return the elements of a mask."""
        return type(self)(self.row[mask], self.column[mask], self.category[mask], self.weight[mask])


@dataclass(frozen=True)
class Rows:
    """Rows on the device of their batch.

    Attributes:
        users: Encoded ids, int64, shape (N,).
        items: Encoded ids, int64, shape (N,).
        elements: Categories of the rows.
        labels: Float64, shape (N, T); T is 0 without labels.
    """

    users: Tensor
    items: Tensor
    elements: Elements
    labels: Tensor

    @classmethod
    def of(cls, batch: Batch, schema: Schema, categories: Categories) -> Self:
        """Extract the rows of a batch."""
        users, items = (batch.features[schema.only(role).name] for role in (Role.USER, Role.ITEM))
        assert isinstance(users, Tensor)
        assert isinstance(items, Tensor)
        labels = [batch.labels[column.name].double() for column in schema.labels if column.name in batch.labels]
        stacked = torch.stack(labels, dim=1) if labels else users.new_empty((len(users), 0), dtype=torch.float64)
        return cls(users.long(), items.long(), Elements.of(batch, categories), stacked)

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of all parts in order."""
        starts = torch.tensor([0, *(len(part) for part in parts)]).cumsum(0).tolist()
        shifted = [part.elements.row + start for part, start in zip(parts, starts, strict=False)]
        elements = Elements(
            torch.cat(shifted),
            *(torch.cat([getattr(part.elements, name) for part in parts]) for name in ("column", "category", "weight")),
        )
        users, items, labels = (
            torch.cat([getattr(part, name) for part in parts]) for name in ("users", "items", "labels")
        )
        return cls(users, items, elements, labels)

    def __len__(self) -> int:
        return len(self.users)

    def select(self, mask: Tensor) -> Self:
        """Return the rows of a mask, shape (N,)."""
        elements = self.elements.select(mask[self.elements.row])
        numbers = mask.cumsum(0) - 1
        renumbered = Elements(numbers[elements.row], elements.column, elements.category, elements.weight)
        return type(self)(self.users[mask], self.items[mask], renumbered, self.labels[mask])

    def counted(self, weight: Tensor | None) -> Self:
        """Return the rows with a weight above 0, of weights of shape (N,)."""
        return self if weight is None else self.select(weight > 0)

    def without(self, *sides: str) -> Self:
        """Return the rows as cold-start rows: ids of the given sides, `users` or `items`, become padding."""
        users, items = (
            torch.full_like(ids, PADDING) if side in sides else ids
            for side, ids in (("users", self.users), ("items", self.items))
        )
        return replace(self, users=users, items=items)
