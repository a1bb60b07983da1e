"""Options of the models that predict labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, field_validator, model_validator

from recsys_cli.config.section import Section, require_distinct


def _train_defaults(**rates: float) -> dict[str, Any]:
    """Return the training defaults of a ranking model with given learning rates.

    Small batches for few rows; early stopping, because the best epoch was the 4th on ml-latest-small, the 7th to 13th on ml-100k.
    """
    steps = {"epochs": 20, "early_stopping": 3, "batch_size": 1024}
    return {**steps, **rates, "sparse_embeddings": True, "monitor": "log_loss"}


class CollaborativeOptions(Section):
    """Collaborative features: biases, factors, regressions and content profiles of users and items, out of fold for every label."""

    # Chosen on a held-out tenth of the train rows of MovieLens latest-small, with the rating as a second label: AUC 0.8332.
    # Positions: 0.8321 with 16, 0.8256 with none; 48 factors with 16 positions 0.8328 in twice the time. Earlier, without
    # positions and with 48 factors: 0.8266, and 0.8189 without the rating; 0.8272 with ten folds; 32 factors with a penalty of
    # 8 or 32: 0.8231 or 0.8218. num_leaves and min_data_in_leaf: within 0.0005. num_trees: flat from 150 on.

    folds: int = Field(5, ge=2, le=100)
    """Number of folds: the features of a train row come from the statistics of the other folds."""
    embedding_dim: PositiveInt = 16
    """Width of the user and item factors."""
    factor_l2: PositiveFloat = 16.0
    """L2 penalty of the factors, with labels in units of their standard deviation."""
    factor_rounds: PositiveInt = 8
    """Iterations of alternating least squares for the factors."""
    positions: PositiveInt = 32
    """Width of the co-occurrence embeddings of users and items, independent of labels."""
    position_l2: PositiveFloat = 5.0
    """L2 penalty of the regressions of labels on the co-occurrence embeddings."""
    smoothing: PositiveFloat = 10.0
    """Additive smoothing of target means, in rows of the overall mean."""
    max_categories: PositiveInt = 64
    """Maximum cardinality of a column with one feature per category; larger columns give one target mean."""


class HistoryFeature(Section):
    """The user's latest items before the time of a row, with their categorical features."""

    max_seq_len: int = Field(50, ge=1, le=10_000)
    """Maximum number of items, the latest."""
    by_label: bool = True
    """Distinguish positive from other items. For a numeric label, positive is above its mean in train."""
    column: str | None = None
    """List column with the history of each row, oldest item first, in one vocabulary with the item column. None: the
    interactions before the row's timestamp."""


class RankingOptions(Section):
    """Options of every ranking model."""

    search_space: ClassVar[Mapping[str, Any]] = {
        "train.learning_rate": {"low": 0.0003, "high": 0.03, "log": True},
        "model.regularization": {"low": 0.0003, "high": 0.1, "log": True},
    }

    regularization: float = Field(0.0, ge=0)
    """L2 penalty of the embeddings: each row of a batch adds this times the squared norm of its embeddings to the training loss. It
    touches only rows of the batch, so it works with `train.sparse_embeddings`."""
    label_weights: dict[str, PositiveFloat] = Field(default_factory=dict)
    """Loss weight of each label, by name; 1 for all others."""
    collaborative: CollaborativeOptions | None = None
    """Out-of-fold collaborative features, as in `lightgbm`: {} for the defaults, null for none."""
    history: HistoryFeature | None = None
    """The user's items before the time of a row as a feature, pooled by the mean: {} for the defaults, null for none."""


class TowerOptions(RankingOptions):
    """Options of every ranking model with an MLP."""

    search_space: ClassVar[Mapping[str, Any]] = {
        "train.learning_rate": {"low": 0.0003, "high": 0.01, "log": True},
        "model.dropout": {"low": 0.0, "high": 0.6, "step": 0.1},
        "model.embedding_dropout": {"low": 0.0, "high": 0.6, "step": 0.1},
    }

    train_defaults: ClassVar[Mapping[str, Any]] = _train_defaults(learning_rate=0.001)

    hidden_dims: tuple[PositiveInt, ...] = (128, 128, 128)
    """Widths of the dense layers, each followed by ReLU."""
    batch_norm: bool = True
    """Apply BatchNorm after each ReLU. It normalizes the scale of the input, and `regularization`, important with few interactions,
    loses its effect."""
    dropout: float = Field(0.2, ge=0, lt=1)
    """Dropout rate after each dense layer."""
    embedding_dropout: float = Field(0.3, ge=0, lt=1)
    """Dropout rate of the embeddings at the MLP's input."""


