"""Says what was measured and how: the counts, and the protocol in sentences."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.fold_in import HISTORY
from recsys_cli.evaluation.result import Counts, Protocol
from recsys_cli.evaluation.task import EvaluationTask
from recsys_cli.features.schema import FIRST, UNSEEN
from recsys_cli.models.model import Model

_COLD = " Models that look at features of items rank the latter by them; for all others they come last."


def count(asked: EvaluationTask, *, num_empty: int) -> Counts:
    """Count what the figures rest on; `num_empty` users got no recommendation."""
    by_user, held_out = asked.by_user, asked.held_out
    rows = by_user.rows
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
        users_new=len(asked.new_users),
        users_new_with_history=int(np.isin(asked.new_users, by_user.history.user_idx).sum()),
        users_folded_in=by_user.num_folded,
        candidates=len(held_out.candidates),
        candidates_cold=by_user.cold.number,
        relevant=int(held_out.num_relevant.sum()),
        relevant_unreachable=held_out.num_unreachable,
    )


def on_new_users(asked: EvaluationTask, model: Model) -> list[str]:
    """Say what a reader of a model's figures has to know of the users whom train does not know.

    Args:
        asked: What was asked.
        model: Whose they are.
    """
    num_new, num_ranked = len(asked.new_users), len(asked.held_out.user_idx)
    num_described = int(np.count_nonzero(asked.by_user.new.rows_of(asked.new_users) >= 0))
    if num_described and model.by_content and not model.folds_in:
        return [
            f"{num_new:,} of the {num_ranked:,} users that are ranked for are new to train; {num_described:,} have "
            "features in the table of users, by which this model ranks for them, and for the others it ranks by popularity."
        ]
    if num_new and not model.folds_in:
        return [
            f"{num_new:,} of the {num_ranked:,} users that are ranked for are new: train does not know them, and so this model "
            "knows nothing of them. They are ranked for by popularity; the cohort of warm users is the model's own."
        ]
    if not num_new and np.any(asked.by_user.rows.user_idx == UNSEEN):
        return [
            "Users whom train does not know are not ranked for: this data is of a version that does not tell them apart. "
            "recsys etl --force prepares it anew, and recsys evaluate --force measures it."
        ]
    return []


def describe(split: str, config: EvaluateConfig, counts: Counts, *, mean: float | None = None) -> Protocol:
    """Write down how it was measured, so that a reader can tell whether two figures compare.

    Args:
        split: Which rows.
        config: What was asked for.
        counts: What the figures rest on.
        mean: Of a label that is a number, its mean in train.
    """
    earlier = "train or valid" if split == "test" else "train"
    relevant = "whatever their label" if config.relevance == "all" else f"with {positive_in_words(mean)}"
    if not isinstance(config.relevance, str):
        relevant = f"with a label of at least {config.relevance:g}"
    return Protocol(
        split=f"Rows of {split}: {counts.rows:,}. Train rows are for fitting the model and the baselines.",
        candidates=f"{_candidates(config, counts)} Equal scores: the item with more train rows first, then the lower id.",
        seen=f"Items that the user met in {earlier} are neither recommended nor expected.",
        relevant=f"The user's interactions in {split}, {relevant}. Items that are no candidates cannot be recommended and stay "
        f"in the denominator: {counts.relevant_unreachable:,} of {counts.relevant:,}.",
        users=" ".join(_users(config, counts)),
        intervals="95 % intervals over users: of predictions by the delete-one-user jackknife of the linearized figure, because "
        "rows of one user are not independent (rows without a user count by themselves); of rankings from "
        f"{config.bootstrap:,} resamples of users, seed {config.seed}.",
    )


def positive_in_words(mean: float | None) -> str:
    """Say which rows are for an item: see `Interactions.positive`.

    Args:
        mean: Of a label that is a number, its mean in train.
    """
    return "label 1" if mean is None else f"a label above {mean:.4g}, the mean of train"


def _candidates(config: EvaluateConfig, counts: Counts) -> str:
    which = f"{counts.candidates:,} items with a train row"
    if counts.candidates_cold:
        warm = counts.candidates - counts.candidates_cold
        which = (
            f"{warm:,} items with a train row and {counts.candidates_cold:,} of the item table that train does not know"
        )
    if config.candidates == "all":
        return f"The full catalogue: all {which}.{_COLD if counts.candidates_cold else ''}"
    how = "evenly" if config.candidates == "sampled-uniform" else "by their train rows"
    return (
        f"SAMPLED: what a user should find among {config.sampled_items:,} of the {which}, "
        f"drawn {how} for each user by seed {config.seed}. Such figures are higher than those of the full catalogue, may order "
        "systems differently, and compare with none but those of the same draw."
    )


def _users(config: EvaluateConfig, counts: Counts) -> Iterator[str]:
    how = f", chosen by a hash of their id and seed {config.seed}" if counts.is_sample else ""
    yield f"Ranked for {counts.users_in_words}{how}."
    if counts.users_without_relevant:
        yield f"{counts.users_without_relevant:,} users with nothing to find are left out."
    if counts.users_without_recommendations:
        yield f"{counts.users_without_recommendations:,} users who have met all candidates count as zero."
    if counts.users_folded_in:
        yield (
            f"Train has none of the {counts.users_folded_in:,} users of the split: each is described by the first "
            f"{HISTORY:.0%} of the user's rows, and should find the rest."
        )
    elif counts.users_new:
        yield (
            "Train does not know the new users. Models that make what they know of a user from the user's history have what "
            f"happened before, which is something for {counts.users_new_with_history:,} of them; where a system knows nothing of "
            "a user, all items are equal to it, and the ranking is that by popularity."
        )
    elif counts.unknown_user_rows:
        yield (
            f"{counts.unknown_user_rows:,} rows are of users that train does not know and that cannot be told apart, so they are "
            "predicted and not ranked for."
        )
