"""Vectors of unseen items for models trained on ids: a ridge regression from item features to the vectors of seen items."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.batch import Feature, Ragged
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import FIRST, Column, Kind
from recsys_cli.models.model import Model
from recsys_cli.models.ranking.layers import numeric_columns, unit_numbers

Join = Callable[[Mapping[str, Tensor]], Mapping[str, Feature]]
_MAX_WIDTH, _MAX_ITEMS = 2_048, 20_000
_PENALTIES = tuple(10.0 ** (power / 2) for power in range(-4, 9))


class ColdItemProjection:
    """v(x) = m + W (x - c): mean vector m of seen items, and W of least squares with an L2 penalty, in closed form.

    x has the features side by side, each vector and each set of categories of length 1, and zero for a missing one. The penalty
    has the least squared error of seen items left out one by one, by the hat matrix. Fitted on the 20,000 most popular items.
    """

    def __init__(self, model: Model, item: Column, join: Join, device: torch.device) -> None:
        self._columns, self._item = model.cold_columns, item.name
        ids = torch.arange(item.own_ids.start, item.own_ids.stop, device=device)[:_MAX_ITEMS]
        vectors, x = model.item_vectors(ids).detach().double().cpu(), self._features(ids, join)
        self._mean, self._center = vectors.mean(dim=0), x.mean(dim=0)
        vectors, x = vectors - self._mean, x - self._center
        values, basis = torch.linalg.eigh(x.T @ x)
        x, values = x @ basis, values.clamp(min=0)
        moments = x.T @ vectors

        def error(penalty: float) -> float:
            scaled = x / (values + penalty)
            leverage = (scaled * x).sum(dim=1, keepdim=True) + 1 / len(x)
            return float(((vectors - scaled @ moments) / (1 - leverage).clamp(min=1e-6)).square().sum())

        self.penalty = min(_PENALTIES, key=error)
        self._weight = basis @ (moments / (values + self.penalty).unsqueeze(1))

    def __call__(self, items: Tensor, join: Join) -> Tensor:
        """Return the vectors of items by their table rows, shape (I, D), float32."""
        parts = [(self._features(part, join) - self._center) @ self._weight for part in items.split(_MAX_ITEMS)]
        return (torch.cat(parts) + self._mean).float().to(items.device)

    def _features(self, items: Tensor, join: Join) -> Tensor:
        features, numeric = join({self._item: items}), numeric_columns(self._columns)
        if (width := len(numeric) + sum(column.cardinality or 0 for column in self._columns)) > _MAX_WIDTH:
            raise ConfigError(f"model.cold_items: {width:,} numbers and categories", hint=f"name up to {_MAX_WIDTH:,}")
        parts = [unit_numbers(features, replace(numeric, filled=frozenset(numeric.widths)))] if len(numeric) else []
        for column in (column for column in self._columns if column.kind is Kind.CATEGORICAL):
            ids, rows = features[column.name], torch.arange(len(items), device=items.device)
            if isinstance(ids, Ragged):
                rows, ids = rows.repeat_interleave(ids.offsets.diff()), ids.values
            hot = torch.zeros(len(items), int(column.cardinality or 0), device=items.device)
            hot[rows, ids.long()] = 1.0
            parts.append(F.normalize(hot[:, FIRST:], dim=1))
        return torch.cat(parts, dim=1).double().cpu()
