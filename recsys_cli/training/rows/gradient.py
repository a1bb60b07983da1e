"""Sparse gradients as unique ascending ids and their rows."""

from __future__ import annotations

import torch
from torch import Tensor


def rows_of(parameter: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ids and rows of a sparse gradient.

    Repeated ids, as after several backward passes, are coalesced first; the result replaces the gradient.

    Args:
        parameter: Parameter with a sparse gradient.

    Returns:
        Unique ascending ids, shape (U,), and a view of their rows, shape (U, D).
    """
    gradient = parameter.grad
    assert gradient is not None
    ids = gradient._indices()[0]
    # The backward pass loses the coalesced flag; a test of the ids is far cheaper than coalescing.
    if not bool((ids[1:] > ids[:-1]).all()):
        gradient = parameter.grad = gradient.coalesce()
    return gradient._indices()[0], gradient._values()


def of_rows(ids: Tensor, rows: Tensor, shape: torch.Size) -> Tensor:
    """Return a sparse gradient of ids and rows.

    Args:
        ids: Unique ascending ids, shape (U,).
        rows: Gradient rows, shape (U, D).
        shape: Shape of the table, (rows, D).
    """
    return torch.sparse_coo_tensor(ids.unsqueeze(0), rows, shape, is_coalesced=True, check_invariants=False)
