"""The user's own tables: CSV, TSV and parquet files that stay where they are."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from recsys_cli.data.options import parse_options
from recsys_cli.data.source import DatasetInfo, FetchRequest, RawTable
from recsys_cli.errors import ConfigError, DataError
from recsys_cli.events import Emit

INFO = DatasetInfo(name="files", rows=None, size=None, licence="your own")
SUFFIXES: dict[str, tuple[Literal["csv", "parquet"], str]] = {
    ".csv": ("csv", ","),
    ".tsv": ("csv", "\t"),
    ".parquet": ("parquet", ","),
}


class FilesOptions(BaseModel):
    """Where the tables are."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    interactions: tuple[str, ...] = Field(min_length=1)
    """Path, glob ("ratings/*.parquet") or list of both; relative to the working directory."""
    tables: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Tables to join, by name, each as a path, glob or list."""

    @field_validator("interactions", mode="before")
    @classmethod
    def _one_path(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("tables", mode="before")
    @classmethod
    def _one_path_each(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {name: (paths,) if isinstance(paths, str) else paths for name, paths in value.items()}

    @field_validator("tables")
    @classmethod
    def _interactions_apart(cls, value: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        if "interactions" in value:
            raise ValueError("'interactions' is a key beside tables, not one of them")
        return value


class Files:
    """The user's files as a Source; nothing is copied."""

    def __init__(self, options: FilesOptions) -> None:
        self._options = options

    @property
    def info(self) -> DatasetInfo:
        """The catalog's line."""
        return INFO

    def identity(self) -> dict[str, object]:
        """Return path, size and time of change of every file, so that an edited file is a new dataset.

        Raises:
            DataError: A file does not exist.
        """
        return {table.name: [_stamp(file) for file in table.files] for table in self.tables(Path())}

    def fetch(self, request: FetchRequest, emit: Emit) -> dict[str, object]:  # noqa: ARG002 - nothing to do but look
        """Check that the files are there; the folder stays empty.

        Raises:
            ConfigError: A suffix is not known, or differs inside a table.
            DataError: A file does not exist.
        """
        tables = self.tables(request.folder)
        return {"files": sum(len(table.files) for table in tables)}

    def tables(self, folder: Path) -> tuple[RawTable, ...]:  # noqa: ARG002 - the files are elsewhere
        """Describe the user's files; names and types of the columns are taken from the files themselves.

        Raises:
            ConfigError: A suffix is not known, or differs inside a table.
            DataError: A file does not exist.
        """
        named = {"interactions": self._options.interactions, **self._options.tables}
        return tuple(_table(name, patterns) for name, patterns in named.items())


def _table(name: str, patterns: tuple[str, ...]) -> RawTable:
    files = tuple(file for pattern in patterns for file in _expand(name, pattern))
    suffixes = sorted({file.suffix.lower() for file in files})
    if len(suffixes) != 1 or suffixes[0] not in SUFFIXES:
        raise ConfigError(
            f"table {name!r}: cannot read files that end in {', '.join(suffixes) or 'nothing'} as one table",
            hint=f"all files of a table end in the same one of {', '.join(SUFFIXES)}",
        )
    kind, separator = SUFFIXES[suffixes[0]]
    return RawTable(name, files, format=kind, separator=separator)


def _expand(name: str, pattern: str) -> list[Path]:
    """Return the files of one path or glob, in the order of their names."""
    path = Path(pattern)
    if path.is_file():  # also where the name has a "[" in it
        return [path]
    matches = glob.glob(pattern, recursive=True)  # noqa: PTH207 - Path.glob takes no absolute patterns
    found = sorted(Path(match) for match in matches if Path(match).is_file())
    if not found:
        what = "no file matches" if glob.has_magic(pattern) else "there is no file"
        raise DataError(f"table {name!r}: {what} {pattern}", hint=f"paths are relative to {Path.cwd()}")
    return found


def _stamp(file: Path) -> dict[str, object]:
    status = file.stat()
    return {"path": str(file), "size": status.st_size, "mtime_ns": status.st_mtime_ns}


def info(name: str) -> DatasetInfo:
    """Return the catalog's line, which says little: the files are the user's."""
    return replace(INFO, name=name)


def source(name: str, options: Mapping[str, object]) -> Files:
    """Open the user's own files.

    Raises:
        ConfigError: An option is wrong.
    """
    return Files(parse_options(FilesOptions, options, dataset=name))
