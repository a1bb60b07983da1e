"""The evaluation task of a split, the counts behind its metrics, and its protocol in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from recsys_cli.config import EvaluateConfig
from recsys_cli.errors import ConfigError
from recsys_cli.evaluation.held_out import (
    HeldOut,
    Ints,
    hold_out,
    problem_hash,
    rows_hash,
    sample_candidates,
    with_given_candidates,
)
from recsys_cli.evaluation.intervals import Clusters, Impressions
from recsys_cli.evaluation.new_users import HISTORY, SplitByUser
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.evaluation.result import Counts, Protocol
from recsys_cli.features.schema import FIRST, UNSEEN
from recsys_cli.metrics import Ranked
from recsys_cli.models.model import Model
from recsys_cli.page import share


@dataclass(frozen=True)
class EvaluationTask:
    """Rows to score and a ranking problem.

    Attributes:
        by_user: Rows of the split and interactions before it.
    """

    split: str
    by_user: SplitByUser
    held_out: HeldOut

    @classmethod
    def of(cls, by_user: SplitByUser, split: str, config: EvaluateConfig) -> EvaluationTask:
        """Derive the ranking problem from the rows."""
        users, items, observed = by_user.users, by_user.items, by_user.train.observed()
        candidates = by_user.candidates
        if config.candidates == "given" and by_user.new.owners is not None:
            raise ConfigError(
                "evaluate.candidates=given has one list per user, and fold_in_targets=each several rankings",
                hint="set evaluate.candidates=all or another evaluate.fold_in_targets",
            )
        held_out = hold_out(
            by_user.ground_truth,
            by_user.history,
            candidates=candidates,
            num_items=len(items),
            config=config,
            user_hashes=users,
        )
        if config.candidates == "given":
            held_out = with_given_candidates(held_out, by_user.rows, config.relevance)
        elif config.candidates != "all":
            counts = np.bincount(observed.item_idx, minlength=len(items))[candidates]
            held_out = sample_candidates(
                held_out, counts, users=users[held_out.user_idx], items=items[candidates], config=config
            )
        return cls(split, by_user, replace(held_out, owners=by_user.new.owners_of(held_out.user_idx)))

    @property
    def impressions(self) -> Impressions | None:
        """The impressions of the rows; None without `features.impression`, and for numeric labels."""
        rows, numbers = self.by_user.rows, self.by_user.impressions
        if numbers is None or rows.mean is not None:
            return None
        return Impressions.of(numbers, rows.labels, Clusters.of_users(rows.user_idx).index)

    @property
    def new_users(self) -> Ints:
        """Ranked cold-start users, ascending."""
        return self.held_out.user_idx[self.by_user.new.among(self.held_out.user_idx)]

    def rankings(
        self, ranked: Mapping[str, Ranked], logits: npt.NDArray[np.float32], protocol: Protocol, config: EvaluateConfig
    ) -> Rankings:
        """Return rankings by system, empty without any, and row scores (N,) in the format of rankings.safetensors."""
        held_out, users, items = self.held_out, self.by_user.users, self.by_user.items
        rows, new = self.by_user.rows, self.by_user.new
        ranked_users = held_out.user_idx if ranked else held_out.user_idx[:0]
        candidates = np.append(held_out.candidates, 0).astype(np.int32)  # position -1 decodes to 0: no item
        return Rankings(
            split=self.split,
            k=tuple(sorted(set(config.k))),
            protocol=protocol.model_dump(),
            problem=problem_hash(held_out, users=users[held_out.user_idx], items=items, k=config.k),
            rows=rows_hash(rows, users=users, items=items),
            users=new.hidden_ids(ranked_users),
            user_hashes=users[ranked_users],
            num_relevant=held_out.num_relevant[: len(ranked_users)],
            items={name: candidates[lists.candidates] for name, lists in ranked.items()},
            hits={name: lists.hits for name, lists in ranked.items()},
            sampled=candidates[_padded(held_out)] if ranked else np.empty((0, 0), np.int32),
            logits=logits,
            labels=rows.labels.astype(np.uint8) if rows.mean is None else rows.labels,
            row_users=new.hidden_ids(rows.user_idx),
            row_items=rows.item_idx,
            row_clusters=Clusters.of_users(rows.user_idx).index.astype(np.int32),
            row_impressions=self.by_user.impressions,
            owners=held_out.owners,
            task=rows.task,
        )


def _padded(held_out: HeldOut) -> npt.NDArray[np.int64]:
    """Return each user's sampled candidate positions, padded with -1; shape (U, C), with C = 0 without sampling."""
    if held_out.sampled is None:
        return np.empty((len(held_out.user_idx), 0), np.int64)
    lengths = held_out.sampled.lengths
    padded = np.full((len(lengths), int(lengths.max(initial=0))), -1, dtype=np.int64)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = held_out.sampled.values
    return padded


