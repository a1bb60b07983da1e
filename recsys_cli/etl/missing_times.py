"""Rows without a time have no order: they are refused, the same for every split, before any row is split."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.errors import DataError
from recsys_cli.etl.reading.reader import Reader
from recsys_cli.etl.spill import Rows
from recsys_cli.features.columns import ROW_NUMBER


@dataclass(frozen=True)
class Timed:
    """Interactions that all have a time.

    Attributes:
        rows: The interactions; with ROW_NUMBER where ops chose them.
        column: Their times, as they are before the split.
        raw: Tells the file of a row; None where that is not known.
    """

    rows: Rows
    column: str
    raw: Reader | None = None

    def schema(self) -> pa.Schema:
        """Return the names and types that batches have."""
        return self.rows.schema()

    def batches(self) -> Iterator[pa.Table]:
        """Yield the rows.

        Raises:
            DataError: Some have no time; it is raised after the last row, when they are counted.
        """
        done = missing = 0
        first = None
        for batch in self.rows.batches():
            lacks = without_time(batch.column(self.column))
            if lacks is not None:
                positions = np.flatnonzero(lacks)
                missing += len(positions)
                if first is None:
                    numbered = ROW_NUMBER in batch.column_names
                    first = (
                        batch.column(ROW_NUMBER)[int(positions[0])].as_py() if numbered else done + int(positions[0])
                    )
            done += batch.num_rows
            yield batch
        if first is not None:
            raise missing_times(self.column, missing, done, self._where(first))

    def _where(self, number: int) -> str:
        """Say where a row stands: in which file, and at which position there, not counting a header or bad rows."""
        if self.raw is None:
            return f"row {number + 1}"
        for file in self.raw.table.files:
            alone = replace(self.raw, table=replace(self.raw.table, files=(file,)), rejected=[])
            rows = sum(batch.num_rows for batch in alone.batches())
            if number < rows:
                return f"row {number + 1} of {file}"
            number -= rows
        return f"row {number + 1}"


def timed(sources: Mapping[str, Rows], readers: Mapping[str, Reader], column: str | None) -> dict[str, Rows]:
    """Return interactions whose times are checked; as they are where no column has times before the split.

    Args:
        sources: The interactions.
        readers: What they come from, under the same names.
        column: Their times.
    """
    if column is None:
        return dict(sources)
    return {
        name: Timed(rows, column, readers.get(name)) if column in rows.schema().names else rows
        for name, rows in sources.items()
    }


def without_time(values: pa.ChunkedArray) -> npt.NDArray[np.bool_] | None:
    """Return which rows have no time: null, NaN or infinite; None where all have one."""
    lacks = values.is_null().to_numpy() if values.null_count else None
    if pa.types.is_floating(values.type):
        endless = ~np.isfinite(values.cast(pa.float64()).fill_null(0.0).to_numpy())
        if endless.any():
            lacks = endless if lacks is None else endless | lacks
    return lacks


def missing_times(column: str, missing: int, rows: int, where: str) -> DataError:
    """Return the error about rows without a time.

    Args:
        column: The times.
        missing: Rows without one.
        rows: All rows.
        where: The first of them.
    """
    return DataError(
        f"{missing:,} of {rows:,} interactions have no {column}, the first is {where}, so their order is unknown",
        hint=f"leave them out: {{op: Dropna, columns: [{column}]}} as the first of features.ops; or, where nothing depends on the "
        "time, leave features.timestamp out",
    )
