"""What a batch takes from a table: each used row once, so that what is linear can be done before it is spread over the batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (torch's own abbreviation)

_FEW = 64
"""Distinct rows up to which a CPU multiplies by a matrix of counts faster than it goes through EmbeddingBag and its gradient."""


@dataclass(frozen=True)
class Lookup:
    """The rows of one table that a batch uses, each once, and which of them belong to which row of the batch.

    What is linear and the same for all rows of the batch is cheaper done on `rows` (U of them) than after `spread` (B).

    Attributes:
        rows: The used rows; shape (U, D).
        inverse: For each id of the batch its place in `rows`; shape (B,), or (N,) where the column is ragged.
        offsets: Where each batch row's ids start, and N at the end; shape (B + 1,); None where every row has one id.
        weights: How much each id counts, shape (N,); None where each counts once.
        used: The ids of the used rows, ascending, shape (U,), int64; None where nobody told.
    """

    rows: Tensor
    inverse: Tensor
    offsets: Tensor | None = None
    weights: Tensor | None = None
    used: Tensor | None = None

    def map(self, function: Callable[[Tensor], Tensor]) -> Lookup:
        """Return the lookup with a function applied to the used rows, (U, D) to (U, D')."""
        return replace(self, rows=function(self.rows))

    def spread(self) -> Tensor:
        """Return one row for each row of the batch, shape (B, D); the ids of a ragged row are summed, none give zero."""
        if self.offsets is None:
            return F.embedding(self.inverse, self.rows)
        if self.rows.shape[0] <= _FEW and self.rows.device.type == "cpu" and not torch.is_autocast_enabled("cpu"):
            return self._counts(self.offsets) @ self.rows
        weights = None if self.weights is None else self.weights.to(self.rows.dtype)
        return F.embedding_bag(
            self.inverse, self.rows, self.offsets, mode="sum", per_sample_weights=weights, include_last_offset=True
        )

    def squares(self) -> Tensor:
        """Return the sum of squares of each row that `spread` returns; shape (B,)."""
        if self.offsets is not None:
            return self.spread().square().sum(1)
        return self.map(lambda rows: rows.square().sum(1, keepdim=True)).spread().squeeze(1)

    def _counts(self, offsets: Tensor) -> Tensor:
        """Return how often each batch row has each of the used rows, or by which weight; shape (B, U)."""
        num_rows, used = offsets.numel() - 1, self.rows.shape[0]
        row = torch.repeat_interleave(offsets.diff(), output_size=self.inverse.numel())
        weights = torch.ones(row.numel()) if self.weights is None else self.weights
        counts = self.rows.new_zeros(num_rows * used)
        return counts.index_add_(0, row.mul_(used).add_(self.inverse), weights.to(counts.dtype)).view(num_rows, used)
