"""Vocabulary files of the user: unique values in the order of their ids."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from recsys_cli.errors import DataError
from recsys_cli.ops.values import canonical
from recsys_cli.packages import pc

_COLUMN = "value"
_SHOWN = 5


def read_vocabulary(path: str, name: str, kind: pa.DataType) -> pa.Array:
    """Return the values of a parquet or CSV file (column `value`, or else the first), or of a text file, one per line.

    `kind` is the type of the values in train, null if train has none.

    Raises:
        DataError: The file is not readable, or has values of another type, nulls or duplicates.
    """
    where = f"the vocabulary of {name}, {path}"
    try:
        values = _read(Path(path))
        if not pa.types.is_null(kind):
            values = values.cast(kind)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DataError(f"{where}: {error}", hint=f"paths are relative to {Path.cwd()}") from error
    values = canonical(values)
    missing = pc.indices_nonzero(values.is_null())
    if len(missing):
        numbers = ", ".join(str(number + 1) for number in missing[:_SHOWN].to_pylist())
        raise DataError(f"{where}: {len(missing)} values are null: number {numbers}", hint="remove them: null has id 1")
    counts = pc.value_counts(values)
    duplicates = counts.field(0).filter(pc.greater(counts.field(1), 1))
    if len(duplicates):
        shown = ", ".join(map(str, duplicates[:_SHOWN].to_pylist()))
        raise DataError(f"{where}: {len(duplicates)} duplicate values: {shown}", hint="list each value once")
    return values


def _read(path: Path) -> pa.Array:
    import pyarrow.csv as arrow_csv
    import pyarrow.parquet as pq

    if path.suffix.lower() == ".parquet":
        table = pq.read_table(path)
    elif path.suffix.lower() == ".csv":
        names = arrow_csv.open_csv(path).schema.names
        as_text = arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
        table = arrow_csv.read_csv(path, convert_options=as_text)
    else:
        text = path.read_text(encoding="utf-8")
        lines = text.removesuffix("\n").split("\n") if text else []
        table = pa.table({_COLUMN: pa.array([line.removesuffix("\r") for line in lines], pa.string())})
    if not table.num_columns:
        raise ValueError("the file has no column")
    values = table.column(_COLUMN if _COLUMN in table.column_names else 0).combine_chunks()
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
