"""The base class of all config sections."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base of all sections: frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")
