"""Statistics and content of items, as features of a ranker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from recsys_cli.batch import Feature
from recsys_cli.features.schema import PADDING, Column, Kind, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.models.collaborative.rows import as_lists
from recsys_cli.models.item_to_item import rows_of

_RECENT = 0.1
"""Share of the rows that count as recent."""
_PRIOR = 10.0
"""Rows with the mean label in an item's share of positives."""

Join = Callable[[Mapping[str, Tensor]], Mapping[str, Feature]]


class ItemStatistics(nn.Module):
    """Popularity, recency and positives of items in the rows of `fit`, by encoded item; part of the weights.

    Attributes:
        names: Name of each column.
    """

    names = (
        "popularity", "recent popularity", "trend", "days since the last row", "days since the first row",
        "positives", "recent positives", "share of positives",
    )  # fmt: skip
    values: Tensor
    counts: Tensor

    def __init__(self, num_items: int, *, ticks: int) -> None:
        super().__init__()
        self._ticks = ticks
        self.register_buffer("values", torch.zeros(num_items, len(self.names)))
        self.register_buffer("counts", torch.zeros(num_items, dtype=torch.int64))

    def fit(self, rows: Interactions) -> None:
        """Count rows, and the latest tenth of them; in data without times all are equally recent."""
        size = len(self.counts)
        positive = rows.positive
        counts, positives = self._counts(rows.item_idx), self._counts(rows.item_idx[positive])
        recent, recent_positives, ages = counts, positives, np.zeros((size, 2))
        if rows.times is not None and len(rows):
            times = rows.times.astype(np.float64)
            latest = times >= np.quantile(times, 1 - _RECENT)
            recent, recent_positives = (self._counts(rows.item_idx[part]) for part in (latest, latest & positive))
            last, first = np.full(size, times.min()), np.full(size, times.max())
            np.maximum.at(last, rows.item_idx, times)
            np.minimum.at(first, rows.item_idx, times)
            ages = np.log1p((times.max() - np.stack([last, first], axis=1)) / (86_400 * self._ticks))
        share = (positives + _PRIOR * positive.sum() / max(1, len(rows))) / (counts + _PRIOR)
        columns = [
            np.log1p(counts), np.log1p(recent), np.log1p(recent) - np.log1p(_RECENT * counts), *ages.T,
            np.log1p(positives), np.log1p(recent_positives), share,
        ]  # fmt: skip
        self.values.copy_(torch.from_numpy(np.stack(columns, axis=1)))
        self.counts.copy_(torch.from_numpy(counts))

    def _counts(self, items: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        return np.bincount(items, minlength=len(self.counts))


class ItemContent:
    """Categories and numbers of the items' dimension table.

    Columns of the interactions are absent: a candidate has no row. So statistics of labels, which are computed by row, are too.

    Args:
        schema: The prepared columns.
        max_categories: Maximum cardinality of a categorical column.

    Attributes:
        names: Name of each column.
    """

    def __init__(self, schema: Schema, *, max_categories: int) -> None:
        self._item = schema.only(Role.ITEM)
        columns = [each for each in schema.in_table(self._item.name) if each.role is Role.FEATURE]
        self._categorical = [
            each for each in columns if each.kind is Kind.CATEGORICAL and int(each.cardinality or 0) <= max_categories
        ]
        self._numeric = [each for each in columns if each.kind is Kind.NUMERIC and not each.ragged]
        self.names: Sequence[str] = [
            *(f"{each.name} {number}" for each in self._categorical for number in range(int(each.cardinality or 0))),
            *(each.name for each in self._numeric),
        ]
        self.num_categories = len(self.names) - len(self._numeric)

    def matrix(self, join: Join, device: torch.device) -> Tensor:
        """Return the columns by encoded item, float32; categories are shares of the item's values."""
        size = int(self._item.cardinality or 0)
        if not self.names:
            return torch.zeros(size, 0, device=device)
        features = join({self._item.name: torch.arange(size, dtype=torch.int32, device=device)})
        parts = [_shares(features[each.name], each) for each in self._categorical]
        parts += [_numbers(features[each.name]) for each in self._numeric]
        return torch.cat(parts, dim=1)


def _shares(feature: Feature, column: Column) -> Tensor:
    """Return the share of each category among the values of each row, without padding; shape (N, cardinality)."""
    lists = as_lists(feature)
    counts = torch.zeros(len(lists.offsets) - 1, int(column.cardinality or 0), device=lists.values.device)
    counts[rows_of(lists), lists.values.long()] = 1
    counts[:, PADDING] = 0
    return counts / counts.sum(dim=1, keepdim=True).clamp(min=1)


def _numbers(feature: Feature) -> Tensor:
    assert isinstance(feature, Tensor)
    return feature.float().unsqueeze(1)
