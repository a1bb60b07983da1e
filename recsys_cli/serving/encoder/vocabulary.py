"""Lookup of raw values without a Python dictionary of all of them: sorted hashes, also memory-mapped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.errors import DataError
from recsys_cli.features.hashing import hash_numbers, hash_value, hash_values
from recsys_cli.serving.arrays import read_array, read_offsets
from recsys_cli.serving.encoder.values import Array, stored

ABSENT = -1
"""Position of a value outside the vocabulary."""
_FEW = 32
"""Number of values up to which single lookups are faster than NumPy."""
_CACHED = 1 << 16
"""Maximum number of looked-up values kept in memory."""


class VocabularyIndex:
    """Index of V distinct values: the position of a value, in microseconds.

    The hash of a number is injective; text is compared with the value at its position.

    Args:
        arrays: By name: `hashes` (uint64, ascending), `positions` (int32, of each hash), each of shape (V,); of text also
            the UTF-8 `bytes` of all values and their `offsets`, shape (V + 1,).
    """

    def __init__(self, arrays: dict[str, Array]) -> None:
        self._arrays = arrays
        self._hashes, self._positions = arrays["hashes"], arrays["positions"]
        self._bytes, self._offsets = arrays.get("bytes"), arrays.get("offsets")
        self._found: dict[Any, int] = {}

    @classmethod
    def build(cls, values: pa.Array | pa.ChunkedArray | Sequence[Any] | Array) -> VocabularyIndex:
        """Index distinct values without nulls; decimals as text."""
        if not isinstance(values, pa.Array | pa.ChunkedArray):
            values = pa.array(values)
        values = (
            pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) and values.num_chunks else values
        )
        if isinstance(values, pa.ChunkedArray):
            values = pa.array([], values.type)
        if pa.types.is_decimal(values.type):
            values = values.cast(pa.string())
        hashes = hash_values(values)
        order = np.argsort(hashes, kind="stable")
        arrays: dict[str, Array] = {"hashes": hashes[order], "positions": order.astype(np.int32)}
        if stored(values.type).kind == "O":
            texts = values.cast(pa.large_binary())
            _, offsets, data = texts.buffers()
            ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
            size = int(ends[-1] - ends[0]) if len(ends) else 0
            first = int(ends[0]) if size else 0
            arrays["bytes"] = (
                np.frombuffer(data, np.uint8)[first : first + size].copy() if size else np.empty(0, np.uint8)
            )
            arrays["offsets"] = ends - first if len(ends) else np.zeros(1, np.int64)
        return cls(arrays)

    def write(self, folder: Path) -> None:
        """Write the arrays as `.npy` files."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in self._arrays.items():
            np.save(folder / f"{name}.npy", array, allow_pickle=False)

    @classmethod
    def open(cls, folder: Path) -> VocabularyIndex:
        """Memory-map the files of `write`.

        Raises:
            DataError: A file is missing or damaged.
        """
        try:
            hashes = read_array(folder / "hashes.npy", "uint64", mapped=True)
            size = len(hashes)
            if (hashes[1:] < hashes[:-1]).any():
                raise ValueError(f"{folder / 'hashes.npy'}: the hashes do not ascend")
            positions = read_array(folder / "positions.npy", "int32", length=size, below=size, mapped=True)
            arrays = {"hashes": hashes, "positions": positions}
            if (folder / "bytes.npy").exists():
                arrays["offsets"] = read_offsets(folder / "offsets.npy", length=size + 1)
                num_bytes = int(arrays["offsets"][-1])
                arrays["bytes"] = read_array(folder / "bytes.npy", "uint8", length=num_bytes, mapped=True)
        except (OSError, ValueError) as error:
            raise DataError(f"{folder}: not a vocabulary index: {error}", hint="export the run again") from error
        # Indexing of a `memmap` object is slow.
        return cls({name: np.asarray(array) for name, array in arrays.items()})

    @property
    def is_text(self) -> bool:
        """Whether the values are text."""
        return self._bytes is not None

    def __len__(self) -> int:
        return len(self._hashes)

    def position(self, value: Any) -> int:
        """Return the position of one value, not null; ABSENT without a match."""
        found = self._found.get(value)
        if found is None:
            if len(self._found) >= _CACHED:
                self._found.clear()
            found = self._found[value] = self._search(value)
        return found

    def positions(self, data: Array) -> npt.NDArray[np.int32]:
        """Return the position of each value, int32; nulls are arbitrary.

        Args:
            data: Values of one column, shape (N,): numbers, or objects of text.
        """
        if data.dtype == object or len(data) <= _FEW:
            found = (ABSENT if value is None else self.position(value) for value in data.tolist())
            return np.fromiter(found, np.int32, len(data))
        if not len(self):
            return np.full(len(data), ABSENT, dtype=np.int32)
        hashes = hash_numbers(data)
        places = np.minimum(np.searchsorted(self._hashes, hashes), len(self) - 1)
        return np.where(self._hashes[places] == hashes, self._positions[places], np.int32(ABSENT))

    def _search(self, value: Any) -> int:
        text = value.encode() if isinstance(value, str) else value
        hashed = np.uint64(hash_value(text))
        hashes = self._hashes
        place = int(hashes.searchsorted(hashed))
        while place < len(hashes) and hashes[place] == hashed:
            position = int(self._positions[place])
            if self._bytes is None or self._is_at(position, text):
                return position
            place += 1
        return ABSENT

    def _is_at(self, position: int, text: bytes) -> bool:
        assert self._bytes is not None
        assert self._offsets is not None
        return self._bytes[self._offsets[position] : self._offsets[position + 1]].tobytes() == text
