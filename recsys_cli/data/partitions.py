"""Hive partitions: columns in the names of folders, as in plays/dt=2026-01-31/part-0.parquet."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.data import remote
from recsys_cli.data.remote import RawFile
from recsys_cli.data.since import least, mask, nothing_new, span
from recsys_cli.data.source import RawTable, RawType
from recsys_cli.errors import ConfigError, DataError

_NULL = "__HIVE_DEFAULT_PARTITION__"
_ONE_OF_TWO = (
    "rename the folders, or leave the column out of the files; a glob (FOLDER/**/*.csv) reads the files without the "
    "columns of folders"
)
_WHOLE, _DAY = re.compile(r"-?(0|[1-9]\d{0,17})"), re.compile(r"\d{4}-\d{2}-\d{2}")
_TYPES: dict[RawType, pa.DataType] = {
    "int32": pa.int32(), "int64": pa.int64(), "float32": pa.float32(), "float64": pa.float64(), "string": pa.string(),
    "bool": pa.bool_(), "timestamp": pa.timestamp("us"),
}  # fmt: skip


def with_partitions(table: RawTable, patterns: Sequence[str], types: Mapping[str, RawType]) -> RawTable:
    """Return a table with the partition columns of its folders, without the files before `since`.

    Args:
        table: The table, with all its files.
        patterns: Paths of the config; only the folders below a folder are partitions, not those of a file or glob.
        types: Declared types; otherwise whole numbers are int64, ISO dates timestamps, and others strings.

    Raises:
        ConfigError: `since` does not fit the column.
        DataError: Files differ in their partition columns, or no file is left.
    """
    folders = [_folder(pattern) for pattern in patterns]
    of_files = [_values(str(file), folders) for file in table.files]
    names = list(of_files[0])
    for file, values in zip(table.files, of_files, strict=True):
        if list(values) != names:
            raise DataError(
                f"table {table.name!r}: {file} has the partition columns {', '.join(values) or '(none)'}, "
                f"and {table.files[0]} {', '.join(names) or '(none)'}",
                hint="all files of a folder need the same name=value folders in the same order",
            )
    if not names:
        return table
    columns = {name: _typed(name, [values[name] for values in of_files], types.get(name)) for name in names}
    if timed := [column.name for column in table.columns if column.name in columns and column.time is not None]:
        raise ConfigError(
            f"table {table.name!r}: times has {', '.join(timed)}, a partition column",
            hint="its values are ISO dates, whole numbers or text; LambdaOp computes with them",
        )
    in_files = tuple(column for column in table.columns if column.name not in columns)
    return _pruned(replace(table, columns=in_files), columns)


def _pruned(table: RawTable, columns: Mapping[str, pa.Array]) -> RawTable:
    """Keep the files since the moment of the partition columns in `since`."""
    keep = pa.array([True] * len(table.files))
    for name, value in table.since.items():
        if name in columns:
            newest = pc.max(columns[name]) if span(value) is not None else None
            limit = least(name, value, columns[name].type, newest=newest, is_time=False)
            keep = pc.and_(keep, mask(columns[name], limit))
    files = tuple(file for file, new in zip(table.files, keep.to_pylist(), strict=True) if new)
    if not files:
        raise nothing_new(table.name, table.since)
    rest = {name: value for name, value in table.since.items() if name not in columns}
    return replace(
        table, files=files, since=rest, partitions={name: values.filter(keep) for name, values in columns.items()}
    )


def constants(table: RawTable) -> dict[RawFile, dict[str, pa.Scalar]]:
    """Return the values of the partition columns by file."""
    return {
        file: {name: values[row] for name, values in table.partitions.items()} for row, file in enumerate(table.files)
    }


def check_names(names: Sequence[str], expected: Sequence[str], partitions: Sequence[str], file: RawFile) -> None:
    """Refuse a file that, unlike the first one, has (or lacks) a column of the names of folders.

    Raises:
        DataError: The file differs.
    """
    if other := [name for name in partitions if (name in names) != (name in expected)]:
        has = "has" if other[0] in names else "lacks"
        raise DataError(f"{file} {has} the column {other[0]} of its folder, unlike the first file", hint=_ONE_OF_TWO)


def check_values(values: pa.ChunkedArray, constant: pa.Scalar, name: str, file: RawFile) -> None:
    """Compare a column of a file with the value in the name of its folder.

    Raises:
        DataError: A value differs.
    """
    try:
        same = pc.fill_null(pc.equal(values.cast(constant.type), constant), False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        same = pa.chunked_array([pa.repeat(False, len(values))])
    if not constant.is_valid:
        same = values.is_null()
    if not pc.all(same, min_count=0).as_py():
        other = values.filter(pc.invert(same))[0].as_py()
        folder = "" if constant.as_py() is None else constant.cast(pa.string()).as_py()
        raise DataError(
            f"{file}: column {name} has {other!r} in the file, and {folder or _NULL} in its folder", hint=_ONE_OF_TWO
        )


def _folder(pattern: str) -> str | None:
    """Return the prefix of the files below a folder; None for globs and files."""
    if remote.is_url(pattern):
        return pattern.rstrip("/") + "/"
    pattern = remote.without_protocol(pattern)
    return f"{Path(pattern)}/" if Path(pattern).is_dir() else None


def _values(file: str, folders: Sequence[str | None]) -> dict[str, str | None]:
    below = next((file.removeprefix(folder) for folder in folders if folder and file.startswith(folder)), "")
    pairs = (part.partition("=") for part in below.split("/")[:-1] if "=" in part)
    return {unquote(name): None if value == _NULL else unquote(value) for name, _, value in pairs}


def _typed(name: str, texts: Sequence[str | None], declared: RawType | None) -> pa.Array:
    given = [text for text in texts if text is not None]
    kind = pa.string()
    if declared is not None:
        kind = _TYPES.get(declared, pa.string())
    elif given and all(_WHOLE.fullmatch(text) for text in given):
        kind = pa.int64()
    elif given and all(_DAY.fullmatch(text) for text in given):
        kind = pa.timestamp("us")
    try:
        return pa.array(texts, pa.string()).cast(kind)
    except pa.ArrowInvalid as error:
        raise DataError(
            f"partition column {name} cannot be read as {kind}: {error}", hint=f"set types: {{{name}: string}}"
        ) from error
