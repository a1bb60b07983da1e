"""The interaction matrix: users × items, zeros and ones, in CSR format."""

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
    """Binary CSR matrix of interactions. Users and items without an id of their own are left out: they share one id.

    Attributes:
        offsets: Row pointers by encoded user, int64, shape (num_users + 1,).
        items: Column indices, int64, shape (N,); ascending in each row unless `renamed`.
        num_items: Number of columns.
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
        """Build the matrix; repeated interactions count once.

        Args:
            interactions: Rows of users and items.
            user: The column of users.
            item: The column of items.
            positive_only: Whether to ignore interactions that are not positive, see `Interactions.positive`.
            device: Device of the matrix.
        """
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
        """Build the matrix, and the strength of each element.

        Args:
            interactions: As for `of`.
            user: The column of users.
            item: The column of items.
            positive_only: As for `of`.
            device: Device of the matrix.

        Returns:
            The matrix, and r of each of its elements, float32 of shape (N,): the number of rows of the pair, or where labels
            are numbers their sum over these rows. Pairs whose sum is not positive are left out.
        """
        pairs, labels = _pairs(interactions, user, item, positive_only=positive_only, device=device)
        pairs, place = torch.unique(pairs, return_inverse=True)
        strengths = torch.bincount(place, labels.double(), minlength=len(pairs)).float()
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
    def counts(self) -> Tensor:
        """Number of users of each item, by encoded item; int64."""
        return torch.bincount(self.items, minlength=self.num_items)

    def of_users(self, users: Tensor, weights: Tensor | None = None) -> Ragged:
        """Return the items of some users; users (U,), any of them several times.

        Args:
            users: Encoded.
            weights: A number per element, to return with the items; shape (N,).
        """
        offsets = self.offsets_of(users)
        places = torch.arange(int(offsets[-1]), device=offsets.device)
        places += (self.offsets[users] - offsets[:-1]).repeat_interleave(offsets.diff())
        return Ragged(self.items[places], offsets, None if weights is None else weights[places])

    def offsets_of(self, users: Tensor) -> Tensor:
        """Return the offsets of `of_users`, shape (U + 1,), without its items."""
        lengths = self.offsets[users + 1] - self.offsets[users]
        return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])

    def renamed(self, names: Tensor, *, num_items: int) -> InteractionMatrix:
        """Return the matrix with its columns renumbered, without those that get a negative number.

        Args:
            names: The new number of each item, by encoded item.
            num_items: The new numbers are below it.
        """
        items = names[self.items]
        keep = items >= 0
        users = torch.arange(self.num_users, device=items.device).repeat_interleave(self.offsets.diff())
        return InteractionMatrix(starts(users[keep], self.num_users), items[keep], num_items)

    def transpose(self) -> InteractionMatrix:
        """Return the matrix of items × users; users ascend in each row."""
        lists = transpose(Ragged(self.items, self.offsets), self.num_items)
        return InteractionMatrix(lists.offsets, lists.values, self.num_users)

    def dense(self, start: int, stop: int, *, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return rows start, …, stop - 1 as a dense matrix; shape (stop - start, num_items)."""
        rows = torch.zeros(stop - start, self.num_items, dtype=dtype, device=self.items.device)
        bounds = self.offsets[start : stop + 1]
        user = torch.arange(stop - start, device=self.items.device).repeat_interleave(bounds.diff())
        rows[user, self.items[int(bounds[0]) : int(bounds[-1])]] = 1
        return rows


def spans(offsets: Tensor, *, most: int) -> Iterator[slice]:
    """Cut rows into stretches whose lists have about `most` elements together, so that work on them has bounded memory.

    A stretch has no more than `most` elements beside those of its first list.

    Args:
        offsets: Where each row's list starts, and the number of all elements; shape (B + 1,).
        most: How many elements.
    """
    group = (offsets[1:] - 1).clamp(min=0) // most
    lengths = torch.unique_consecutive(group, return_counts=True)[1].tolist()
    start = 0
    for length in lengths:
        yield slice(start, start + length)
        start += length


def _pairs(
    interactions: Interactions, user: Column, item: Column, *, positive_only: bool, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return a number for the pair of each row whose user and item have ids, and the label of the row or 1; shape (N,) each."""
    users, items = (torch.tensor(ids, device=device).long() for ids in (interactions.user_idx, interactions.item_idx))
    wanted = _own(users, user) & _own(items, item)
    if positive_only:
        wanted &= torch.from_numpy(interactions.positive).to(device)
    pairs = (users * int(item.cardinality or 0) + items)[wanted]
    if interactions.mean is None:
        return pairs, torch.ones(len(pairs), device=device)
    return pairs, torch.tensor(interactions.labels, device=device)[wanted]


def _own(ids: Tensor, column: Column) -> Tensor:
    return (ids >= column.own_ids.start) & (ids < column.own_ids.stop)


def starts(rows: Tensor, num_rows: int) -> Tensor:
    """Return where each row's list starts, and the number of all elements, from the row of each element; shape (num_rows + 1,)."""
    counts = torch.bincount(rows, minlength=num_rows)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def transpose(lists: Ragged, num_values: int) -> Ragged:
    """Return for each value the rows whose lists have it, ascending, with their weights: a sparse matrix by its columns."""
    values, order = lists.values.sort(stable=True)
    rows = torch.repeat_interleave(lists.offsets.diff())
    return Ragged(rows[order], starts(values, num_values), None if lists.weights is None else lists.weights[order])
