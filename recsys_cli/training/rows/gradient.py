"""What a sparse gradient holds: ascending ids without repeats, and a row for each. Whoever reads one asks here."""

from __future__ import annotations

import torch
from torch import Tensor


def rows_of(parameter: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ids of a sparse gradient, shape (U,), ascending without repeats, and its rows, shape (U, D).

    Where ids repeat, as they do after several backward passes, their rows are added up and the parameter's gradient is
    replaced, so that this is done once however many ask. Whoever changes the rows in place changes the gradient.

    Args:
        parameter: With a sparse gradient.
    """
    gradient = parameter.grad
    assert gradient is not None
    ids = gradient._indices()[0]
    # Backward passes lose the mark of being coalesced, so it is looked for in the ids: far cheaper than coalescing.
    if not bool((ids[1:] > ids[:-1]).all()):
        gradient = parameter.grad = gradient.coalesce()
    return gradient._indices()[0], gradient._values()


def of_rows(ids: Tensor, rows: Tensor, shape: torch.Size) -> Tensor:
    """Return the sparse tensor of a shape that has some rows.

    Args:
        ids: Ascending without repeats; shape (U,).
        rows: Shape (U, D).
        shape: (rows of the table, D).
    """
    return torch.sparse_coo_tensor(ids.unsqueeze(0), rows, shape, is_coalesced=True, check_invariants=False)
