"""Check for rows without a time: they have no order, so every split method refuses them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.errors import DataError
from recsys_cli.etl.reading.reader import Reader
from recsys_cli.features.columns import ROW_NUMBER
from recsys_cli.ops.scratch import Rows


@dataclass(frozen=True)
class Timed:
    """Interactions with a check of their times.

    Attributes:
        rows: The interactions; with ROW_NUMBER after filters.
        raw: The reader of the raw files, for the position of a row in an error; None if there is none.
    """

    rows: Rows
    column: str
    raw: Reader | None = None

    def schema(self) -> pa.Schema:
        """See `Rows.schema`."""
        return self.rows.schema()

    def batches(self) -> Iterator[pa.Table]:
        """Yield the rows; rows without a time are an error after the last one."""
        done = missing = 0
        first = None
        for batch in self.rows.batches():
            mask = without_time(batch.column(self.column))
            if mask is not None:
                positions = np.flatnonzero(mask)
                missing += len(positions)
                if first is None:
                    at = int(positions[0])
                    first = batch.column(ROW_NUMBER)[at].as_py() if ROW_NUMBER in batch.column_names else done + at
            done += batch.num_rows
            yield batch
        if first is not None:
            raise missing_times(self.column, missing, done, self._where(first))

    def _where(self, number: int) -> str:
        if self.raw is None:
            return f"row {number + 1}"
        for file in self.raw.table.files:
            reader = replace(self.raw, table=replace(self.raw.table, files=(file,)), rejected=[])
            rows = sum(batch.num_rows for batch in reader.batches())
            if number < rows:
                return f"row {number + 1} of {file}"
            number -= rows
        return f"row {number + 1}"


def timed(sources: Mapping[str, Rows], readers: Mapping[str, Reader], column: str | None) -> dict[str, Rows]:
    """Add the check of times to interactions, except without a time column before the split."""
    if column is None:
        return dict(sources)
    return {
        name: Timed(rows, column, readers.get(name)) if column in rows.schema().names else rows
        for name, rows in sources.items()
    }


def without_time(values: pa.ChunkedArray) -> npt.NDArray[np.bool_] | None:
    """Return a mask of null, NaN and infinite times; None if there are none."""
    missing = values.is_null().to_numpy() if values.null_count else None
    if pa.types.is_floating(values.type):
        not_finite = ~np.isfinite(values.cast(pa.float64()).fill_null(0.0).to_numpy())
        if not_finite.any():
            missing = not_finite if missing is None else not_finite | missing
    return missing


def missing_times(column: str, missing: int, rows: int, where: str) -> DataError:
    """Return the error about rows without a time; `where` is the position of the first one."""
    return DataError(
        f"{missing:,} of {rows:,} interactions have no {column}, the first is {where}, so their order is unknown",
        hint=f"drop them: put {{op: Dropna, columns: [{column}]}} first in features.ops; or, if nothing depends on the "
        "time, remove features.timestamp",
    )
