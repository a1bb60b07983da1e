"""How rows lie in memory: what a row has side by side, so that picking it is one trip to memory and not one for each column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from itertools import groupby
from threading import Event
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from recsys_cli.batch import Feature
from recsys_cli.features.schema import Column, Kind
from recsys_cli.loader.ragged import pick_lists
from recsys_cli.loader.reading import Arrays, ListArrays, RowGroup, open_parquet, read_group

_WORDS = {4: torch.int32, 8: torch.int64, 16: torch.complex128}
"""Record sizes in bytes that one tensor element holds, so that a record is picked as an element is."""
_WEIGHT = np.dtype(np.float32)
_TORCH = {
    name: getattr(torch, name) for name in ("uint8", "int8", "uint16", "int16", "int32", "int64", "float32")
}  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """Which columns a row has, and where in its record each lies.

    A single value is stored as the smallest type that holds it; a list as where it starts in the column's array of elements
    (`start of <name>`) and its length (`length of <name>`). The widest fields come first, so that all are aligned.

    Attributes:
        columns: The columns, single values and lists.
        record: The record of one row.
    """

    columns: tuple[Column, ...]
    record: np.dtype[np.void]

    @classmethod
    def of(cls, columns: Sequence[Column], groups: Sequence[RowGroup]) -> Layout:
        """Lay out the columns of some parts of files."""
        types: dict[str, str] = {}
        for column in columns:
            if column.ragged:
                types[_start(column)] = "int32" if _num_values(column, groups) < 2**31 else "int64"
                types[_length(column)] = "int32"
            else:
                types[column.name] = stored_type(column)
        names = sorted(types, key=lambda name: -np.dtype(types[name]).itemsize)
        sizes = [np.dtype(types[name]).itemsize for name in names]
        offsets = [sum(sizes[:number]) for number in range(len(sizes))]
        size = next((size for size in _WORDS if size >= sum(sizes)), -(-sum(sizes) // 8) * 8)
        formats = [types[name] for name in names]
        record = np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})
        return cls(tuple(columns), record)

    @property
    def lists(self) -> tuple[Column, ...]:
        """The list columns."""
        return tuple(column for column in self.columns if column.ragged)

    def num_bytes(self, groups: Sequence[RowGroup]) -> int:
        """Return how much memory some parts of files take at most, once they are read."""
        size = sum(group.num_rows for group in groups) * self.record.itemsize
        for column in self.lists:
            element = np.dtype(stored_type(column)).itemsize + (_WEIGHT.itemsize if column.weights else 0)
            size += element * _num_values(column, groups)
        return size


@dataclass(frozen=True)
class Records:
    """Rows in memory, to pick from.

    Attributes:
        layout: What they hold.
        words: One record a row: shape (R,) where one element holds a record, else (R, W) of int64.
        values: The elements of the list columns, by name.
        weights: How much each element counts, by the same names, where that is known.
    """

    layout: Layout
    words: Tensor
    values: Mapping[str, Tensor]
    weights: Mapping[str, Tensor]

    @property
    def num_rows(self) -> int:
        """R."""
        return self.words.shape[0]

    @property
    def num_bytes(self) -> int:
        """The memory they take."""
        return self.words.nbytes + sum(part.nbytes for part in (*self.values.values(), *self.weights.values()))

    def to(self, device: torch.device | str) -> Records:
        """Return a copy on a device."""
        values, weights = (
            {name: part.to(device) for name, part in parts.items()} for parts in (self.values, self.weights)
        )
        return Records(self.layout, self.words.to(device), values, weights)

    def span(self, start: int, stop: int) -> dict[str, Feature]:
        """Return consecutive rows by column name; ids as int32, numbers as float32."""
        return self._unpack(self.words[start:stop])

    def pick(self, rows: Tensor) -> dict[str, Feature]:
        """Return some rows, in their order, by column name; ids as int32, numbers as float32.

        Args:
            rows: Row numbers, int32 or int64, shape (B,), on the device of the records.
        """
        return self._unpack(self.words.index_select(0, rows))

    def _unpack(self, words: Tensor) -> dict[str, Feature]:
        if words.dtype == torch.complex128:
            words = torch.view_as_real(words)
        elif words.dim() == 1:
            words = words.unsqueeze(1)
        found: dict[str, Feature] = {}
        for column in self.layout.columns:
            dtype = torch.int32 if column.kind is Kind.CATEGORICAL else torch.float32
            if column.ragged:
                starts, lengths = self._field(words, _start(column)), self._field(words, _length(column))
                weights = self.weights.get(column.name)
                found[column.name] = pick_lists(self.values[column.name], starts, lengths, dtype, weights)
            else:
                found[column.name] = self._field(words, column.name).to(dtype, copy=True).contiguous()
        return found

    def _field(self, words: Tensor, name: str) -> Tensor:
        dtype, offset = self.layout.record.fields[name][:2]  # type: ignore[index]
        return words.view(_TORCH[dtype.name])[:, offset // dtype.itemsize]


class _Builder:
    """Put the parts of files together as `Records`, without holding them twice.

    Args:
        layout: What to hold.
        groups: The parts that will be added.
    """

    def __init__(self, layout: Layout, groups: Sequence[RowGroup]) -> None:
        self._layout = layout
        self._records = np.empty(sum(group.num_rows for group in groups), layout.record)
        self._values = {
            column.name: np.empty(_num_values(column, groups), stored_type(column)) for column in layout.lists
        }
        self._weights = {
            column.name: np.empty(_num_values(column, groups), _WEIGHT) for column in layout.lists if column.weights
        }
        self._num_rows = 0
        self._num_values = dict.fromkeys(self._values, 0)

    def add(self, arrays: Arrays, num_rows: int) -> None:
        """Append rows."""
        records = self._records[self._num_rows : self._num_rows + num_rows]
        self._num_rows += num_rows
        for column in self._layout.columns:
            array = arrays[column.name]
            if isinstance(array, ListArrays):
                first = self._num_values[column.name]
                last = first + array.values.size
                self._num_values[column.name] = last
                self._values[column.name][first:last] = array.values
                if array.weights is not None:
                    self._weights[column.name][first:last] = array.weights
                records[_length(column)] = array.lengths
                records[_start(column)] = first + np.cumsum(array.lengths, dtype=np.int64) - array.lengths
            else:
                records[column.name] = array

    def finish(self) -> Records:
        """Return the rows that were added."""
        values, weights = (
            {name: torch.from_numpy(part[: self._num_values[name]]) for name, part in parts.items()}
            for parts in (self._values, self._weights)
        )
        return Records(self._layout, _words(self._records), values, weights)


def read_records(layout: Layout, groups: Sequence[RowGroup], stop: Event | None = None) -> Records:
    """Read some parts of files into memory, in the order given.

    Args:
        layout: What a row holds.
        groups: What to read.
        stop: Once it is set, nobody waits for the rows any more.

    Raises:
        CancelledError: `stop` was set.
        DataError: They are not what schema.json says; the message names file, column and value.
    """
    builder = _Builder(layout, groups)
    for path, parts in groupby(groups, key=lambda group: group.path):
        with open_parquet(path) as file:
            for group in parts:
                if stop is not None and stop.is_set():
                    raise CancelledError
                builder.add(read_group(file, group, layout.columns), group.num_rows)
    return builder.finish()


def stored_type(column: Column) -> str:
    """Return the smallest type that holds the values of a column, or the elements of its lists."""
    if column.kind is Kind.CATEGORICAL:
        cardinality = int(column.cardinality or 0)
        return "uint8" if cardinality <= 2**8 else "uint16" if cardinality <= 2**16 else "int32"
    return column.dtype if column.dtype in {"int8", "int16"} else "float32"


def _words(records: npt.NDArray[Any]) -> Tensor:
    size = records.dtype.itemsize
    raw = torch.from_numpy(records.view(np.uint8).reshape(len(records), size))
    return raw.view(_WORDS[size])[:, 0] if size in _WORDS else raw.view(torch.int64)


def _num_values(column: Column, groups: Sequence[RowGroup]) -> int:
    return sum(group.num_values[column.name] for group in groups)


def _start(column: Column) -> str:
    return f"start of {column.name}"


def _length(column: Column) -> str:
    return f"length of {column.name}"
