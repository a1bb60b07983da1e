"""The figures of parts of the users and items: whom does it serve, and at whose cost?

Cold and warm is whether train knows the user or item. The head is the fifth of the candidates that most rows of train have,
the tail all others. Users are cut into quarters by how many rows there are of them before the split.
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
from recsys_cli.metrics.label_task import TASKS

HEAD = 0.2
"""Share of the candidates that are the head."""
_NOBODY = np.iinfo(np.int64).max

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class CohortParts:
    """What is cut into cohorts.

    Attributes:
        rows: The N rows of the split.
        history: What happened before.
        held_out: The ranking problem over U users and I candidates.
        scores: Scores of the rows by system, each (N,).
        ranked: Rankings by system.
        first_new: The ids of users whom train does not know, where they are told apart, are not below it.
        first_cold: The same of items, which are rows of their table.
    """

    rows: Interactions
    history: Interactions
    held_out: HeldOut
    scores: Mapping[str, npt.NDArray[np.floating]]
    ranked: Mapping[str, Ranked]
    first_new: int = _NOBODY
    first_cold: int = _NOBODY

    def is_known(self, user_idx: npt.NDArray[np.integer]) -> Mask:
        """Return which users have an id of their own in train."""
        return (user_idx >= FIRST) & (user_idx < self.first_new)


@dataclass(frozen=True)
class _CohortMask:
    """A cohort: its rows (N,), and its ranked users (U,) or candidates (I,) where its rankings are measured."""

    name: str
    about: str
    rows: Mask
    users: Mask | None = None
    places: Mask | None = None


def measure_cohorts(parts: CohortParts, config: EvaluateConfig) -> tuple[Cohort, ...]:
    """Measure all cohorts that have rows and are not everything, at the smallest cut-off.

    Args:
        parts: What was ranked and scored.
        config: Seed, number of resamples and cut-offs.
    """
    return tuple(_measured(who, parts, config) for who in _cohorts(parts) if who.rows.any() and not who.rows.all())


def _cohorts(parts: CohortParts) -> Iterator[_CohortMask]:
    rows, held_out = parts.rows, parts.held_out
    num_candidates = int(np.count_nonzero(held_out.candidates < parts.first_cold))
    known, ranked = parts.is_known(rows.user_idx), parts.is_known(held_out.user_idx)
    yield _CohortMask("warm users", "users that train knows", known, users=ranked)
    yield _CohortMask("cold users", "users that train does not know", ~known, users=~ranked)
    place = np.full(int(max(rows.item_idx.max(initial=0), held_out.candidates.max(initial=0))) + 1, -1, dtype=np.int64)
    place[held_out.candidates] = np.arange(len(held_out.candidates))
    at = place[rows.item_idx]
    is_cold = np.arange(len(held_out.candidates)) >= num_candidates
    num_head = int(np.ceil(HEAD * num_candidates))
    is_head = np.arange(len(held_out.candidates)) < num_head
    about = f"the {num_head:,} candidates with most rows of train, {HEAD:.0%} of them"
    yield _CohortMask("head items", about, (at >= 0) & (at < num_head), places=is_head)
    is_tail = ~is_head & ~is_cold
    yield _CohortMask(
        "tail items", "the other candidates that train knows", np.append(is_tail, False)[at], places=is_tail
    )
    about = "items that train does not know: candidates where the item table has them"
    cold = (at < 0) | (at >= num_candidates)
    yield _CohortMask("cold items", about, cold, places=is_cold if is_cold.any() else None)
    yield from _by_activity(parts, known)


def _by_activity(parts: CohortParts, known: Mask) -> Iterator[_CohortMask]:
    """Cut the users of the split that train knows into quarters by what happened before; ties stay together."""
    users = parts.rows.user_idx
    before = np.bincount(parts.history.user_idx, minlength=int(users.max(initial=0)) + 1)
    if not known.any():
        return
    borders = np.quantile(before[np.unique(users[known])], [0, 0.25, 0.5, 0.75, 1]).round()
    borders[0] -= 1
    names = ("least active users", "less active users", "more active users", "most active users")
    for name, low, high in zip(names, borders[:-1], borders[1:], strict=True):
        rows = known & (before[users] > low) & (before[users] <= high)
        ranked = np.where(parts.is_known(parts.held_out.user_idx), before[parts.held_out.user_idx], -1)
        about = f"users with {int(low) + 1:,} to {int(high):,} rows before"
        yield _CohortMask(name, about, rows, users=(ranked > low) & (ranked <= high))


def _measured(who: _CohortMask, parts: CohortParts, config: EvaluateConfig) -> Cohort:
    labels, metric = parts.rows.labels[who.rows], TASKS[parts.rows.task].default
    group = ScoredRows.of_errors if metric.of_errors else ScoredRows.of
    clusters = Clusters.of_users(parts.rows.user_idx[who.rows])
    found = {name: _within(who, ranked, parts.held_out) for name, ranked in parts.ranked.items()}
    hits = {name: one for name, one in found.items() if one is not None and len(one.hits)}
    return Cohort(
        name=who.name,
        about=who.about,
        rows=int(who.rows.sum()),
        users=len(next(iter(hits.values())).hits) if hits else 0,
        pointwise={MODEL: {}}
        | {
            name: pointwise_estimates(
                group(labels, scores[who.rows], clusters),
                {metric.name: metric},
                resamples=config.bootstrap,
                seed=config.seed,
            )
            for name, scores in parts.scores.items()
        },
        ranking=ranking_estimates(hits, [min(config.k)], config),
    )


def _within(who: _CohortMask, ranked: Ranked, held_out: HeldOut) -> Hits | None:
    """Return the rankings of the cohort's users; or of those who should find items of it, with those items to find alone."""
    if who.users is not None:
        return Hits(ranked.hits[who.users], ranked.num_relevant[who.users])
    if who.places is None:
        return None
    owners = np.repeat(np.arange(len(ranked.hits)), held_out.relevant.lengths)
    wanted = np.bincount(owners[who.places[held_out.relevant.values]], minlength=len(ranked.hits))
    hits = ranked.hits & who.places[ranked.candidates]  # a place that is empty is no hit
    return Hits(hits[wanted > 0], wanted[wanted > 0])
