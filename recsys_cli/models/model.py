"""Base classes of all models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self, get_args

import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch, Feature
from recsys_cli.config import Placement, TrainConfig
from recsys_cli.features.schema import Column, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.models.embedding import Embeddings

Progress = Callable[[int, int], None]
"""Callback with the number of finished parts and of all parts of some work."""
TrainRows = Literal["interactions", "users", "all"]
Scoring = Literal["pairs", "catalog", "dot_product"]
LossOption = Literal["features.weight", "train.positive_weight", "train.label_smoothing"]


Train = Callable[["Model", TrainConfig, "TrainingContext", Schema], None]
"""Trains a gradient-trained model, in place, on the interactions or batches of a context, with their schema."""


def no_training(model: Model, config: TrainConfig, context: TrainingContext, schema: Schema) -> None:
    """Refuse to train: the context has no trainer."""
    raise NotImplementedError(f"this context cannot train {type(model).__name__}")


def no_progress(done: int, total: int) -> None:
    """Ignore progress."""
    del done, total


@dataclass(frozen=True)
class TrainingContext:
    """Data available to a model outside its batches.

    Attributes:
        interactions: Returns the interactions of train; in an evaluation of test also those of valid. Costs time and memory, so
            only models with a need for it call it.
        join: Returns the features of user or item ids by lookup join: `{"movieId": ids}` gives the ids and their genres. Ids
            are on the model's device.
        batches: Returns all rows of the same splits with features, labels, weights and sampled negatives, as batches in file
            order on the model's device. Each call reads them anew. Empty if unavailable.
        train: Trains a gradient-trained part of a model; available before training.
    """

    interactions: Callable[[], Interactions]
    join: Callable[[Mapping[str, Tensor]], Mapping[str, Feature]]
    batches: Callable[[], Iterable[Batch]] = tuple
    train: Train = no_training


@dataclass(frozen=True)
class Stage:
    """A stage of a model with several: a ranking of the catalog by its own.

    Attributes:
        model: The stage; it shares its parts with the whole model.
        k: Number of its candidates for the next stage; None for a stage that orders all candidates.
    """

    model: Model
    k: int | None = None


@dataclass(frozen=True)
class LeftOut:
    """Items of the interaction matrix outside the model; their score is 0.

    Attributes:
        interactions: Share of the interactions on excluded items.
    """

    items: int
    of_items: int
    interactions: float

    def sentence(self, name: str) -> str:
        """Return the message for a model's name."""
        return (
            f"{name} leaves out {self.items:,} of {self.of_items:,} items, with {self.interactions:.1%} of the interactions: "
            "they score 0 (max_items)"
        )


