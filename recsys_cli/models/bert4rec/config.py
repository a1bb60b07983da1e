"""Options of the `bert4rec` model. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from recsys_cli.models.sequence.options import TransformerOptions


class Config(TransformerOptions):
    """Self-attention over a user's items, to both sides, tells items that are masked (Sun et al., 2019)."""

    # Only what is masked teaches, and attention has to find out first which neighbours matter: so it takes far more steps than the
    # models that read from left to right (Petrov and Macdonald, "A systematic review and replicability study of BERT4Rec",
    # 2022). On MovieLens latest-small, with 20 steps an epoch, it gets better for 100 epochs and more, and with Adam for the
    # items too (NDCG@10 on valid .033 against .027 after that, one seed). Data with more users takes fewer epochs.
    train_defaults: ClassVar[dict[str, Any]] = {
        "epochs": 150,
        "batch_size": "auto",
        "learning_rate": 0.001,
        "monitor": "ndcg@10",
    }

    dropout: float = Field(0.2, ge=0, lt=1)
    """Share of elements to drop, of the items' vectors and within the network."""
    mask_share: float = Field(0.3, gt=0, lt=1)
    """Share of a sequence's items that are masked in a step of training."""
    last_share: float = Field(0.2, ge=0, lt=1)
    """Share of the sequences of a step in which the last item alone is masked, as it is when scoring."""
