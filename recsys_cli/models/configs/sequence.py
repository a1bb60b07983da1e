"""Options of the sequence models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveInt, field_validator, model_validator

from recsys_cli.config.section import require_distinct
from recsys_cli.models.configs.matrix import ColdItemOptions, HistoryOptions

TimeFeature = Literal["hour_of_day", "day_of_week"]
SHORTEST, LONGEST, QUANTILE = 10, 200, 0.99
"""Bounds of a maximum sequence length from data, and the share of histories that it holds whole."""
FEW = 30
"""Mean length of histories below which data is sparse."""


class SequenceOptions(ColdItemOptions, HistoryOptions):
    """Options of sequence length, sampled negatives and training."""

    # A step is of users, and MovieLens has few of them: small batches make steps enough of an epoch. They grow with the users, see
    # `loader.loader.auto_batch_size`. Items are moved by
    # row-wise Adagrad: Adam moves rare items, which are hardly more than drawn, as far as all others, and takes five times the
    # epochs to rank as well.
    format: ClassVar[int] = 2
    train_defaults: ClassVar[Mapping[str, Any]] = {
        "epochs": 100,
        "early_stopping": 10,
        "batch_size": "auto",
        "learning_rate": 0.001,
        "sparse_embeddings": True,
        "embedding_optimizer": "adagrad",
        "embedding_learning_rate": 0.1,
        "monitor": "ndcg@10",
    }
    search_space: ClassVar[Mapping[str, Any]] = {
        "train.learning_rate": {"low": 0.0003, "high": 0.003, "log": True},
        "model.embedding_dim": {"choices": [32, 64, 128]},
        "model.dropout": {"low": 0.1, "high": 0.7, "step": 0.1},
    }

    embedding_dim: PositiveInt = 64
    """Width of the item embeddings."""
    max_seq_len: int | None = Field(None, ge=3, le=100_000)
    """Maximum sequence length: the latest items in scoring, a random window of a longer history in each training epoch. None: the
    length that holds 99 % of the histories of train whole, from 10 to 200."""
    dropout: float | None = Field(0.3, ge=0, lt=1)
    """Dropout rate of the item embeddings and of the network. None: 0.5 where users have fewer than 30
    interactions in train on average, otherwise 0.3."""
    item_features: Literal["all"] | tuple[str, ...] | None = None
    """Features of the item table in the item vectors, as input and as candidates: `all`, or names of columns. An item is the sum of
    the embeddings of its id and its features; a list is the mean of its values, numbers and vectors are projected. Items absent
    from train are then ranked by their features. None: ids only."""
    time_features: tuple[TimeFeature, ...] = ()
    """Periods of the interactions' own times added to the input: `hour_of_day`, `day_of_week`. The time of the target stays
    unknown."""
    loss: Literal["softmax", "gbce"] = "softmax"
    """`softmax`: cross-entropy over the catalog, estimated from the negatives by importance sampling (logQ correction). `gbce`:
    generalized binary cross-entropy with `gbce_calibration` (Petrov and Macdonald, "gSASRec", 2023)."""
    gbce_calibration: float = Field(0.75, ge=0, le=1)
    """Calibration t of gbce: 0 is plain binary cross-entropy, 1 aims at the probabilities of the full softmax."""
    num_negatives: PositiveInt | Literal["all"] | None = None
    """Negatives of a step, shared by the batch; all items in a smaller catalog, or with `all`, in blocks of targets. None: a
    quarter of the catalog, from 256 to 4,096."""
    negative_sampling_power: NonNegativeFloat | None = None
    """Negatives are sampled in proportion to (item frequency in train) ^ this power: 0 is uniform, 1 by popularity. The softmax is
    corrected for it, so that the power changes the variance of the estimate and not its target. None: 0.5 for softmax, and for
    gbce 0, as its calibration assumes."""

    _are_distinct = field_validator("item_features", "time_features")(require_distinct)

    def negatives_of(self, num_items: int) -> int:
        """Return the number of negatives in a catalog."""
        if self.num_negatives == "all":
            return num_items
        return self.num_negatives or min(max(256, num_items // 4), 4_096)

    def dropout_of(self, mean_count: float) -> float:
        """Return the dropout rate for histories of a mean length."""
        # NDCG@10 of sasrec on valid with 0.5 and 0.3: .0442 and .0418 on a quarter of Amazon Toys, .1243 and .1165 on
        # MovieTweetings, .0668 and .0659 on Gowalla around New York, all of 7 to 19 interactions; but .1379 and .1394, with
        # another seed .1424 and .1478, on the 450 items of MovieLens latest-small with 50 ratings and more, of 66.
        if self.dropout is not None:
            return self.dropout
        return 0.5 if mean_count < FEW else 0.3

    @property
    def num_positions(self) -> int:
        """Longest sequence of a model with these options."""
        return self.max_seq_len or LONGEST


class AttentionOptions(SequenceOptions):
    """Options of sequence models with attention."""

    num_layers: PositiveInt = 2
    """Number of blocks."""
    num_heads: PositiveInt = 2
    """Number of attention heads; `embedding_dim` is a multiple of it."""

    @model_validator(mode="after")
    def _heads_divide_embedding_dim(self) -> Self:
        if self.embedding_dim % self.num_heads:
            raise ValueError(f"embedding_dim {self.embedding_dim} is no multiple of num_heads {self.num_heads}")
        return self


class TransformerOptions(AttentionOptions):
    """Options of sequence models with a Transformer."""

    layer: Literal["transformer", "ligr"] = "transformer"
    """Blocks: `transformer`, pre-norm; or `ligr`, with gated residuals and a SwiGLU network of four times the width (eSASRec:
    Tikhonovich et al., 2025)."""


class SASRecConfig(TransformerOptions):
    """SASRec: causal self-attention over the user history predicts the next item (Kang and McAuley, 2018)."""

    dropout: float | None = Field(None, ge=0, lt=1)
    """Dropout rate of the item embeddings and of the network. None: 0.5 where users have fewer than 30
    interactions in train on average, otherwise 0.3."""


class GRU4RecConfig(SequenceOptions):
    """GRU4Rec: a recurrent network over the user history predicts the next item (Hidasi et al., 2016 and 2018)."""

    train_defaults: ClassVar[Mapping[str, Any]] = {**SequenceOptions.train_defaults, "learning_rate": 0.002}

    hidden_size: PositiveInt = 128
    """Width of the GRU's hidden state."""
    num_layers: PositiveInt = 1
    """Number of stacked GRU layers."""


class BERT4RecConfig(TransformerOptions):
    """BERT4Rec: bidirectional self-attention predicts masked items of the user history (Sun et al., 2019)."""

    # Only masked positions give a gradient, so BERT4Rec takes far more steps than left-to-right models (Petrov and Macdonald,
    # "A systematic review and replicability study of BERT4Rec", 2022). On MovieLens latest-small, with 20 steps an epoch, it
    # improves for 100 epochs and more, with up to 35 between two best ones, and Adam also for the items is better (NDCG@10 on
    # valid .033 against .027, one seed). Data with more users takes fewer: MovieTweetings is best at the sixth. Value projections
    # of identity without the last layer, as in CBOW, help MovieLens (.052 against .042, mean of epochs 120 to 130) and not
    # MovieTweetings (.107 against .109, epochs 6 to 8), and lose orders that follow from features and times
    # (test_every_model_of_sequences.py).
    train_defaults: ClassVar[Mapping[str, Any]] = {
        "epochs": 150,
        "early_stopping": 40,
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


class HSTUConfig(AttentionOptions):
    """HSTU: gated pointwise attention with biases of distance and time over the user history (Zhai et al., 2024)."""

    relative_time: bool = True
    """Whether attention has a bias of the time between two interactions."""
