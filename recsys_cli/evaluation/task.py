"""The evaluation task of a model and the baselines on a split: rows to score, and a ranking problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from recsys_cli.config import EvaluateConfig
from recsys_cli.errors import ConfigError
from recsys_cli.evaluation.clusters import Clusters
from recsys_cli.evaluation.fingerprint import problem_hash, rows_hash
from recsys_cli.evaluation.held_out import HeldOut, Ints, hold_out, with_given_candidates
from recsys_cli.evaluation.impressions import Impressions
from recsys_cli.evaluation.new_users import SplitByUser
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.evaluation.result import Protocol
from recsys_cli.evaluation.sampling import sample_candidates
from recsys_cli.metrics import Ranked


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
        candidates = by_user.cold.candidates(observed)
        is_given = config.candidates == "given"
        if is_given and by_user.new.owners is not None:
            raise ConfigError(
                "evaluate.candidates=given has one list per user, and fold_in_targets=each several rankings",
                hint="set evaluate.candidates=all or another evaluate.fold_in_targets",
            )
        held_out = hold_out(
            by_user.ground_truth,
            by_user.history.chosen(np.arange(0)) if is_given else by_user.history,
            candidates=candidates,
            num_items=len(items),
            config=config,
            user_hashes=users,
        )
        if is_given:
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
