"""What all ops share: frozen, no unknown options, and named in the config by `op`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Op(BaseModel):
    """A description of one step; engines dispatch on its type."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
