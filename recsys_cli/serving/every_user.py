"""Top-k items of many trained users, block by block: the speed of a full ranking, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from recsys_cli.evaluation.held_out import for_users
from recsys_cli.evaluation.ranking import score_block, users_per_block
from recsys_cli.features.schema import FIRST
from recsys_cli.models.top_lists import pool_size
from recsys_cli.serving.recommender import Recommender
from recsys_cli.serving.scoring import MOST_USERS

_BLOCKS = 4
"""Blocks of a part."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Block:
    """Recommendations for some users, best first for each.

    Attributes:
        users: Encoded user of each row, shape (N,).
        items: Encoded item or table row, shape (N,).
        scores: Score, float32; shape (N,).
        ranks: Rank, from 1; shape (N,).
        num_users: Users of the block, with and without recommendations.
    """

    users: Ints
    items: Ints
    scores: npt.NDArray[np.float32]
    ranks: Ints
    num_users: int


def parts_of(recommender: Recommender, users: Ints, places: Ints | None) -> list[Ints]:
    """Return users in parts of whole blocks: scores of a user may depend on the others in a block, in the last bit."""
    num_candidates = len(recommender.catalog.candidates if places is None else places)
    size = MOST_USERS if recommender.served.model.folds_in else _BLOCKS * users_per_block(num_candidates)
    return [users[start : start + size] for start in range(0, len(users), size)]


def recommend_to_all(
    recommender: Recommender,
    users: Ints,
    *,
    k: int,
    places: Ints | None = None,
    exclude_seen: bool | None = None,
    diversity: float = 0.0,
) -> Iterator[Block]:
    """Yield the top-k items of trained users, in their order.

    Args:
        recommender: A recommender whose model can rank.
        users: Encoded users of train, each once; shape (U,).
        k: Cut-off.
        places: Places of the only candidates, ascending; None for the catalog.
        exclude_seen: As in `Query`.
        diversity: As in `Query`.
    """
    served, scorer = recommender.served, recommender.scorer
    size = MOST_USERS if served.model.folds_in else max(1, len(users))
    candidates = recommender.catalog.candidates if places is None else recommender.catalog.candidates[places]
    for start in range(0, len(users), size):
        chunk = users[start : start + size]
        if served.model.folds_in:
            histories = [served.histories.of_user(int(user)) for user in chunk]
            scorer.fold(histories)
            ids, seen = np.arange(FIRST, FIRST + len(chunk)), served.histories.together(histories)
        else:
            ids, seen = chunk.astype(np.int64), served.histories.interactions(chunk)
        seen = seen if served.source.excludes_seen(exclude_seen) else seen.chosen(np.empty(0, np.intp))
        problem = for_users(ids, seen, candidates=candidates)
        cut_off = pool_size(k) if diversity else k
        score = scorer.over(candidates)
        for block in problem.blocks(users_per_block(len(candidates))):
            own = chunk[block.start : block.start + len(block.user_idx)]
            top, scores = score_block(block, score, cut_off=cut_off, adjust=partial(scorer.fill_slots, k, places))
            index = torch.from_numpy(top).clamp(min=0).to(scores.device)
            best, values = top, scores.gather(1, index).cpu().numpy()
            if diversity:
                best, values = _diverse(recommender, top, values, places, k=k, diversity=diversity)
            row, rank = np.nonzero(best >= 0)
            yield Block(own[row], candidates[best[row, rank]], values[row, rank], rank + 1, len(own))


def _diverse(
    recommender: Recommender,
    best: Ints,
    values: npt.NDArray[np.float32],
    places: Ints | None,
    *,
    k: int,
    diversity: float,
) -> tuple[Ints, npt.NDArray[np.float32]]:
    """Rerank the best candidates of each user."""
    chosen, scores = np.full((len(best), k), -1, np.int64), np.zeros((len(best), k), np.float32)
    for row in range(len(best)):
        own = best[row, best[row] >= 0]
        among = own if places is None else places[own]
        order = recommender.scorer.diverse(among, values[row, : len(own)], k=k, diversity=diversity)
        if order is None:
            order = np.arange(min(k, len(own)))
        chosen[row, : len(order)], scores[row, : len(order)] = own[order], values[row, order]
    return chosen, scores
