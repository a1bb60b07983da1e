"""The user's own tables: text and Parquet files, read in place from this machine or a URL."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from recsys_cli.data.copies import CopiedTable, copy, copy_head, open_table
from recsys_cli.data.options import FilesOptions, TableOptions, parse_options
from recsys_cli.data.raw_files import (
    COMPRESSIONS,
    RawFile,
    find,
    is_url,
    stamp,
    unpacked_name,
    without_marks,
    without_protocol,
    without_secret,
)
from recsys_cli.data.selection import with_partitions
from recsys_cli.data.source import DatasetInfo, DatasetOptions, FetchRequest, Format, RawColumn, RawTable
from recsys_cli.errors import ConfigError, DataError
from recsys_cli.events import Emit


def locate(table: str, patterns: Sequence[str]) -> tuple[RawFile, ...]:
    """Return the files of a table, sorted by name within each pattern; paths are relative to the working directory.

    Raises:
        ConfigError: A file is matched twice, has a name that is not UTF-8, or the protocol of a URL is unknown.
        DataError: A pattern matches no file.
        MissingExtraError: A URL needs a package that is not installed.
    """
    files = tuple(file for pattern in patterns for file in _expand(table, address(pattern)))
    if odd := next((file for file in files if any("\ud800" <= one <= "\udfff" for one in str(file))), None):
        raise ConfigError(
            f"table {table!r}: the file name {str(odd).encode(errors='surrogateescape')!r} is not UTF-8",
            hint="rename the file",
        )
    if len(set(files)) < len(files):
        twice = sorted({str(file) for file in files if files.count(file) > 1})
        raise ConfigError(
            f"table {table!r}: {', '.join(twice)} is matched twice, so its rows would be duplicated",
            hint="match each file by one path or glob",
        )
    return files


def address(pattern: str) -> str:
    """Return a pattern, or the value of the environment variable that it names as $PLAYS.

    Raises:
        ConfigError: There is no such variable.
    """
    name = pattern.removeprefix("$")
    if name == pattern or not name.isidentifier() or Path(pattern).exists():
        return pattern
    if not (value := os.environ.get(name)):
        raise ConfigError(f"the environment has no {name}, the address of {pattern}", hint=f"export {name}=ADDRESS")
    return value


def _expand(table: str, pattern: str) -> Sequence[RawFile]:
    if is_url(pattern):
        files: Sequence[RawFile] = find(pattern)
        if not files:
            raise DataError(f"table {table!r}: there is no file at {without_secret(pattern)}")
        return files
    pattern = without_protocol(pattern)
    path = Path(pattern)
    if path.is_file():  # even with a "[" in its name
        return [path]
    if path.is_dir():
        return _in_folder(table, path)
    matches = glob.glob(pattern, recursive=True)  # noqa: PTH207 - Path.glob takes no absolute patterns
    found = sorted(map(Path, without_marks(matches, pattern)))
    paths = [path for path in found if path.is_file()] or [
        file for folder in found for file in _in_folder(table, folder)
    ]
    if not paths:
        what = "no file matches" if glob.has_magic(pattern) else "there is no file"
        raise DataError(f"table {table!r}: {what} {pattern}", hint=f"paths are relative to {Path.cwd()}")
    return paths


def _in_folder(table: str, folder: Path) -> list[Path]:
    """Return all files under a folder, except marker files of writers (_SUCCESS, .part.crc)."""
    parts_of = {path: path.relative_to(folder).parts for path in folder.rglob("*") if path.is_file()}
    paths = sorted(path for path, parts in parts_of.items() if not any(part.startswith((".", "_")) for part in parts))
    if not paths:
        raise DataError(f"table {table!r}: there is no file in folder {folder}")
    return paths


INFO = DatasetInfo(name="files", rows=None, size=None, licence="your own", access="own")
SUFFIXES: dict[str, tuple[Format, str]] = {
    ".csv": ("csv", ","),
    ".tsv": ("csv", "\t"),
    ".parquet": ("parquet", ","),
    ".pq": ("parquet", ","),
    ".jsonl": ("jsonl", ","),
    ".ndjson": ("jsonl", ","),
    ".json": ("jsonl", ","),
    ".npy": ("npy", ","),
}
PARQUET, JSON, _NPY = (
    frozenset(suffix for suffix, (kind, _) in SUFFIXES.items() if kind == wanted)
    for wanted in ("parquet", "jsonl", "npy")
)


class Files:
    """The user's files as a Source, without copies."""

    def __init__(self, options: FilesOptions) -> None:
        self._options = options

    @property
    def info(self) -> DatasetInfo:
        """The catalog entry."""
        return replace(INFO, access="copied") if self._copied else INFO

    def identity(self) -> dict[str, object]:
        """Return the dialects, and size and modification time (or a server's tag) of all files.

        An edited file is a new dataset.

        Raises:
            DataError: A file does not exist.
        """
        how = {name: table.dialect for name, table in self._options.named.items() if table.dialect}
        own = (table for table in self.tables(Path()) if table.name not in self._copied)
        identity = {"files": {table.name: [stamp(file) for file in table.files] for table in own}, "how": how}
        versions = {name: snapshot.identity() for name, snapshot in self._snapshots.items()}
        return {**identity, "copied": versions} if versions else identity

    def fetch(self, request: FetchRequest, emit: Emit) -> dict[str, object]:
        """Check that the files exist, and copy the tables of lakes and databases; without these the folder stays empty.

        Raises:
            ConfigError: A suffix is unknown, or differs within a table.
            DataError: A file does not exist, or a table is not readable.
            MissingExtraError: A table needs a package that is not installed.
        """
        tables = self.tables(request.folder)
        copies = {
            name: copy(name, snapshot, request.folder / f"{name}.parquet", emit, since=self._options.named[name].since)
            for name, snapshot in self._snapshots.items()
        }
        return {"files": sum(len(table.files) for table in tables)} | ({"copies": copies} if copies else {})

    def sample(self, folder: Path, rows: int) -> dict[str, int]:
        """Write the first rows of the tables of lakes and databases; return their numbers of rows by name.

        Raises:
            DataError: A table is not readable.
        """
        return {
            name: copy_head(name, snapshot, folder / f"{name}.parquet", rows, since=self._options.named[name].since)
            for name, snapshot in self._snapshots.items()
        }

    def tables(self, folder: Path) -> tuple[RawTable, ...]:
        """Describe the user's files, or the copies in a folder; undeclared columns are read from the files.

        Raises:
            ConfigError: A suffix is unknown or differs within a table, or an option does not apply to the format.
            DataError: A file does not exist.
            MissingExtraError: A URL needs a package that is not installed.
        """
        return tuple(
            RawTable(name, (folder / f"{name}.parquet",), options.columns, format="parquet", **_shape(options))
            if name in self._copied
            else _table(name, options)
            for name, options in self._options.named.items()
        )

    @cached_property
    def _copied(self) -> dict[str, TableOptions]:
        return {name: table for name, table in self._options.named.items() if table.copied_as is not None}

    @cached_property
    def _snapshots(self) -> dict[str, CopiedTable]:
        """The tables to copy, opened once: identity and copy are of the same version."""
        return {name: open_table(name, table) for name, table in self._copied.items()}

    def with_interactions(self, path: str) -> Files:
        """Return a source with another file of interactions, in the same dialect and with the same columns of rows."""
        own = self._options.interactions
        suffix = Path(unpacked_name(path)).suffix.lower()
        if suffix in PARQUET | JSON or own.copied_as is not None:
            of_rows = ("types", "times", "lists", "nulls", "explode", "clicks", "order", "line")
            options = TableOptions(files=(path,), **{name: getattr(own, name) for name in of_rows})
        else:
            kept = None if suffix in SUFFIXES else own.format
            options = own.model_copy(update={"files": (path,), "since": {}, "format": kept})
        if options.copied_as is not None:
            raise ConfigError(f"{path} is a Delta or Iceberg table, and new rows and splits are files")
        return Files(FilesOptions(interactions=options))


