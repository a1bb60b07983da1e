"""Options of `sasrec`, without torch."""

from __future__ import annotations

from recsys_cli.models.sequence.options import TransformerOptions


class Config(TransformerOptions):
    """SASRec: causal self-attention over the user history predicts the next item (Kang and McAuley, 2018)."""
