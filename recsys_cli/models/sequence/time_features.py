"""Hour of the day and day of the week of the items of a sequence."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import TICKS, Column
from recsys_cli.models.embedding.tables import INITIAL_STD
from recsys_cli.models.sequence.options import TimeFeature

_PERIODS: dict[TimeFeature, int] = {"hour_of_day": 86_400, "day_of_week": 604_800}
"""Seconds."""
_HARMONICS = 3
_FIRST, _LAST = 315_532_800, 4_102_444_800
"""Seconds of the years 1980 and 2100. Other times are unknown, such as those of a history in a request without times."""


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
