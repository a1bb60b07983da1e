"""Rows for collaborative features: users, items, labels and all categories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from recsys_cli.batch import Batch, Feature, Ragged
from recsys_cli.features.schema import PADDING, Column, Role, Schema


class Categories:
    """The categorical columns beside the user's and the item's, as one range of categories.

    Columns come by name, the small ones first, so that the order of the schema plays no part.

    Args:
        schema: The prepared columns.
        max_categories: Up to this cardinality a column is small.

    Attributes:
        columns: The small columns and then the others.
        num_small: How many columns are small.
        starts: The number of each column's id 0, and of the end: one more than there are columns.
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
        """The columns whose categories are told one by one."""
        return self.columns[: self.num_small]

    @property
    def num_small_categories(self) -> int:
        """How many categories the small columns have together."""
        return self.starts[self.num_small]

    def __len__(self) -> int:
        return self.starts[-1]


def _size(column: Column) -> int:
    return int(column.cardinality or 0)


def as_lists(feature: Feature) -> Ragged:
    """Return a feature as lists: a single value is a list of one."""
    if isinstance(feature, Ragged):
        return feature
    return Ragged(feature, torch.arange(len(feature) + 1, device=feature.device))


@dataclass(frozen=True)
class Elements:
    """The categories of some rows: one element for each row and category that it has.

    Attributes:
        row: Which row, shape (M,), int64.
        column: Which of the columns, shape (M,).
        category: Its number in the range of all, shape (M,).
        weight: How much it counts, shape (M,), float64.
    """

    row: Tensor
    column: Tensor
    category: Tensor
    weight: Tensor

    @classmethod
    def of(cls, batch: Batch, categories: Categories) -> Self:
        """Take them from a batch; padding is none."""
        parts: list[tuple[Tensor, ...]] = []
        for number, column in enumerate(categories.columns):
            lists = as_lists(batch.features[column.name])
            there = lists.values != PADDING
            ids = lists.values[there].long()
            row = torch.repeat_interleave(lists.offsets.diff())[there]
            weight = torch.ones_like(ids) if lists.weights is None else lists.weights[there]
            parts.append((row, torch.full_like(row, number), ids + categories.starts[number], weight.double()))
        if not parts:
            nothing = torch.zeros(0, dtype=torch.int64)
            return cls(nothing, nothing, nothing, nothing.double())
        return cls(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))

    def chosen(self, elements: Tensor) -> Self:
        """Return some of the elements, by a mask."""
        return type(self)(self.row[elements], self.column[elements], self.category[elements], self.weight[elements])


@dataclass(frozen=True)
class Rows:
    """Some rows, on the device of the batch that they came in.

    Attributes:
        users: Encoded, int64, shape (N,).
        items: Encoded, int64, shape (N,).
        elements: Their categories.
        labels: Float64, shape (N, T); T is 0 where they are not known.
    """

    users: Tensor
    items: Tensor
    elements: Elements
    labels: Tensor

    @classmethod
    def of(cls, batch: Batch, schema: Schema, categories: Categories) -> Self:
        """Take them from a batch."""
        users, items = (batch.features[schema.only(role).name] for role in (Role.USER, Role.ITEM))
        assert isinstance(users, Tensor)
        assert isinstance(items, Tensor)
        labels = [batch.labels[column.name].double() for column in schema.labels if column.name in batch.labels]
        stacked = torch.stack(labels, dim=1) if labels else users.new_empty((len(users), 0), dtype=torch.float64)
        return cls(users.long(), items.long(), Elements.of(batch, categories), stacked)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of all parts, one after the other."""
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

    def chosen(self, rows: Tensor) -> Self:
        """Return some of the rows, by a mask of shape (N,)."""
        elements = self.elements.chosen(rows[self.elements.row])
        numbers = rows.cumsum(0) - 1
        renumbered = Elements(numbers[elements.row], elements.column, elements.category, elements.weight)
        return type(self)(self.users[rows], self.items[rows], renumbered, self.labels[rows])

    def without(self, *sides: str) -> Self:
        """Return the rows as if train did not know the ids of some sides, `users` or `items`; they have the padding's id."""
        users, items = (
            torch.full_like(ids, PADDING) if side in sides else ids
            for side, ids in (("users", self.users), ("items", self.items))
        )
        return replace(self, users=users, items=items)
