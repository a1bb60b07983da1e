"""Metrics beyond the accuracy of all users: of lists, of groups of users and items, and of the stages of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from recsys_cli.batch import Feature, Ragged
from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.compare.comparison import Difference, figures_of
from recsys_cli.evaluation.compare.outcomes import Outcomes
from recsys_cli.evaluation.held_out import HeldOut, Ints
from recsys_cli.evaluation.intervals import (
    Clusters,
    ScoredRows,
    by_owner,
    mean_estimates,
    pointwise_estimates,
    ranking_estimates,
    unit_estimates,
)
from recsys_cli.evaluation.ranking import contains
from recsys_cli.evaluation.result import MODEL, Cohort, Estimate, Estimates, StageFigures
from recsys_cli.features.schema import FIRST, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.loader import DimensionTables
from recsys_cli.metrics import BEYOND, RANKING, Catalog, Hits, Ranked, Recommended
from recsys_cli.metrics.foreign import extended
from recsys_cli.metrics.metric import Floats
from recsys_cli.metrics.named import TASKS
from recsys_cli.models.model import Stage


def catalog_of(candidates: Ints, train: Interactions, tables: DimensionTables, schema: Schema) -> Catalog:
    """Gather popularity and categorical item features of the candidates (I,), from tables on the CPU."""
    item = schema.only(Role.ITEM)
    counts = np.bincount(train.item_idx, minlength=int(candidates.max(initial=0)) + 1)[candidates]
    joined = tables.join({item.name: torch.from_numpy(candidates)})
    columns = [c for c in schema.categorical if c.name in joined and c.name != item.name]
    owners, features, before = [np.empty(0, np.int64)], [np.empty(0, np.int64)], 0
    for column in columns:
        owner, ids = _flat(joined[column.name])
        is_value = ids >= FIRST
        owners.append(owner[is_value])
        features.append(ids[is_value] + before)
        before += int(column.cardinality or 0)
    # Features are binary: duplicates in an item's list count once.
    pairs = np.unique(np.concatenate(owners) * max(before, 1) + np.concatenate(features))
    owner, feature = np.divmod(pairs, max(before, 1))
    return Catalog(counts, len(train), feature, np.searchsorted(owner, np.arange(len(candidates) + 1)))


def measure_lists(ranked: Ranked, held_out: HeldOut, catalog: Catalog, config: EvaluateConfig) -> Estimates:
    """Compute debiased and beyond-accuracy metrics at each cut-off."""
    popular = held_out.by_popularity(ranked.candidates)
    lists = Recommended(
        ranked.hits,
        ranked.num_relevant,
        ranked.candidates,
        popular,
        catalog,
        owners=ranked.owners,
        relevant=held_out.relevant.values,
        relevant_offsets=held_out.relevant.offsets,
    )
    metrics = {
        f"{config.label}{metric.name}@{k}": (metric, k)
        for k in sorted(set(config.k))
        for metric in extended(BEYOND, config.metrics).values()
    }
    computed = {name: metric.compute(lists, k) for name, (metric, k) in metrics.items()}
    estimates = {
        name: Estimate(value=float(values) if np.isfinite(values) else None)
        for name, values in computed.items()
        if values.ndim == 0
    }
    means = {name: values for name, values in computed.items() if values.ndim == 1 and not np.isnan(values).all()}
    # Metrics defined for the same users share their resamples.
    defined = {name: np.isfinite(values) for name, values in means.items()}
    groups: dict[tuple[bytes, bool], list[str]] = {}
    for name, users in defined.items():
        groups.setdefault((users.tobytes(), metrics[name][0].in_unit), []).append(name)
    for (_, in_unit), names in groups.items():
        columns = np.stack([means[name][defined[name]] for name in names], axis=1)
        owners = None if ranked.owners is None else ranked.owners[defined[names[0]]]
        estimate = unit_estimates if in_unit else mean_estimates
        means_of = estimate(by_owner(columns, owners), resamples=config.bootstrap, seed=config.seed)
        estimates |= dict(zip(names, means_of, strict=True))
    return {name: estimates[name] for name in computed if name in estimates}


def _flat(feature: Feature) -> tuple[Ints, Ints]:
    """Return the ids of a feature and their row numbers; both (N,)."""
    if isinstance(feature, Ragged):
        lengths = feature.offsets.diff().cpu().numpy()
        return np.repeat(np.arange(len(lengths)), lengths), feature.values.cpu().numpy().astype(np.int64)
    return np.arange(len(feature)), feature.cpu().numpy().astype(np.int64)


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


def measure_slots(lists: Sequence[Ranked], held_out: HeldOut, is_cold: Mask, config: EvaluateConfig) -> Iterator[str]:
    """Yield what lists with cold slots gain on unseen targets over shuffled unseen items, and cost on others over lists without.

    Few items decide the gain, and users who share them are no independent units: shuffled lists vary as those without a signal.
    """
    k, rng = min(config.k), np.random.default_rng(config.seed)

    def values(ranked: Ranked, metric: str, places: Mask) -> Floats:
        hits = _within(_CohortMask("", "", is_cold, places=places), ranked, held_out)
        return by_owner(RANKING[metric].compute(hits, k), hits.owners) if hits else np.empty(0)

    def shuffled(ranked: Ranked) -> Ranked:
        moved = np.append(np.arange(len(is_cold)), -1)  # -1 for empty ranks
        moved[:-1][is_cold] = rng.permutation(np.flatnonzero(is_cold))
        places = moved[ranked.candidates]
        return replace(ranked, hits=contains(held_out.relevant, places), candidates=places)

    text = "{}@{} of {} targets {:.4f}, {} {:.4f}, {:+.4f} [{:+.4f}, {:+.4f}] ({:,} users)"
    if num := len(own := values(lists[0], "recall", is_cold)):
        chance = [values(shuffled(lists[0]), "recall", is_cold).mean() for _ in range(500)]
        gains = own.mean() - np.array([np.mean(chance), *np.quantile(chance, [0.975, 0.025])])
        yield text.format("recall", k, "unseen", own.mean(), "shuffled", np.mean(chance), *gains, num)
    after, before = (values(ranked, "ndcg", ~is_cold) for ranked in lists)
    if num := len(after):
        gain = _gains({"with": after, "without": before}, config)["without"]
        ends = gain.value, gain.low, gain.high
        yield text.format("ndcg", k, "other", after.mean(), "without", before.mean(), *ends, num)


UNION = "all candidates"
"""Name of the union of all generators' candidates."""


