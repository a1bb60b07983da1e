"""Embedding tables by column name, with one lookup per distinct row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import nn

from recsys_cli.config import Placement
from recsys_cli.features.schema import Column
from recsys_cli.models.embedding.sharded import ShardedEmbeddings
from recsys_cli.models.embedding.tables import (
    Embeddings,
    HostEmbeddings,
    Lookup,
    TableType,
    default_dim,
    dims_of,
    distinct,
    key_of,
)

__all__ = [
    "Embeddings",
    "HostEmbeddings",
    "Lookup",
    "ShardedEmbeddings",
    "default_dim",
    "dims_of",
    "distinct",
    "embed",
    "key_of",
]

_PLACEMENTS = {"device": Embeddings, "host": HostEmbeddings, "sharded": ShardedEmbeddings}


def embed(
    columns: Sequence[Column], dims: Mapping[str, int], *, sparse: bool = False, placement: Placement = "device"
) -> Embeddings:
    """Return new embedding tables with widths from `dims_of`; initial weights are the same for every placement."""
    return _PLACEMENTS[placement](columns, dims, sparse=sparse)


def quantize_tables(model: nn.Module, kind: TableType, *, values: bool = True) -> None:
    """Quantize all embedding tables of a model in place.

    Args:
        model: The model.
        kind: fp16 or int8.
        values: Quantize the current rows; otherwise the rows are assigned next.
    """
    for module in list(model.modules()):
        if isinstance(module, Embeddings):
            module.quantize(kind, values=values)
