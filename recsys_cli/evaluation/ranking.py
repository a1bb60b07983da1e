"""Ranks the whole catalogue for blocks of users and marks the hits: no loop over users, memory bounded by the block."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from recsys_cli.evaluation.held_out import HeldOut
from recsys_cli.evaluation.metrics import Hits

Scorer = Callable[[npt.NDArray[np.int64]], Tensor]
"""From U user ids to their scores for all candidates, float32 of shape (U, I), on the device to rank on."""

BLOCK_SCORES = 1 << 23
"""Scores that are held at once: 32 MiB, and about 150 MiB with what ranking them needs."""


def rank(
    held_out: HeldOut,
    scorer: Scorer,
    *,
    cut_off: int,
    block_scores: int = BLOCK_SCORES,
    progress: Callable[[int], None] | None = None,
) -> tuple[Hits, int]:
    """Rank all candidates for all users by a system's scores.

    Args:
        held_out: The problem.
        scorer: The system.
        cut_off: How many places are filled at most, P.
        block_scores: Scores held at once; changes nothing else.
        progress: Told how many users are done.

    Returns:
        The hits, and how many users got no recommendation because they have seen all candidates.
    """
    num_users = len(held_out.user_idx)
    step = max(1, block_scores // max(1, len(held_out.candidates)))
    hits = np.zeros((num_users, cut_off), dtype=bool)
    num_empty = 0
    for start in range(0, num_users if len(held_out.candidates) else 0, step):
        stop = min(start + step, num_users)
        found, empty = _rank_block(held_out, scorer(held_out.user_idx[start:stop]), start, stop, cut_off=cut_off)
        hits[start:stop, : found.shape[1]] = found.cpu().numpy()
        num_empty += empty
        if progress is not None:
            progress(stop)
    return Hits(hits, held_out.num_relevant), num_empty


def top_places(scores: Tensor, cut_off: int) -> Tensor:
    """Return the best places of each row of scores (U, I), best first, the lower place first among ties; (U, min(P, I)).

    A score's bits, read as an integer that sorts the same way, and the place together make one key without ties: so the
    result does not depend on how the device selects.
    """
    bits = (scores + 0.0).view(torch.int32).long()  # + 0.0 makes -0.0 equal to 0.0
    sortable = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    num_places = scores.shape[1]
    keys = (sortable << 32) - torch.arange(num_places, device=scores.device)
    return keys.topk(min(cut_off, num_places), dim=1).indices


def _rank_block(held_out: HeldOut, scores: Tensor, start: int, stop: int, *, cut_off: int) -> tuple[Tensor, int]:
    """Mark the hits of users from start to stop, (U, P'), and count those without recommendations."""
    num_places = scores.shape[1]
    hidden = torch.zeros_like(scores, dtype=torch.bool)
    hidden[tuple(_pairs(held_out.seen.block(start, stop), scores.device))] = True
    wanted = torch.zeros_like(hidden)
    wanted[tuple(_pairs(held_out.relevant.block(start, stop), scores.device))] = True
    places = top_places(scores.masked_fill(hidden, -torch.inf), cut_off)
    # What is seen is never wanted, so places that only hidden items were left for are no hits.
    num_hidden = hidden.sum(dim=1)
    return wanted.gather(1, places), int((num_hidden == num_places).sum())


def _pairs(pairs: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]], device: torch.device) -> list[Tensor]:
    return [torch.from_numpy(numbers).to(device) for numbers in pairs]
