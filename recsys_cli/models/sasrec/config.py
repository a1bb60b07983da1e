"""Options of `sasrec`, without torch."""

from __future__ import annotations

from pydantic import Field

from recsys_cli.models.sequence.options import TransformerOptions


class Config(TransformerOptions):
    """SASRec: causal self-attention over the user history predicts the next item (Kang and McAuley, 2018)."""

    dropout: float | None = Field(None, ge=0, lt=1)
    """Dropout rate of the item embeddings and of the network. None: 0.5 where users have fewer than 30
    interactions in train on average, otherwise 0.3."""
