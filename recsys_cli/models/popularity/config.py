"""Options of `popularity`, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, PositiveInt

from recsys_cli.models.options import HistoryOptions


class Config(HistoryOptions):
    """Popularity: ranks items by their number of interactions in train; the baseline for every other model."""

    # In seconds: from a day to three years.
    search_space: ClassVar[Mapping[str, Any]] = {
        "model.half_life": {"low": 86_400.0, "high": 1e8, "log": True},
    }

    half_life: float | None = Field(None, gt=0)
    """Half-life of an interaction's weight, in seconds, or in the unit of numeric timestamps. None for no decay."""
    window: float | None = Field(None, gt=0)
    """Length of the time window before the last interaction, in seconds as above. None for all interactions."""
    within: str | None = None
    """Item feature, such as genres: items with one of the user's favorite values rank first. None for one ranking for all users."""
    num_favorites: PositiveInt = 3
    """Number of favorite values per user: the most frequent values in the user history."""
