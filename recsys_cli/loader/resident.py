"""A split that is kept in memory: any row at any time, so one shuffle over all of them."""

from __future__ import annotations

import torch

from recsys_cli.batch import Feature
from recsys_cli.features.hashing import mix
from recsys_cli.loader.order import Permutation
from recsys_cli.loader.records import Records

_SHUFFLE = 0x5248
"""Sets the order of rows apart from whatever else is drawn from the same seed."""


class Resident:
    """Hand out the rows of a split from memory.

    Args:
        records: All rows.
        seed: Decides the order, together with the epoch; None keeps the order of the files.
    """

    def __init__(self, records: Records, *, seed: int | None) -> None:
        self._records = records
        self._seed = seed

    def epoch(self, epoch: int) -> ResidentEpoch:
        """Return the rows in an epoch's order."""
        order = None
        if self._seed is not None:
            order = Permutation(self._records.num_rows, mix(self._seed, _SHUFFLE, epoch))
        return ResidentEpoch(self._records, order)


class ResidentEpoch:
    """The rows in one order, by position; safe to use from several threads."""

    threads = 2

    def __init__(self, records: Records, order: Permutation | None) -> None:
        self._records = records
        self._order = order

    def rows(self, start: int, stop: int) -> dict[str, Feature]:
        """Return the rows at the positions start, …, stop - 1."""
        if self._order is None:
            return self._records.span(start, stop)
        rows = torch.from_numpy(self._order(start, stop))
        return self._records.pick(rows.to(self._records.words.device))

    def close(self) -> None:
        """Do nothing: the rows are kept for the next epoch."""
