"""Embedding tables in host memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from torch import Tensor

from recsys_cli.models.embedding.tables import Embeddings


class HostEmbeddings(Embeddings):
    """Tables, and so optimizer state, that stay on the host when the model moves to a GPU: only rows of a batch move."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:  # noqa: ARG002 - torch's own name
        """Leave the tables unchanged; torch calls this for every move or type conversion."""
        return self
