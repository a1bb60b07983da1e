"""Numeric columns of a batch: single numbers, and vectors, which are lists of numbers of a fixed length."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.batch import Batch, Feature, Ragged
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Column, Kind


@dataclass(frozen=True)
class NumericColumns:
    """Widths of numeric columns by name, in the order of `numbers`; the length is their sum.

    Attributes:
        filled: Columns with 0 for a missing number; see `Column.is_filled`.
    """

    widths: Mapping[str, int] = field(default_factory=dict)
    filled: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return sum(self.widths.values())


def numeric_columns(columns: Iterable[Column]) -> NumericColumns:
    """Return the numeric columns by name; a `ConfigError` for lists of numbers without a fixed length."""
    numeric = sorted((column for column in columns if column.kind is Kind.NUMERIC), key=lambda column: column.name)
    if lists := [column.name for column in numeric if column.ragged and not is_vector(column)]:
        names = ", ".join(lists)
        raise ConfigError(
            f"the model does not support lists of numbers: {names}; only vectors, lists of one length that ValueCount has recorded",
            hint=f"for vectors, add {{op: ValueCount, columns: [{names}]}} to features.ops; otherwise categorify or drop them, or "
            "use them as weights of a list with features.list_weights",
        )
    widths = {column.name: column.lengths[1] if column.lengths else 1 for column in numeric}
    return NumericColumns(widths, frozenset(column.name for column in numeric if column.is_filled))


def is_vector(column: Column) -> bool:
    """Whether all lists of train have one length; an empty list is a missing vector."""
    return column.lengths is not None and column.lengths[1] > 0 and column.lengths[0] in {0, column.lengths[1]}


def numbers(batch: Batch, numeric: NumericColumns) -> Tensor:
    """Return the matrix of numeric columns; shape (B, len(numeric)), float32. A missing vector is zero, as a `filled` number."""
    dense = [_rectangle(batch.features[name], width) for name, width in numeric.widths.items()]
    dense = [
        values.masked_fill(values.isnan(), 0.0) if name in numeric.filled else values
        for name, values in zip(numeric.widths, dense, strict=True)
    ]
    if dense:
        return dense[0] if len(dense) == 1 else torch.cat(dense, dim=1)
    return torch.empty((batch.num_rows, 0), device=next(batch.tensors()).device)


def _rectangle(feature: Feature, width: int) -> Tensor:
    """Return a column as a matrix (B, width); an exported program gives vectors as matrices."""
    values = feature.padded(width)[0] if isinstance(feature, Ragged) else feature
    values = values.float().unsqueeze(1) if values.dim() == 1 else values.float()
    return values if values.shape[1] == width else F.pad(values, (0, width - values.shape[1]))