_TARGETS = {
    "all": "The user's",
    "last": "The last by time, after all others of the split as history, of the user's",
    "first": "The first by time of the user's",
    "random": "One, random by the seed and after the earlier ones of the split as history, of the user's",
}
_MANY_REPEATED, _LARGE_CUT_OFF = 0.05, 0.2
"""Shares of repeated pairs, and of the catalog in a cut-off, from which on they are reported."""
_COLD_ITEMS = " Content-based models score cold items by their features; other models rank them last."


def count(task: EvaluationTask, *, num_empty: int) -> Counts:
    """Return the counts behind the metrics; `num_empty` users have no recommendations."""
    by_user, held_out = task.by_user, task.held_out
    rows, num_warm = by_user.rows, len(held_out.candidates) - len(by_user.cold.rows)
    warm = held_out.relevant.before(np.full((len(held_out.user_idx), 1), num_warm))
    return Counts(
        rows=len(rows),
        positive=int(np.count_nonzero(rows.positive)),
        train_rows=len(by_user.train),
        unknown_user_rows=int(np.count_nonzero((rows.user_idx < FIRST) | by_user.new.among(rows.user_idx))),
        unknown_item_rows=int(np.count_nonzero((rows.item_idx < FIRST) | by_user.cold.among(rows.item_idx))),
        users=held_out.num_eligible + held_out.num_without,
        users_without_relevant=held_out.num_without,
        users_eligible=held_out.num_eligible,
        users_ranked=len(held_out.user_idx),
        users_without_recommendations=num_empty,
        users_new=len(task.new_users),
        users_new_with_history=int(np.isin(task.new_users, by_user.history.user_idx).sum()),
        users_folded_in=by_user.num_folded,
        each_next_item=by_user.new.owners is not None,
        candidates=len(held_out.candidates),
        candidates_cold=by_user.cold.number,
        relevant=int(held_out.num_relevant.sum()),
        relevant_unreachable=held_out.num_unreachable,
        relevant_cold=int(held_out.num_relevant.sum() - warm.sum()),
        users_only_cold=int(np.count_nonzero(warm == 0)),
        pairs=held_out.num_pairs,
        pairs_repeated=held_out.num_repeated,
        given_left_out=held_out.num_left_out,
    )


def repeat_note(split: str, counts: Counts, config: EvaluateConfig) -> str | None:
    """Return a note on relevant pairs left out of the ranking as repeats; None for few."""
    if config.ranks_seen or counts.pairs_repeated <= _MANY_REPEATED * counts.pairs:
        return None
    return (
        f"{counts.pairs_repeated:,} of the {counts.pairs:,} relevant (user, item) pairs of {split} "
        f"({share(counts.pairs_repeated, counts.pairs)}) repeat an earlier pair of the user: they are not ranked; "
        "evaluate.repeats=true ranks them."
    )


def left_out_note(split: str, counts: Counts) -> str | None:
    """Return a note on given rows left out of the ranking; None without any."""
    if not counts.given_left_out:
        return None
    return (
        f"{counts.given_left_out:,} rows of {split} that are not relevant have items outside the {counts.candidates_in_words}: "
        "they are in no ranking, which has fewer items than given."
    )


def cold_items_sentence(counts: Counts, *, by_content: bool) -> str | None:
    """Return the share of users with only cold items in their ground truth, and what to do; None for few."""
    of_whom = counts.only_cold_in_words
    if of_whom is None:
        return None
    if by_content and counts.candidates_cold:
        return f"{of_whom}: the model ranks them by their features, other systems rank them last."
    features = (
        "the features of the item table" if counts.candidates_cold else "features, once a table of items is joined"
    )
    return (
        f"{of_whom}: the figures are mostly of items that no train row has and this model cannot find. model.name=two-tower ranks "
        f"them by {features}; split.method=leave-last-out holds out more items of train."
    )


def cut_off_note(config: EvaluateConfig, candidates: int) -> str | None:
    """Return a note on the cut-offs that are a large part of the catalog; None without any."""
    large = [k for k in sorted(set(config.k)) if k >= _LARGE_CUT_OFF * candidates]
    if not large or config.candidates != "all":
        return None
    k, smaller = large[0], max(1, round(candidates / 20))
    return (
        f"Cut-off {k} is {min(1, k / candidates):.0%} of the {candidates:,} items: a random order has about this "
        f"recall@{k}, so its metrics say little" + (f"; set evaluate.k=[{smaller}]." if smaller < k else ".")
    )


