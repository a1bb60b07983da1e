"""What a model and the baselines are asked on a split of prepared data: rows to score, and a ranking problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.fold_in import fold_in
from recsys_cli.evaluation.held_out import HeldOut, candidate_items, hold_out
from recsys_cli.evaluation.metrics import Ranked
from recsys_cli.evaluation.problem import Hashes, problem_hash, rows_hash, value_hashes
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.evaluation.result import Protocol
from recsys_cli.evaluation.sampling import drawn
from recsys_cli.features.schema import UNSEEN, Role
from recsys_cli.interactions import Interactions
from recsys_cli.loader.interactions import read_user_hashes
from recsys_cli.workspace import PreparedData


@dataclass(frozen=True)
class Asked:
    """The questions.

    Attributes:
        split: `valid` or `test`.
        train: Its rows.
        rows: The rows to score.
        history: What happened before the split: in train, and at a test in valid; of users with lent ids what describes them.
        held_out: Whom to rank for, what, and what they should find.
        user_hashes: Hash of each user id's value.
        item_hashes: Hash of each item id's value.
        num_folded: Users of a split by user, of whom as many as there are ids have one lent for the ranking; 0 of other splits.
    """

    split: str
    train: Interactions
    rows: Interactions
    history: Interactions
    held_out: HeldOut
    user_hashes: Hashes
    item_hashes: Hashes
    num_folded: int = 0

    @classmethod
    def of(
        cls,
        data: PreparedData,
        config: EvaluateConfig,
        split: str,
        *,
        train: Interactions,
        rows: Interactions,
        history: Interactions,
    ) -> Asked:
        """Work out the ranking problem.

        Args:
            data: Where the values behind the ids are.
            config: Whom to rank for, what, and what they should find.
            split: `valid` or `test`.
            train: Its rows.
            rows: Those of the split.
            history: What happened before.
        """
        column = data.schema.only(Role.USER)
        users, items = (value_hashes(data, one) for one in (column, data.schema.only(Role.ITEM)))
        met, wanted, num_folded = train.met(), rows.met(), 0
        if (hashes := read_user_hashes(data, split)) is not None:
            new = (rows.user_idx == UNSEEN) & (True if rows.drawn is None else ~rows.drawn)
            folded = fold_in(rows.chosen(new), hashes[new], items=items, num_ids=column.own_ids.stop, seed=config.seed)
            wanted, history, users, num_folded = folded.rows, folded.history, folded.user_hashes, folded.num_users
        candidates = candidate_items(met, num_items=len(items))
        held_out = hold_out(
            wanted, history, candidates=candidates, num_items=len(items), config=config, user_hashes=users
        )
        if config.candidates != "all":
            counts = np.bincount(met.item_idx, minlength=len(items))[candidates]
            held_out = drawn(held_out, counts, users=users[held_out.user_idx], items=items[candidates], config=config)
        return cls(split, train, rows, history, held_out, users, items, num_folded)

    def rankings(
        self,
        ranked: Mapping[str, Ranked],
        logits: npt.NDArray[np.float32],
        protocol: Protocol,
        config: EvaluateConfig,
    ) -> Rankings:
        """Return the answers, as they are kept: rankings by system, and the model's scores of the rows, shape (N,)."""
        held_out = self.held_out
        there = held_out.user_idx if ranked else held_out.user_idx[:0]
        candidates = np.append(held_out.candidates, 0).astype(np.int32)  # place -1 is no item
        return Rankings(
            split=self.split,
            k=tuple(sorted(set(config.k))),
            protocol=protocol.model_dump(),
            problem=problem_hash(
                held_out, users=self.user_hashes[held_out.user_idx], items=self.item_hashes, k=config.k
            ),
            rows=rows_hash(self.rows, users=self.user_hashes, items=self.item_hashes),
            users=np.full_like(there, UNSEEN) if self.num_folded else there,
            user_hashes=self.user_hashes[there],
            num_relevant=held_out.num_relevant[: len(there)],
            items={name: candidates[lists.places] for name, lists in ranked.items()},
            hits={name: lists.hits for name, lists in ranked.items()},
            drawn=candidates[_padded(held_out)] if ranked else np.empty((0, 0), np.int32),
            logits=logits,
            labels=self.rows.labels.astype(np.uint8),
            row_users=self.rows.user_idx,
            row_items=self.rows.item_idx,
        )


def _padded(held_out: HeldOut) -> npt.NDArray[np.int64]:
    """Return the drawn places of each user, with -1 behind them, shape (U, C); C is 0 where none are drawn."""
    if held_out.drawn is None:
        return np.empty((len(held_out.user_idx), 0), np.int64)
    lengths = held_out.drawn.lengths
    padded = np.full((len(lengths), int(lengths.max(initial=0))), -1, dtype=np.int64)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = held_out.drawn.values
    return padded
