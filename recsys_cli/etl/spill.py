"""Rows kept in a scratch file on their way: what is read more than once is parsed once."""

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
    """Interactions as batches in the order of their rows, any number of times."""

    def schema(self) -> pa.Schema:
        """Return the names and types that batches have."""

    def batches(self) -> Iterator[pa.Table]:
        """Yield the rows."""


class SpillFile:
    """Rows in a scratch file, in the batches in which they came."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self._schema = schema

    @classmethod
    def write(cls, batches: Iterable[pa.Table], schema: pa.Schema, path: Path) -> SpillFile:
        """Write batches to a file, in a common type.

        Raises:
            DataError: A value does not fit the type that its column has in the first file.
        """
        with pa.ipc.new_file(str(path), schema) as file:
            for batch in batches:
                # In one piece: batches come back as they went in, beside the codes of their rows.
                file.write_table(typed(batch, schema).combine_chunks())
        return cls(path, schema)

    def schema(self) -> pa.Schema:
        """Return the names and types that batches have."""
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
        """Delete the file: nobody will read it any more."""
        self.path.unlink(missing_ok=True)


def typed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Bring rows to the types of a schema.

    Raises:
        DataError: A value does not fit the type that its column has in the first file.
    """
    try:
        return rows.cast(schema)
    except pa.ArrowInvalid as error:
        types = ", ".join(f"{field.name} {field.type}" for field in schema)
        raise DataError(
            f"the files with interactions differ in their types: {error}", hint=f"the first of them has {types}"
        ) from error


Numbers = Callable[[], Iterator[dict[str, npt.NDArray[np.int64]]]]


def spill_rows(rows: Rows, wanted: Mapping[str, str], folder: Path) -> tuple[SpillFile, Numbers]:
    """Keep rows in a scratch file, and some of their columns as whole numbers: times in their order, users in that of appearance.

    Args:
        rows: The rows.
        wanted: Which columns, by "user" or "timestamp".
        folder: Where scratch files go.

    Raises:
        DataError: A user is null.
    """
    users = Numbering()
    path = folder / "numbers.arrow"
    schema = pa.schema([(key, pa.int64()) for key in wanted])
    with pa.ipc.new_file(str(path), schema) as file:

        def watched() -> Iterator[pa.Table]:
            for batch in rows.batches():
                columns: dict[str, pa.ChunkedArray | pa.Array] = {}
                if "user" in wanted:
                    columns["user"] = users.of(_checked(batch, wanted["user"]))
                if "timestamp" in wanted:
                    columns["timestamp"] = _in_order(batch.column(wanted["timestamp"]))
                file.write_table(pa.table({key: columns[key] for key in wanted}).cast(schema).combine_chunks())
                yield batch

        spill = SpillFile.write(watched(), rows.schema(), folder / "rows.arrow")
    numbers = SpillFile(path, schema)

    def columns() -> Iterator[dict[str, npt.NDArray[np.int64]]]:
        for batch in numbers.batches():
            yield {key: batch.column(key).to_numpy() for key in wanted}

    return spill, columns


def _checked(batch: pa.Table, name: str) -> pa.ChunkedArray:
    values = batch.column(name)
    nulls = pc.sum(pc.is_null(values, nan_is_null=True)).as_py()
    if nulls:
        raise DataError(f"column {name} has {nulls} nulls near there, so rows cannot be split by it")
    return values


def _in_order(times: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Return whole numbers in the order of times; a missing one, which the preparation refuses later, counts as any."""
    if not pa.types.is_floating(times.type):
        return times.cast(pa.int64()).fill_null(0)
    bits = (times.cast(pa.float64()).fill_null(0.0).to_numpy() + 0.0).view(np.int64)  # -0.0 + 0.0 is 0.0
    return pa.array(np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits))


class Numbering:
    """Numbers the values of a column in the order of their first appearance; null is a value, too."""

    def __init__(self) -> None:
        self._known: pl.DataFrame | None = None

    def __len__(self) -> int:
        return 0 if self._known is None else len(self._known)

    @property
    def values(self) -> pa.Array:
        """The values, by number."""
        return pa.nulls(0) if self._known is None else self._known.get_column("value").to_arrow()

    def of(self, values: pa.ChunkedArray) -> pa.Array:
        """Return the number of each value, int64."""
        batch = pl.DataFrame({"value": pl.from_arrow(values)})
        first = batch.unique(maintain_order=True)
        if self._known is None:
            self._known = first.clear().with_columns(pl.lit(0, pl.Int64).alias("number"))
        new = first.join(self._known, on="value", how="anti", nulls_equal=True, maintain_order="left")
        start = len(self._known)
        numbered = new.with_columns(pl.Series("number", np.arange(start, start + len(new)), pl.Int64))
        self._known = pl.concat([self._known, numbered])
        found = batch.join(self._known, on="value", how="left", nulls_equal=True, maintain_order="left")
        return found.get_column("number").to_arrow()
