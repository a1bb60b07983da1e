"""Lists of the best items of a user: by score, and by maximal marginal relevance."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_WIDE = 16
"""Rows with this many times the needed places are cut into chunks."""
_VECTOR = 64
"""Chunk widths that are multiples of it are reduced several times faster, if rows are contiguous in memory."""
_NARROW = 8
"""Chunk width for rows that are not contiguous: any width is as fast, and narrow chunks leave few candidates."""
POOL = 4
"""Candidates of a reranking, in multiples of k."""
LEAST_POOL = 100
"""Minimum candidates of a reranking."""


def top_places(scores: Tensor, cut_off: int) -> Tensor:
    """Return the best places of each row of scores (U, I), best first; ties by the lower place; (U, min(P, I)).

    Rows are cut into chunks of neighbors, ordered by their maximum and then by its place. A chunk behind P others has
    no place better than the best of each of those. So the best places are in the P best chunks: a full row is read
    only once, for the maxima.
    """
    num_places = scores.shape[1]
    num_best = min(cut_off, num_places)
    if num_places < _WIDE * max(num_best, 1):
        return _top_by_key(scores, num_best)
    width = _chunk_width(scores, num_best)
    num_chunks = num_places // width
    rest = num_chunks * width
    chunks = scores[:, :rest].unflatten(1, (num_chunks, width))
    best = top_places(_maxima(chunks), num_best).sort(dim=1).values
    users = torch.arange(len(scores), device=scores.device).unsqueeze(1)
    near = torch.cat([chunks[users, best].flatten(1), scores[:, rest:]], dim=1)
    top = top_places(near, num_best)
    number = torch.div(top, width, rounding_mode="floor")  # index among the best chunks, then the rest
    inside = best.gather(1, number.clamp(max=num_best - 1)) * width + top % width
    return torch.where(number < num_best, inside, top + (rest - num_best * width))


def _chunk_width(scores: Tensor, num_best: int) -> int:
    if scores.stride(1) != 1:
        return _NARROW
    width = math.isqrt(scores.shape[1] // max(num_best, 1))  # about as many chunks as places in the best chunks
    return width if width < _VECTOR / 4 else -(-width // _VECTOR) * _VECTOR


def _maxima(chunks: Tensor) -> Tensor:
    """Return the maximum of each chunk, (U, C, W) to (U, C), in their memory layout: any other takes 20 times as long."""
    if chunks.stride(2) == 1:
        return chunks.amax(dim=2)
    return chunks.permute(1, 2, 0).amax(dim=1).T


def _top_by_key(scores: Tensor, num_best: int) -> Tensor:
    """Return the best places of each row by a key without ties: the result is the same on every device.

    The key combines the score's bits, as an order-preserving integer, with the place.
    """
    bits = (scores + 0.0).view(torch.int32)  # + 0.0 makes -0.0 equal to 0.0
    keys = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long()  # flips all bits but the sign of negative numbers
    keys <<= 32
    keys -= torch.arange(scores.shape[1], device=scores.device)
    return keys.topk(num_best, dim=1).indices


def pool_size(k: int) -> int:
    """Return the number of best items to choose k diverse ones from."""
    return max(POOL * k, LEAST_POOL)


def rerank(
    scores: npt.NDArray[np.float32], similarities: npt.NDArray[np.float32], *, k: int, diversity: float
) -> npt.NDArray[np.intp]:
    """Return the indices of k items, each the best by (1 - d) relevance - d (largest similarity to those before).

    Relevance is the score, scaled to 0 to 1 among the candidates; ties go to the first. Similarities are scaled to at most 1,
    and negative ones count as 0: opposite items are not redundant.

    Args:
        scores: Scores of N candidates, best first.
        similarities: Similarity of each pair, such as cosines or item-item weights; shape (N, N).
        k: Number of items.
        diversity: d, from 0 to 1.
    """
    span = float(scores[0] - scores[-1]) if len(scores) else 0.0
    relevance = (scores - scores[-1]) / span if span > 0 else np.ones_like(scores)
    redundancy, largest = np.zeros_like(relevance), max(float(similarities.max(initial=0)), 1e-12)
    chosen: list[int] = []
    free = np.ones(len(scores), bool)
    for _ in range(min(k, len(scores))):
        value = np.where(free, (1 - diversity) * relevance - diversity * redundancy, -np.inf)
        best = int(value.argmax())
        chosen.append(best)
        free[best] = False
        redundancy = np.maximum(redundancy, similarities[best] / largest)
    return np.array(chosen, dtype=np.intp)


def fill_cold_slots(scores: Tensor, is_cold: Tensor, *, slots: int, k: int) -> None:
    """Raise scores (U, I), in place: the best cold items (I,) get the last `slots` of k places, unless higher or hidden (-inf)."""
    slots = min(slots, k, int(is_cold.sum()))
    if slots:
        best = scores.masked_fill(~is_cold, -torch.inf).topk(slots, dim=1)
        floor = scores.masked_fill(is_cold, -torch.inf).topk(min(k - slots + 1, scores.shape[1]), dim=1).values[:, -1:]
        for own, index in zip(best.values.split(1, 1)[::-1], best.indices.split(1, 1)[::-1], strict=True):
            floor = floor.nextafter(torch.full_like(floor, torch.inf))
            scores.scatter_(1, index, torch.where(own > -torch.inf, own.maximum(floor), scores.gather(1, index)))
