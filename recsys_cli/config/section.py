"""The base class of all config sections."""

from __future__ import annotations

from collections import Counter
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict

from recsys_cli.frozen import Frozen

MAX_COUNT = 1_000_000_000
"""Upper bound of counts: far above any useful value, and far below the limits of 64-bit arithmetic."""
MAX_SEED = 2**63 - 1
_T = TypeVar("_T")


class Section(Frozen):
    """Base of all sections: frozen, and unknown keys are errors."""

    model_config = ConfigDict(allow_inf_nan=False)


class Named(BaseModel):
    """Base of the components by name; each defines and validates the other keys, its own options."""

    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)

    name: str

    @property
    def options(self) -> dict[str, Any]:
        """The component's own options."""
        return dict(self.model_extra or {})


def require_distinct(values: _T) -> _T:
    """Validate that no value of a tuple is repeated; other values pass."""
    counts = Counter(values) if isinstance(values, tuple) else {}
    twice = [str(value) for value, times in counts.items() if times > 1]
    if twice:
        raise ValueError(f"has {', '.join(twice)} twice")
    return values
