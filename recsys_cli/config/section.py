"""What every section of a config is made of."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """What all sections share: frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")
