"""Lookup of fitted statistics by group key, null included."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.features.hashing import combine, hash_counters, hash_value
from recsys_cli.serving.encoder.ids import hashes_of, null_mask
from recsys_cli.serving.encoder.values import Apply, Array, Columns, Values, from_arrow
from recsys_cli.serving.encoder.vocabulary import ABSENT

_OF_NULL = 0
_CACHED = 1 << 16


class GroupIndex:
    """Index of the groups of a table of statistics.

    Args:
        table: One row per group, with the key columns `key0`, `key1`, …
        names: Columns of the rows with the keys.
    """

    def __init__(self, table: pa.Table, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._keys = [_canonical(from_arrow(table.column(f"key{at}"))) for at in range(len(self._names))]
        hashes = _hashes(self._keys[0])
        for key in self._keys[1:]:
            hashes = hash_counters(hashes, _hashes(key))
        order = np.argsort(hashes, kind="stable")
        self._hashes, self._rows = hashes[order], order
        self._found: dict[tuple[Any, ...], int] = {}

    def rows(self, columns: Mapping[str, Values]) -> npt.NDArray[np.int64]:
        """Return the table row of each row's group; ABSENT without one."""
        parts = [_values(columns[name]) for name in self._names]
        return np.fromiter(map(self._row, zip(*parts, strict=True)), np.int64, len(parts[0]))

    def _row(self, key: tuple[Any, ...]) -> int:
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= _CACHED:
                self._found.clear()
            found = self._found[key] = self._search(key)
        return found

    def _search(self, key: tuple[Any, ...]) -> int:
        first, *others = (_OF_NULL if part is None else hash_value(part) for part in key)
        hashed = first
        for other in others:
            hashed = combine(hashed, other)
        place = int(self._hashes.searchsorted(np.uint64(hashed)))
        while place < len(self._hashes) and int(self._hashes[place]) == hashed:
            row = int(self._rows[place])
            if all(_at(column, row) == part for column, part in zip(self._keys, key, strict=True)):
                return row
            place += 1
        return ABSENT


def lookup(table: pa.Table, column: str) -> Array:
    """Return a column of statistics as float64, with an entry for ABSENT at the end: NaN, as for null."""
    values = from_arrow(table.column(column))
    data = values.data.astype(np.float64)
    if values.nulls is not None:
        data[values.nulls] = np.nan
    return np.append(data, np.nan)


def gathered(groups: Sequence[tuple[GroupIndex, Mapping[str, Array]]]) -> Apply:
    """Return an `Apply` that adds columns by group.

    Args:
        groups: Index and columns with an entry per group, and one for ABSENT at the end.
    """

    def apply(columns: Columns, rows: int) -> None:  # noqa: ARG001 - as every Apply
        for index, added in groups:
            found = index.rows(columns)
            for name, values in added.items():
                columns[name] = Values(values[found])

    return apply


def _canonical(values: Values) -> Values:
    return Values(values.data, null_mask(values))


def _hashes(values: Values) -> npt.NDArray[np.uint64]:
    hashes = hashes_of(values.data)
    return hashes if values.nulls is None else np.where(values.nulls, np.uint64(_OF_NULL), hashes)


def _at(values: Values, row: int) -> Any:
    return None if values.nulls is not None and values.nulls[row] else values.data[row]


def _values(values: Values) -> list[Any]:
    """Return the key parts of each row: null for NaN."""
    parts: list[Any] = values.data.tolist()
    if values.data.dtype.kind == "f":
        return [None if math.isnan(part) else part for part in parts]
    if values.nulls is not None:
        return [None if null else part for part, null in zip(parts, values.nulls.tolist(), strict=True)]
    return parts
