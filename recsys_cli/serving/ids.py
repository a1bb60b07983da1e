"""Raw ids to encoded ids and back by sorted hashes, without a dictionary; the files of these indexes are memory-mapped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unicodedata import category
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.errors import DataError
from recsys_cli.evaluation.names import Ids
from recsys_cli.features.columns import row_column
from recsys_cli.features.schema import Column, file_of
from recsys_cli.features.spec import cast_ids
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.values import comparable, from_arrow, stored
from recsys_cli.ops.vocabulary import ABSENT, VocabularyIndex
from recsys_cli.serving.bundle_checks import read_array, read_offsets

_DIGITS = 19
"""Digits of the largest int64."""


@dataclass(frozen=True)
class IdIndex(Ids):
    """Raw ids with an index of the vocabulary and one of the cold keys."""

    vocabulary: VocabularyIndex
    cold: VocabularyIndex

    @classmethod
    def of(cls, values: pa.Array, *, num_train: int, cardinality: int) -> IdIndex:
        """Build the indexes of a vocabulary of `num_train` values, followed by cold keys."""
        indexes = map(VocabularyIndex.build, (values.slice(0, num_train), values.slice(num_train)))
        return cls(values, num_train, cardinality, *indexes)

    def indexes(self, column: Column) -> dict[str, VocabularyIndex]:
        """Return both indexes by the names of `RowEncoder`: the vocabulary of the column, and its column of table rows."""
        return {str(column.vocabulary): self.vocabulary, row_column(column.name): self.cold}

    def encode(self, raw: Sequence[Any]) -> npt.NDArray[np.int64]:
        """Return the encoded id or table row of each raw id, -1 for unknown ones; ids may be text or numbers."""
        given = self.cast(raw)
        data = comparable(from_arrow(given)).data
        trained, cold = self.vocabulary.positions(data), self.cold.positions(data)
        positions = np.where(trained >= 0, trained, np.where(cold >= 0, self.num_train + cold, -1))
        known = (positions >= 0) & given.is_valid().to_numpy(zero_copy_only=False)
        return np.where(known, self.encoded(positions), -1)

    def cast(self, raw: Sequence[Any]) -> pa.Array:
        """Return raw ids in the type of the column, null for those that no row can have."""
        return cast_ids(raw, self.values.type)

    def with_cold(self, keys: pa.Array) -> IdIndex:
        """Return the index with further cold keys."""
        values = pa.concat_arrays([self.values, keys])
        return replace(self, values=values, cold=VocabularyIndex.build(values.slice(self.num_train)))

    def canonical(self, raw: float | str) -> int | str | None:
        """Return a raw id in the type of the column, such as 42 for "042"; None for an id that no row can have."""
        is_whole = type(raw) is int or (
            isinstance(raw, str) and raw.isascii() and raw.isdecimal() and len(raw) < _DIGITS
        )
        if is_whole and self.values.type == pa.int64():
            return int(raw)  # nearly all requests, in a tenth of the time of a cast
        value = self.cast([raw])[0].as_py()
        if value is None or isinstance(value, int):
            return value
        text = value.decode() if isinstance(value, bytes) else str(value)
        is_plain = text.isprintable() or not any(category(character) in {"Cc", "Cs"} for character in text)
        return text if text.strip() and is_plain else None

    def write_values(self, path: Path) -> None:
        """Write the raw ids as an Arrow file."""
        table = pa.table({"value": self.values})
        with pa.ipc.new_file(str(path), table.schema) as file:
            file.write_table(table)

    @classmethod
    def read(cls, path: Path, column: Column, indexes: Mapping[str, VocabularyIndex]) -> IdIndex:
        """Memory-map the file of `write_values`, with indexes by the names of `indexes`.

        Raises:
            ValueError: The values are not those of the indexes.
        """
        chunks = pa.ipc.open_file(pa.memory_map(str(path))).read_all()["value"]
        values = chunks.chunk(0) if chunks.num_chunks else chunks.combine_chunks()
        values.validate(full=True)
        index, cold = indexes[str(column.vocabulary)], indexes[row_column(column.name)]
        is_text = stored(values.type).kind == "O"
        gone = sum(np.count_nonzero(one.arrays["positions"] == ABSENT) for one in (index, cold))
        if len(index) + len(cold) != len(chunks) or len(values) != len(chunks) or values.null_count != gone:
            raise ValueError(
                f"{len(chunks)} ids, {values.null_count} of them null, are not {len(index)} and {len(cold)}"
            )
        if any(len(one) and one.is_text != is_text for one in (index, cold)):
            raise ValueError(f"ids of {values.type} have an index of another type")
        return cls(values, len(index), int(column.cardinality or 0), index, cold)


def build_indexes(fitted: FittedPlan, built: Mapping[str, VocabularyIndex]) -> dict[str, VocabularyIndex]:
    """Return the indexes of all vocabularies, and of cold keys by their column of table rows; those in `built` exist already."""
    cold = {row_column(key): fitted.cold_keys(key) for key in fitted.program.keys}
    tables = fitted.vocabularies | {name: table for name, table in cold.items() if table is not None}
    rest = {name: table for name, table in tables.items() if name not in built}
    return {**built, **{name: VocabularyIndex.build(table.column("value")) for name, table in rest.items()}}


def write_indexes(indexes: Mapping[str, VocabularyIndex], folder: Path) -> None:
    """Write a subfolder for each index."""
    for name, index in indexes.items():
        write_index(index, folder / file_of(name).removesuffix(".parquet"))


def write_index(index: VocabularyIndex, folder: Path) -> None:
    """Write the arrays of an index as `.npy` files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in index.arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)


def open_indexes(folder: Path) -> dict[str, VocabularyIndex]:
    """Memory-map the indexes of `write_indexes`.

    Raises:
        DataError: A file is missing or damaged.
    """
    return {unquote(path.name): open_index(path) for path in sorted(folder.iterdir()) if path.is_dir()}


def open_index(folder: Path) -> VocabularyIndex:
    """Memory-map an index.

    Raises:
        DataError: A file is missing or damaged.
    """
    try:
        hashes = read_array(folder / "hashes.npy", "uint64", mapped=True)
        size = len(hashes)
        if (hashes[1:] < hashes[:-1]).any():
            raise ValueError(f"{folder / 'hashes.npy'}: the hashes do not ascend")
        positions = read_array(folder / "positions.npy", "int32", length=size, least=ABSENT, below=size, mapped=True)
        arrays = {"hashes": hashes, "positions": positions}
        if (folder / "bytes.npy").exists():
            arrays["offsets"] = read_offsets(folder / "offsets.npy", length=size + 1)
            num_bytes = int(arrays["offsets"][-1])
            arrays["bytes"] = read_array(folder / "bytes.npy", "uint8", length=num_bytes, mapped=True)
    except (OSError, ValueError) as error:
        raise DataError(f"{folder}: not a vocabulary index: {error}", hint="export the run again") from error
    # Indexing of a `memmap` object is slow.
    return VocabularyIndex({name: np.asarray(array) for name, array in arrays.items()})
