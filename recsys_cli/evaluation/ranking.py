"""Ranks the catalog for blocks of users: no loop over users, memory bounded by the block."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from recsys_cli.evaluation.held_out import HeldOut, Lists
from recsys_cli.metrics import Ranked

Scorer = Callable[[npt.NDArray[np.int64]], Tensor]
"""Maps U user ids to their scores for all candidates: finite float32 of shape (U, I), on the device of the ranking. The
ranking overwrites them. It is fastest if the scores of a candidate are contiguous in memory."""

BLOCK_SCORES = 1 << 23
"""Scores of a block: 32 MiB. Small blocks stay in the cache, and the C library reuses their memory."""
_USERS = 64
"""Vector products are fastest per user for multiples of this number of users."""
_WIDE = 16
"""Rows with this many times the needed places are cut into chunks."""
_VECTOR = 64
"""Chunk widths that are multiples of it are reduced several times faster, if rows are contiguous in memory."""
_NARROW = 8
"""Chunk width for rows that are not contiguous: any width is as fast, and narrow chunks leave few candidates."""


def rank(
    held_out: HeldOut,
    scorer: Scorer,
    *,
    cut_off: int,
    block_scores: int = BLOCK_SCORES,
    progress: Callable[[int], None] | None = None,
) -> tuple[Ranked, int]:
    """Rank the candidates for all users by a system's scores, and count users who have seen all candidates.

    Blocks of `block_scores` affect only memory and speed; `progress` gets the number of finished users.
    """
    num_users = len(held_out.user_idx)
    places = np.full((num_users, cut_off), -1, dtype=np.int32)
    hits = np.zeros((num_users, cut_off), dtype=bool)
    for start, stop, best, _ in rank_blocks(held_out, scorer, cut_off=cut_off, block_scores=block_scores):
        places[start:stop, : best.shape[1]] = best
        hits[start:stop, : best.shape[1]] = _contains(held_out.relevant, best, start, stop)
        if progress is not None:
            progress(stop)
    return Ranked(hits, held_out.num_relevant, places, owners=held_out.owners), int(
        np.count_nonzero(held_out.num_rankable == 0)
    )


def rank_blocks(
    held_out: HeldOut, scorer: Scorer, *, cut_off: int, block_scores: int = BLOCK_SCORES
) -> Iterator[tuple[int, int, npt.NDArray[np.int64], Tensor]]:
    """Score and rank all candidates for one block of B users at a time, so that the scores of a block fit into memory.

    Args:
        held_out: The ranking problem.
        scorer: Scores the I candidates for users.
        cut_off: Length P of the rankings; shorter with fewer candidates.
        block_scores: Approximate number of scores per block, B times I.

    Yields:
        start: Position of the first user of the block.
        stop: Position after the last user of the block.
        best: Index of the candidate at each rank, best first, -1 for an empty rank; shape (B, P).
        scores: Score of each candidate, minus infinity for seen items; shape (B, I).
    """
    num_users, num_rankable = len(held_out.user_idx), held_out.num_rankable
    step = max(1, block_scores // max(1, len(held_out.candidates)))
    step -= step % _USERS if step > _USERS else 0
    for start in range(0, num_users if len(held_out.candidates) else 0, step):
        stop = min(start + step, num_users)
        with torch.inference_mode():
            scores = _hide(held_out, scorer(held_out.user_idx[start:stop]), start, stop)
            best = top_places(scores, cut_off).cpu().numpy()
        # Hidden candidates are sorted last: a ranking ends after the number of rankable ones.
        best[np.arange(best.shape[1]) >= num_rankable[start:stop, None]] = -1
        yield start, stop, best, scores


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


def _hide(held_out: HeldOut, scores: Tensor, start: int, stop: int) -> Tensor:
    """Set scores of non-rankable candidates of users start to stop to minus infinity, in place if possible."""
    if held_out.sampled is None:
        if not (scores.is_contiguous() or scores.T.is_contiguous()):
            scores = scores.contiguous()
        scores[_where(held_out.seen, scores, start, stop)] = -torch.inf
        return scores
    shown = torch.full_like(scores, -torch.inf)
    for places in (held_out.sampled, held_out.relevant):
        index = _where(places, scores, start, stop)
        shown[index] = scores[index]
    return shown


def _where(places: Lists, scores: Tensor, start: int, stop: int) -> tuple[Tensor, Tensor]:
    """Return rows and columns, in the scores, of the places of users start to stop."""
    user, place = places.block(start, stop)
    return torch.from_numpy(user).to(scores.device), torch.from_numpy(place).to(scores.device)


def _contains(lists: Lists, places: npt.NDArray[np.int64], start: int, stop: int) -> npt.NDArray[np.bool_]:
    """Return a mask of places in their user's list, for users start to stop."""
    user, values = lists.block(start, stop)
    width = int(max(values.max(initial=0), places.max(initial=0))) + 2
    pairs = user * width + values + 1  # ascending; + 1 gives the padding -1 a number of its own
    queries = np.arange(stop - start)[:, None] * width + places + 1
    indices = np.searchsorted(pairs, queries)
    return np.append(pairs, -1)[indices] == queries
