"""Repeated (user, item) pairs and (user, item, time) triples, of all rows or of a sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from recsys_cli.etl.report.facts import RepeatedPairs
from recsys_cli.features.hashing import hash_counters, mix
from recsys_cli.features.schema import FIRST, Column

ROWS = 1 << 21
"""Target number of compared rows: larger data is sampled, to bound memory and time."""
_STREAM = 4

Ids = npt.NDArray[np.int32]
Keys = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Sample:
    """The sample of compared rows: all rows of users (or items, if there are more of them) selected by hash.

    `rows` is the number of rows in all splits.
    """

    user: Column
    item: Column
    rows: int

    @property
    def share(self) -> float:
        """Sampling rate of users (or items)."""
        return min(1.0, ROWS / max(self.rows, 1))

    @property
    def by_user(self) -> bool:
        """Whether users are sampled, not items."""
        return self.user.own_ids.stop >= self.item.own_ids.stop

    def keys(self, user: Ids, item: Ids, times: npt.NDArray[Any] | None = None) -> Keys:
        """Return the keys of the sampled pairs, for users and items with ids of their own; with times a hash of both."""
        others = [] if times is None else [times]
        user, item, *others = _pick(self._selected.take(user if self.by_user else item), user, item, *others)
        is_own = self._is_own(item, self.item) if self.by_user else self._is_own(user, self.user)
        user, item, *others = _pick(is_own, user, item, *others)
        keys = user.astype(np.uint64)
        keys *= np.uint64(self.item.own_ids.stop)
        keys += item.view(np.uint32)
        for one in others:  # a chance collision among 2 million rows has a probability of 1e-7
            keys = hash_counters(_as_counters(one), hash_counters(keys, mix(0, _STREAM)))
        return keys

    @staticmethod
    def _is_own(ids: Ids, column: Column) -> npt.NDArray[np.bool_]:
        mask = ids >= FIRST
        return mask & (ids < column.own_ids.stop) if column.buckets else mask

    @cached_property
    def _selected(self) -> npt.NDArray[np.bool_]:
        """Mask over the ids of the sampled column: the id of a value, and selected by hash."""
        column = self.user if self.by_user else self.item
        ids = np.arange(column.cardinality or FIRST)
        is_own = self._is_own(ids.astype(np.int32), column)
        if self.share == 1:
            return is_own
        return is_own & (hash_counters(ids.astype(np.uint64), mix(0, _STREAM)) < np.uint64(int(self.share * 2**64)))


def _as_counters(times: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    return times.astype(np.float64 if times.dtype.kind == "f" else np.int64).view(np.uint64)


def _pick(mask: npt.NDArray[np.bool_], *columns: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Return the rows of a mask by positions, twice as fast as by the mask."""
    positions = np.flatnonzero(mask)
    return [column.take(positions) if len(positions) < len(column) else column for column in columns]


def repetitions(sample: Sample, keys: Mapping[str, Keys]) -> RepeatedPairs:
    """Count the repeated keys within and across splits, by keys in order of the splits; sorts the keys in place."""
    distinct: dict[str, Keys] = {}
    repeated: dict[str, int] = {}
    seen: dict[str, dict[str, int]] = {}
    for split, split_keys in keys.items():
        split_keys.sort()
        first = np.ones(len(split_keys), dtype=bool)
        np.not_equal(split_keys[1:], split_keys[:-1], out=first[1:])
        repeated[split] = len(split_keys) - int(np.count_nonzero(first))
        if distinct:
            seen[split] = {earlier: _count_in(split_keys, other) for earlier, other in distinct.items()}
        distinct[split] = split_keys if not repeated[split] else split_keys[first]
    return RepeatedPairs(
        share=sample.share,
        by=(sample.user if sample.by_user else sample.item).name,
        rows={split: len(split_keys) for split, split_keys in keys.items()},
        repeated=repeated,
        seen=seen,
    )


def _count_in(keys: Keys, other: Keys) -> int:
    """Count the keys in another array; both are sorted."""
    if not len(other):
        return 0
    positions = np.searchsorted(other, keys)
    positions[positions == len(other)] = 0
    return int(np.count_nonzero(other[positions] == keys))
