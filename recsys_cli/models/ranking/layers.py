"""Numeric columns of a batch, and the MLP of deep ranking models and of two-tower encoders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

from recsys_cli.batch import Batch, Feature, Ragged
from recsys_cli.errors import ConfigError
from recsys_cli.features.schema import Column, Kind
from recsys_cli.models.configs.ranking import TowerOptions
from recsys_cli.models.embedding import Lookup
from recsys_cli.models.layers import BatchNorm, Dropout

_BLOCK = 512
"""Rows per block of a weight gradient, to stay in the CPU cache."""


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


def unit_numbers(features: Mapping[str, Feature], numeric: NumericColumns) -> Tensor:
    """Return `numbers` with each vector divided by its length; for at least one column."""
    batch, widths = Batch(features, {}), numeric.widths
    parts = [numbers(batch, replace(numeric, widths={name: widths[name]})) for name in widths]
    return torch.cat([F.normalize(part, dim=1) if part.shape[1] > 1 else part for part in parts], dim=1)


def _rectangle(feature: Feature, width: int) -> Tensor:
    """Return a column as a matrix (B, width); an exported program gives vectors as matrices."""
    values = feature.padded(width)[0] if isinstance(feature, Ragged) else feature
    values = values.float().unsqueeze(1) if values.dim() == 1 else values.float()
    return values if values.shape[1] == width else F.pad(values, (0, width - values.shape[1]))


class ConcatLinear(nn.Module):
    """A dense layer over the concatenation of embeddings and numeric features, built only if dropout requires it.

    By linearity W [a; b] = W_a a + W_b b: each distinct row of a table is multiplied once, and its product spread over
    the batch.
    """

    def __init__(self, dims: Sequence[int], num_numeric: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(sum(dims) + num_numeric, width)
        self.widths = [*dims, num_numeric]

    def forward(self, lookups: Sequence[Lookup], numeric: Tensor, *, dropout: nn.Module | None = None) -> Tensor:
        """Return the layer's output, shape (B, width); dropout of embeddings is separate for each row of the batch."""
        if dropout is not None:
            spread = [dropout(lookup.spread()) for lookup in lookups]
            concatenated: Tensor = self.linear(torch.cat([*spread, numeric], dim=1))
            return concatenated
        *weights, numeric_weight = self.linear.weight.split(self.widths, dim=1)
        output = F.linear(numeric, numeric_weight, self.linear.bias)
        for lookup, weight in zip(lookups, weights, strict=True):
            output = output + lookup.map(partial(_product, weight=weight)).spread()
        return output


def _product(rows: Tensor, weight: Tensor) -> Tensor:
    """`F.linear(rows, weight)`."""
    if rows.device.type != "cpu" or torch.is_autocast_enabled("cpu") or not torch.is_grad_enabled():
        return F.linear(rows, weight)
    product: Tensor = _Product.apply(rows, weight)
    return product


class _Product(torch.autograd.Function):
    """Many rows times a part of a weight, in shapes suited to CPU matrix libraries: a fifth less time than F.linear."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(rows, weight)
        return rows @ weight.t().contiguous()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor]:
        (gradient,) = gradients
        rows, weight = ctx.saved_tensors
        by_weight = torch.zeros_like(weight, memory_format=torch.contiguous_format)
        for block, block_gradient in zip(rows.split(_BLOCK), gradient.split(_BLOCK), strict=True):
            by_weight.addmm_(block_gradient.t(), block)
        return gradient @ weight if ctx.needs_input_grad[0] else None, by_weight


class Tower(nn.Module):
    """MLP over concatenated embeddings and numeric input; all layers but the last are followed by ReLU, BatchNorm and dropout.

    Numeric input, as any dense one, follows the embeddings of widths `dims`. BatchNorm normalizes the scale of the
    embeddings, so that an L2 penalty on them no longer prevents overfitting.
    """

    def __init__(
        self,
        dims: Sequence[int],
        num_numeric: int,
        widths: Sequence[int],
        *,
        dropout: float = 0.0,
        embedding_dropout: float = 0.0,
        batch_norm: bool = True,
    ) -> None:
        super().__init__()
        first, *rest = widths
        self.embedding_dropout = Dropout(embedding_dropout)
        self.first = ConcatLinear(dims, num_numeric, first)
        self.rest = nn.Sequential(*_after(first, rest, dropout, batch_norm=batch_norm)) if rest else nn.Identity()

    @classmethod
    def of(cls, options: TowerOptions, dims: Mapping[str, int], num_numeric: int, num_labels: int) -> Tower:
        """Build the MLP of a ranking model over embeddings of widths `dims`, with an output per label."""
        return cls(
            list(dims.values()), num_numeric, (*options.hidden_dims, num_labels), dropout=options.dropout,
            embedding_dropout=options.embedding_dropout, batch_norm=options.batch_norm,
        )  # fmt: skip

    def forward(self, lookups: Sequence[Lookup], numbers: Tensor) -> Tensor:
        """Return the output of the last layer; shape (B, widths[-1])."""
        dropout = self.embedding_dropout if self.training and self.embedding_dropout.p else None
        output: Tensor = self.rest(self.first(lookups, numbers, dropout=dropout))
        return output


def _after(width: int, widths: list[int], dropout: float, *, batch_norm: bool) -> list[nn.Module]:
    """Return the modules after a dense layer: its activation, and the following layers."""
    layers: list[nn.Module] = []
    for before, after in zip([width, *widths], widths, strict=False):
        layers.append(nn.ReLU())
        if batch_norm:
            layers.append(BatchNorm(before))
        if dropout:
            layers.append(Dropout(dropout))
        layers.append(nn.Linear(before, after))
    return layers
