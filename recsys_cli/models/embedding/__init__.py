"""Embedding tables by column name, each looked up once per used row: what all models with categorical columns share."""

from __future__ import annotations

from recsys_cli.models.embedding.lookup import Lookup
from recsys_cli.models.embedding.tables import Embeddings
from recsys_cli.models.embedding.widths import default_dim, dims_of

__all__ = ["Embeddings", "Lookup", "default_dim", "dims_of"]
