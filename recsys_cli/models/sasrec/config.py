"""Options of the `sasrec` model. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from typing import Any, ClassVar

from recsys_cli.models.sequence.options import TransformerOptions


class Config(TransformerOptions):
    """Self-attention over a user's items tells the next one (Kang and McAuley, 2018)."""

    train_defaults: ClassVar[dict[str, Any]] = {
        "epochs": 50,
        "batch_size": 128,
        "learning_rate": 0.001,
        "monitor": "ndcg@10",
    }
