"""Embedding tables by column name, each looked up once per used row: what all models with categorical columns share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recsys_cli.config import Placement
from recsys_cli.features.schema import Column
from recsys_cli.models.embedding.host import HostEmbeddings
from recsys_cli.models.embedding.lookup import Lookup
from recsys_cli.models.embedding.sharded import ShardedEmbeddings
from recsys_cli.models.embedding.tables import Embeddings, key_of
from recsys_cli.models.embedding.widths import default_dim, dims_of

__all__ = [
    "Embeddings",
    "HostEmbeddings",
    "Lookup",
    "ShardedEmbeddings",
    "default_dim",
    "dims_of",
    "embed",
    "key_of",
]

_PLACES = {"device": Embeddings, "host": HostEmbeddings, "sharded": ShardedEmbeddings}


def embed(
    columns: Sequence[Column], dims: Mapping[str, int], *, sparse: bool = False, placement: Placement = "device"
) -> Embeddings:
    """Return new tables, of the same numbers wherever they are kept.

    Args:
        columns: The categorical columns.
        dims: Width of each column's rows, as `dims_of` gives it.
        sparse: Whether the tables' gradients are sparse tensors, coalesced, holding only the rows of the batch.
        placement: Where they are kept, as in `model.embedding.placement`.
    """
    return _PLACES[placement](columns, dims, sparse=sparse)
