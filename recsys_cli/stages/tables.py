"""Files of ids that commands read, and tables that they write: parquet, csv and JSON lines."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from recsys_cli.data.raw_files import open_parquet
from recsys_cli.errors import ConfigError, DataError, listed
from recsys_cli.workspace import check_output, replacing

FORMATS = (".parquet", ".csv", ".jsonl")


def read_columns(path: Path, names: Sequence[str]) -> pa.Table:
    """Return columns of ids of a parquet or csv file; those of csv files are text, because of leading zeros.

    Raises:
        DataError: The file is unreadable, or has no such column.
    """
    table = _read(path)
    if missing := [name for name in names if name not in table.column_names]:
        raise _lacking(path, missing, table)
    return table.select(list(names))


def read_column(path: Path, *names: str) -> list[Any]:
    """Return a column of ids: the first of some names in a parquet or csv file, or its only one; or the lines of a text file.

    Ids of csv and text files are text.

    Raises:
        DataError: The file is unreadable.
    """
    if path.suffix in {".parquet", ".csv"}:
        table = _read(path)
        found = [name for name in names if name in table.column_names]
        if not found and table.num_columns > 1:
            raise _lacking(path, names[:1], table)
        values: list[Any] = table.column(found[0] if found else 0).to_pylist()
        return values if found or path.suffix == ".parquet" else [table.column_names[0], *values]
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot read ids: {error}", hint="write one id per line") from error
    return [line.strip() for line in lines if line.strip() and line.strip() not in names]


def _read(path: Path) -> pa.Table:
    try:
        if path.suffix == ".parquet":
            with open_parquet(str(path)) as file:
                table = file.read()
        else:
            types = dict.fromkeys(pa_csv.open_csv(path).schema.names, pa.string())
            options = pa_csv.ConvertOptions(column_types=types, null_values=[""], strings_can_be_null=True)
            table = pa_csv.read_csv(path, convert_options=options)
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{path}: cannot read a table: {error}", hint="write parquet, or csv with commas and a header"
        ) from error
    if not table.num_columns:
        raise DataError(f"{path}: the table has no columns", hint="write parquet or csv with a header")
    if twice := [name for name, count in Counter(table.column_names).items() if count > 1]:
        raise DataError(f"{path}: the header names {listed(twice)} twice", hint="give each column a name of its own")
    return table


def _lacking(path: Path, missing: Sequence[str], table: pa.Table) -> DataError:
    return DataError(
        f"{path}: no column {', '.join(missing)}; the columns are {listed(table.column_names)}",
        hint="name the columns as in the raw data; csv has commas between them",
    )


def check_format(path: Path, *, force: bool = True) -> None:
    """Check folder and suffix of an output file, and without `force` that it is new.

    Raises:
        ConfigError: The suffix is none of `FORMATS`, the parent of the folder does not exist, or the file exists.
    """
    check_output(path, force=force)
    if path.suffix not in FORMATS:
        raise ConfigError(f"{path}: unknown format {path.suffix!r}", hint=f"end the name with {', '.join(FORMATS)}")


Write = Callable[..., None]
"""Appends rows, given as columns in the order of the schema."""


@contextmanager
def table_writer(path: Path, schema: pa.Schema) -> Iterator[Write]:
    """Write a table to a file of one of `FORMATS`, block by block; it appears under its name when it is complete.

    Raises:
        ConfigError: The format is unknown.
    """
    check_format(path)
    with replacing(path) as made, ExitStack() as stack:
        if path.suffix == ".jsonl":
            file: Any = stack.enter_context(made.open("w", encoding="utf-8"))
        else:
            file = stack.enter_context(
                (pq.ParquetWriter if path.suffix == ".parquet" else pa_csv.CSVWriter)(made, schema)
            )

        def write(*columns: pa.Array | npt.NDArray[Any] | Sequence[Any]) -> None:
            table = pa.table([_array(*pair) for pair in zip(columns, schema.types, strict=True)], schema=schema)
            if path.suffix == ".jsonl":
                file.writelines(json.dumps(row, default=str, ensure_ascii=False) + "\n" for row in table.to_pylist())
            else:
                file.write_table(table)

        yield write


def _array(values: pa.Array | npt.NDArray[Any] | Sequence[Any], kind: pa.DataType) -> pa.Array:
    return values.cast(kind) if isinstance(values, pa.Array) else pa.array(values, kind)
