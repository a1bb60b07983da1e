"""The plan's features as matrix columns for trees."""

from __future__ import annotations

import torch
from torch import Tensor

from recsys_cli.batch import Batch, Ragged
from recsys_cli.features.schema import Schema
from recsys_cli.models.collaborative.rows import Categories, Elements, as_lists
from recsys_cli.models.ranking.numbers import is_vector, numbers, numeric_columns


class Plain:
    """Numeric columns, and the categories of low-cardinality columns.

    A vector becomes one column per element, and another list of numbers its mean. A single category is a categorical
    feature of the trees. A list of categories becomes one column per category, with its count in the row.

    Args:
        schema: The prepared columns.
        categories: The categorical columns.
    """

    def __init__(self, schema: Schema, categories: Categories) -> None:
        self.categories = categories
        vectors = [column for column in schema.numeric if column.ragged and is_vector(column)]
        self.vectors = numeric_columns(vectors)
        self.numeric = sorted(column.name for column in schema.numeric if column not in vectors)
        self.single = [column.name for column in categories.small if not column.ragged]
        self.lists = [number for number, column in enumerate(categories.small) if column.ragged]

    def columns(self, batch: Batch, elements: Elements) -> Tensor:
        """Return the matrix, shape (N, F), float32: columns of `single` first."""
        columns = [batch.features[name] for name in self.single]
        columns += [_mean(batch.features[name]) for name in self.numeric]
        counts = torch.zeros(batch.num_rows, self.categories.num_small_categories, device=elements.row.device)
        small = elements.select(elements.category < counts.shape[1])
        counts.index_put_((small.row, small.category), small.weight.float(), accumulate=True)
        starts = self.categories.starts
        parts = [column.float().unsqueeze(1) for column in columns if isinstance(column, Tensor)]
        parts += [numbers(batch, self.vectors)] if self.vectors.widths else []
        parts += [counts[:, starts[number] : starts[number + 1]] for number in self.lists]
        return torch.cat(parts, dim=1) if parts else counts[:, :0]


def _mean(feature: Tensor | Ragged) -> Tensor:
    """Return the mean of each row; NaN, a missing value for trees, for an empty list."""
    lists = as_lists(feature)
    lengths = lists.offsets.diff()
    row = torch.repeat_interleave(lengths)
    weight = torch.ones_like(lists.values) if lists.weights is None else lists.weights
    sums, weights = (
        torch.zeros(len(lengths), dtype=torch.float64, device=row.device).index_add_(0, row, values.double())
        for values in (lists.values * weight, weight)
    )
    return sums / weights
