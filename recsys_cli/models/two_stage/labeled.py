"""Rows of a ranker's training: labeled candidates with the user histories of their hold-outs."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from recsys_cli.interactions import Interactions

_COLUMNS = ("items", "features", "labels", "group", "fold")


@dataclass(frozen=True)
class LabeledCandidates:
    """N candidates with features and labels, in lists: a list has the candidates of one user in one hold-out.

    Attributes:
        items: Encoded items, shape (N,).
        features: Shape (N, F), float32.
        labels: 1 for a target, float32; shape (N,).
        group: Number of the list of each row, ascending; shape (N,).
        fold: Number of the hold-out of each row, shape (N,).
        histories: The user's rows outside the hold-out, with the number of the list as user.
    """

    items: Tensor
    features: Tensor
    labels: Tensor
    group: Tensor
    fold: Tensor
    histories: Interactions

    @classmethod
    def concatenated(cls, parts: Sequence[LabeledCandidates]) -> LabeledCandidates:
        """Return the rows of several hold-outs, at least one."""
        columns = {name: torch.cat([getattr(one, name) for one in parts]) for name in _COLUMNS}
        return cls(**columns, histories=reduce(operator.add, (one.histories for one in parts)))

    def chosen(self, rows: Tensor) -> LabeledCandidates:
        """Return some rows, by mask, with all histories."""
        return LabeledCandidates(**{name: getattr(self, name)[rows] for name in _COLUMNS}, histories=self.histories)


def histories_of(rows: Interactions, users: Tensor, *, first: int) -> Interactions:
    """Return the rows of some users, ascending and of shape (U,), who get the numbers first, …, first + U - 1."""
    ids = users.cpu().numpy()
    own = rows.chosen(np.isin(rows.user_idx, ids))
    return replace(own, user_idx=(np.searchsorted(ids, own.user_idx) + first).astype(np.int32))
