"""Inverses of positive definite matrices."""

from __future__ import annotations

import torch
from torch import Tensor

_CONDITION = 20_000
"""Condition number above which rounding in float32 may change the inverse by a thousandth."""


def inverse_of(counts: Tensor, penalty: float) -> Tensor:
    """Return (counts + λ)⁻¹; shape (C, C), in the precision of `dtype_of`."""
    inverse = counts.to(dtype_of(counts, penalty), copy=True, memory_format=torch.contiguous_format)
    inverse.diagonal().add_(penalty)
    return invert_(inverse)


def dtype_of(counts: Tensor, penalty: float) -> torch.dtype:
    """Return float32 if counts + λ is well-conditioned, else float64; the trace bounds the largest eigenvalue."""
    return torch.float32 if float(counts.trace()) < _CONDITION * penalty else torch.float64


def invert_(matrix: Tensor) -> Tensor:
    """Replace a positive definite matrix by its inverse in place, without a second matrix in memory; shape (C, C)."""
    columns = matrix.mT  # LAPACK is column-major; for a symmetric matrix the transpose avoids a copy
    torch.linalg.cholesky(columns, out=columns)
    torch.cholesky_inverse(columns, out=columns)
    return matrix
