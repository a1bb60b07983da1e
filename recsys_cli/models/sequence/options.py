"""Options that models of sequences share. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator

from recsys_cli.models.options import HistoryOptions


class SequenceOptions(HistoryOptions):
    """What a sequence is, and what the next item is told from."""

    # A step is of users, and MovieLens has few of them: small batches make steps enough of an epoch. They grow with the users, see
    # `loader.users.auto_batch_size`. Items are moved by
    # row-wise Adagrad: Adam moves rare items, which are hardly more than drawn, as far as all others, and takes five times the
    # epochs to rank as well.
    train_defaults: ClassVar[dict[str, Any]] = {
        "epochs": 20,
        "batch_size": "auto",
        "learning_rate": 0.001,
        "sparse_embeddings": True,
        "embedding_optimizer": "adagrad",
        "embedding_learning_rate": 0.1,
        "monitor": "ndcg@10",
    }

    embedding_dim: PositiveInt = 64
    """Width of the items' vectors."""
    max_seq_len: int = Field(50, ge=3)
    """How many items are looked at: the latest when scoring, a random stretch of a longer history in each epoch of training."""
    dropout: float = Field(0.3, ge=0, lt=1)
    """Share of elements to drop, of the items' vectors and within the network."""
    num_negatives: PositiveInt = 256
    """Items that are drawn for each step, as those that might have come instead; all items where there are no more than that."""
    negative_sampling_power: NonNegativeFloat = 0.5
    """Negatives are drawn in proportion to (how often an item comes in train) to this power: 0 for all alike, 1 by popularity. The
    loss is corrected for it: another power changes how sure the estimate is, and not what is estimated."""


class TransformerOptions(SequenceOptions):
    """What a sequence is read with, where that is a Transformer."""

    num_layers: PositiveInt = 2
    """Layers of attention, each followed by a dense network."""
    num_heads: PositiveInt = 2
    """Parts of the vector that attend on their own; `dim` has to be a multiple."""

    @model_validator(mode="after")
    def _heads_are_of_one_width(self) -> Self:
        if self.embedding_dim % self.num_heads:
            raise ValueError(f"heads: dim is {self.embedding_dim}, which {self.num_heads} heads cannot share equally")
        return self
