"""Ridge regressions of many ids at once, in batches of about equal length; and factors, by such regressions in turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

_PLACES = 1 << 16
"""Rows that are solved for at a time, the filling included; bounds memory."""


@dataclass(frozen=True)
class Group:
    """Some ids with about as many rows each.

    Attributes:
        ids: Whose rows, shape (G,).
        rows: Numbers of their rows, filled up to the longest with row 0, shape (G, L).
        there: Where it is a row and no filling, shape (G, L).
    """

    ids: Tensor
    rows: Tensor
    there: Tensor


def factorise(
    pairs: tuple[Tensor, Tensor], values: Tensor, sizes: tuple[int, int], *, dim: int, l2: float, rounds: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Return vectors of users and items whose products are near the values of the pairs that there are.

    It minimises sum (value - p_u q_i)^2 + l2 (sum |p_u|^2 + sum |q_i|^2), one side at a time with the other held (Zhou et al.,
    "Large-scale parallel collaborative filtering for the Netflix prize", 2008; here the penalty is the same for all ids).

    Args:
        pairs: Users and items of N rows, int64.
        values: Shape (N,), float64.
        sizes: U and I: ids are below.
        dim: D.
        l2: The penalty.
        rounds: How often each side is solved for.
        seed: Decides where the items begin.

    Returns:
        Shapes (U, D) and (I, D), float64; zeros for ids without rows.
    """
    users, items = pairs
    draw = torch.Generator().manual_seed(seed)
    of_items = torch.randn(sizes[1], dim, generator=draw, dtype=torch.float64) / dim**0.5
    of_users = of_items[:0]
    by_user, by_item = grouped(users, sizes[0]), grouped(items, sizes[1])
    for _ in range(rounds):
        of_users = ridge(by_user, of_items, items, values, size=sizes[0], l2=l2)
        of_items = ridge(by_item, of_users, users, values, size=sizes[1], l2=l2)
    return of_users, of_items


def grouped(ids: Tensor, size: int) -> list[Group]:
    """Return the rows of each id, for `ridge`.

    Args:
        ids: Whose row, int64, shape (N,).
        size: Ids are below.
    """
    return list(_groups(ids, size))


def _groups(ids: Tensor, size: int) -> Iterator[Group]:
    """Cut the ids that have rows into groups: the longest has at most twice the rows of the shortest, or they are few."""
    order = torch.argsort(ids, stable=True)
    counts = torch.bincount(ids, minlength=size)
    starts = counts.cumsum(0) - counts
    by_count = torch.argsort(counts, stable=True)
    by_count = by_count[counts[by_count] > 0]
    lengths = counts[by_count].tolist()
    for start, stop in pairwise(_cuts(lengths)):
        some, longest = by_count[start:stop], lengths[stop - 1]
        places = torch.arange(longest)
        there = places < counts[some, None]
        yield Group(some, order[(starts[some, None] + places).where(there, 0)], there)


def _cuts(lengths: list[int]) -> list[int]:
    """Return where groups begin and end in lengths that go up."""
    cuts = [0]
    for place, length in enumerate(lengths):
        first = lengths[cuts[-1]]
        if place > cuts[-1] and (length > 2 * first + 2 or length * (place - cuts[-1] + 1) > _PLACES):
            cuts.append(place)
    return [*cuts, len(lengths)] if lengths else [0]


def ridge(groups: list[Group], vectors: Tensor, other: Tensor, values: Tensor, *, size: int, l2: float) -> Tensor:
    """Return the weights of each id: the ridge regression of its rows' values on the vectors of who is on the other side.

    Args:
        groups: Whose rows are which, as `grouped` returns them.
        vectors: Of the other side, shape (O, D).
        other: Who is on the other side of each row, shape (N,).
        values: Shape (N,), float64.
        size: S, as `grouped` was told.
        l2: The penalty.

    Returns:
        Shape (S, D); zeros for ids without rows.
    """
    solved = vectors.new_zeros(size, vectors.shape[1])
    for group in groups:
        known = vectors[other[group.rows]] * group.there.unsqueeze(2)
        wanted = (values[group.rows] * group.there).unsqueeze(2)
        if (length := known.shape[1]) < (dim := known.shape[2]):  # fewer rows than unknowns: the smaller system
            outer = known @ known.mT + l2 * torch.eye(length, dtype=known.dtype)
            found = known.mT @ torch.linalg.solve(outer, wanted)
        else:
            inner = known.mT @ known + l2 * torch.eye(dim, dtype=known.dtype)
            found = torch.linalg.solve(inner, known.mT @ wanted)
        solved[group.ids] = found.squeeze(2)
    return solved
