"""Options of `bert4rec`, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from recsys_cli.models.sequence.options import TransformerOptions


class Config(TransformerOptions):
    """BERT4Rec: bidirectional self-attention predicts masked items of the user history (Sun et al., 2019)."""

    # Only masked positions give a gradient, so BERT4Rec takes far more steps than left-to-right models (Petrov and Macdonald,
    # "A systematic review and replicability study of BERT4Rec", 2022). On MovieLens latest-small, with 20 steps an epoch, it
    # improves for 100 epochs and more, and Adam also for the items is better (NDCG@10 on valid .033 against .027, one seed).
    # Data with more users takes fewer epochs.
    train_defaults: ClassVar[Mapping[str, Any]] = {
        "epochs": 150,
        "batch_size": "auto",
        "learning_rate": 0.001,
        "monitor": "ndcg@10",
    }

    dropout: float | None = Field(0.2, ge=0, lt=1)
    """Dropout rate of the item embeddings and of the Transformer."""
    mask_share: float = Field(0.3, gt=0, lt=1)
    """Share of masked items in a training sequence."""
    last_share: float = Field(0.2, ge=0, lt=1)
    """Share of training sequences with only the last item masked, as in scoring."""
