"""What a model may offer beside `score`, so that ranking a whole catalogue does not look at each pair as a row of its own."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor

from recsys_cli.batch import Batch


@runtime_checkable
class CatalogueModel(Protocol):
    """A model whose work splits into a part for the items, done once, and the rest.

    Optional: rankings use it where a model has these two methods, and depend on it in nothing but speed. A network whose
    first layer is linear computes the items' share of that layer once; two towers compute the items' vectors.
    """

    def encode_items(self, items: Batch) -> Tensor:
        """Compute what depends on items alone, from a batch of I items with item features only; shape (I, H)."""

    def score_encoded(self, users: Batch, encoded: Tensor) -> Tensor:
        """Return the logits of every user for every item, as `score` would, shape (U, I).

        Args:
            users: A batch of U users with user features only.
            encoded: Rows of what `encode_items` returned, shape (I, H). U times I is at most the caller's batch size.
        """
