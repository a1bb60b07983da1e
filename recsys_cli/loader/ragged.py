"""Vectorized gather and concatenation of lists."""

from __future__ import annotations

import torch
from torch import Tensor

from recsys_cli.batch import Feature, Ragged


def pick_lists(
    values: Tensor, starts: Tensor, lengths: Tensor, dtype: torch.dtype, weights: Tensor | None = None
) -> Ragged:
    """Gather the lists of B rows, of given starts and lengths, from the elements of all lists and their weights, shape (N,).

    The source position of each element is a cumulative sum: steps of 1 inside a list, and a jump from the end of the
    previous list at its first element. The jumps of empty lists add up at one position, so they need no special case.
    """
    num_rows = starts.numel()
    if num_rows == 1 and starts.device.type == "cpu":
        start, length = int(starts), int(lengths)
        of_row = slice(start, start + length)
        own_weights = None if weights is None else weights[of_row].clone()
        return Ragged(values[of_row].to(dtype, copy=True), torch.tensor([0, length]), own_weights)
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
    if values.dtype == torch.uint16:  # torch converts this type but has no gather for it
        picked = values.view(torch.int16).index_select(0, positions).view(torch.uint16)
    else:
        picked = values.index_select(0, positions)
    return Ragged(picked.to(dtype), offsets, picked_weights)


def join_spans(spans: list[dict[str, Feature]]) -> dict[str, Feature]:
    """Concatenate spans of rows, given as columns by name."""
    return spans[0] if len(spans) == 1 else {name: join([span[name] for span in spans]) for name in spans[0]}


def join(parts: list[Feature]) -> Feature:
    """Concatenate one column of several spans of rows."""
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
