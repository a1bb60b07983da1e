"""Numeric columns of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from recsys_cli.batch import Batch, Ragged
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Column, Kind


def numeric_names(columns: Iterable[Column]) -> tuple[str, ...]:
    """Return the sorted names of the numeric columns, for `numbers`; a `ConfigError` for lists of numbers."""
    numeric = [column for column in columns if column.kind is Kind.NUMERIC]
    if lists := [column.name for column in numeric if column.ragged]:
        raise ConfigError(
            f"the model does not support lists of numbers: {', '.join(lists)}",
            hint="categorify or drop them, or use them as weights of a list with features.list_weights",
        )
    return tuple(sorted(column.name for column in numeric))


def numbers(batch: Batch, names: Sequence[str]) -> Tensor:
    """Return the matrix of numeric columns; shape (B, number of names), float32."""
    columns = [batch.features[name] for name in names]
    dense = [column.float() for column in columns if not isinstance(column, Ragged)]
    if dense:
        return torch.stack(dense, dim=1)
    return torch.empty((batch.num_rows, 0), device=next(batch.tensors()).device)
