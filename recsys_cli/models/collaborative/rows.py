"""Rows for collaborative features: users, items, labels and all categories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from recsys_cli.batch import Batch, as_lists
from recsys_cli.features.schema import PADDING, Column, Role, Schema


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

    def without(self, *sides: str) -> Self:
        """Return the rows as cold-start rows: ids of the given sides, `users` or `items`, become padding."""
        users, items = (
            torch.full_like(ids, PADDING) if side in sides else ids
            for side, ids in (("users", self.users), ("items", self.items))
        )
        return replace(self, users=users, items=items)
