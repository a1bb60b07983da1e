"""Row-major records: one memory access gathers all columns of a row; vectorized gather and concatenation of lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from threading import Event
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from recsys_cli.batch import Feature, Ragged, joined
from recsys_cli.features.schema import Column, Kind, Role
from recsys_cli.loader.reading import (
    Arrays,
    ListArrays,
    RowGroup,
    groups_of,
    open_parquet,
    read_group,
    row_columns,
    row_groups,
)
from recsys_cli.workspace import PreparedData


def pick_lists(
    values: Tensor, starts: Tensor, lengths: Tensor, dtype: torch.dtype, weights: Tensor | None = None
) -> Ragged:
    """Gather the lists of B rows, of given starts and lengths, from the elements of all lists and their weights, shape (N,).

    The source position of each element is a cumulative sum: steps of 1 inside a list, and a jump from the end of the
    previous list at its first element. The jumps of empty lists add up at one position, so they need no special case.
    """
    num_rows = starts.numel()
    if num_rows == 1 and starts.device.type == "cpu":
        start, length = int(starts), int(lengths)
        of_row = slice(start, start + length)
        own_weights = None if weights is None else weights[of_row].clone()
        return Ragged(values[of_row].to(dtype, copy=True), torch.tensor([0, length]), own_weights)
    offsets = torch.empty(num_rows + 1, dtype=torch.int64, device=starts.device)
    offsets[0] = 0
    torch.cumsum(lengths, 0, out=offsets[1:])
    total = int(offsets[-1])
    jumps = starts.clone(memory_format=torch.contiguous_format)
    jumps[:1] -= 1
    jumps[1:] -= (starts + lengths)[:-1]
    positions = torch.ones(total + 1, dtype=starts.dtype, device=starts.device)
    positions.scatter_add_(0, offsets[:-1], jumps)
    positions = torch.cumsum(positions[:total], 0, dtype=starts.dtype)
    picked_weights = None if weights is None else weights.index_select(0, positions)
    if values.dtype == torch.uint16:  # torch converts this type but has no gather for it
        picked = values.view(torch.int16).index_select(0, positions).view(torch.uint16)
    else:
        picked = values.index_select(0, positions)
    return Ragged(picked.to(dtype), offsets, picked_weights)


def join_spans(spans: list[dict[str, Feature]]) -> dict[str, Feature]:
    """Concatenate spans of rows, given as columns by name."""
    return spans[0] if len(spans) == 1 else {name: joined([span[name] for span in spans]) for name in spans[0]}


_WORDS = {4: torch.int32, 8: torch.int64, 16: torch.complex128}
"""Tensor types of the record sizes in bytes with one element per record, for a gather by element."""
_WEIGHT = np.dtype(np.float32)
_TORCH = {
    name: getattr(torch, name) for name in ("uint8", "int8", "uint16", "int16", "int32", "int64", "float32", "float64")
}  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """Memory layout of a record.

    A single value has the smallest sufficient type. A list is stored as its start in the column's array of elements
    (`start of <name>`) and its length (`length of <name>`). Fields are aligned, in descending order of width.
    """

    columns: tuple[Column, ...]
    record: np.dtype[np.void]

    @classmethod
    def of(cls, columns: Sequence[Column], groups: Sequence[RowGroup]) -> Layout:
        """Return the layout of columns for the rows of row groups."""
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

    @cached_property
    def places(self) -> Mapping[str, tuple[torch.dtype, int]]:
        """Tensor type of each field, and its index in a record of this type."""
        fields: Mapping[str, Any] = self.record.fields or {}
        return {name: (_TORCH[kind.name], offset // kind.itemsize) for name, (kind, offset, *_) in fields.items()}

    def num_bytes(self, groups: Sequence[RowGroup]) -> int:
        """Return an upper bound of the bytes of row groups in memory."""
        size = sum(group.num_rows for group in groups) * self.record.itemsize
        for column in self.lists:
            element = np.dtype(stored_type(column)).itemsize + (_WEIGHT.itemsize if column.weights else 0)
            size += element * _num_values(column, groups)
        return size


@dataclass(frozen=True)
class Records:
    """Rows in memory.

    Attributes:
        words: Records: shape (R,) for one element per record, else (R, W), int64.
    """

    layout: Layout
    words: Tensor
    values: Mapping[str, Tensor]
    weights: Mapping[str, Tensor]

    @property
    def num_rows(self) -> int:
        """Number of rows R."""
        return self.words.shape[0]

    @property
    def num_bytes(self) -> int:
        """Bytes of all tensors."""
        return self.words.nbytes + sum(part.nbytes for part in (*self.values.values(), *self.weights.values()))

    def to(self, device: torch.device | str) -> Records:
        """Return a copy on a device."""
        values, weights = (
            {name: part.to(device) for name, part in parts.items()} for parts in (self.values, self.weights)
        )
        return Records(self.layout, self.words.to(device), values, weights)

    def with_rows(self, arrays: Arrays, group: RowGroup, order: Tensor) -> Records:
        """Return a selection of these rows and of more rows.

        Args:
            arrays: Columns of the N further rows.
            group: Their numbers of rows and of list elements.
            order: Positions of the selected rows among the R + N rows, int64, shape (S,).
        """
        builder = _Builder(self.layout, [group], first={name: part.numel() for name, part in self.values.items()})
        builder.add(arrays, group.num_rows)
        more = builder.finish()
        values, weights = (
            {name: torch.cat([part, further[name]]) for name, part in parts.items()}
            for parts, further in ((self.values, more.values), (self.weights, more.weights))
        )
        words = torch.cat([self.words, more.words]).index_select(0, order)
        return Records(self.layout, words, values, weights)

    def span(self, start: int, stop: int) -> dict[str, Feature]:
        """Return consecutive rows as `pick` does."""
        return self._unpack(self.words[start:stop])

    def pick(self, rows: Tensor) -> dict[str, Feature]:
        """Gather rows by number, shape (B,), as column name to ids in int32, numbers in float32, and times in 64 bits."""
        return self._unpack(self.words.index_select(0, rows))

    def _unpack(self, words: Tensor) -> dict[str, Feature]:
        if words.dtype == torch.complex128:
            words = torch.view_as_real(words)
        elif words.dim() == 1:
            words = words.unsqueeze(1)
        features: dict[str, Feature] = {}
        for column in self.layout.columns:
            plain = torch.int32 if column.kind is Kind.CATEGORICAL else torch.float32
            dtype = _TORCH[stored_type(column)] if column.role is Role.TIMESTAMP else plain
            if column.ragged:
                starts, lengths = self._field(words, _start(column)), self._field(words, _length(column))
                weights = self.weights.get(column.name)
                features[column.name] = pick_lists(self.values[column.name], starts, lengths, dtype, weights)
            else:
                features[column.name] = self._field(words, column.name).to(dtype, copy=True).contiguous()
        return features

    def _field(self, words: Tensor, name: str) -> Tensor:
        dtype, place = self.layout.places[name]
        return words.view(dtype)[:, place]


class _Builder:
    """Builder of `Records` from known row groups in preallocated memory, without a second copy."""

    def __init__(self, layout: Layout, groups: Sequence[RowGroup], *, first: Mapping[str, int] | None = None) -> None:
        self._layout, self._first = layout, first or {}
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
                before = self._first.get(column.name, 0) + first
                records[_start(column)] = before + np.cumsum(array.lengths, dtype=np.int64) - array.lengths
            else:
                records[column.name] = array

    def finish(self) -> Records:
        values, weights = (
            {name: torch.from_numpy(part[: self._num_values[name]]) for name, part in parts.items()}
            for parts in (self._values, self._weights)
        )
        return Records(self._layout, _words(self._records), values, weights)


def read_records(layout: Layout, groups: Sequence[RowGroup], stop: Event | None = None) -> Records:
    """Read row groups into memory in the given order, until the event `stop` is set.

    Raises:
        CancelledError: `stop` is set.
        DataError: A file does not match schema.json.
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
    """Return the smallest sufficient type for the values of a column, or the elements of its lists."""
    if column.kind is Kind.CATEGORICAL:
        cardinality = int(column.cardinality or 0)
        return "uint8" if cardinality <= 2**8 else "uint16" if cardinality <= 2**16 else "int32"
    if column.role is Role.TIMESTAMP:
        return "float64" if column.dtype.startswith("float") else "int64"
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


