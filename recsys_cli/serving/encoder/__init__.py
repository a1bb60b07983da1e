"""Encoding of raw rows for requests, by the NumPy forms of the ops."""

from __future__ import annotations

from recsys_cli.ops.vocabulary import VocabularyIndex
from recsys_cli.serving.encoder.row_encoder import Lists, RowEncoder

__all__ = ["Lists", "RowEncoder", "VocabularyIndex"]
