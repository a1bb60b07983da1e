"""Pairs of user and item as numbers, all of them or those of a sample, and how often they repeat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from recsys_cli.etl.report.facts import RepeatedPairs
from recsys_cli.features.hashing import hash_counters, mix
from recsys_cli.features.schema import FIRST, Column

ROWS = 1 << 21
"""About how many rows are compared; of more, a sample is, so that memory and time do not grow with the data."""
_STREAM = 4

Ids = npt.NDArray[np.int32]
Keys = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Sample:
    """Which rows are compared: all, or those of users (items, where there are more of them) that a hash chooses.

    Attributes:
        user: The column of users.
        item: The column of items.
        rows: How many rows there are in all splits.
    """

    user: Column
    item: Column
    rows: int

    @property
    def share(self) -> float:
        """Part of the users (or items) that is looked at."""
        return min(1.0, ROWS / max(self.rows, 1))

    @property
    def by_user(self) -> bool:
        """Whether users are chosen, and not items."""
        return known(self.user) >= known(self.item)

    def keys(self, user: Ids, item: Ids) -> Keys:
        """Return one number for each pair of the sample whose user and item have ids of their own."""
        user, item = _pick(self._chosen.take(user if self.by_user else item), user, item)
        user, item = _pick(self._own(item, self.item) if self.by_user else self._own(user, self.user), user, item)
        keys = user.astype(np.uint64)
        keys *= np.uint64(known(self.item))
        keys += item.view(np.uint32)
        return keys

    @staticmethod
    def _own(ids: Ids, column: Column) -> npt.NDArray[np.bool_]:
        own = ids >= FIRST
        return own & (ids < known(column)) if column.buckets else own

    @cached_property
    def _chosen(self) -> npt.NDArray[np.bool_]:
        """For each id of the column that is chosen by: whether it is one of a value, and in the sample."""
        column = self.user if self.by_user else self.item
        ids = np.arange(column.cardinality or FIRST)
        own = self._own(ids.astype(np.int32), column)
        if self.share == 1:
            return own
        return own & (hash_counters(ids.astype(np.uint64), mix(0, _STREAM)) < np.uint64(int(self.share * 2**64)))


def _pick(wanted: npt.NDArray[np.bool_], *columns: Ids) -> list[Ids]:
    """Return the wanted rows; by their positions, which is twice as fast as by the mask."""
    positions = np.flatnonzero(wanted)
    return [column.take(positions) if len(positions) < len(column) else column for column in columns]


def known(column: Column) -> int:
    """Return the id after the last that belongs to a value."""
    return (column.cardinality or FIRST) - column.buckets


def repetitions(sample: Sample, keys: Mapping[str, Keys]) -> RepeatedPairs:
    """Count what repeats within splits and across them.

    Args:
        sample: How the keys were chosen.
        keys: Those of each split, in order of the splits; sorted in place.
    """
    distinct: dict[str, Keys] = {}
    repeated: dict[str, int] = {}
    seen: dict[str, dict[str, int]] = {}
    for split, own in keys.items():
        own.sort()
        first = np.ones(len(own), dtype=bool)
        np.not_equal(own[1:], own[:-1], out=first[1:])
        repeated[split] = len(own) - int(np.count_nonzero(first))
        if distinct:
            seen[split] = {earlier: _found(own, there) for earlier, there in distinct.items()}
        distinct[split] = own if not repeated[split] else own[first]
    return RepeatedPairs(
        share=sample.share,
        by=(sample.user if sample.by_user else sample.item).name,
        rows={split: len(own) for split, own in keys.items()},
        repeated=repeated,
        seen=seen,
    )


def _found(wanted: Keys, there: Keys) -> int:
    """Count the wanted keys that are there; both are sorted."""
    if not len(there):
        return 0
    positions = np.searchsorted(there, wanted)
    positions[positions == len(there)] = 0
    return int(np.count_nonzero(there[positions] == wanted))