class Model(nn.Module, ABC):
    """Base of the four kinds of models: a torch module with scores and declared traits.

    | kind | input | subclass | implement |
    |---|---|---|---|
    | ranking | labels of interactions with features | `ranking.model.RankingModel` | `outputs` |
    | retrieval | positives and sampled negatives | `retrieval.model.RetrievalModel` | `encode` |
    | sequence | chronological user histories | `sequence.model.SequenceModel` | `network`, or `states` |
    | closed-form | all interactions at once | `ClosedFormModel`, or `item_to_item.ItemToItemModel` | `fit` or `learn` |

    A model of no kind extends this class with `score` and `loss`.

    The constructor is `Model(config, schema)`; `models.embedding.embed` makes its tables. Tables are `nn.Embedding` or
    `nn.EmbeddingBag` modules: optimizers find them by class. A module over the rows of all ranks is a
    `models.all_gather.AllGatherModule`: `models.batch_norm.BatchNorm`, or `AllGatherRows` for in-batch negatives.

    Traits are the only declaration of a model's needs; the rest of the program reads them instead of the class:

    Attributes:
        name: Name in the registry, or import path of a plugin; set by `models.build`.
        rows: Rows of a training batch. `interactions` have features and labels. `users` have the user id as their only
            feature and label 1, once per epoch. `all` is for models without steps: `fit` reads the whole context.
        placements: Supported values of `model.embedding.placement`; those other than `device` need tables of `embed`.
        dense_gradients: Each step changes every row of the embedding tables; sparse gradients are impossible.
        row_dropout: Dropout of a row on a CPU follows from (seed, step, row), identical for any number of ranks.
        bf16_on_cpu: bf16 trains faster than fp32 on a CPU with native support, so that `train.precision=auto` takes it there.
        uncompiled: Methods that torch.compile leaves out, such as those with data-dependent shapes. The decorator of torch
            imports the compiler, two seconds for each process.
        loss_options: Options of the loss with an effect on the model; the others are announced.
        deterministic: Training has no randomness; one run stands for all seeds.
        scoring: Fastest way to score the catalog: `pairs` has `score` only, `catalog` implements `scores`, and
            `dot_product` implements `user_vectors` and `item_vectors`.
        probabilistic: Scores predict the main label, as its logit or its regression value, instead of an order only.
        folds_in: The model depends on a user only through the context's interactions, and scores cold-start users
            without retraining.
        ranks_without_history: With `folds_in`, scores order the catalog for a user without interactions too, instead of ties.
        ranks_seen_last: Seen items are no candidates: they rank behind all of these.
        by_content: The model scores users and items by their features, cold-start ones included; with `folds_in`, items
            only, as users follow from their history.
        timestamp: Column of times in the batches of rows, as given by `Loader(…, times=True)`; None for a model without times.
        device: Device of the computation and of batches; embedding tables may be on another.
        chosen: Values chosen by `fit` or `set_context` for options left open in the config.
        left_out: Items outside the model, set by `set_context`; None if all have weights.
        cold_columns: Item features of `model.cold_items`, which rank cold items by a `ColdItemProjection`.
    """

    name: str = "model"
    rows: ClassVar[TrainRows] = "interactions"
    placements: ClassVar[tuple[Placement, ...]] = ("device",)
    dense_gradients: ClassVar[bool] = False
    row_dropout: ClassVar[bool] = False
    bf16_on_cpu: ClassVar[bool] = True
    uncompiled: ClassVar[tuple[str, ...]] = ()
    loss_options: frozenset[LossOption] = frozenset(get_args(LossOption))
    deterministic: ClassVar[bool] = False
    scoring: ClassVar[Scoring] = "pairs"
    probabilistic: ClassVar[bool] = False
    folds_in: bool = False
    ranks_without_history: ClassVar[bool] = False
    ranks_seen_last: ClassVar[bool] = False
    by_content: bool = False
    timestamp: str | None = None
    device = torch.device("cpu")
    chosen: Mapping[str, float] = MappingProxyType({})
    left_out: LeftOut | None = None
    cold_columns: tuple[Column, ...] = ()

    @classmethod
    def input_schema(cls, config: Any, schema: Schema) -> Schema:
        """Return the columns for the constructor: the prepared ones plus those computed by the model itself."""
        del config
        return schema

    def unused_options(self, config: TrainConfig, schema: Schema) -> list[str]:
        """Return the options of the loss that are set and have no effect on this model."""
        given: dict[LossOption, bool] = {
            "features.weight": schema.weight is not None,
            "train.positive_weight": config.positive_weight is not None,
            "train.label_smoothing": config.label_smoothing > 0,
        }
        return [option for option, is_set in given.items() if is_set and option not in self.loss_options]

    @property
    def scores_users_by_features(self) -> bool:
        """Whether features describe users, cold-start ones included; with fold-in, users follow from their history."""
        return self.by_content and not self.folds_in

    @property
    def ranks_cold_items(self) -> bool:
        """Whether features describe cold items."""
        return self.by_content or bool(self.cold_columns)

    @property
    def num_parameters(self) -> int:
        """Number of parameters, on all devices."""
        external = sum(module.num_external_parameters for module in self.modules() if isinstance(module, Embeddings))
        return external + sum(parameter.numel() for parameter in self.parameters())

    @property
    def stages(self) -> Mapping[str, Stage]:
        """The stages by name, each evaluated beside the whole; empty for a model of one stage."""
        return {}

    def set_context(self, context: TrainingContext) -> None:
        """Set the training context: before training, and again with more interactions before a test; no part of the weights."""

    def set_earlier_rows(self, interactions: Interactions) -> None:
        """Set the interactions that held-out rows with HISTORY_USER may see, each up to its own time.

        Cold-start users have ids above those of the data.
        """

    def set_scales(self, scales: Mapping[str, tuple[float, float]]) -> None:
        """Set mean and standard deviation of the regression labels in train, by label name; before training."""

    def limit_users(self, num_ids: int) -> None:
        """Limit the user ids of a model with fold-in, so that its context has the size of a request instead of all users.

        Args:
            num_ids: Upper bound of the user ids in the following contexts and batches.
        """
        column = getattr(self, "user", None)
        if isinstance(column, Column):
            self.user = column.model_copy(update={"cardinality": num_ids, "buckets": 0})

    @abstractmethod
    def score(self, batch: Batch) -> Tensor:
        """Return a score per row, shape (B,), float32; higher is better. Labels are optional."""

    def loss(self, batch: Batch, *, scores: Tensor | None = None) -> Tensor:
        """Return the training loss, the mean over the batch's rows of weight * loss: a float32 scalar.

        The divisor is the number of rows, not the sum of weights, so that parts of a batch and ranks add up. Randomness
        comes from torch's global generator, seeded in every step. `scores`, a result of `score(batch)`, saves a second
        forward pass.
        """
        raise NotImplementedError(f"{type(self).__name__} has no loss")

    def without_rows(self, batch: Batch) -> Tensor:
        """Return a loss of 0 with zero gradients for a batch without rows, as a step with fewer rows than ranks has.

        Collective operations of `loss` have to run here too, in the same order.
        """
        return self.score(batch).sum()

    def fit(self, context: TrainingContext, *, progress: Progress = no_progress) -> None:
        """Fit the model to all rows of train at once, from scratch; only for `rows` = `all`."""
        raise NotImplementedError(f"{type(self).__name__} is trained step by step")

    def user_vectors(self, users: Tensor) -> Tensor:
        """Return user vectors, shape (U, D), float32; after `set_context`."""
        raise NotImplementedError(f"{type(self).__name__} has no vectors of users")

    def item_vectors(self, items: Tensor) -> Tensor:
        """Return item vectors, shape (I, D), float32; after `set_context`."""
        raise NotImplementedError(f"{type(self).__name__} has no vectors of items")

    def scores(self, users: Tensor, items: Tensor) -> Tensor:
        """Return the scores of encoded users for items, shape (U, I), float32, ordered like `score`; after `set_context`."""
        return self.user_vectors(users) @ self.item_vectors(items).T

    def forward(self, batch: Batch) -> Any:
        """Return `score(batch)`, under torch's name for it."""
        return self.score(batch)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Track the device; every move of a module calls this method."""
        self.device = fn(torch.empty(0, device=self.device)).device
        return super()._apply(fn, recurse)


def pair_ids(batch: Batch, user: Column, item: Column) -> tuple[Tensor, Tensor]:
    """Return the users and items of a batch, int64, shape (B,) each."""
    users, items = batch.features[user.name], batch.features[item.name]
    assert isinstance(users, Tensor)
    assert isinstance(items, Tensor)
    return users.long(), items.long()


class ClosedFormModel(Model):
    """A model fitted to all interactions at once; its weights are buffers."""

    rows = "all"
    loss_options = frozenset()

    @abstractmethod
    def fit(self, context: TrainingContext, *, progress: Progress = no_progress) -> None:
        """Fit the model to all rows of train at once, from scratch."""
