"""Options of the `two-tower` model. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from recsys_cli.config.section import Section


class Config(Section):
    """Two towers: a network for all features of the user, one for all of the item; the score is the product of their vectors."""

    train_defaults: ClassVar[dict[str, Any]] = {
        "epochs": 20,
        "early_stopping": 3,
        "batch_size": 1024,
        "learning_rate": 0.003,
        "monitor": "ndcg@10",
    }

    embedding_dim: PositiveInt | dict[str, PositiveInt] | None = 64
    """Width of the embeddings: one for all, by column name, or (for columns not named, and where null) from the
    cardinality n: min(512, max(16, round(1.6 n^0.56)))."""
    hidden_dims: tuple[PositiveInt, ...] = ()
    """Widths of the dense layers of each tower before its last, each followed by ReLU and BatchNorm."""
    output_dim: PositiveInt = 64
    """Width of the vectors that the towers end in."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout after each hidden layer."""
    embedding_dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout of the concatenated embeddings."""
    temperature: PositiveFloat = 0.1
    """Vectors have length 1, and their product is divided by this."""
    num_negatives: NonNegativeInt = 512
    """Items drawn for each batch, all equally likely, that its positives are compared with beside those of each other. They show
    the model items that are rarely positive; 0 leaves the items of the batch alone."""
    log_q: bool = True
    """Take the logarithm of how often an item is to be expected among those compared from its score in the loss, so that popular
    items, which come often, are not pushed down for it."""
    filter_false_negatives: bool = False
    """Leave other items that the row's user has a positive of in train out of the comparison."""
