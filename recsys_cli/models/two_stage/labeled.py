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
