"""Says what was measured and how: the counts, and the protocol in sentences."""

from __future__ import annotations

import numpy as np

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.held_out import HeldOut
from recsys_cli.evaluation.interactions import Interactions
from recsys_cli.evaluation.result import Counts, Protocol
from recsys_cli.features.schema import FIRST


def count(rows: Interactions, train: Interactions, held_out: HeldOut, *, num_empty: int) -> Counts:
    """Count what the figures rest on; `num_empty` users got no recommendation."""
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
        candidates=len(held_out.candidates),
        relevant=int(held_out.num_relevant.sum()),
        relevant_unreachable=held_out.num_unreachable,
    )


def describe(split: str, config: EvaluateConfig, counts: Counts) -> Protocol:
    """Write down how it was measured, so that a reader can tell whether two figures compare."""
    earlier = "train or valid" if split == "test" else "train"
    relevant = "with label 1" if config.relevant == "positive" else "whatever their label"
    who = f"Ranked for {counts.users_in_words}"
    if counts.is_sample:
        who += f", chosen by a hash of their id and seed {config.seed}"
    return Protocol(
        split=f"Rows of {split}: {counts.rows:,}. Train rows are for fitting the model and the baselines.",
        candidates=f"The full catalogue: all {counts.candidates:,} items with a train row. Equal scores: the item with more "
        "train rows first, then the lower id.",
        seen=f"Items that the user met in {earlier} are neither recommended nor expected.",
        relevant=f"The user's interactions in {split}, {relevant}. Items without a train row cannot be recommended and stay in "
        f"the denominator: {counts.relevant_unreachable:,} of {counts.relevant:,}.",
        users=f"{who}. {counts.users_without_relevant:,} users with nothing to find are left out; "
        f"{counts.users_without_recommendations:,} who have met all candidates count as zero. Rows of users without an id "
        f"of their own ({counts.unknown_user_rows:,}) are not ranked for, because they cannot be told apart.",
        intervals=f"95 % intervals from {config.bootstrap:,} resamples: of rows for predictions (Poisson bootstrap), of users "
        f"for rankings; seed {config.seed}.",
    )
