"""The numeric columns of a batch: which of them models take, and how they stand beside each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from recsys_cli.batch import Batch, Ragged
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Column, Kind


def numeric_names(columns: Iterable[Column]) -> tuple[str, ...]:
    """Return the names of the numeric columns among some, in the order that `numbers` is asked for.

    Raises:
        ConfigError: One of them is a list of numbers.
    """
    numeric = [column for column in columns if column.kind is Kind.NUMERIC]
    if lists := [column.name for column in numeric if column.ragged]:
        raise ConfigError(
            f"the model takes no lists of numbers, and {', '.join(lists)} has them",
            hint="categorify them, drop them, or weight a list by them with features.list_weights",
        )
    return tuple(sorted(column.name for column in numeric))


def numbers(batch: Batch, names: Sequence[str]) -> Tensor:
    """Return numeric columns side by side; shape (B, number of names), float32."""
    columns = [batch.features[name] for name in names]
    dense = [column.float() for column in columns if not isinstance(column, Ragged)]
    if dense:
        return torch.stack(dense, dim=1)
    return torch.empty((batch.num_rows, 0), device=next(batch.tensors()).device)
