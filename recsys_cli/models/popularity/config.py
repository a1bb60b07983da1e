"""Options of the `popularity` model. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Config(BaseModel):
    """How many rows of train an item has: what every other model has to be better than."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
