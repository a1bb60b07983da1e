"""Raw ids to encoded ids and back by a sorted hash index: no dictionary, and nothing is read before a lookup."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.features.hashing import hash_values
from recsys_cli.features.schema import FIRST, file_of


@dataclass(frozen=True)
class IdIndex:
    """Index of the raw ids of a column: the vocabulary, followed by the cold keys of its dimension table.

    Attributes:
        values: Raw ids; shape (N,).
        hashes: Their hashes, ascending, uint64; shape (N,).
        positions: Position of each hash among the values, int32; shape (N,).
        num_train: Size of the vocabulary.
        cardinality: Upper bound of encoded ids; table rows of cold keys start here.
    """

    values: pa.Array
    hashes: npt.NDArray[np.uint64]
    positions: npt.NDArray[np.int32]
    num_train: int
    cardinality: int

    @classmethod
    def of(cls, values: pa.Array, *, num_train: int, cardinality: int) -> IdIndex:
        """Build the index."""
        hashes = hash_values(values)
        positions = np.argsort(hashes, kind="stable").astype(np.int32)
        return cls(values, hashes[positions], positions, num_train, cardinality)

    def encode(self, raw: Sequence[Any]) -> npt.NDArray[np.int64]:
        """Return the encoded id or table row of each raw id, -1 for unknown ones; ids may be text or numbers."""
        if not len(raw) or not len(self.values):
            return np.full(len(raw), -1, np.int64)
        given = _cast(list(raw), self.values.type)
        hashes = hash_values(given)
        first = np.searchsorted(self.hashes, hashes)
        found = np.full(len(given), -1, np.int64)
        rows = np.flatnonzero(given.is_valid().to_numpy(zero_copy_only=False))
        while len(rows):
            rows = rows[first[rows] < len(self.hashes)]
            rows = rows[self.hashes[first[rows]] == hashes[rows]]
            positions = self.positions[first[rows]]
            equal = pc.equal(self.values.take(pa.array(positions)), given.take(pa.array(rows)))
            same = equal.to_numpy(zero_copy_only=False).astype(bool)
            found[rows[same]] = positions[same]
            rows = rows[~same]  # different values with one hash: the next entry
            first[rows] += 1
        return np.where(found < 0, -1, self.encoded(found))

    def encoded(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the encoded ids or table rows of positions among the values."""
        return np.where(
            positions < self.num_train, FIRST + positions, self.cardinality + positions - self.num_train
        ).astype(np.int64)

    def positions_of(self, encoded: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the positions of encoded ids or table rows among the values; the inverse of `encoded`."""
        return np.where(encoded < self.cardinality, encoded - FIRST, self.num_train + encoded - self.cardinality)

    def decode(self, encoded: npt.NDArray[np.int64]) -> pa.Array:
        """Return the raw ids of encoded ids or table rows."""
        return self.values.take(pa.array(self.positions_of(encoded)))

    def write(self, folder: Path, column: str) -> None:
        """Write the hashes and positions as NumPy files, and the values as an Arrow file."""
        folder.mkdir(parents=True, exist_ok=True)
        np.save(_file(folder, column, "hashes.npy"), self.hashes)
        np.save(_file(folder, column, "positions.npy"), self.positions)
        table = pa.table({"value": self.values})
        with pa.ipc.new_file(str(_file(folder, column, "arrow")), table.schema) as file:
            file.write_table(table)

    @classmethod
    def read(cls, folder: Path, column: str, *, num_train: int, cardinality: int) -> IdIndex:
        """Memory-map the files of `write`."""
        hashes, positions = (
            np.load(_file(folder, column, name), mmap_mode="r") for name in ("hashes.npy", "positions.npy")
        )
        table = pa.ipc.open_file(pa.memory_map(str(_file(folder, column, "arrow")))).read_all()
        values = table["value"].chunk(0) if table["value"].num_chunks else table["value"].combine_chunks()
        return cls(values, hashes, positions, num_train, cardinality)


def _file(folder: Path, column: str, suffix: str) -> Path:
    return folder / f"{file_of(column).removesuffix('.parquet')}.{suffix}"


def _cast(raw: list[Any], kind: pa.DataType) -> pa.Array:
    """Return raw ids in the type of the values, null for those that do not fit."""
    with suppress(pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.array(raw).cast(kind)
    return pa.array([_cast_one(value, kind) for value in raw], kind)


def _cast_one(value: Any, kind: pa.DataType) -> Any:
    with suppress(pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.array([value]).cast(kind)[0].as_py()
    return None
