"""Targets of the ranker: rows held out from the generators, and candidates labeled by them."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from recsys_cli.errors import ConfigError
from recsys_cli.features.hashing import hash_counters, mix
from recsys_cli.interactions import Interactions
from recsys_cli.models.configs.two_stage import HoldOut

_FOLDS = 0x2574
"""Seed offset of random folds."""
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Fold:
    """Rows for the generators and the features, and disjoint rows with the targets of the ranker."""

    fit: Interactions
    targets: Interactions


def folds_of(rows: Interactions, options: HoldOut, *, rounds: int, seed: int) -> Iterator[Fold]:
    """Yield the hold-outs of train rows; none with targets but without rows to fit.

    Raises:
        ConfigError: The method needs timestamps, and the rows have none.
    """
    method = options.method
    if method == "auto":
        method = "random" if rows.times is None else "latest"
    if method != "random" and rows.times is None:
        raise ConfigError(
            f"model.holdout.method is {method}, which needs timestamps, and the prepared data has none",
            hint="set features.timestamp and run `recsys etl`, or set model.holdout.method=random",
        )
    for number in range(rounds):
        if method == "random":
            fit, targets = _random(rows, number, share=options.share, seed=seed)
        elif method == "last":
            fit, targets = _last(rows, number)
        else:
            fit, targets = _latest(rows, number, share=options.share)
        if fit.any() and targets.any():
            yield Fold(rows.chosen(fit), rows.chosen(targets))


def _latest(rows: Interactions, number: int, *, share: float) -> tuple[Mask, Mask]:
    """Return the masks of all rows before a window of time and of the window; the last window has number 0."""
    assert rows.times is not None
    times = np.sort(rows.times)
    ends = [len(rows) - round(len(rows) * share * count) for count in (number, number + 1)]
    last, first = (times[max(0, end)] if end < len(rows) else np.inf for end in ends)
    return rows.times < first, (rows.times >= first) & (rows.times < last)


def _last(rows: Interactions, number: int) -> tuple[Mask, Mask]:
    """Return the masks of each user's rows before one, and of that row; the last one has number 0."""
    order = rows.chronological()
    users = rows.user_idx[order]
    ends = np.searchsorted(users, users, side="right")
    from_end = np.empty(len(rows), np.int64)
    from_end[order] = ends - 1 - np.arange(len(rows))
    enough = np.bincount(rows.user_idx)[rows.user_idx] > number + 1
    return (from_end > number) | ~enough, (from_end == number) & enough


def _random(rows: Interactions, number: int, *, share: float, seed: int) -> tuple[Mask, Mask]:
    """Return the masks of other folds and of one fold of (user, item) pairs."""
    pairs = hash_counters(
        rows.item_idx.astype(np.uint64), hash_counters(rows.user_idx.astype(np.uint64), mix(seed, _FOLDS))
    )
    num_folds = max(2, round(1 / share))
    targets = pairs % np.uint64(num_folds) == np.uint64(number % num_folds)
    return ~targets, targets


@dataclass(frozen=True)
class LabeledCandidates:
    """N candidates with features and labels, in lists: a list has the candidates of one user in one hold-out.

    Attributes:
        items: Encoded items, shape (N,).
        features: Shape (N, F), float32.
        labels: 1 for a target, float32; shape (N,).
        group: Number of the list of each row, ascending; shape (N,).
        histories: The user's rows outside the hold-out, with the number of the list as user.
    """

    items: Tensor
    features: Tensor
    labels: Tensor
    group: Tensor
    histories: Interactions

    @classmethod
    def concatenated(cls, parts: Sequence[LabeledCandidates]) -> LabeledCandidates:
        """Return the rows of several hold-outs, at least one."""
        items, features, labels, group = (
            torch.cat(tensors)
            for tensors in zip(*((one.items, one.features, one.labels, one.group) for one in parts), strict=True)
        )
        return cls(items, features, labels, group, reduce(operator.add, (one.histories for one in parts)))


def histories_of(rows: Interactions, users: Tensor, *, first: int) -> Interactions:
    """Return the rows of some users, ascending and of shape (U,), who get the numbers first, …, first + U - 1."""
    ids = users.cpu().numpy()
    own = rows.chosen(np.isin(rows.user_idx, ids))
    return replace(own, user_idx=(np.searchsorted(ids, own.user_idx) + first).astype(np.int32))
