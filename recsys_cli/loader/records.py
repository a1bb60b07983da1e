"""How rows lie in memory: the single values of a row side by side, so that picking it is one trip to memory, not one a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from recsys_cli.batch import Feature
from recsys_cli.features.schema import Column, Kind
from recsys_cli.loader.ragged import Lists
from recsys_cli.loader.reading import Arrays, ListArrays, RowGroup

_WORDS = {4: torch.int32, 8: torch.int64, 16: torch.complex128}
"""Record sizes in bytes that one tensor element holds, so that a record is picked as an element is."""
_TORCH = {
    "uint8": torch.uint8, "int8": torch.int8, "uint16": torch.uint16, "int16": torch.int16,
    "int32": torch.int32, "float32": torch.float32,
}  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """Which columns a row has, and where in its record each single value lies.

    Attributes:
        columns: The columns, single values and lists.
        dtype: The record of the single values: the smallest type for each, the widest first, so all are aligned.
    """

    columns: tuple[Column, ...]
    dtype: np.dtype[np.void]

    @classmethod
    def of(cls, columns: Sequence[Column]) -> Layout:
        """Lay out the columns."""
        types = {column.name: np.dtype(_stored(column)) for column in columns if not column.ragged}
        names = sorted(types, key=lambda name: -types[name].itemsize)
        sizes = [types[name].itemsize for name in names]
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
        rows = sum(group.num_rows for group in groups)
        size = rows * self.dtype.itemsize
        for column in self.lists:
            size += rows * 8 + 4 * sum(group.num_values[column.name] for group in groups)
        return size


@dataclass(frozen=True)
class Records:
    """Rows in memory, to pick from.

    Attributes:
        layout: What they hold.
        words: One record a row: shape (R,) where one element holds a record, else (R, W) of int64.
        lists: The list columns by name.
    """

    layout: Layout
    words: Tensor
    lists: Mapping[str, Lists]

    @property
    def num_bytes(self) -> int:
        """The memory they take."""
        return self.words.nbytes + sum(lists.num_bytes for lists in self.lists.values())

    def to(self, device: torch.device | str) -> Records:
        """Return a copy on a device."""
        return Records(
            self.layout, self.words.to(device), {name: lists.to(device) for name, lists in self.lists.items()}
        )

    def span(self, start: int, stop: int) -> dict[str, Feature]:
        """Return consecutive rows by column name."""
        found = self._unpack(self.words[start:stop])
        found.update({name: lists.span(start, stop) for name, lists in self.lists.items()})
        return found

    def pick(self, rows: Tensor) -> dict[str, Feature]:
        """Return some rows, in their order, by column name.

        Args:
            rows: Row numbers, shape (B,), on the device of the records.
        """
        found = self._unpack(self.words.index_select(0, rows))
        found.update({name: lists.pick(rows) for name, lists in self.lists.items()})
        return found

    def _unpack(self, words: Tensor) -> dict[str, Feature]:
        found: dict[str, Feature] = {}
        layout = self.layout.dtype
        flat = words if words.dim() == 2 else words.unsqueeze(1)
        if flat.dtype == torch.complex128:
            flat = torch.view_as_real(words)
        for column in self.layout.columns:
            if not column.ragged:
                stored, offset = layout.fields[column.name][:2]  # type: ignore[index]
                values = flat.view(_TORCH[stored.name])[:, offset // stored.itemsize]
                dtype = torch.int32 if column.kind is Kind.CATEGORICAL else torch.float32
                found[column.name] = values.to(dtype) if stored.itemsize < 4 else values.contiguous()
        return found


class RecordsBuilder:
    """Gather the parts of files into one `Records`, without holding them twice.

    Args:
        layout: What to hold.
        groups: The parts that will be added.
    """

    def __init__(self, layout: Layout, groups: Sequence[RowGroup]) -> None:
        num_rows = sum(group.num_rows for group in groups)
        self._layout = layout
        self._records = np.empty(num_rows, layout.dtype)
        self._lengths = {column.name: np.empty(num_rows, np.int32) for column in layout.lists}
        self._values = {
            column.name: np.empty(sum(group.num_values[column.name] for group in groups), _stored_element(column))
            for column in layout.lists
        }
        self._num_rows = 0
        self._num_values = dict.fromkeys(self._values, 0)

    def add(self, arrays: Arrays, num_rows: int) -> None:
        """Append rows."""
        start, stop = self._num_rows, self._num_rows + num_rows
        for name, array in arrays.items():
            if isinstance(array, ListArrays):
                self._lengths[name][start:stop] = array.lengths
                first = self._num_values[name]
                self._num_values[name] = first + array.values.size
                self._values[name][first : self._num_values[name]] = array.values
            else:
                self._records[name][start:stop] = array
        self._num_rows = stop

    def finish(self) -> Records:
        """Return the rows that were added."""
        lists = {
            name: Lists.of(torch.from_numpy(values[: self._num_values[name]]), torch.from_numpy(self._lengths[name]))
            for name, values in self._values.items()
        }
        return Records(self._layout, _words(self._records), lists)


def _words(records: np.ndarray) -> Tensor:
    size = records.dtype.itemsize
    raw = torch.from_numpy(records.view(np.uint8).reshape(len(records), size))
    return raw.view(_WORDS[size])[:, 0] if size in _WORDS else raw.view(torch.int64)


def _stored(column: Column) -> str:
    """The smallest type that holds all values of a column of single values."""
    if column.kind is Kind.CATEGORICAL:
        cardinality = int(column.cardinality or 0)
        return "uint8" if cardinality <= 2**8 else "uint16" if cardinality <= 2**16 else "int32"
    return column.dtype if column.dtype in {"int8", "int16"} else "float32"


def _stored_element(column: Column) -> str:
    return "int32" if column.kind is Kind.CATEGORICAL else "float32"
