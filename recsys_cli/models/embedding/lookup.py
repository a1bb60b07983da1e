"""The distinct rows of a table in a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

_FEW = 64
"""Maximum distinct rows for a product with a count matrix on a CPU, faster there than EmbeddingBag and its gradient."""


@dataclass(frozen=True)
class Lookup:
    """The distinct rows of one table in a batch, and their assignment to batch rows.

    Linear operations common to all rows are cheaper on `rows` (U of them) than after `spread` (B).

    Attributes:
        rows: Distinct rows of the table; shape (U, D).
        inverse: Index into `rows` of each id of the batch; shape (B,), or (N,) for a ragged column.
        offsets: Row pointers of a ragged column, shape (B + 1,), else None.
        weights: Weight of each id, shape (N,); None for 1.
        used: Ids of the rows, ascending, shape (U,), int64; None if not set.
    """

    rows: Tensor
    inverse: Tensor
    offsets: Tensor | None = None
    weights: Tensor | None = None
    used: Tensor | None = None

    def map(self, function: Callable[[Tensor], Tensor]) -> Lookup:
        """Return the lookup with a function applied to the rows, (U, D) to (U, D')."""
        return replace(self, rows=function(self.rows))

    def spread(self) -> Tensor:
        """Return one embedding per batch row, shape (B, D): the sum of a ragged row's ids, zero if empty."""
        if self.offsets is None:
            is_copy = self.inverse.numel() == self.rows.shape[0] == 1 and not torch.is_grad_enabled()
            return self.rows if is_copy else F.embedding(self.inverse, self.rows)
        if self.rows.shape[0] <= _FEW and self.rows.device.type == "cpu" and not torch.is_autocast_enabled("cpu"):
            return self._counts(self.offsets) @ self.rows
        weights = None if self.weights is None else self.weights.to(self.rows.dtype)
        return F.embedding_bag(
            self.inverse, self.rows, self.offsets, mode="sum", per_sample_weights=weights, include_last_offset=True
        )

    def squares(self) -> Tensor:
        """Return the squared norm of each row of `spread`; shape (B,)."""
        if self.offsets is not None:
            return self.spread().square().sum(1)
        return self.map(lambda rows: rows.square().sum(1, keepdim=True)).spread().squeeze(1)

    def _counts(self, offsets: Tensor) -> Tensor:
        """Return the count, or total weight, of each distinct row in each batch row; shape (B, U)."""
        num_rows, used = offsets.numel() - 1, self.rows.shape[0]
        if num_rows == 1:
            ones = torch.ones(self.inverse.numel(), dtype=self.rows.dtype) if self.weights is None else self.weights
            return self.rows.new_zeros(used).index_add_(0, self.inverse, ones.to(self.rows.dtype)).unsqueeze(0)
        row = torch.repeat_interleave(offsets.diff(), output_size=self.inverse.numel())
        weights = torch.ones(row.numel()) if self.weights is None else self.weights
        counts = self.rows.new_zeros(num_rows * used)
        return counts.index_add_(0, row.mul_(used).add_(self.inverse), weights.to(counts.dtype)).view(num_rows, used)


@dataclass(frozen=True)
class PaddedLookup(Lookup):
    """The rows of all ids of a `Padded` column, in order; `inverse` has the ids, and `weights` the shape of a rectangle."""

    def spread(self) -> Tensor:
        """Return one embedding per batch row, shape (B, D): the weighted sum of a list."""
        if self.weights is None:
            return self.rows
        return (self.rows.unflatten(0, self.inverse.shape) * self.weights.unsqueeze(2)).sum(1)

    def squares(self) -> Tensor:
        """Return the squared norm of each row of `spread`; shape (B,)."""
        return self.spread().square().sum(1)