def cold_start_notes(task: EvaluationTask, model: Model) -> list[str]:
    """Return notes on the model's rankings for cold-start users."""
    num_new, num_ranked = len(task.new_users), len(task.held_out.user_idx)
    num_described = int(np.count_nonzero(task.by_user.new.rows_of(task.new_users) >= 0))
    if num_described and model.scores_users_by_features:
        return [
            f"{num_new:,} of the {num_ranked:,} ranked users are cold-start users. The model scores {num_described:,} of "
            "them by features of the user table, and ranks by popularity for the others."
        ]
    if num_new and not model.folds_in:
        return [
            f"{num_new:,} of the {num_ranked:,} ranked users are cold-start users. Without data about them, the model ranks "
            "by popularity; the cohort of warm users shows its own performance."
        ]
    if not num_new and np.any(task.by_user.rows.user_idx == UNSEEN):
        return [
            "Cold-start users are not ranked: an earlier version prepared this data without distinct ids for them. "
            "Run recsys etl --force, then recsys evaluate --force."
        ]
    return []


def describe(split: str, config: EvaluateConfig, counts: Counts, *, mean: float | None = None) -> Protocol:
    """Describe the protocol, so that readers can judge whether two results are comparable."""
    earlier = "train or valid" if split == "test" else "train"
    seen = f"Items of the user's interactions in {earlier} are neither recommended nor relevant."
    if config.ranks_seen:
        seen = f"Seen items are ranked and relevant{' if given' if config.candidates == 'given' else ''}."
    relevant = "with any label" if config.relevance == "all" else f"with {positive_in_words(mean)}"
    if not isinstance(config.relevance, str):
        relevant = f"with a label of at least {config.relevance:g}"
    return Protocol(
        split=f"{counts.rows:,} rows of {split}. The model and the baselines are fitted on train rows.",
        candidates=f"{_candidates(config, counts)} Ties: the item with more train rows first, then the lower id.",
        seen=seen,
        relevant=f"{_TARGETS[config.targets]} interactions in {split} {relevant}. Items outside the candidates count as misses: "
        f"{counts.relevant_unreachable:,} of {counts.relevant:,}.",
        users=" ".join(_users(config, counts)),
        intervals="95 % confidence intervals over users, because rows of one user are not independent. Pointwise metrics: "
        "delete-one-user jackknife of the linearized metric; a row without a user is its own cluster. Ranking metrics: "
        f"bootstrap with {config.bootstrap:,} resamples of users, seed {config.seed}.",
    )


def positive_in_words(mean: float | None) -> str:
    """Describe positive rows, of a numeric label by its mean in train; see `Interactions.positive`."""
    return "label 1" if mean is None else f"a label above {mean:.4g}, the mean of train"


def _candidates(config: EvaluateConfig, counts: Counts) -> str:
    items = counts.candidates_in_words
    if config.candidates == "all":
        return f"The full catalog: all {items}.{_COLD_ITEMS if counts.candidates_cold else ''}"
    if config.candidates == "given":
        return (
            f"GIVEN: each user's rows of the split, of the {items}. Metrics of given candidates are higher than those of the full "
            "catalog, may order systems differently, and are comparable only for the same candidates."
        )
    how = "uniformly" if config.candidates == "sampled-uniform" else "in proportion to train rows"
    return (
        f"SAMPLED: each user's ground truth among {config.sampled_items:,} of the {items}, sampled {how} with seed "
        f"{config.seed}. Sampled metrics are higher than those of the full catalog, may order systems differently, and are "
        "comparable only for the same sample."
    )


def _users(config: EvaluateConfig, counts: Counts) -> Iterator[str]:
    how = f", chosen by a hash of their id and seed {config.seed}" if counts.is_sample else ""
    yield f"Rankings for {counts.users_in_words}{how}."
    if counts.users_without_relevant:
        yield f"{counts.users_without_relevant:,} users without relevant held-out items are left out."
    if counts.users_without_recommendations:
        yield f"{counts.users_without_recommendations:,} users have seen all candidates and count as zero."
    if counts.users_folded_in:
        parts = _fold_in_parts(config.fold_in_targets)
        yield f"All {counts.users_folded_in:,} users of the split are cold-start users: {parts}"
    elif counts.users_new:
        yield (
            "Cold-start users are absent from train. Models with fold-in use earlier interactions, available for "
            f"{counts.users_new_with_history:,} of them; a system without data about a user ranks by popularity."
        )
    elif counts.unknown_user_rows:
        yield (
            f"{counts.unknown_user_rows:,} rows of cold-start users without distinct ids are predicted, but not ranked."
        )


def _fold_in_parts(targets: int | str | None) -> str:
    if targets is None:
        return f"the first {HISTORY:.0%} of a user's rows are the fold-in history, the rest the ground truth."
    if targets == "each":
        return "each row but a user's first is a ranking, with the earlier rows as fold-in history; metrics are means over these."
    if targets == "latest":
        return "the rows of a user's latest time are the ground truth, the earlier ones the fold-in history."
    held_out = "row is" if targets == 1 else f"{targets} rows are"
    return f"a user's last {held_out} the ground truth, the earlier ones the fold-in history."
