"""Batches of users, for models that learn from what a user did in order: their ids alone, each user once an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch

from recsys_cli.batch import Batch
from recsys_cli.errors import DataError
from recsys_cli.features.hashing import mix
from recsys_cli.features.schema import FIRST, Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.loader.order import Permutation
from recsys_cli.loader.steps import EpochSteps

_SHUFFLE = 0x5553
"""Sets the order of users apart from whatever else is drawn from the same seed."""
_LEAST, _MOST, _STEPS = 32, 256, 600
"""Users of a step at least and at most, and the steps that an epoch keeps, where the number of users decides."""


def users_of_a_step(num_users: int) -> int:
    """Return how many users a step has where `train.batch_size` is `auto`: more of them where an epoch has steps enough.

    Few users need small steps, so that an epoch has many. On Amazon Toys (19,412 users, 607 steps of 32) sasrec of 12 epochs came
    to NDCG@10 on valid of .062 by steps of 32, .061 of 128 and .060 of 256 at the same rates, in about the same CPU time on one
    core; with rates times 2, as the root rule has it, to .058 by 128.
    """
    size = _LEAST
    while size < _MOST and num_users >= 2 * size * _STEPS:
        size *= 2
    return size


class UserLoader(EpochSteps):
    """Iterate over the users who have met at least two items, once each epoch, in an order that (seed, epoch) decides.

    Whoever has met a single item has nothing that comes next. Step i is the same users however many ranks share it. The
    features of a batch are the users' ids, int32; the main label is 1, so that it says how many rows there are.

    Args:
        interactions: Of train.
        schema: Names the user column and the label.
        batch_size: Users of a step, which the ranks share; `auto` is what `users_of_a_step` says.
        seed: Decides the order.
        device: Where the batches are wanted.
        rank: Which of the processes this is.
        world_size: How many processes share the users.
        parts: How many parts a step is cut into before processes share it.

    Raises:
        DataError: No user has two items.
        ConfigError: `batch_size` or `rank` is impossible.
    """

    def __init__(  # noqa: PLR0913 - all but two are keywords with a default
        self,
        interactions: Interactions,
        schema: Schema,
        *,
        batch_size: int | Literal["auto"],
        seed: int = 0,
        device: torch.device | str = "cpu",
        rank: int = 0,
        world_size: int = 1,
        parts: int = 1,
    ) -> None:
        known = (interactions.user_idx >= FIRST) & (interactions.item_idx >= FIRST)
        users = np.flatnonzero(np.bincount(interactions.user_idx[known]) >= 2)
        if not len(users):
            raise DataError(
                "no user of train has two items, so there is nothing that comes next",
                hint="look at features.user and at the split, or train a model of interactions (recsys ls models)",
            )
        size = users_of_a_step(len(users)) if batch_size == "auto" else batch_size
        super().__init__(len(users), batch_size=size, rank=rank, world_size=world_size, parts=parts)
        self._users = users.astype(np.int32)
        self._names = schema.only(Role.USER).name, schema.label.name
        self._seed = seed
        self._device = torch.device(device)

    def _batches(self, first: int) -> Iterator[Batch]:
        order = Permutation(self.num_rows, mix(self._seed, _SHUFFLE, self._epoch))
        user, label = self._names
        for step in range(first, len(self)):
            places = np.concatenate([order(*span) for span in self._deal.spans(step, self._rank)])
            ids = torch.from_numpy(self._users[places]).to(self._device)
            self._step = step + 1
            yield Batch({user: ids}, {label: torch.ones(len(ids), device=self._device)})
