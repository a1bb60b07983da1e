"""Embedding tables in host memory, for models with tables larger than the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from torch import Tensor

from recsys_cli.models.embedding.tables import Embeddings


class HostEmbeddings(Embeddings):
    """Tables that stay on the host when the model moves to a GPU: only the batch's rows and gradients cross the bus.

    An optimizer keeps its state with the parameters, so moments stay on the host as well. Each direction transfers (U, D) elements
    for U distinct ids of the batch.
    """

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:  # noqa: ARG002 - torch's own name
        """Leave the tables unchanged; torch calls this for every move or type conversion of a module."""
        return self
