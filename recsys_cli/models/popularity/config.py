"""Options of the `popularity` model. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, PositiveInt

from recsys_cli.models.options import HistoryOptions


class Config(HistoryOptions):
    """How many rows of train an item has: what every other model has to be better than."""

    train_defaults: ClassVar[dict[str, Any]] = {"monitor": "ndcg@10"}

    half_life: float | None = Field(None, gt=0)
    """Time after which a row counts half, in seconds, or in the unit of times that are plain numbers; None where age does not
    matter."""
    window: float | None = Field(None, gt=0)
    """Only rows of so much time before the last one count, in seconds as above; None for all."""
    within: str | None = None
    """A feature of items, such as genres: items that have one of the user's favourite values come first; None for no such thing."""
    num_favorites: PositiveInt = 3
    """How many values are a user's favourites: those that most of the items that the user has met have."""
