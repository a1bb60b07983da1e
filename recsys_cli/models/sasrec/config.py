"""Options of the `sasrec` model. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from recsys_cli.models.sequence.options import TransformerOptions


class Config(TransformerOptions):
    """Self-attention over a user's items tells the next one (Kang and McAuley, 2018)."""
