"""Sparse gradients as unique ascending ids and their rows."""

from __future__ import annotations

import torch
from torch import Tensor


def rows_of(parameter: Tensor) -> tuple[Tensor, Tensor]:
    """Return the unique ascending ids, shape (U,), of a parameter's sparse gradient, and a view of their rows, shape (U, D).

    Repeated ids, as after several backward passes, are coalesced first; the result replaces the gradient.
    """
    gradient = parameter.grad
    assert gradient is not None
    ids = gradient._indices()[0]
    # The backward pass loses the coalesced flag; a test of the ids is far cheaper than coalescing.
    if not bool((ids[1:] > ids[:-1]).all()):
        gradient = parameter.grad = gradient.coalesce()
    return gradient._indices()[0], gradient._values()


def of_rows(ids: Tensor, rows: Tensor, shape: torch.Size) -> Tensor:
    """Return a sparse gradient of unique ascending ids, shape (U,), and their rows, shape (U, D)."""
    return torch.sparse_coo_tensor(ids.unsqueeze(0), rows, shape, is_coalesced=True, check_invariants=False)
