"""Encoding of raw rows in NumPy, for requests: one module per op."""

from __future__ import annotations

from recsys_cli.serving.encoder.row_encoder import Lists, RowEncoder
from recsys_cli.serving.encoder.vocabulary import VocabularyIndex

__all__ = ["Lists", "RowEncoder", "VocabularyIndex"]