class ConcatOptions(TowerOptions):
    """Options of every ranking model with an MLP over embeddings of any width."""

    embedding_dim: PositiveInt | dict[str, PositiveInt] | None = 32
    """Width of the embeddings: one for all, or by column name. Columns without one, and null, take it from the cardinality n:
    min(512, max(16, round(1.6 n^0.56)))."""


class MLPConfig(ConcatOptions):
    """MLP of the Merlin notebook: concatenated embeddings through dense layers to one logit.

    The defaults suit a hundred thousand interactions. For many millions, configs/ml25m-notebook.yaml has the notebook's
    settings: no dropout, `embedding_dim` null, batches of 32,768 rows; these overfit small data.
    """


class DCNv2Config(ConcatOptions):
    """DCN-V2: cross layers over all features, followed by or parallel to an MLP (Wang et al., 2021)."""

    num_cross_layers: PositiveInt = 2
    """Number of cross layers; L layers give feature products up to degree L + 1."""
    rank: PositiveInt | None = None
    """Rank of the low-rank cross matrices. A quarter of the input width is often enough, at half the cost. None for full
    matrices."""
    structure: Literal["stacked", "parallel"] = "stacked"
    """`stacked`: the MLP reads the output of the cross layers. `parallel`: it reads the features, and both logits are added."""


class DeepFMConfig(TowerOptions):
    """DeepFM: a factorization machine plus an MLP over the same embeddings (Guo et al., 2017)."""

    train_defaults: ClassVar[Mapping[str, Any]] = _train_defaults(learning_rate=0.0003, embedding_learning_rate=0.003)
    embedding_dim: PositiveInt = 16
    """Width of the embeddings, equal for all features, because the factorization machine multiplies them."""
    regularization: float = Field(0.015, ge=0)
    """L2 penalty of the embeddings, as in the other ranking models; their products overfit without it."""
    hidden_dims: tuple[PositiveInt, ...] = (64,)
    """Widths of the MLP's layers, each followed by ReLU; small ones suffice next to the factorization machine."""
    batch_norm: bool = False
    """Apply BatchNorm after each ReLU. It normalizes the scale of the embeddings, and `regularization` loses its effect."""
    dropout: float = Field(0.5, ge=0, lt=1)
    """Dropout rate after each dense layer."""
    embedding_dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout rate of the embeddings at the MLP's input; the factorization machine reads them in full."""


class DLRMConfig(RankingOptions):
    """DLRM: dot products of all pairs of embeddings and of a vector of the numeric features, then an MLP (Naumov et al., 2019).

    A linear model is added to the logit, unlike in the paper.
    """

    train_defaults: ClassVar[Mapping[str, Any]] = _train_defaults(learning_rate=0.001, embedding_learning_rate=0.003)
    embedding_dim: PositiveInt = 16
    """Width of the embeddings, equal for all features, because they enter dot products."""
    bottom_mlp: tuple[PositiveInt, ...] = (64,)
    """Widths of the MLP from the numeric features to a vector of `embedding_dim`; each layer has ReLU and BatchNorm."""
    regularization: float = Field(0.007, ge=0)
    """L2 penalty of the embeddings, as in the other ranking models. Dot products overfit without it; at 0.02 the embeddings of
    a hundred thousand interactions stay at zero."""
    top_mlp: tuple[PositiveInt, ...] = (64,)
    """Widths of the top MLP's layers, each followed by ReLU."""
    batch_norm: bool = False
    """Apply BatchNorm after each ReLU of the top MLP. It normalizes the scale of the dot products, so `regularization` loses its
    effect: on a hundred thousand interactions AUC falls from the third epoch on, by 0.04 in three more."""
    dropout: float = Field(0.5, ge=0, lt=1)
    """Dropout rate after each dense layer."""
    embedding_dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout rate of the embeddings; it shrinks the dot products, a net loss."""


class FMConfig(RankingOptions):
    """Factorization machine: a linear model plus the dot products of all feature pairs (Rendle, 2010)."""

    train_defaults: ClassVar[Mapping[str, Any]] = _train_defaults(learning_rate=0.003)
    embedding_dim: PositiveInt = 16
    """Width of the embeddings, equal for all features, because they enter dot products."""
    regularization: float = Field(0.01, ge=0)
    """L2 penalty of weights and embeddings: each row of a batch adds this times the squared norm of its embeddings to the training
    loss. Sparse feature pairs need it; 0.01 suits a hundred thousand interactions."""


class LogisticConfig(RankingOptions):
    """Logistic regression: an intercept plus one weight per feature value.

    It captures item popularity and user bias, without personalization: a baseline for the other ranking models.
    """

    train_defaults: ClassVar[Mapping[str, Any]] = _train_defaults(learning_rate=0.01)


class DINConfig(ConcatOptions):
    """Deep Interest Network: an MLP over the features and the history, weighted by attention to the item (Zhou et al., 2018)."""

    history: HistoryFeature = HistoryFeature()
    """The user's items before the time of a row."""
    attention_dims: tuple[PositiveInt, ...] = Field((36,), min_length=1)
    """Widths of the dense layers of the activation unit."""


