"""Metrics of groups of users and items.

Warm users and items are in train, cold ones are not. Head items are the 20 % of candidates with the most train rows,
tail items the others. Warm users are split into quarters by the number of interactions before the split.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.bootstrap import ranking_estimates
from recsys_cli.evaluation.clusters import Clusters
from recsys_cli.evaluation.held_out import HeldOut
from recsys_cli.evaluation.result import MODEL, Cohort
from recsys_cli.evaluation.row_intervals import ScoredRows, pointwise_estimates
from recsys_cli.features.schema import FIRST
from recsys_cli.interactions import Interactions
from recsys_cli.metrics import Hits, Ranked
from recsys_cli.metrics.named import TASKS

HEAD = 0.2
"""Share of head items among the candidates."""
_NO_ID = np.iinfo(np.int64).max

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class CohortParts:
    """Rows and rankings to split into cohorts.

    Attributes:
        first_new: Lowest id of a cold-start user with a distinct id.
        first_cold: Lowest id of a cold item, its table row.
    """

    rows: Interactions
    history: Interactions
    held_out: HeldOut
    scores: Mapping[str, npt.NDArray[np.floating]]
    ranked: Mapping[str, Ranked]
    first_new: int = _NO_ID
    first_cold: int = _NO_ID

    def is_known(self, user_idx: npt.NDArray[np.integer]) -> Mask:
        """Return a mask of users of train."""
        return (user_idx >= FIRST) & (user_idx < self.first_new)


@dataclass(frozen=True)
class _CohortMask:
    """A cohort: masks of its rows (N,), and of its ranked users (U,) or candidates (I,), if it has rankings."""

    name: str
    about: str
    rows: Mask
    users: Mask | None = None
    places: Mask | None = None


def measure_cohorts(parts: CohortParts, config: EvaluateConfig) -> tuple[Cohort, ...]:
    """Measure all cohorts with some, but not all rows, at the smallest cut-off."""
    return tuple(
        _measured(cohort, parts, config) for cohort in _cohorts(parts) if cohort.rows.any() and not cohort.rows.all()
    )


def _cohorts(parts: CohortParts) -> Iterator[_CohortMask]:
    rows, held_out = parts.rows, parts.held_out
    num_candidates = int(np.count_nonzero(held_out.candidates < parts.first_cold))
    warm, ranked_warm = parts.is_known(rows.user_idx), parts.is_known(held_out.user_idx)
    yield _CohortMask("warm users", "users of train", warm, users=ranked_warm)
    yield _CohortMask("cold users", "users absent from train", ~warm, users=~ranked_warm)
    place_of = np.full(
        int(max(rows.item_idx.max(initial=0), held_out.candidates.max(initial=0))) + 1, -1, dtype=np.int64
    )
    place_of[held_out.candidates] = np.arange(len(held_out.candidates))
    place = place_of[rows.item_idx]
    is_cold = np.arange(len(held_out.candidates)) >= num_candidates
    num_head = int(np.ceil(HEAD * num_candidates))
    is_head = np.arange(len(held_out.candidates)) < num_head
    about = f"the {num_head:,} candidates with the most train rows, {HEAD:.0%} of them"
    yield _CohortMask("head items", about, (place >= 0) & (place < num_head), places=is_head)
    is_tail = ~is_head & ~is_cold
    yield _CohortMask("tail items", "the other candidates of train", np.append(is_tail, False)[place], places=is_tail)
    about = "items absent from train; candidates if the item table has them"
    cold = (place < 0) | (place >= num_candidates)
    yield _CohortMask("cold items", about, cold, places=is_cold if is_cold.any() else None)
    yield from _by_activity(parts, warm)


def _by_activity(parts: CohortParts, warm: Mask) -> Iterator[_CohortMask]:
    """Split the warm users into quarters by number of interactions; ties stay in one quarter."""
    users = parts.rows.user_idx
    before = np.bincount(parts.history.user_idx, minlength=int(users.max(initial=0)) + 1)
    if not warm.any():
        return
    borders = np.quantile(before[np.unique(users[warm])], [0, 0.25, 0.5, 0.75, 1]).round()
    borders[0] -= 1
    names = ("least active users", "less active users", "more active users", "most active users")
    for name, low, high in zip(names, borders[:-1], borders[1:], strict=True):
        rows = warm & (before[users] > low) & (before[users] <= high)
        ranked = np.where(parts.is_known(parts.held_out.user_idx), before[parts.held_out.user_idx], -1)
        about = f"users with {int(low) + 1:,} to {int(high):,} interactions before the split"
        yield _CohortMask(name, about, rows, users=(ranked > low) & (ranked <= high))


def _measured(cohort: _CohortMask, parts: CohortParts, config: EvaluateConfig) -> Cohort:
    labels, metric = parts.rows.labels[cohort.rows], TASKS[parts.rows.task].default
    group = ScoredRows.of_errors if metric.of_errors else ScoredRows.of
    clusters = Clusters.of_users(parts.rows.user_idx[cohort.rows])
    by_system = {name: _within(cohort, ranked, parts.held_out) for name, ranked in parts.ranked.items()}
    hits = {name: one for name, one in by_system.items() if one is not None and len(one.hits)}
    return Cohort(
        name=cohort.name,
        about=cohort.about,
        rows=int(cohort.rows.sum()),
        users=len(next(iter(hits.values())).hits) if hits else 0,
        pointwise={MODEL: {}}
        | {
            name: pointwise_estimates(
                group(labels, scores[cohort.rows], clusters),
                {metric.name: metric},
                resamples=config.bootstrap,
                seed=config.seed,
            )
            for name, scores in parts.scores.items()
        },
        ranking=ranking_estimates(hits, [min(config.k)], config),
    )


def _within(cohort: _CohortMask, ranked: Ranked, held_out: HeldOut) -> Hits | None:
    """Return the hits of the cohort's users, or of users with its items in their ground truth, limited to these items."""
    if cohort.users is not None:
        return _chosen(ranked, ranked.hits, ranked.num_relevant, cohort.users)
    if cohort.places is None:
        return None
    owners = np.repeat(np.arange(len(ranked.hits)), held_out.relevant.lengths)
    num_relevant = np.bincount(owners[cohort.places[held_out.relevant.values]], minlength=len(ranked.hits))
    hits = ranked.hits & cohort.places[ranked.candidates]  # an empty rank, -1, is never a hit
    return _chosen(ranked, hits, num_relevant, num_relevant > 0)


def _chosen(ranked: Ranked, hits: Mask, num_relevant: npt.NDArray[np.int64], users: Mask) -> Hits:
    return Hits(hits[users], num_relevant[users], owners=None if ranked.owners is None else ranked.owners[users])
