"""How the lists of a batch are gathered from one long array without a loop over rows."""

from __future__ import annotations

import torch
from torch import Tensor

from recsys_cli.batch import Feature, Ragged


def pick_lists(
    values: Tensor, starts: Tensor, lengths: Tensor, dtype: torch.dtype, weights: Tensor | None = None
) -> Ragged:
    """Gather a list for each of B rows.

    Where each element comes from is a running sum: one further inside a list, and at the first element of a list a jump
    from the end of the one before. Empty lists add their jumps at one place, so they need no care.

    Args:
        values: The elements of all lists, shape (N,).
        starts: Where the list of each row starts in `values`, shape (B,).
        lengths: How many elements it has, shape (B,).
        dtype: What the elements are wanted as.
        weights: How much each element counts, shape (N,), or None.
    """
    num_rows = starts.numel()
    offsets = torch.empty(num_rows + 1, dtype=torch.int64, device=starts.device)
    offsets[0] = 0
    torch.cumsum(lengths, 0, out=offsets[1:])
    total = int(offsets[-1])
    jumps = starts.clone(memory_format=torch.contiguous_format)
    jumps[:1] -= 1
    jumps[1:] -= (starts + lengths)[:-1]
    positions = torch.ones(total + 1, dtype=starts.dtype, device=starts.device)
    positions.scatter_add_(0, offsets[:-1], jumps)
    positions = torch.cumsum(positions[:total], 0, dtype=starts.dtype)
    picked_weights = None if weights is None else weights.index_select(0, positions)
    if values.dtype == torch.uint16:  # which torch converts but does not gather
        picked = values.view(torch.int16).index_select(0, positions).view(torch.uint16)
    else:
        picked = values.index_select(0, positions)
    return Ragged(picked.to(dtype), offsets, picked_weights)


def join(parts: list[Feature]) -> Feature:
    """Join one column of several stretches of rows."""
    lists = [part for part in parts if isinstance(part, Ragged)]
    if not lists:
        return torch.cat([part for part in parts if not isinstance(part, Ragged)])
    offsets, end = [lists[0].offsets], lists[0].values.numel()
    for part in lists[1:]:
        offsets.append(part.offsets[1:] + end)
        end += part.values.numel()
    weights = [part.weights for part in lists if part.weights is not None]
    values = torch.cat([part.values for part in lists])
    return Ragged(values, torch.cat(offsets), torch.cat(weights) if weights else None)