class BSTConfig(ConcatOptions):
    """Behavior Sequence Transformer: an MLP over the features and a transformer of history and item (Chen et al., 2019)."""

    history: HistoryFeature = HistoryFeature(max_seq_len=20)
    """The user's items before the time of a row."""
    hidden_size: PositiveInt = 32
    """Width of the transformer."""
    num_layers: PositiveInt = 1
    """Number of transformer layers."""
    num_heads: PositiveInt = 4
    """Number of attention heads."""
    attention_dropout: float = Field(0.2, ge=0, lt=1)
    """Dropout rate of the outputs of attention and feed-forward network."""

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.hidden_size % self.num_heads:
            raise ValueError(f"hidden_size {self.hidden_size} has to be a multiple of num_heads {self.num_heads}")
        return self


class MMoEConfig(ConcatOptions):
    """Multi-gate mixture of experts for several labels (Ma et al., 2018)."""

    num_experts: PositiveInt = 4
    """Number of experts, shared by all labels."""
    hidden_dims: tuple[PositiveInt, ...] = Field((128, 64), min_length=1)
    """Widths of the dense layers of an expert."""
    tower_dims: tuple[PositiveInt, ...] = (32,)
    """Widths of the dense layers of a label's own tower."""


class PLEConfig(ConcatOptions):
    """Progressive layered extraction for several labels that may conflict (Tang et al., 2020)."""

    num_layers: PositiveInt = 2
    """Number of extraction layers; with one, the model is CGC."""
    num_shared_experts: PositiveInt = 2
    """Number of experts per layer that all labels share."""
    num_label_experts: PositiveInt = 2
    """Number of experts per layer of each label."""
    hidden_dims: tuple[PositiveInt, ...] = Field((64,), min_length=1)
    """Widths of the dense layers of an expert."""
    tower_dims: tuple[PositiveInt, ...] = (32,)
    """Widths of the dense layers of a label's own tower."""


class NeuMFConfig(TowerOptions):
    """NeuMF: elementwise product of user and item embeddings, plus an MLP with embeddings of its own (He et al., 2017).

    Trains on positive and negative labels; for implicit feedback the op NegativeSampling adds negatives.
    """

    mf_dim: PositiveInt = 16
    """Width of the user and item embeddings of the product."""
    embedding_dim: PositiveInt | dict[str, PositiveInt] | None = 32
    """Width of the MLP's embeddings: one for all, or by column name. Columns without one, and null, take it from the cardinality n:
    min(512, max(16, round(1.6 n^0.56)))."""
    content: bool = True
    """Feed all features to the MLP; false gives the paper's model, with user and item ids only."""
    regularization: float = Field(0.01, ge=0)
    """L2 penalty of the embeddings, as in the other ranking models; their products overfit without it."""


class WideDeepConfig(ConcatOptions):
    """Wide & Deep: a linear model memorizes ids and feature crosses, plus an MLP over embeddings (Cheng et al., 2016)."""

    wide: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Columns of the linear model, such as the output of HashedCross. None for all."""
    deep: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Columns of the MLP. None for all."""

    _are_distinct = field_validator("wide", "deep")(require_distinct)


class LightGBMConfig(CollaborativeOptions):
    """LightGBM: gradient-boosted trees on the plan's features and out-of-fold collaborative features, a strong tabular baseline.

    Every label gives collaborative features, and the trees predict the first label. A graded second label, such as the rating
    scaled to [0, 1], carries more signal than a binary one.
    """

    format: ClassVar[int] = 3

    search_space: ClassVar[Mapping[str, Any]] = {
        "model.learning_rate": {"low": 0.01, "high": 0.2, "log": True},
        "model.num_leaves": {"low": 8, "high": 128, "log": True},
        "model.min_data_in_leaf": {"low": 10, "high": 500, "log": True},
        "model.feature_fraction": {"low": 0.3, "high": 1.0},
    }

    num_trees: PositiveInt = 300
    """Number of trees, one per boosting round."""
    learning_rate: PositiveFloat = 0.05
    """Shrinkage of each tree's output."""
    num_leaves: int = Field(24, ge=2)
    """Maximum leaves per tree."""
    min_data_in_leaf: PositiveInt = 50
    """Minimum rows per leaf."""
    lambda_l2: NonNegativeFloat = 5.0
    """L2 penalty of the leaf values."""
    feature_fraction: float = Field(0.5, gt=0, le=1)
    """Share of features sampled for each tree."""
    bagging_fraction: float = Field(0.8, gt=0, le=1)
    """Share of rows sampled for each tree."""
