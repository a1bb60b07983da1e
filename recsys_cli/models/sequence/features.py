"""Item and time features of the items of a sequence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.batch import Batch, Feature, Ragged
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import TICKS, Column, Kind, Role, Schema
from recsys_cli.models.configs.sequence import TimeFeature
from recsys_cli.models.embedding import Lookup
from recsys_cli.models.embedding.tables import INITIAL_STD
from recsys_cli.models.ranking.layers import NumericColumns, numbers, numeric_columns
from recsys_cli.registry import suggest

_PERIODS: dict[TimeFeature, int] = {"hour_of_day": 86_400, "day_of_week": 604_800}
"""Seconds."""
_HARMONICS = 3
_FIRST, _LAST = 315_532_800, 4_102_444_800
"""Seconds of the years 1980 and 2100. Other times are unknown, such as those of a history in a request without times."""


def item_columns(schema: Schema, item: Column, wanted: Literal["all"] | Sequence[str] | None) -> tuple[Column, ...]:
    """Return the columns of `model.item_features`, in the item's dimension table.

    Raises:
        ConfigError: The table has no such column, or no column at all.
    """
    if not wanted:
        return ()
    columns = {column.name: column for column in schema.in_table(item.name) if column.role is Role.FEATURE}
    if not columns:
        raise ConfigError(
            f"model.item_features: the prepared data has no features of {item.name} in a table of their own",
            hint=f"add {{op: JoinExternal, table: …, on: {item.name}, columns: […]}} to features.ops with etl.layout=star and run "
            "recsys etl, or remove model.item_features",
        )
    for name in columns if wanted == "all" else wanted:
        if name not in columns:
            raise ConfigError(
                f"model.item_features: no feature {name!r} of {item.name}{suggest(name, list(columns))}",
                hint=f"the features of {item.name} are {', '.join(columns)}",
            )
    return tuple(columns.values()) if wanted == "all" else tuple(columns[name] for name in wanted)


class ItemFeatures(nn.Module):
    """Item vectors v = e + Σ_c mean_{k in c} E_c[k] + W x: the embedding of the id plus those of its features.

    The sum of Kula, "Metadata embeddings for user and item cold-start recommendations" (2015), as input and as candidate
    of a sequence model; SASRec with features in the input alone is SASRecF in the comparison of Zhou et al., "S3-Rec"
    (2020). Categories c have a table each, of the width of the item's; x are numbers and given vectors, each vector
    divided by its length. A weighted list is a weighted sum, an empty list and a missing vector are zero.

    Args:
        columns: Features of items.
        dim: Width of the vectors.
    """

    def __init__(self, columns: Sequence[Column], dim: int) -> None:
        super().__init__()
        self.categorical = tuple(column for column in columns if column.kind is Kind.CATEGORICAL)
        self._numeric = numeric_columns(columns)
        self.projection: nn.Linear | None = None
        if len(self._numeric):
            self.projection = nn.Linear(len(self._numeric), dim, bias=False)
            nn.init.normal_(self.projection.weight, std=INITIAL_STD)

    def forward(self, vectors: Tensor, features: Mapping[str, Feature], lookups: Mapping[str, Lookup]) -> Tensor:
        """Return item vectors, shape (I, D), from the embeddings of the ids, shape (I, D)."""
        for column in self.categorical:
            vectors = vectors + _mean(lookups[column.name].spread(), features[column.name])
        if self.projection is not None:
            vectors = vectors + self.projection(self._numbers(features))
        return vectors

    def _numbers(self, features: Mapping[str, Feature]) -> Tensor:
        batch = Batch(features, {})
        widths, filled = self._numeric.widths, self._numeric.filled
        parts = ((numbers(batch, NumericColumns({name: width}, filled)), width) for name, width in widths.items())
        return torch.cat([F.normalize(part, dim=1) if width > 1 else part for part, width in parts], dim=1)


def _mean(sums: Tensor, feature: Feature) -> Tensor:
    if not isinstance(feature, Ragged) or feature.weights is not None:
        return sums
    return sums / feature.offsets.diff().clamp(min=1).unsqueeze(1)


class TimeFeatures(nn.Module):
    """Vectors W f(t) of times t, with f(t) = (sin 2πkt/p, cos 2πkt/p) for k = 1, 2, 3 and each period p.

    A time zone turns the pairs, which W undoes, so times in UTC need no correction. Three harmonics tell all days of a
    week apart. An unknown time has a vector of zeros.

    Args:
        names: Periods.
        dim: Width of the vectors.
        timestamp: Column of the times; without a unit, seconds since 1970.
    """

    def __init__(self, names: Sequence[TimeFeature], dim: int, timestamp: Column) -> None:
        super().__init__()
        self._timestamp = timestamp
        self._ticks = TICKS[timestamp.unit or "s"]
        self._periods = [_PERIODS[name] for name in names]
        self.projection = nn.Linear(2 * _HARMONICS * len(names), dim, bias=False)
        nn.init.normal_(self.projection.weight, std=INITIAL_STD)

    def forward(self, times: Tensor) -> Tensor:
        """Return a vector per time, shape (..., D)."""
        seconds = times / self._ticks
        parts = []
        for period in self._periods:
            phase = (seconds.remainder(period) * (2 * math.pi / period)).float().unsqueeze(-1)
            angles = phase * torch.arange(1, _HARMONICS + 1, device=times.device)
            parts += [angles.sin(), angles.cos()]
        vectors: Tensor = self.projection(torch.cat(parts, dim=-1))
        return vectors * self._is_known(times).unsqueeze(-1)

    def check(self, times: Tensor) -> None:
        """Check the times of train.

        Raises:
            ConfigError: Most are no times, such as positions in a history.
        """
        if len(times) and float(self._is_known(times).float().mean()) < 0.5:
            name, unit = self._timestamp.name, self._timestamp.unit or "s"
            raise ConfigError(
                f"model.time_features: {name} has no times: most values are not between 1980 and 2100 in {unit} since 1970",
                hint=f"give the unit of the column, such as dataset.interactions.times={{{name}: ms}}, and run recsys etl; "
                "or remove model.time_features",
            )

    def _is_known(self, times: Tensor) -> Tensor:
        return (times >= _FIRST * self._ticks) & (times < _LAST * self._ticks)
