"""Embedding tables that stay in host memory, for models whose tables are larger than the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from torch import Tensor

from recsys_cli.models.embedding.tables import Embeddings


class HostEmbeddings(Embeddings):
    """Tables that do not follow their model to a GPU: the rows of a batch go there, and their gradients come back.

    An optimizer keeps its state where the parameters are, so moments stay on the host as well. What crosses the bus is
    (U, D) each way, U being the distinct ids of the batch.
    """

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:  # noqa: ARG002 - torch's own name
        """Leave the tables as they are; everything that moves a module, or changes its type, comes through here."""
        return self
