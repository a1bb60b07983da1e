"""The base class of what is read and written as JSON or YAML."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Immutable, and without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