def _table(name: str, options: TableOptions) -> RawTable:
    return with_partitions(_of_files(name, options), options.files, options.types)


def _of_files(name: str, options: TableOptions) -> RawTable:
    if options.version is not None:
        raise ConfigError(f"table {name!r}: version is for Delta and Iceberg tables", hint="set their format")
    files = locate(name, options.files)
    kind, separator = _format(name, options, [file.name for file in files])
    shape = _shape(options)
    if kind == "npy":
        return RawTable(name, files, _npy_columns(name, options, files), format=kind, **shape)
    if kind != "csv":
        text_only = [
            option for option in ("separator", "quote", "encoding", "decimal", "names") if option in options.dialect
        ]
        if text_only:
            raise ConfigError(f"table {name!r}: {', '.join(text_only)} is for text, but its files are {kind.title()}")
        return RawTable(name, files, options.columns, format=kind, **shape)
    return RawTable(
        name, files, options.columns, separator=options.separator or separator, header=not options.names,
        encoding=options.encoding, quote=options.quote, decimal=options.decimal, **shape,
    )  # fmt: skip


def _npy_columns(name: str, options: TableOptions, files: tuple[RawFile, ...]) -> tuple[RawColumn, ...]:
    """Return a column for each file of arrays."""
    wrong = [key for key in ("separator", "quote", "encoding", "types", "times", "lists") if key in options.dialect]
    if wrong:
        raise ConfigError(f"table {name!r}: {', '.join(wrong)} is for text, but its files are NumPy arrays")
    names = options.names or tuple(Path(file.name).stem for file in files)
    if len(names) != len(files) or len(set(names)) < len(names):
        raise ConfigError(
            f"table {name!r}: {len(files)} NumPy files with the names {', '.join(names)}",
            hint="give each file a column: {files: [ids.npy, vectors.npy], names: [item_id, vector]}",
        )
    return tuple(RawColumn(column, None) for column in names)