def measure_stages(
    stages: Mapping[str, Stage],
    rank: Callable[[str, Stage, int], Ranked],
    whole: Ranked,
    config: EvaluateConfig,
    *,
    name: str,
) -> Iterator[StageFigures]:
    """Yield the figures of the generators, of the union of their candidates, of further stages, and of the whole model."""
    k = min(config.k)
    ranked = {stage: rank(stage, one, max(one.k or k, k)) for stage, one in stages.items()}
    generators = [stage for stage, one in stages.items() if one.k is not None]
    recalls = {stage: RANKING["recall"].compute(ranked[stage], stages[stage].k or k) for stage in generators}
    recalls[UNION] = _recall_of_union([(ranked[stage], stages[stage].k or k) for stage in generators])
    recalls = {stage: by_owner(values, whole.owners) for stage, values in recalls.items()}
    scores = {
        stage: by_owner(RANKING["ndcg"].compute(lists, k), whole.owners)
        for stage, lists in {name: whole, **ranked}.items()
    }
    gains = _gains(scores, config)
    for stage in [*generators, UNION, *(stage for stage in stages if stage not in generators), name]:
        gain = gains.get(stage)
        yield StageFigures(
            name=stage,
            k=stages[stage].k if stage in stages else None,
            recall=_estimate(recalls.get(stage), config),
            ndcg=_estimate(scores.get(stage), config),
            gain=None if gain is None else gain.value,
            gain_low=None if gain is None else gain.low,
            gain_high=None if gain is None else gain.high,
            verdict=None if gain is None else gain.verdict,
        )


def _gains(scores: Mapping[str, Floats], config: EvaluateConfig) -> dict[str, Difference]:
    """Return the differences of the first system from all others, by paired tests corrected for their number."""
    systems = {name: Outcomes.of_users({"ndcg@10": -values}) for name, values in scores.items()}
    (figure,) = figures_of(systems, ["ndcg@10"], resamples=config.bootstrap, seed=config.seed)
    return figure.differences


def _recall_of_union(ranked: list[tuple[Ranked, int]]) -> Floats:
    """Return the share of each user's relevant items among the candidates of any generator."""
    places = np.concatenate([np.where(lists.hits, lists.candidates, -1)[:, :k] for lists, k in ranked], axis=1)
    places.sort(axis=1)
    first = np.ones_like(places, dtype=bool)
    first[:, 1:] = places[:, 1:] != places[:, :-1]
    found = np.count_nonzero(first & (places >= 0), axis=1)
    return np.asarray(found / ranked[0][0].num_relevant, np.float64)


def _estimate(values: Floats | None, config: EvaluateConfig) -> Estimate | None:
    if values is None:
        return None
    column = np.asarray(values, np.float64)[:, None]
    return unit_estimates(column, resamples=config.bootstrap, seed=config.seed)[0]
