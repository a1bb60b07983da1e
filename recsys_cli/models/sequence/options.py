"""Options of sequence models, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator

from recsys_cli.models.options import HistoryOptions


class SequenceOptions(HistoryOptions):
    """Options of sequence length, sampled negatives and training."""

    # A step is of users, and MovieLens has few of them: small batches make steps enough of an epoch. They grow with the users, see
    # `loader.users.auto_batch_size`. Items are moved by
    # row-wise Adagrad: Adam moves rare items, which are hardly more than drawn, as far as all others, and takes five times the
    # epochs to rank as well.
    train_defaults: ClassVar[Mapping[str, Any]] = {
        "epochs": 20,
        "batch_size": "auto",
        "learning_rate": 0.001,
        "sparse_embeddings": True,
        "embedding_optimizer": "adagrad",
        "embedding_learning_rate": 0.1,
        "monitor": "ndcg@10",
    }

    embedding_dim: PositiveInt = 64
    """Width of the item embeddings."""
    max_seq_len: int = Field(50, ge=3)
    """Maximum sequence length: the latest items in scoring, a random window of a longer history in each training epoch."""
    dropout: float = Field(0.3, ge=0, lt=1)
    """Dropout rate of the item embeddings and of the network."""
    num_negatives: PositiveInt = 256
    """Sampled negatives per step, shared by the batch; all items in a smaller catalog."""
    negative_sampling_power: NonNegativeFloat = 0.5
    """Negatives are sampled in proportion to (item frequency in train) ^ this power: 0 is uniform, 1 by popularity. The loss is
    corrected for it, so that the power changes the variance of the estimate and not its target."""


class TransformerOptions(SequenceOptions):
    """Options of sequence models with a Transformer."""

    num_layers: PositiveInt = 2
    """Number of Transformer blocks."""
    num_heads: PositiveInt = 2
    """Number of attention heads; `embedding_dim` is a multiple of it."""

    @model_validator(mode="after")
    def _heads_divide_embedding_dim(self) -> Self:
        if self.embedding_dim % self.num_heads:
            raise ValueError(f"embedding_dim {self.embedding_dim} is no multiple of num_heads {self.num_heads}")
        return self
