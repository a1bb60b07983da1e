"""Ranks the catalog for blocks of users: no loop over users, memory bounded by the block."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from recsys_cli.evaluation.held_out import HeldOut, Lists
from recsys_cli.metrics import Ranked
from recsys_cli.models.top_places import top_places

Scorer = Callable[[npt.NDArray[np.int64]], Tensor]
"""Maps U user ids to their scores for all candidates: finite float32 of shape (U, I), on the device of the ranking. The
ranking overwrites them. It is fastest if the scores of a candidate are contiguous in memory."""

BLOCK_SCORES = 1 << 23
"""Scores of a block: 32 MiB. Small blocks stay in the cache, and the C library reuses their memory."""
_USERS = 64
"""Vector products are fastest per user for multiples of this number of users."""


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
