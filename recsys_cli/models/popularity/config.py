"""Options of the `popularity` model. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt


class Config(BaseModel):
    """How many rows of train an item has: what every other model has to be better than."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    half_life: float | None = Field(None, gt=0)
    """Time after which a row counts half, in the unit of the timestamps (seconds in MovieLens); None where age does not matter."""
    window: float | None = Field(None, gt=0)
    """Only rows of so much time before the last one count, in the unit of the timestamps; None for all."""
    within: str | None = None
    """A feature of items, such as genres: items that have one of the user's favourite values come first; None for no such thing."""
    favourites: PositiveInt = 3
    """How many values are a user's favourites: those that most of the items that the user has met have."""
    interactions: Literal["all", "positive"] = "all"
    """Which interactions count: all, or those with label 1."""
