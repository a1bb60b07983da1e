"""What a model is to the rest of the program: something that scores, and learns step by step or all at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch, Feature
from recsys_cli.interactions import Interactions
from recsys_cli.models.embedding import Embeddings

Progress = Callable[[int, int], None]
"""Told how many of how many parts of some work are done."""


def unheard(done: int, total: int) -> None:
    """Let nobody hear of progress."""
    del done, total


@dataclass(frozen=True)
class Known:
    """What a model may look at beside a batch.

    Attributes:
        interactions: Returns who met what, when, and how it went: of train, or at a test of valid too. It takes time and
            memory, so it is called by models that need it alone.
        join: Returns the features of ids of users or items, as the loader brings them: `{"movieId": ids}` in, and its genres
            beside it out. Ids are on the model's device.
        batches: Returns whole rows of the same splits, with every feature, label and weight and those that were drawn, batch by
            batch in file order, on the model's device: for models that learn from features that belong to an interaction.
            They are read anew with each call. No rows where nobody gives any.
    """

    interactions: Callable[[], Interactions]
    join: Callable[[Mapping[str, Tensor]], Mapping[str, Feature]]
    batches: Callable[[], Iterable[Batch]] = tuple


class Model(nn.Module, ABC):
    """A torch module that can be asked for scores.

    A model is built as `Model(config, schema)`: its own Config and the prepared columns. It is a `Trained` or a `Fitted`, and
    a `Recommender` too where it can score the whole catalogue faster than pair by pair.

    Attributes:
        device: Where it computes, and where batches have to be; its tables may be elsewhere.
        probabilistic: Whether its scores say what the main label is, as logits, or as the number itself where that is what the
            label is; and not an order alone.
        folds_in: Whether all that it knows of a user is what `begin` tells it of the user's history, so that it can recommend
            to users who came after it had learnt.
        by_content: Whether it scores users and items by the features of their tables, so that it can score those that it has no
            ids of.
        deterministic: Whether no chance is in how it learns, so that one run says as much as a run for each of several seeds.
    """

    probabilistic: ClassVar[bool] = False
    folds_in: ClassVar[bool] = False
    by_content: bool = False
    deterministic: ClassVar[bool] = False
    device = torch.device("cpu")

    @property
    def num_parameters(self) -> int:
        """How many numbers are learnt, wherever they are kept."""
        elsewhere = sum(module.elsewhere for module in self.modules() if isinstance(module, Embeddings))
        return elsewhere + sum(parameter.numel() for parameter in self.parameters())

    def begin(self, known: Known) -> None:
        """Take in what is known beside the batches: called before training, and again, with more history, before a test.

        What a model makes of it here is no part of its weights.
        """

    @abstractmethod
    def score(self, batch: Batch) -> Tensor:
        """Return one score a row, shape (B,), float32; higher is better. Needs no labels."""

    def forward(self, batch: Batch) -> Any:
        """Return `score(batch)`: torch's own name for it."""
        return self.score(batch)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Keep in mind where the model goes; everything that moves a module comes through here."""
        self.device = fn(torch.empty(0, device=self.device)).device
        return super()._apply(fn, recurse)


class Trained(Model):
    """A model that learns step by step, from batches of rows.

    It is built as `Model(config, schema, sparse=False)`: `sparse` is whether the gradients of its embedding tables shall be
    sparse tensors, which is what `train.sparse` asks for. Tables are `nn.Embedding` or `nn.EmbeddingBag` modules: that is how
    the optimizers tell them from the rest. A model that can keep them elsewhere than on its device takes `placement` as well,
    and hands it to `models.embedding.embed`. What looks at all rows of a step, of whichever process, is a
    `models.together.Together`: batch normalisation is `models.batch_norm.BatchNorm`, rows to compare with are `AllRows`.

    Attributes:
        rows: What a row of a training batch is: an interaction with its features and labels, or a user (features are the
            user's id alone, the label is 1), each once an epoch.
        dense: Whether every step changes every row of its tables, whatever the batch: then there are no sparse gradients, and it
            is not built with `sparse`.
    """

    rows: ClassVar[Literal["interactions", "users"]] = "interactions"
    dense: ClassVar[bool] = False

    @abstractmethod
    def loss(self, batch: Batch, *, scores: Tensor | None = None) -> Tensor:
        """Return what training minimises, the mean over the batch's rows of weight * loss: a float32 scalar.

        The sum is divided by the number of rows and not by that of the weights, so that parts of a batch and ranks add up.
        What is drawn for it comes from torch's global generator, which is seeded for every step.

        Args:
            batch: With labels.
            scores: What `score(batch)` returned, where the caller has it already; saves validation a second pass.
        """

    def without_rows(self, batch: Batch) -> Tensor:
        """Return 0 in place of the loss of a batch that has no rows, whose mean is not defined; with a gradient of zeros.

        Of the processes that train together some have none where the rows of a step do not go round. What `loss` computes
        together with other processes has to be computed here too, in the same order.
        """
        return self.score(batch).sum()


@dataclass(frozen=True)
class LeftOut:
    """Items of the history that a model does not know: they all score 0.

    Attributes:
        items: Number of them.
        of_items: Number of all items of the history.
        interactions: Their share of the interactions.
    """

    items: int
    of_items: int
    interactions: float

    def sentence(self, name: str) -> str:
        """Say it, with the name of the model."""
        return (
            f"{name} leaves out {self.items:,} of {self.of_items:,} items, with {self.interactions:.1%} of the interactions: "
            "they score 0 (max_items)"
        )


class Fitted(Model):
    """A model that learns all at once, from all interactions; what it has learnt is in its buffers.

    Attributes:
        chosen: Options that the config left to the data, and the values that `fit` chose for them.
        left_out: After `begin`, which items of the history it does not know; None where it knows all.
    """

    chosen: Mapping[str, float] = MappingProxyType({})
    left_out: LeftOut | None = None

    @abstractmethod
    def fit(self, known: Known, *, progress: Progress = unheard) -> None:
        """Learn from the interactions of train, which replaces what was learnt before.

        Args:
            known: The rows of train.
            progress: Hears how it goes.
        """


class Recommender(ABC):
    """What a model is beside `Trained` or `Fitted` if it can score many items for many users at once."""

    @abstractmethod
    def scores(self, users: Tensor, items: Tensor) -> Tensor:
        """Return the score of each user for each item, shape (U, I), float32, in the order that `score` has; after `begin`.

        Args:
            users: Encoded, int64, shape (U,), on the model's device.
            items: Encoded, int64, shape (I,).
        """


class Vectors(Recommender):
    """A recommender whose score is the product of a vector of the user and a vector of the item."""

    @abstractmethod
    def user_vectors(self, users: Tensor) -> Tensor:
        """Return a vector for each user, shape (U, D), float32."""

    @abstractmethod
    def item_vectors(self, items: Tensor) -> Tensor:
        """Return a vector for each item, shape (I, D), float32."""

    def scores(self, users: Tensor, items: Tensor) -> Tensor:
        """Return the products, shape (U, I)."""
        return self.user_vectors(users) @ self.item_vectors(items).T
