"""Ranks the catalogue for blocks of users and marks the hits: no loop over users, memory bounded by the block."""

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
"""From U user ids to their scores for all candidates, finite float32 of shape (U, I), on the device to rank on. Whoever
ranks writes into them. They are ranked fastest if the scores of the users for one candidate are neighbours in memory."""

BLOCK_SCORES = 1 << 23
"""Scores that are held at once: 32 MiB. They are read again while they are near, and the C library keeps their memory."""
_USERS = 64
"""Products of vectors for a multiple of so many users take the least time for each."""
_WIDE = 16
"""Rows with so many times the places that are wanted are cut into chunks."""
_VECTOR = 64
"""Chunks of a multiple of it are gone through several times as fast as others, where a row's neighbours are those in memory."""
_NARROW = 8
"""Places of a chunk where they are not: then any width is as fast, and narrow ones leave little to look at."""


def rank(
    held_out: HeldOut,
    scorer: Scorer,
    *,
    cut_off: int,
    block_scores: int = BLOCK_SCORES,
    progress: Callable[[int], None] | None = None,
) -> tuple[Ranked, int]:
    """Rank the candidates for all users by a system's scores.

    Args:
        held_out: The problem.
        scorer: The system.
        cut_off: How many places are filled at most, P.
        block_scores: Scores held at once; changes nothing else.
        progress: Told how many users are done.

    Returns:
        The rankings, and how many users got no recommendation because they have seen all candidates.
    """
    num_users = len(held_out.user_idx)
    places = np.full((num_users, cut_off), -1, dtype=np.int32)
    hits = np.zeros((num_users, cut_off), dtype=bool)
    for start, stop, best, _ in rank_blocks(held_out, scorer, cut_off=cut_off, block_scores=block_scores):
        places[start:stop, : best.shape[1]] = best
        hits[start:stop, : best.shape[1]] = _contains(held_out.relevant, best, start, stop)
        if progress is not None:
            progress(stop)
    return Ranked(hits, held_out.num_relevant, places), int(np.count_nonzero(held_out.num_rankable == 0))


def rank_blocks(
    held_out: HeldOut, scorer: Scorer, *, cut_off: int, block_scores: int = BLOCK_SCORES
) -> Iterator[tuple[int, int, npt.NDArray[np.int64], Tensor]]:
    """Rank the candidates for one block of users after the other; see `rank`.

    Yields:
        First user and end of the block; its best places (B, P), -1 behind the end of a ranking; its scores (B, I), minus infinity
        at seen items.
    """
    num_users, num_rankable = len(held_out.user_idx), held_out.num_rankable
    step = max(1, block_scores // max(1, len(held_out.candidates)))
    step -= step % _USERS if step > _USERS else 0
    for start in range(0, num_users if len(held_out.candidates) else 0, step):
        stop = min(start + step, num_users)
        with torch.inference_mode():
            scores = _hide(held_out, scorer(held_out.user_idx[start:stop]), start, stop)
            best = top_places(scores, cut_off).cpu().numpy()
        # What is hidden stands last, so a ranking ends where all that may be ranked is.
        best[np.arange(best.shape[1]) >= num_rankable[start:stop, None]] = -1
        yield start, stop, best, scores


def top_places(scores: Tensor, cut_off: int) -> Tensor:
    """Return the best places of each row of scores (U, I), best first, the lower place first among ties; (U, min(P, I)).

    Rows are cut into chunks of neighbours. If P chunks have a maximum that comes before that of another chunk, by its
    size and then by its place, then each of them holds a place that comes before all of that other chunk. So the best
    places are in the P best chunks, and only those are looked at: all of a row is read once, for its maxima.
    """
    num_places = scores.shape[1]
    wanted = min(cut_off, num_places)
    if num_places < _WIDE * max(wanted, 1):
        return _top_by_key(scores, wanted)
    width = _chunk_width(scores, wanted)
    num_chunks = num_places // width
    rest = num_chunks * width
    chunks = scores[:, :rest].unflatten(1, (num_chunks, width))
    best = top_places(_maxima(chunks), wanted).sort(dim=1).values
    users = torch.arange(len(scores), device=scores.device).unsqueeze(1)
    near = torch.cat([chunks[users, best].flatten(1), scores[:, rest:]], dim=1)
    top = top_places(near, wanted)
    number = torch.div(top, width, rounding_mode="floor")  # which of the best chunks; behind them is the rest
    inside = best.gather(1, number.clamp(max=wanted - 1)) * width + top % width
    return torch.where(number < wanted, inside, top + (rest - wanted * width))


def _chunk_width(scores: Tensor, wanted: int) -> int:
    """Return how many neighbours of a row make a chunk."""
    if scores.stride(1) != 1:
        return _NARROW
    width = math.isqrt(scores.shape[1] // max(wanted, 1))  # about as many chunks as places in the best of them
    return width if width < _VECTOR / 4 else -(-width // _VECTOR) * _VECTOR


def _maxima(chunks: Tensor) -> Tensor:
    """Return the maximum of each chunk, (U, C, W) to (U, C), laid out in memory as the chunks are.

    Any other layout would take 20 times as long.
    """
    if chunks.stride(2) == 1:
        return chunks.amax(dim=2)
    return chunks.permute(1, 2, 0).amax(dim=1).T


def _top_by_key(scores: Tensor, wanted: int) -> Tensor:
    """Return the best places of each row, by one key without ties: so the result does not depend on how the device selects.

    A score's bits, read as an integer that sorts the same way, come first in it, and the place second.
    """
    bits = (scores + 0.0).view(torch.int32)  # + 0.0 makes -0.0 equal to 0.0
    keys = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long()  # all bits but the sign's are turned round where it is negative
    keys <<= 32
    keys -= torch.arange(scores.shape[1], device=scores.device)
    return keys.topk(wanted, dim=1).indices


def _hide(held_out: HeldOut, scores: Tensor, start: int, stop: int) -> Tensor:
    """Put what may not be ranked for users from start to stop behind everything else, in place where that can be."""
    if held_out.drawn is None:
        if not (scores.is_contiguous() or scores.T.is_contiguous()):
            scores = scores.contiguous()
        scores[_where(held_out.seen, scores, start, stop)] = -torch.inf
        return scores
    shown = torch.full_like(scores, -torch.inf)
    for places in (held_out.drawn, held_out.relevant):
        which = _where(places, scores, start, stop)
        shown[which] = scores[which]
    return shown


def _where(places: Lists, scores: Tensor, start: int, stop: int) -> tuple[Tensor, Tensor]:
    """Return the rows and columns that the places of users from start to stop have in their scores."""
    user, place = places.block(start, stop)
    return torch.from_numpy(user).to(scores.device), torch.from_numpy(place).to(scores.device)


def _contains(lists: Lists, places: npt.NDArray[np.int64], start: int, stop: int) -> npt.NDArray[np.bool_]:
    """Return which places are in their user's list, for users from start to stop."""
    user, known = lists.block(start, stop)
    width = int(max(known.max(initial=0), places.max(initial=0))) + 2
    pairs = user * width + known + 1  # ascending; 1 is added so that "no place" is a number of its own
    wanted = np.arange(stop - start)[:, None] * width + places + 1
    found = np.searchsorted(pairs, wanted)
    return np.append(pairs, -1)[found] == wanted
