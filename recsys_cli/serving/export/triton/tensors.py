"""Raw columns as Triton tensors, and back. Nulls and list lengths have tensors of their own: no value is reserved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.errors import ConfigError, DataError
from recsys_cli.features.spec import is_list
from recsys_cli.ops.values import element
from recsys_cli.serving.encoder.raw import reader

Array = npt.NDArray[Any]
Tensors = Mapping[str, Array]
"""Tensors of a request by name, each with the rows of the request as its first dimension."""

NULL = ".null"
"""Suffix of an optional BOOL tensor in the shape of a column: true for null."""
LENGTH = ".length"
"""Suffix of an optional INT64 tensor (N, 1) of a list column: elements of each row before the padding; -1 for null."""
NUMPY = {"INT64": np.int64, "UINT64": np.uint64, "FP32": np.float32, "FP64": np.float64, "BOOL": np.bool_}
"""NumPy types of tensors; STRING is an array of bytes objects."""


@dataclass(frozen=True)
class Tensor:
    """A raw column of requests, or an output.

    Attributes:
        name: Name of the column.
        dtype: Triton type without its prefix `TYPE_`.
        ragged: Whether rows are lists.
        required: Whether requests need it; otherwise its absence means null.
        masked: Whether single values may be null.
    """

    name: str
    dtype: str
    ragged: bool = False
    required: bool = False
    masked: bool = True

    @classmethod
    def of(cls, name: str, kind: pa.DataType, *, required: bool = False) -> Tensor:
        """Return the tensor of a raw column by its Arrow type."""
        return cls(name, dtype_of(element(kind)), is_list(kind), required)

    def parts(self) -> Iterator[Tensor]:
        """Yield the tensor, its null mask, and the lengths of its lists."""
        yield self
        if self.masked:
            yield Tensor(self.name + NULL, "BOOL", self.ragged)
        if self.ragged:
            yield Tensor(self.name + LENGTH, "INT64")

    def read(self, given: Tensors, rows: int) -> Sequence[Any] | Array:
        """Return the column of a request: values by row, None for null, in Python types or as an array.

        Raises:
            DataError: A length is impossible, or a mask has another shape.
        """
        values = given.get(self.name)
        if values is None:
            return [None] * rows
        nulls = given.get(self.name + NULL)
        if nulls is not None and nulls.shape != values.shape:
            raise DataError(
                f"{self.name + NULL} has shape {list(nulls.shape)}, and {self.name} has {list(values.shape)}",
                hint="give a mask in the shape of the values",
            )
        masked = nulls is not None and bool(nulls.any())
        if not self.ragged:
            if self.dtype != "STRING" and not masked:
                return values.reshape(-1)
            return _plain(values.reshape(-1), nulls.reshape(-1) if masked and nulls is not None else None)
        lists = [_plain(row, nulls[at] if masked and nulls is not None else None) for at, row in enumerate(values)]
        lengths = given.get(self.name + LENGTH)
        return lists if lengths is None else self._cut(lists, lengths.reshape(-1).tolist(), values.shape[1])

    def _cut(self, lists: list[list[Any]], lengths: list[int], width: int) -> list[list[Any] | None]:
        if wrong := [length for length in lengths if not -1 <= length <= width]:
            raise DataError(
                f"{self.name + LENGTH} has {wrong[0]}, and the lists of {self.name} have {width} places",
                hint="give the number of elements before the padding, or -1 for null",
            )
        return [None if length < 0 else row[:length] for row, length in zip(lists, lengths, strict=True)]

    def write(self, kind: pa.DataType, values: Sequence[Any] | Array) -> dict[str, Array]:
        """Return the tensors of a column; the inverse of `read`.

        Args:
            kind: Arrow type of the column.
            values: Values as of JSON, None for null.

        Raises:
            DataError: A value does not fit the type.
        """
        stored = reader(self.name, kind)(values)
        data, nulls = stored.data, stored.nulls
        if stored.offsets is None:
            if nulls is not None and nulls.all() and not self.required:
                return {}
            tensors = {self.name: self._cast(data, nulls).reshape(-1, 1)}
            return tensors if nulls is None else tensors | {self.name + NULL: nulls.reshape(-1, 1)}
        lengths = np.diff(stored.offsets)
        inside = np.arange(max(1, lengths.max(initial=0))) < lengths[:, None]
        padded: Array = np.full(inside.shape, b"" if self.dtype == "STRING" else 0, NUMPY.get(self.dtype, object))
        padded[inside] = self._cast(data, nulls)
        padded_by_name: dict[str, Array] = {self.name: padded, self.name + LENGTH: lengths.reshape(-1, 1)}
        if nulls is not None:
            mask = np.zeros(inside.shape, np.bool_)
            mask[inside] = nulls
            padded_by_name[self.name + NULL] = mask
        return padded_by_name

    def _cast(self, data: Array, nulls: Array | None) -> Array:
        if self.dtype != "STRING":
            return data.astype(NUMPY[self.dtype])
        present = np.zeros(len(data), np.bool_) if nulls is None else nulls
        return strings("" if null else value for value, null in zip(data.tolist(), present.tolist(), strict=True))


def columns_of(given: Tensors, tensors: Sequence[Tensor]) -> tuple[dict[str, Any], int]:
    """Return the columns of a request, and the number of its rows.

    Raises:
        DataError: There is no tensor, or one does not fit.
    """
    if not given:
        raise DataError("the request has no inputs", hint=f"give one of {', '.join(one.name for one in tensors)}")
    rows = len(next(iter(given.values())))
    return {one.name: one.read(given, rows) for one in tensors}, rows


def distinct(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the tensors, if all names of their parts are distinct.

    Raises:
        ConfigError: Two parts have one name.
    """
    names = [part.name for one in tensors for part in one.parts()]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(
            f"column {', '.join(twice)} has the name of a null mask or of list lengths",
            hint="rename the column; the export to Triton adds .null and .length to the names of columns",
        )
    return tensors


def dtype_of(kind: pa.DataType) -> str:
    """Return the Triton type of values: times are integers in the unit of their type, decimals are text."""
    types = pa.types
    if types.is_boolean(kind):
        return "BOOL"
    if types.is_uint64(kind):
        return "UINT64"
    if types.is_integer(kind) or types.is_temporal(kind):
        return "INT64"
    if types.is_floating(kind):
        return "FP64" if types.is_float64(kind) else "FP32"
    return "STRING"


def strings(values: Any) -> Array:
    """Return values as an array of bytes objects."""
    encoded = [value if isinstance(value, bytes) else str(value).encode() for value in values]
    array = np.empty(len(encoded), object)
    array[:] = encoded
    return array


def _plain(values: Array, nulls: Array | None) -> list[Any]:
    """Return a row of values in Python types, None for null; bytes that are no UTF-8 stay."""
    plain = [_text(value) if isinstance(value, bytes) else value for value in values.tolist()]
    return plain if nulls is None else [None if null else value for value, null in zip(plain, nulls, strict=True)]


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
