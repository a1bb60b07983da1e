"""Resident split: all rows in memory, shuffled as a whole."""

from __future__ import annotations

import torch

from recsys_cli.batch import Feature
from recsys_cli.features.hashing import mix
from recsys_cli.loader.order import Permutation
from recsys_cli.loader.records import Records

_SHUFFLE = 0x5248
"""Seed offset of the order of rows."""


class Resident:
    """Split with all rows in memory, in an order given by (seed, epoch); with seed None in the order of the files."""

    def __init__(self, records: Records, *, seed: int | None) -> None:
        self._records = records
        self._seed = seed

    def epoch(self, epoch: int) -> ResidentEpoch:
        """Return the rows in the order of an epoch."""
        order = None
        if self._seed is not None:
            order = Permutation(self._records.num_rows, mix(self._seed, _SHUFFLE, epoch))
        return ResidentEpoch(self._records, order)


class ResidentEpoch:
    """Rows in the order of one epoch; thread-safe."""

    threads = 2

    def __init__(self, records: Records, order: Permutation | None) -> None:
        self._records = records
        self._order = order

    def rows(self, start: int, stop: int) -> dict[str, Feature]:
        """Return the rows at positions start, …, stop - 1."""
        if self._order is None:
            return self._records.span(start, stop)
        rows = torch.from_numpy(self._order(start, stop))
        return self._records.pick(rows.to(self._records.words.device))

    def close(self) -> None:
        """Do nothing; the next epoch needs the rows."""
