"""Rows kept in a scratch file on their way: what is read more than once is parsed once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from recsys_cli.errors import DataError


class Rows(Protocol):
    """Interactions as batches in the order of their rows, any number of times."""

    def schema(self) -> pa.Schema:
        """Return the names and types that batches have."""

    def batches(self) -> Iterator[pa.Table]:
        """Yield the rows."""


class Spool:
    """Rows in a scratch file, in the batches in which they came."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self._schema = schema

    @classmethod
    def write(cls, batches: Iterable[pa.Table], schema: pa.Schema, path: Path) -> Spool:
        """Write batches to a file, in a common type."""
        with pa.ipc.new_file(str(path), schema) as file:
            for batch in batches:
                file.write_table(batch.cast(schema))
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


Numbers = Callable[[], Iterator[dict[str, npt.NDArray[np.int64]]]]


def spooled(rows: Rows, wanted: Mapping[str, str], folder: Path) -> tuple[Spool, Numbers]:
    """Keep rows in a scratch file, and some of their columns as whole numbers: times as they are, users in order of appearance.

    Args:
        rows: The rows.
        wanted: Which columns, by "user" or "timestamp".
        folder: Where scratch files go.

    Raises:
        DataError: One of the columns has a null.
    """
    users = _Numbering()
    path = folder / "numbers.arrow"
    schema = pa.schema([(key, pa.int64()) for key in wanted])
    with pa.ipc.new_file(str(path), schema) as file:

        def watched() -> Iterator[pa.Table]:
            for batch in rows.batches():
                columns = {key: _checked(batch, name) for key, name in wanted.items()}
                if "user" in columns:
                    columns["user"] = users.of(columns["user"])
                file.write_table(pa.table(columns).cast(schema))
                yield batch

        spool = Spool.write(watched(), rows.schema(), folder / "rows.arrow")
    numbers = Spool(path, schema)

    def columns() -> Iterator[dict[str, npt.NDArray[np.int64]]]:
        for batch in numbers.batches():
            yield {key: batch.column(key).to_numpy() for key in wanted}

    return spool, columns


def _checked(batch: pa.Table, name: str) -> pa.ChunkedArray:
    values = batch.column(name)
    if values.null_count:
        raise DataError(f"column {name} has {values.null_count} nulls near there, so rows cannot be split by it")
    return values


class _Numbering:
    """Numbers the values of a column in the order of their first appearance."""

    def __init__(self) -> None:
        self.known: pl.DataFrame | None = None

    def of(self, values: pa.ChunkedArray) -> pa.Array:
        """Return the number of each value."""
        batch = pl.DataFrame({"value": pl.from_arrow(values)})
        first = batch.unique(maintain_order=True)
        if self.known is None:
            self.known = first.clear().with_columns(pl.lit(0, pl.Int64).alias("number"))
        new = first.join(self.known, on="value", how="anti", maintain_order="left")
        start = len(self.known)
        numbered = new.with_columns(pl.Series("number", np.arange(start, start + len(new))))
        self.known = pl.concat([self.known, numbered])
        return batch.join(self.known, on="value", how="left", maintain_order="left").get_column("number").to_arrow()
