"""Says what was measured and how: the counts, and the protocol in sentences."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.asked import Asked
from recsys_cli.evaluation.fold_in import HISTORY
from recsys_cli.evaluation.result import Counts, Protocol
from recsys_cli.features.schema import FIRST


def count(asked: Asked, *, num_empty: int) -> Counts:
    """Count what the figures rest on; `num_empty` users got no recommendation."""
    rows, train, held_out = asked.rows, asked.train, asked.held_out
    return Counts(
        rows=len(rows),
        positive=int(rows.labels.sum(dtype=np.float64)),
        train_rows=len(train),
        unknown_user_rows=int(np.count_nonzero(rows.user_idx < FIRST)),
        unknown_item_rows=int(np.count_nonzero(rows.item_idx < FIRST)),
        users=held_out.num_eligible + held_out.num_without,
        users_without_relevant=held_out.num_without,
        users_eligible=held_out.num_eligible,
        users_ranked=len(held_out.user_idx),
        users_without_recommendations=num_empty,
        users_folded_in=asked.num_folded,
        candidates=len(held_out.candidates),
        relevant=int(held_out.num_relevant.sum()),
        relevant_unreachable=held_out.num_unreachable,
    )


def describe(split: str, config: EvaluateConfig, counts: Counts) -> Protocol:
    """Write down how it was measured, so that a reader can tell whether two figures compare."""
    earlier = "train or valid" if split == "test" else "train"
    relevant = "with label 1" if config.relevant == "positive" else "whatever their label"
    return Protocol(
        split=f"Rows of {split}: {counts.rows:,}. Train rows are for fitting the model and the baselines.",
        candidates=f"{_candidates(config, counts)} Equal scores: the item with more train rows first, then the lower id.",
        seen=f"Items that the user met in {earlier} are neither recommended nor expected.",
        relevant=f"The user's interactions in {split}, {relevant}. Items without a train row cannot be recommended and stay in "
        f"the denominator: {counts.relevant_unreachable:,} of {counts.relevant:,}.",
        users=" ".join(_users(config, counts)),
        intervals=f"95 % intervals from {config.bootstrap:,} resamples: of rows for predictions (Poisson bootstrap), of users "
        f"for rankings; seed {config.seed}.",
    )


def _candidates(config: EvaluateConfig, counts: Counts) -> str:
    if config.candidates == "all":
        return f"The full catalogue: all {counts.candidates:,} items with a train row."
    how = "evenly" if config.candidates == "sampled-uniform" else "by their train rows"
    return (
        f"SAMPLED: what a user should find among {config.sampled_items:,} of the {counts.candidates:,} items with a train row, "
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
    elif counts.unknown_user_rows:
        yield (
            f"{counts.unknown_user_rows:,} rows are of users that train does not know; they cannot be told apart, so they are "
            "predicted and not ranked for."
        )
