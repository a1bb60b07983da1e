"""What a model is to the rest of the program."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor

from recsys_cli.batch import Batch


@runtime_checkable
class Model(Protocol):
    """A torch module built as `Model(config, schema)` that can be trained and asked for scores."""

    def loss(self, batch: Batch) -> Tensor:
        """Return what training minimises, the mean over the batch's rows: a scalar."""

    def score(self, batch: Batch) -> Tensor:
        """Return one logit a row, shape (B,), float32; higher is better. Needs no labels."""


@runtime_checkable
class CatalogueModel(Model, Protocol):
    """A model that can score users against many items without looking at each pair as a row of its own.

    Optional: full-catalogue rankings use it where it is there, and must not depend on it but in speed. For a network whose
    first layer is linear, the items' part of that layer is computed once; for two towers, the items' vectors are.
    """

    def encode_items(self, items: Batch) -> Tensor:
        """Compute what depends on items alone, from a batch of I items with item features only; shape (I, H)."""

    def score_encoded(self, users: Batch, encoded: Tensor) -> Tensor:
        """Return the logits of every user for every item, as `score` would, shape (U, I).

        Args:
            users: A batch of U users with user features only.
            encoded: Rows of what `encode_items` returned, shape (I, H). U times I is at most the caller's batch size.
        """