def footprint(data: PreparedData, split: str) -> int:
    """Return the bytes of a split in memory.

    Raises:
        DataError: A file does not match schema.json.
    """
    layout, groups = layout_of_split(data, split)
    return layout.num_bytes(groups)


def tables_footprint(data: PreparedData) -> int:
    """Return the bytes of all dimension tables."""
    schema, total = data.schema, 0
    for key in schema.tables:
        columns = [column for column in schema.features if column.table == key]
        groups = groups_of(data.table(key), columns)
        num_rows = sum(group.num_rows for group in groups)
        # Rows store an id only in tables with cold keys.
        shared_ids = 4 * num_rows if num_rows > int(schema[key].cardinality or 0) else 0
        total += Layout.of(columns, groups).num_bytes(groups) + shared_ids
    return total


def layout_of_split(data: PreparedData, split: str, *, times: bool = False) -> tuple[Layout, list[RowGroup]]:
    """Return memory layout and row groups of a split, with timestamps if `times`."""
    schema = data.schema
    timed = schema.select(lambda column: times and column.role is Role.TIMESTAMP and not column.ragged)
    named = (*schema.features, *schema.labels, *([schema.weight] if schema.weight else []), *timed)
    columns = [column for column in named if column.table is None] + row_columns(data, split)
    groups = row_groups(data, split, columns)
    return Layout.of(columns, groups), groups