def _shape(options: TableOptions) -> dict[str, Any]:
    """Return the options of rows in every format."""
    return {name: getattr(options, name) for name in ("since", "nulls", "explode", "clicks", "order", "line", "rename")}


def _format(name: str, options: TableOptions, names: list[str]) -> tuple[Format, str]:
    suffixes = sorted({Path(unpacked_name(file)).suffix.lower() for file in names})
    if options.format in {"csv", "parquet", "jsonl"}:
        return options.format, SUFFIXES.get(suffixes[0], ("csv", ","))[1]
    if options.separator is not None and (PARQUET | JSON | _NPY).isdisjoint(suffixes):
        return "csv", options.separator
    if len(suffixes) != 1 or suffixes[0] not in SUFFIXES:
        raise ConfigError(
            f"table {name!r}: cannot read files that end in {', '.join(suffixes) or 'nothing'} as one table",
            hint=f"use one suffix of {', '.join(SUFFIXES)} for all files of a table, compressed "
            f"({', '.join(COMPRESSIONS)}) or not; or set the format: {{files: …, format: csv}}",
        )
    return SUFFIXES[suffixes[0]]


def info(name: str) -> DatasetInfo:
    """Return the catalog entry."""
    return replace(INFO, name=name)


def options(name: str) -> DatasetOptions:  # noqa: ARG001 - the same for each
    """Return the options: files and dialects of the tables."""
    return DatasetOptions(FilesOptions)


def source(name: str, options: Mapping[str, object]) -> Files:
    """Open the user's own files.

    Raises:
        ConfigError: An option is invalid.
    """
    dataset_keys, table_keys = (", ".join(model.model_fields) for model in (FilesOptions, TableOptions))
    hint = f"options of {name}: {dataset_keys}; of a table given as a mapping: {table_keys}"
    return Files(parse_options(FilesOptions, options, dataset=name, hint=hint))
