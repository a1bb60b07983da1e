"""The interface of all models: their declared traits, the training context, and the methods that training and evaluation call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch, Feature
from recsys_cli.features.schema import Schema
from recsys_cli.interactions import Interactions
from recsys_cli.models.embedding import Embeddings

Progress = Callable[[int, int], None]
"""Called with the number of finished parts of some work, and of all parts."""
TrainRows = Literal["interactions", "users", "all"]
Scoring = Literal["pairs", "catalog", "dot_product"]


def unheard(done: int, total: int) -> None:
    """Ignore progress."""
    del done, total


@dataclass(frozen=True)
class TrainingContext:
    """Data that a model may read beside a batch.

    Attributes:
        interactions: Returns the interactions of train, in an evaluation of test also those of valid. It takes time and
            memory, so only models that need it call it.
        join: Returns the features of user or item ids, as the loader joins them: `{"movieId": ids}` in, the ids and their
            genres out. Ids are on the model's device.
        batches: Returns all rows of the same splits with their features, labels and weights, sampled negatives included:
            batch by batch in file order, on the model's device. Each call reads them anew. Empty where the context has none.
    """

    interactions: Callable[[], Interactions]
    join: Callable[[Mapping[str, Tensor]], Mapping[str, Feature]]
    batches: Callable[[], Iterable[Batch]] = tuple


@dataclass(frozen=True)
class LeftOut:
    """Items of the interaction matrix outside the model; they all score 0.

    Attributes:
        items: Number of them.
        of_items: Number of all items of the matrix.
        interactions: Their share of the interactions.
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
    """Base of the four kinds of models: a torch module with scores, and its traits.

    | kind | learns from | subclass | implement |
    |---|---|---|---|
    | ranking | labels of interactions with features | `ranking.model.RankingModel` | `outputs` |
    | retrieval | positives and sampled negatives | `retrieval.model.RetrievalModel` | `encode` |
    | sequence | user histories in the order of time | `sequence.model.SequenceModel` | `states` |
    | closed-form | all interactions at once | `ClosedFormModel`, or `item_to_item.ItemToItemModel` | `fit` or `learn` |

    A model of no kind extends this class with `score` and `loss`.

    The constructor is `Model(config, schema)`. Gradient-trained models take `sparse=False` too: whether their embedding
    tables have sparse gradients (`train.sparse_embeddings`); and `placement`, if they pass it on to
    `models.embedding.embed`. Tables
    are `nn.Embedding` or `nn.EmbeddingBag` modules, as optimizers find them by class. A module that reads the rows of all
    ranks is a `models.all_gather.AllGatherModule`: `models.batch_norm.BatchNorm`, or `AllGatherRows` for in-batch negatives.

    Traits, the only place where a model declares its needs; the rest of the program reads them instead of the class:

    Attributes:
        rows: Rows of a training batch. `interactions` have features and labels. `users` have the user id as their only
            feature and label 1, and come once an epoch. `all` is for models without steps: `fit` reads the whole context.
        dense_gradients: Whether each step changes every row of the embedding tables, so that sparse gradients are impossible.
        row_dropout: Whether dropout of a row on a CPU follows from (seed, step, row), so that any number of ranks drops alike.
        deterministic: Whether training has no randomness, so that one run stands for all seeds.
        scoring: Fastest way to score the catalog: `pairs` has `score` only, `catalog` implements `scores`, and
            `dot_product` implements `user_vectors` and `item_vectors`.
        probabilistic: Whether scores predict the main label: its logit, or its value in a regression; not only an order.
        folds_in: Whether the context's interactions are all that the model knows of a user, so that it scores cold-start
            users without retraining.
        by_content: Whether the model scores users and items by their features, and so those without ids.
        device: Device of the computation and of batches; embedding tables may be elsewhere.
        chosen: Values that `fit` chose for options that the config leaves open.
        left_out: Items outside the model, known after `set_context`; None where there are none.
    """

    rows: ClassVar[TrainRows] = "interactions"
    dense_gradients: ClassVar[bool] = False
    row_dropout: ClassVar[bool] = False
    deterministic: ClassVar[bool] = False
    scoring: ClassVar[Scoring] = "pairs"
    probabilistic: ClassVar[bool] = False
    folds_in: ClassVar[bool] = False
    by_content: bool = False
    device = torch.device("cpu")
    chosen: Mapping[str, float] = MappingProxyType({})
    left_out: LeftOut | None = None

    @classmethod
    def input_schema(cls, config: Any, schema: Schema) -> Schema:
        """Return the columns for the constructor: the prepared ones, and those that the model computes itself."""
        del config
        return schema

    @property
    def num_parameters(self) -> int:
        """Number of parameters, on all devices."""
        elsewhere = sum(module.elsewhere for module in self.modules() if isinstance(module, Embeddings))
        return elsewhere + sum(parameter.numel() for parameter in self.parameters())

    def set_context(self, context: TrainingContext) -> None:
        """Take the data beside the batches: before training, and again with more interactions before a test.

        Nothing that a model derives from it here is part of its weights.
        """

    def set_scales(self, scales: Mapping[str, tuple[float, float]]) -> None:
        """Take mean and standard deviation of regression labels in train, by name; before training."""

    @abstractmethod
    def score(self, batch: Batch) -> Tensor:
        """Return a score per row, shape (B,), float32; higher is better. Labels are not needed."""

    def loss(self, batch: Batch, *, scores: Tensor | None = None) -> Tensor:
        """Return the training loss, the mean over the batch's rows of weight * loss: a float32 scalar.

        The divisor is the number of rows, not the sum of weights, so that parts of a batch and ranks add up. Randomness
        comes from torch's global generator, which training seeds in every step.

        Args:
            batch: With labels.
            scores: Result of `score(batch)`, if there is one; saves validation a second pass.
        """
        raise NotImplementedError(f"{type(self).__module__} has no loss")

    def without_rows(self, batch: Batch) -> Tensor:
        """Return a loss of 0 with zero gradients for a batch without rows, whose mean is undefined.

        Ranks get such batches where the rows of a step do not go round. Collective operations of `loss` have to run here
        too, in the same order.
        """
        return self.score(batch).sum()

    def fit(self, context: TrainingContext, *, progress: Progress = unheard) -> None:
        """Learn from all rows of train at once, from scratch; only where `rows` is `all`.

        Args:
            context: The rows of train.
            progress: Called with the state of the work.
        """
        raise NotImplementedError(f"{type(self).__module__} is trained step by step")

    def user_vectors(self, users: Tensor) -> Tensor:
        """Return a vector per user, shape (U, D), float32; after `set_context`."""
        raise NotImplementedError(f"{type(self).__module__} has no vectors of users")

    def item_vectors(self, items: Tensor) -> Tensor:
        """Return a vector per item, shape (I, D), float32; after `set_context`."""
        raise NotImplementedError(f"{type(self).__module__} has no vectors of items")

    def scores(self, users: Tensor, items: Tensor) -> Tensor:
        """Return the score of each user for each item, shape (U, I), float32, ordered like `score`; after `set_context`.

        Args:
            users: Encoded, int64, shape (U,), on the model's device.
            items: Encoded, int64, shape (I,).
        """
        return self.user_vectors(users) @ self.item_vectors(items).T

    def forward(self, batch: Batch) -> Any:
        """Return `score(batch)`, by torch's own name for it."""
        return self.score(batch)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Track the device; every move of a module comes through here."""
        self.device = fn(torch.empty(0, device=self.device)).device
        return super()._apply(fn, recurse)


class ClosedFormModel(Model):
    """A model that learns all at once from the interactions; its weights are buffers."""

    rows = "all"

    @abstractmethod
    def fit(self, context: TrainingContext, *, progress: Progress = unheard) -> None:
        """Learn from all rows of train at once, from scratch."""
