"""Raw feature values of items, from the dimension table of items."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from recsys_cli.features.columns import SHARED_ID
from recsys_cli.features.parquet import read_parquet
from recsys_cli.features.schema import FIRST, Column, Kind, Role
from recsys_cli.ops import HashBucket, ListSlice
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.workspace import PreparedData


@dataclass(frozen=True)
class Values:
    """The values of one feature for R table rows, as lists of one value or more.

    Attributes:
        values: Distinct raw values in order of ids from FIRST.
        ids: Encoded values of all rows concatenated; shape (N,).
        offsets: Start of each row's values, then N; shape (R + 1,).
        is_list: Whether rows have lists.
    """

    values: pa.Array
    ids: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    is_list: bool

    @cached_property
    def texts(self) -> list[str]:
        """The distinct raw values as text."""
        return [str(value) for value in self.values.to_pylist()]

    def of_row(self, row: int) -> tuple[str, ...]:
        """Return the values of a row as text, without missing ones."""
        ids = self.ids[self.offsets[row] : self.offsets[row + 1]] - FIRST
        return tuple(self.texts[number] for number in ids.tolist() if 0 <= number < len(self.texts))

    def with_rows(self, column: pa.Array) -> Values:
        """Return the values of other rows of the feature, given as in the dimension table."""
        ids, offsets = _ids_of(column, is_list=self.is_list)
        values = replace(self, ids=ids, offsets=offsets)
        values.__dict__["texts"] = self.texts
        return values

    @cached_property
    def rows(self) -> npt.NDArray[np.int64]:
        """The row of each encoded value; shape (N,)."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def any_of(self, wanted: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return a mask of rows with one of some distinct values; wanted (V,)."""
        hits = np.concatenate([np.zeros(FIRST, bool), wanted, [False]])[np.minimum(self.ids, FIRST + len(wanted))]
        return np.bincount(self.rows[hits], minlength=len(self.offsets) - 1) > 0


class ItemFeatures:
    """Feature values of items by table row: the encoded id, or the row of a cold item."""

    def __init__(self, data: PreparedData) -> None:
        self._data = data
        self._path = data.table(data.schema.only(Role.ITEM).name)
        self._columns: dict[str, Values] = {}
        self._numbers: dict[str, npt.NDArray[Any]] = {}

    @cached_property
    def _in_table(self) -> dict[str, Column]:
        names = pq.read_schema(self._path).names if self._path.is_file() else []
        return {column.name: column for column in self._data.schema.features if column.name in names}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The features with raw values, in order of the schema."""
        return tuple(
            name
            for name, column in self._in_table.items()
            if column.vocabulary and name != SHARED_ID and self._data.vocabulary(column.vocabulary).is_file()
        )

    @cached_property
    def numeric(self) -> tuple[str, ...]:
        """The features with a prepared number per item."""
        return tuple(n for n, column in self._in_table.items() if column.kind is Kind.NUMERIC and not column.ragged)

    @cached_property
    def changed_by(self) -> dict[str, tuple[str, ...]]:
        """The ops that overwrite the values of a joined or computed column, by column; without those that keep values."""
        key, program = self._data.schema.only(Role.ITEM).name, FittedPlan.read(self._data.folder).program
        found: dict[str, tuple[str, ...]] = {name: () for _, op in program.joins if op.on == key for name in op.columns}
        for step in program.transforms(key):
            renames = getattr(step.op, "renames", {})
            keeps = {*getattr(step.op, "encodes", ()), *renames.values()}
            found |= {new: found.pop(old, ()) for old, new in renames.items()}
            for name in step.writes:
                if name in renames:
                    continue
                if name in found and name not in keeps and not isinstance(step.op, _KEEPING):
                    found[name] = (*found[name], type(step.op).__name__)
                found.setdefault(name, ())
        return {name: ops for name, ops in found.items() if ops}

    def numbers(self, name: str) -> npt.NDArray[Any]:
        """Return a numeric feature by table row in its stored type, NaN for null."""
        if name not in self._numbers:
            self._numbers[name] = self._column(name).to_numpy(zero_copy_only=False)
        return self._numbers[name]

    def _column(self, name: str) -> pa.Array:
        """Return a column of the dimension table."""
        return read_parquet(self._path, [name])[name].combine_chunks()

    def values(self, name: str) -> Values:
        """Return the values of a feature."""
        if name not in self._columns:
            self._columns[name] = self._values(name)
        return self._columns[name]

    def _values(self, name: str) -> Values:
        column = self._in_table[name]
        ids, offsets = _ids_of(self._column(name), is_list=column.ragged)
        assert column.vocabulary is not None, f"{name} has no vocabulary"
        vocabulary = read_parquet(self._data.vocabulary(column.vocabulary), ["value"])
        return Values(vocabulary["value"].combine_chunks(), ids, offsets, column.ragged)

    def of(self, row: int) -> dict[str, tuple[str, ...]]:
        """Return the raw categorical values of an item as text, by feature."""
        return {name: self.values(name).of_row(row) for name in self.names}

    def shown(self, row: int) -> dict[str, tuple[str, ...]]:
        """Return the raw values of an item as text, by feature; without numbers that ops of the plan change."""
        numbers = {n: self.numbers(n)[row] for n in self.numeric if n not in self.changed_by}
        texts = {n: () if np.isnan(v) else (np.format_float_positional(v, trim="-"),) for n, v in numbers.items()}
        return self.of(row) | texts

    @cached_property
    def vectors(self) -> npt.NDArray[np.float32] | None:
        """Unit vectors of the values by table row, shape (R, V); None without features or with too many values."""
        tables = [self.values(name) for name in self.names]
        width = sum(len(table.values) for table in tables)
        if not tables or width > _MOST_VALUES:
            return None
        vectors = np.zeros((len(tables[0].offsets) - 1, width), np.float32)
        start = 0
        for table in tables:
            own = (table.ids >= FIRST) & (table.ids < FIRST + len(table.values))
            vectors[table.rows[own], start + table.ids[own] - FIRST] = 1
            start += len(table.values)
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


class ChangedFeatures(ItemFeatures):
    """Item features with changed and further rows.

    Args:
        base: The features without changes.
        rows: Prepared rows as in the dimension table.
        order: Position of each row of the new table among the rows of `base` followed by `rows`.
    """

    def __init__(self, base: ItemFeatures, rows: pa.Table, order: npt.NDArray[np.int64]) -> None:
        super().__init__(base._data)
        self._base, self._rows, self._order = base, rows, pa.array(order)
        self.__dict__.update(_in_table=base._in_table, names=base.names, numeric=base.numeric)

    @property
    def changed_by(self) -> dict[str, tuple[str, ...]]:
        """As of the base."""
        return self._base.changed_by

    def _column(self, name: str) -> pa.Array:
        column = self._base._column(name)
        further = self._rows[name].combine_chunks().cast(column.type)
        return pa.concat_arrays([column, further]).take(self._order)

    def _values(self, name: str) -> Values:
        return self._base.values(name).with_rows(self._column(name))


def _ids_of(column: pa.Array, *, is_list: bool) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return `ids` and `offsets` of `Values` from a column of the dimension table."""
    offsets = np.arange(len(column) + 1)
    if is_list:
        lengths = np.asarray(column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False), np.int64)
        offsets, column = np.concatenate([[0], np.cumsum(lengths)]), column.flatten()
    return column.to_numpy().astype(np.int64), offsets


_KEEPING = (HashBucket, ListSlice)
"""Ops of text and lists, without new values."""
_MOST_VALUES = 4_096
"""Maximum distinct feature values for vectors of features."""
