"""The base class of all config sections."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

MAX_COUNT = 1_000_000_000
"""Upper bound of counts: far above any useful value, and far below the limits of 64-bit arithmetic."""
MAX_SEED = 2**63 - 1


class Section(BaseModel):
    """Base of all sections: frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")
