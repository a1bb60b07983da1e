"""Embedding tables by column name, with one lookup per distinct row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

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
    "table_options",
]

_PLACEMENTS = {"device": Embeddings, "host": HostEmbeddings, "sharded": ShardedEmbeddings}


_options: ContextVar[tuple[bool, Placement]] = ContextVar("options", default=(False, "device"))


@contextmanager
def table_options(*, sparse: bool = False, placement: Placement = "device") -> Iterator[None]:
    """Give the tables that `embed` makes in a block sparse gradients, or another placement."""
    token = _options.set((sparse, placement))
    try:
        yield
    finally:
        _options.reset(token)


def embed(columns: Sequence[Column], dims: int | Mapping[str, int] | None) -> Embeddings:
    """Return new embedding tables with the widths of `dims_of` and the `table_options` of the model.

    Initial weights are the same for every placement.
    """
    sparse, placement = _options.get()
    return _PLACEMENTS[placement](columns, dims_of(columns, dims), sparse=sparse)


def quantize_tables(model: nn.Module, kind: TableType, *, values: bool = True) -> None:
    """Quantize all embedding tables of a model in place; without `values` the rows are assigned next."""
    for module in list(model.modules()):
        if isinstance(module, Embeddings):
            module.quantize(kind, values=values)
