"""The interaction matrix, users × items."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from recsys_cli.batch import Ragged
from recsys_cli.features.schema import Column
from recsys_cli.interactions import Interactions


@dataclass(frozen=True)
class InteractionMatrix:
    """Binary CSR matrix of interactions, without users and items outside the vocabulary, as these share one id.

    Attributes:
        offsets: Row pointers by encoded user, int64, shape (num_users + 1,).
        items: Column indices, int64, shape (N,); ascending in each row unless `renumbered`.
    """

    offsets: Tensor
    items: Tensor
    num_items: int

    @classmethod
    def of(
        cls,
        interactions: Interactions,
        user: Column,
        item: Column,
        *,
        positive_only: bool = False,
        device: torch.device,
    ) -> InteractionMatrix:
        """Build the matrix; repeats count once, rows of weight 0 not. `positive_only` keeps `Interactions.positive`."""
        pairs, _ = _pairs(interactions, user, item, positive_only=positive_only, device=device)
        return cls._of_pairs(torch.unique(pairs), user, item)

    @classmethod
    def with_strengths(
        cls,
        interactions: Interactions,
        user: Column,
        item: Column,
        *,
        positive_only: bool = False,
        device: torch.device,
    ) -> tuple[InteractionMatrix, Tensor]:
        """Build the matrix and the strength r of each element, float32, shape (N,).

        r is the sum of the weights of the pair's rows, times their labels if labels are numeric. Pairs without a positive
        sum are excluded.
        """
        pairs, values = _pairs(interactions, user, item, positive_only=positive_only, device=device)
        pairs, index = torch.unique(pairs, return_inverse=True)
        strengths = torch.bincount(index, values.double(), minlength=len(pairs)).float()
        return cls._of_pairs(pairs[strengths > 0], user, item), strengths[strengths > 0]

    @classmethod
    def _of_pairs(cls, pairs: Tensor, user: Column, item: Column) -> InteractionMatrix:
        num_users, num_items = int(user.cardinality or 0), int(item.cardinality or 0)
        return cls(starts(pairs // num_items, num_users), pairs % num_items, num_items)

    @property
    def num_users(self) -> int:
        """Number of rows."""
        return len(self.offsets) - 1

    @property
    def users(self) -> Tensor:
        """Row index of each element, int64, shape (N,)."""
        return torch.repeat_interleave(self.offsets.diff())

    @property
    def counts(self) -> Tensor:
        """Number of users of each item, by encoded item; int64."""
        return torch.bincount(self.items, minlength=self.num_items)

    def of_users(self, users: Tensor, weights: Tensor | None = None) -> Ragged:
        """Return the items of users, shape (U,), duplicates allowed; with the weights of elements, shape (N,), if given."""
        return Ragged(self.items, self.offsets, weights).picked(users)

    def offsets_of(self, users: Tensor) -> Tensor:
        """Return the offsets of `of_users`, shape (U + 1,), without its items."""
        return _offsets(self.offsets[users + 1] - self.offsets[users])

    def renumbered(self, indices: Tensor, *, num_items: int) -> InteractionMatrix:
        """Return the matrix with the column indices `indices[item]`, without the columns of negative ones."""
        items = indices[self.items]
        keep = items >= 0
        return InteractionMatrix(starts(self.users[keep], self.num_users), items[keep], num_items)

    def first(self, number: int) -> InteractionMatrix:
        """Return the first columns; the most popular items, if indices are by popularity."""
        indices = torch.arange(self.num_items, device=self.items.device)
        return self.renumbered(indices.where(indices < number, -1), num_items=min(number, self.num_items))

    def transpose(self) -> InteractionMatrix:
        """Return items × users; users ascend in each row."""
        lists = transpose(Ragged(self.items, self.offsets), self.num_items)
        return InteractionMatrix(lists.offsets, lists.values, self.num_users)

    def dense(self, start: int, stop: int, *, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return rows start, …, stop - 1 as a dense matrix; shape (stop - start, num_items)."""
        rows = torch.zeros(stop - start, self.num_items, dtype=dtype, device=self.items.device)
        bounds = self.offsets[start : stop + 1]
        rows[torch.repeat_interleave(bounds.diff()), self.items[int(bounds[0]) : int(bounds[-1])]] = 1
        return rows


def spans(offsets: Tensor, *, max_elements: int) -> Iterator[slice]:
    """Cut rows of lists, with row pointers of shape (B + 1,), into spans of about `max_elements` elements, to bound memory."""
    group = (offsets[1:] - 1).clamp(min=0) // max_elements
    lengths = torch.unique_consecutive(group, return_counts=True)[1].tolist()
    start = 0
    for length in lengths:
        yield slice(start, start + length)
        start += length


def _pairs(
    interactions: Interactions, user: Column, item: Column, *, positive_only: bool, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return one number per row with a weight above 0 and ids in the vocabulary, and its weight times a numeric label.

    Shapes are (N,).
    """
    interactions = interactions.counted()
    users, items = (torch.tensor(ids, device=device).long() for ids in (interactions.user_idx, interactions.item_idx))
    keep = _in_vocabulary(users, user) & _in_vocabulary(items, item)
    if positive_only:
        keep &= torch.from_numpy(interactions.positive).to(device)
    pairs = (users * int(item.cardinality or 0) + items)[keep]
    values = torch.ones(len(keep), device=device)
    for factor in (interactions.weights, None if interactions.mean is None else interactions.labels):
        values = values if factor is None else values * torch.tensor(factor, device=device)
    return pairs, values[keep]


def _in_vocabulary(ids: Tensor, column: Column) -> Tensor:
    return (ids >= column.own_ids.start) & (ids < column.own_ids.stop)


def starts(rows: Tensor, num_rows: int) -> Tensor:
    """Return CSR row pointers from the row of each element; shape (num_rows + 1,)."""
    return _offsets(torch.bincount(rows, minlength=num_rows))


def _offsets(lengths: Tensor) -> Tensor:
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


def transpose(lists: Ragged, num_values: int) -> Ragged:
    """Transpose a sparse matrix of lists: the rows of each value, ascending, with their weights."""
    values, order = lists.values.sort(stable=True)
    rows = torch.repeat_interleave(lists.offsets.diff())
    return Ragged(rows[order], starts(values, num_values), None if lists.weights is None else lists.weights[order])
