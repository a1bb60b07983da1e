"""Spill files: rows in a scratch file, parsed once for several passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.errors import DataError


class Rows(Protocol):
    """A source of interactions in batches, in a fixed order, that can be read repeatedly."""

    def schema(self) -> pa.Schema:
        """Return the names and types of the columns."""

    def batches(self) -> Iterator[pa.Table]:
        """Yield the rows."""


class SpillFile:
    """Rows in a scratch file, in their original batches."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self._schema = schema

    @classmethod
    def write(cls, batches: Iterable[pa.Table], schema: pa.Schema, path: Path) -> SpillFile:
        """Write batches to a file, cast by `typed`."""
        with pa.ipc.new_file(str(path), schema) as file:
            for batch in batches:
                # As one record batch: the batches of the file must match those of the split codes.
                file.write_table(typed(batch, schema).combine_chunks())
        return cls(path, schema)

    def schema(self) -> pa.Schema:
        """See `Rows.schema`."""
        return self._schema

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows, or some of their columns."""
        names = self._schema.names if columns is None else list(columns)
        fields = sorted(self._schema.get_field_index(name) for name in names)
        with pa.OSFile(str(self.path)) as source:
            file = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=fields))
            for number in range(file.num_record_batches):
                yield pa.Table.from_batches([file.get_batch(number)]).select(names)

    def delete(self) -> None:
        """Delete the file."""
        self.path.unlink(missing_ok=True)


def typed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast rows to the types of a schema.

    Raises:
        DataError: A value does not fit the type of its column in the first file.
    """
    try:
        return rows.cast(schema)
    except pa.ArrowInvalid as error:
        types = ", ".join(f"{field.name} {field.type}" for field in schema)
        raise DataError(
            f"the files with interactions differ in their types: {error}",
            hint=f"convert all files to the types of the first one: {types}",
        ) from error


Numbers = Callable[[], Iterator[dict[str, npt.NDArray[np.int64]]]]


def spill_rows(rows: Rows, keys: Mapping[str, str], folder: Path) -> tuple[SpillFile, Numbers]:
    """Write rows, and the columns of the split (`keys`: by "user" or "timestamp") as integers, to spill files.

    Times become order-preserving integers; users are numbered in order of appearance.
    """
    users = Numbering()
    path = folder / "numbers.arrow"
    schema = pa.schema([(key, pa.int64()) for key in keys])
    with pa.ipc.new_file(str(path), schema) as file:

        def with_numbers_written() -> Iterator[pa.Table]:
            for batch in rows.batches():
                columns: dict[str, pa.ChunkedArray | pa.Array] = {}
                if "user" in keys:
                    columns["user"] = users.of(_without_nulls(batch, keys["user"]))
                if "timestamp" in keys:
                    columns["timestamp"] = _in_order(batch.column(keys["timestamp"]))
                file.write_table(pa.table({key: columns[key] for key in keys}).cast(schema).combine_chunks())
                yield batch

        spill = SpillFile.write(with_numbers_written(), rows.schema(), folder / "rows.arrow")
    numbers = SpillFile(path, schema)

    def columns() -> Iterator[dict[str, npt.NDArray[np.int64]]]:
        for batch in numbers.batches():
            yield {key: batch.column(key).to_numpy() for key in keys}

    return spill, columns


def _without_nulls(batch: pa.Table, name: str) -> pa.ChunkedArray:
    values = batch.column(name)
    nulls = pc.sum(pc.is_null(values, nan_is_null=True)).as_py()
    if nulls:
        raise DataError(
            f"a batch has {nulls} nulls in the column {name}, so the split cannot use it",
            hint=f"drop them: put {{op: Dropna, columns: [{name}]}} first in features.ops",
        )
    return values


def _in_order(times: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Return order-preserving integers of times; arbitrary for missing times, refused by a later check."""
    if not pa.types.is_floating(times.type):
        return times.cast(pa.int64()).fill_null(0)
    bits = (times.cast(pa.float64()).fill_null(0.0).to_numpy() + 0.0).view(np.int64)  # -0.0 + 0.0 is 0.0
    return pa.array(np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits))


class Numbering:
    """Numbers the values of a column, null included, in order of first appearance."""

    def __init__(self) -> None:
        self._seen: pl.DataFrame | None = None

    def __len__(self) -> int:
        return 0 if self._seen is None else len(self._seen)

    @property
    def values(self) -> pa.Array:
        """The values, by number."""
        return pa.nulls(0) if self._seen is None else self._seen.get_column("value").to_arrow()

    def of(self, values: pa.ChunkedArray) -> pa.Array:
        """Return the number of each value, int64."""
        if pa.types.is_floating(values.type):
            values = pc.add(values, pa.scalar(0.0, values.type))  # -0.0 becomes 0.0
        encoded = values.combine_chunks().dictionary_encode(null_encoding="encode")
        distinct = pl.DataFrame({"value": pl.from_arrow(encoded.dictionary)})  # in order of first appearance
        if self._seen is None:
            self._seen = distinct.clear().with_columns(pl.lit(0, pl.Int64).alias("number"))
        joined = distinct.join(self._seen, on="value", how="left", nulls_equal=True, maintain_order="left")
        is_new = joined.get_column("number").is_null().to_numpy()
        numbers = joined.get_column("number").fill_null(0).to_numpy(writable=True)
        numbers[is_new] = len(self._seen) + np.arange(np.count_nonzero(is_new))
        new = distinct.with_columns(pl.Series("number", numbers)).filter(pl.Series(is_new))
        self._seen = pl.concat([self._seen, new])
        return pa.array(numbers[encoded.indices.to_numpy()])
