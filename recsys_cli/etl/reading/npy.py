"""Columns in NumPy files: numbers, texts, or a vector per row from a matrix, memory-mapped and without pickle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.data.source import RawTable
from recsys_cli.data.streams import file_errors, size_of
from recsys_cli.errors import DataError
from recsys_cli.etl.reading.plain_types import plain_type

_HINT = "write an array of numbers, texts or times, or a matrix of numbers, with numpy.save(path, array)"


class NpyTable:
    """A table of NumPy files, one per column.

    Args:
        table: Each file becomes the column of that place in `columns`, or of the file's own name.
    """

    def __init__(self, table: RawTable) -> None:
        self._files = dict(zip([column.name for column in table.columns], table.files, strict=True))

    @cached_property
    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        arrays = {name: _mapped(file) for name, file in self._files.items()}
        rows = {len(array) for array in arrays.values()}
        if len(rows) > 1:
            held = ", ".join(f"{file} has {len(arrays[name]):,}" for name, file in self._files.items())
            raise DataError(f"NumPy files of one table differ in their rows: {held}", hint="write one row per key")
        return arrays

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self._arrays.values())))

    def schema(self) -> pa.Schema:
        """Return the names and plain types of the columns."""
        return pa.schema([(name, self._column(name, 0, 0).type) for name in self._arrays])

    def batches(self, columns: Sequence[str], *, chunk_bytes: int) -> Iterator[pa.Table]:
        """Yield the rows in order, in some of the columns."""
        arrays = [self._arrays[name] for name in columns]
        width = sum(array.dtype.itemsize * int(np.prod(array.shape[1:], dtype=np.int64)) for array in arrays)
        step = max(1, chunk_bytes // max(1, width))
        for first in range(0, self.num_rows, step):
            yield pa.table({name: self._column(name, first, first + step) for name in columns})

    def _column(self, name: str, first: int, stop: int) -> pa.Array:
        array = self._arrays[name]
        is_half = array.dtype.kind == "f" and array.dtype.itemsize == 2  # unsupported by Arrow before release 16
        kind = np.dtype(np.float32) if is_half else array.dtype.newbyteorder("=")
        values = pa.array(np.ascontiguousarray(array[first:stop]).astype(kind, copy=False).ravel())
        if pa.types.is_binary(values.type):
            values = values.cast(pa.string())
        if array.ndim == 2:
            values = pa.FixedSizeListArray.from_arrays(values, array.shape[1])
        plain = plain_type(values.type)
        return values if values.type == plain else values.cast(plain)


def _mapped(file: Any) -> npt.NDArray[Any]:
    """Open an array without reading it.

    Raises:
        DataError: The file is remote, damaged, no array, or holds Python objects or no rows of values.
    """
    if not isinstance(file, Path):
        raise DataError(
            f"{file}: NumPy files are read from this machine only", hint="download it, and name the local file"
        )
    size_of(file)
    with file_errors(file):
        try:
            array = np.load(file, mmap_mode="r", allow_pickle=False)
        except ValueError as error:
            raise DataError(f"{file}: not an array in NumPy's format: {error}", hint=_HINT) from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise DataError(f"{file}: an archive of several arrays", hint=_HINT)
    is_wide = array.dtype.kind == "f" and array.dtype.itemsize > 8
    kinds = "iufb" if array.ndim == 2 else "iufbUSM"
    if array.ndim not in {1, 2} or 0 in array.shape or array.dtype.kind not in kinds or is_wide:
        shape = " x ".join(map(str, array.shape)) or "no dimension"
        raise DataError(f"{file}: an array of {shape} with type {array.dtype} is no column", hint=_HINT)
    return array
