"""Options of the retrieval models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from recsys_cli.config.section import Section
from recsys_cli.models.configs.matrix import ColdItemOptions


class NegativeSamplingOptions(ColdItemOptions):
    """Options of retrieval models with sampled negatives."""

    search_space: ClassVar[Mapping[str, Any]] = {
        "train.learning_rate": {"low": 0.005, "high": 0.5, "log": True},
        "model.embedding_dim": {"choices": [32, 64, 128]},
        "model.regularization": {"low": 1e-5, "high": 0.2, "log": True},
    }

    num_negatives: PositiveInt | None = None
    """Uniformly sampled negatives per positive: `bpr` averages over them, `warp` tries them in turn, and for `softmax` all rows of
    a batch share them. None: 1 for bpr, 20 for warp, 512 for softmax."""
    filter_false_negatives: bool = True
    """Reject false negatives, the user's positives in train; `softmax` masks them in the sum."""
    regularization: float | None = Field(None, ge=0)
    """L2 penalty: each positive adds this times the squared norms of its user, its item and the mean of its negatives to the
    training loss. None: 0.002 for bpr, 0.05 for warp and softmax."""


class MFConfig(NegativeSamplingOptions):
    """Matrix factorization with a ranking loss: user and item embeddings, and item biases."""

    # Row-wise Adagrad: Adam moves rare items, with hardly a gradient beyond sampled negatives, as far as all others.
    train_defaults: ClassVar[dict[str, Any]] = {
        "epochs": 20,
        "early_stopping": 5,  # on MovieLens latest-small valid is level for four epochs and then rises
        "batch_size": 2048,
        "learning_rate": 0.1,
        "sparse_embeddings": True,
        "embedding_optimizer": "adagrad",
        "monitor": "ndcg@10",
    }

    embedding_dim: PositiveInt = 64
    """Width of the embeddings, without the bias."""
    loss: Literal["bpr", "warp", "softmax"] = "softmax"
    """`softmax`: a positive against many sampled negatives. `bpr`: against one (Rendle et al., 2009). `warp`: against one, with a
    higher weight for positives at low ranks (Weston et al., 2011). The default training options suit softmax and warp; bpr takes
    two or three times as many epochs."""


class ContrastiveOptions(Section):
    """A contrastive loss: vectors of one propagation with noise in each layer, those of one layer against the mean of all.

    XSimGCL: Yu et al., "XSimGCL: Towards Extremely Simple Graph Contrastive Learning for Recommendation" (2023).
    """

    weight: PositiveFloat = 0.2
    """Weight of the loss."""
    noise: float = Field(0.1, ge=0)
    """Length of the noise added to each vector in each layer."""
    temperature: PositiveFloat = 0.2
    """Softmax temperature: divides the cosine similarities of in-batch users, and items."""
    layer: PositiveInt = 1
    """Layer of the other view."""


class LightGCNConfig(NegativeSamplingOptions):
    """LightGCN: user and item embeddings propagated over the graph of positive interactions (He et al., 2020)."""

    train_defaults: ClassVar[dict[str, Any]] = {
        "epochs": 20,
        "early_stopping": 5,
        "batch_size": 4096,
        "learning_rate": 0.04,
        "monitor": "ndcg@10",
    }

    embedding_dim: PositiveInt = 64
    """Width of the embeddings."""
    num_layers: int = Field(3, ge=0, le=100)
    """Number of propagation layers; 0 is matrix factorization without biases."""
    regularization: float = Field(0.0001, ge=0)
    """L2 penalty of the embeddings before propagation: each positive adds this times the squared norms of its user, its item and
    the mean of its negatives to the training loss."""
    loss: Literal["bpr", "softmax"] = "bpr"
    """`bpr`: a positive against one sampled negative, as in the paper. `softmax`: a positive against many."""
    contrastive: ContrastiveOptions | None = Field(None, exclude_if=lambda options: options is None)
    """Contrastive loss of users and of items in each batch, such as {weight: 0.2}; null for none."""

    @model_validator(mode="after")
    def _has_the_layer(self) -> Self:
        if self.contrastive is not None and self.contrastive.layer > self.num_layers:
            raise ValueError(f"contrastive.layer: {self.contrastive.layer} is more than num_layers, {self.num_layers}")
        return self


class TwoTowerConfig(ColdItemOptions):
    """Two-tower model: one network per side over user and item features, scored by the dot product of their outputs."""

    train_defaults: ClassVar[dict[str, Any]] = {
        "epochs": 20,
        "early_stopping": 3,
        "batch_size": 1024,
        "learning_rate": 0.003,
        "monitor": "ndcg@10",
    }

    search_space: ClassVar[Mapping[str, Any]] = {
        "train.learning_rate": {"low": 0.0005, "high": 0.02, "log": True},
        "model.temperature": {"low": 0.05, "high": 0.3, "log": True},
        "model.embedding_dropout": {"low": 0.0, "high": 0.5, "step": 0.1},
    }

    embedding_dim: PositiveInt | dict[str, PositiveInt] | None = 64
    """Width of the embeddings: one for all, or by column name. Columns without one, and null, take it from the cardinality n:
    min(512, max(16, round(1.6 n^0.56)))."""
    hidden_dims: tuple[PositiveInt, ...] = ()
    """Widths of the hidden layers of each tower, each followed by ReLU and BatchNorm."""
    output_dim: PositiveInt = 64
    """Width of the towers' output vectors."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout rate after each hidden layer."""
    embedding_dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout rate of the concatenated embeddings."""
    temperature: PositiveFloat = 0.1
    """Softmax temperature: divides the cosine similarity of user and item."""
    num_negatives: NonNegativeInt = 512
    """Uniformly sampled negatives per batch, in addition to the in-batch negatives. They cover items that are rarely positive;
    0 for in-batch negatives only."""
    log_q: bool = True
    """Subtract the log sampling probability of each item from its logit, the correction for popularity bias of in-batch
    negatives."""
    filter_false_negatives: bool = False
    """Exclude false negatives from the loss: other items with a positive of the row's user in train."""
