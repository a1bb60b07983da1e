"""Options of the `bert4rec` model. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from pydantic import Field

from recsys_cli.models.sequence.options import TransformerOptions


class Config(TransformerOptions):
    """Self-attention over a user's items, to both sides, tells items that are masked (Sun et al., 2019)."""

    mask_share: float = Field(0.2, gt=0, lt=1)
    """Share of a sequence's items that are masked in a step of training."""
    last_share: float = Field(0.1, ge=0, lt=1)
    """Share of the sequences of a step in which the last item alone is masked, as it is when scoring."""
