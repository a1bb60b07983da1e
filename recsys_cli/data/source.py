"""The catalog of named datasets, and the interface of a dataset: catalog entry, download and raw tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import BaseModel

from recsys_cli import registry
from recsys_cli.data.raw_files import RawFile
from recsys_cli.errors import ConfigError
from recsys_cli.events import Emit
from recsys_cli.plugins import guard_class, guarded

NULLS = ("", "NA", "N/A", "n/a", "<NA>", "NULL", "null", "None", "nan", "NaN", "\\N")
"""Missing values in text, as pandas, R, NumPy and databases write them. Quoted text of a file is no missing value, except ""."""
RUNS = r"\s+"
"""Separator for any number of spaces and tabs."""
Format = Literal["csv", "parquet", "jsonl", "npy"]
RawType = Literal["int32", "int64", "float32", "float64", "string", "bool", "timestamp", "timestamp with zone"]
"""Types of raw values; timestamps are in ISO 8601, all with an offset (converted to UTC) or all without."""


@dataclass(frozen=True)
class RawColumn:
    """A column of a raw table.

    Attributes:
        name: Name of the column.
        dtype: Type of the value, or of the list's elements; None to infer it from the first rows.
        separator: For a list column, separator of the elements within the field ("|" in MovieLens genres).
        empty: For a list column, representation of an empty list, such as "(no genres listed)".
        nullable: Whether an empty field is null; otherwise it makes the row bad.
        time: For a time column, its format: `iso`, a unit of numbers since 1970 (`s`, `ms`, `us`, `ns`), a strptime
            format, or `detect` to infer it from the first rows; None if `dtype` is a timestamp.
    """

    name: str
    dtype: RawType | None
    separator: str | None = None
    empty: str | None = None
    nullable: bool = False
    time: str | None = None


@dataclass(frozen=True)
class RawTable:
    """Files and dialect of a raw table.

    Attributes:
        name: "interactions", or the name of a table to join.
        files: The files, in order: text (compressed by suffix) or Parquet.
        columns: The columns in file order; with a header or Parquet, only the declared ones. Names and types of all
            others come from the files.
        format: "csv" (any separator), "parquet", "jsonl" (an object per line) or "npy" (a file of an array per column).
        separator: Field separator, one character or more ("::" in older MovieLens sets), or `RUNS`.
        header: Whether the first line has the column names.
        encoding: "utf-8" or "latin-1".
        quote: Quote character; None for quotes as ordinary characters.
        decimal: Decimal mark of numbers in text.
        nulls: Texts that are missing values.
        partitions: Partition columns of the folders: name → Arrow array of a value per file. They replace columns of the
            same name in the files.
        since: Least values of columns, for the new rows only: a number, a time, or a time span before the newest row.
        flags: List columns stored as 0/1 columns: list name → flag columns, named by element (genres in ml-100k).
            Flag columns are dropped after reading.
        explode: List column with a row for each element; the other columns repeat.
        clicks: Name of an additional column with the 0 or 1 at the end of the elements of `explode`, as in "N1-1 N2-0".
        order: Name of an additional column with the number of each row.
        line: Name of an additional column with the number of each row before `explode`.
        rename: New names of columns, by name in the files.
    """

    name: str
    files: tuple[RawFile, ...]
    columns: tuple[RawColumn, ...] = ()
    format: Format = "csv"
    separator: str = ","
    header: bool = True
    encoding: Literal["utf-8", "latin-1"] = "utf-8"
    quote: str | None = '"'
    decimal: str = "."
    nulls: tuple[str, ...] = NULLS
    flags: dict[str, tuple[str, ...]] = field(default_factory=dict)
    partitions: Mapping[str, Any] = field(default_factory=dict)
    since: Mapping[str, int | float | str] = field(default_factory=dict)
    explode: str | None = None
    clicks: str | None = None
    order: str | None = None
    line: str | None = None
    rename: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DatasetInfo:
    """Catalog entry of a dataset.

    Attributes:
        name: Name of the dataset.
        rows: Number of interactions; None if it depends on options.
        size: Download size in bytes, or approximate size of a generated set; None if unknown, or for own files.
        licence: Short name of the license.
        homepage: URL, may be empty.
        notice: License notice for downloads; may be empty.
        access: `download`; `login` or `moved` for files to fetch by hand; `generated`; `own` for the user's own files;
            `copied` for these with tables of a lake or a database; None: `own` without a size.
    """

    name: str
    rows: int | None
    size: int | None
    licence: str
    homepage: str = ""
    notice: str = ""
    access: Literal["download", "login", "moved", "generated", "own", "copied"] | None = None

    @property
    def is_own(self) -> bool:
        """Whether the dataset consists of the user's own files, read in place without a download."""
        return self.size is None if self.access is None else self.access == "own"


@dataclass(frozen=True)
class DatasetOptions:
    """Options of a dataset: the keys of the config's dataset section except the name.

    Attributes:
        type: The pydantic class of the options.
        preset: Defaults of the named dataset, in place of the class's.
    """

    type: type[BaseModel]
    preset: Mapping[str, object] = field(default_factory=dict)

    def spelled_out(self, options: Mapping[str, object]) -> dict[str, object]:
        """Return valid options as plain values, with all defaults."""
        return self.type.model_validate({**self.preset, **options}).model_dump(mode="json")


@dataclass(frozen=True)
class FetchRequest:
    """Parameters of a download.

    Attributes:
        folder: An empty folder to fill; the caller renames it after `fetch`.
        cache: A persistent folder for partial downloads.
        mirror: Base URL in place of the publisher's.
        from_file: A local archive in place of a download.
    """

    folder: Path
    cache: Path
    mirror: str | None = None
    from_file: Path | None = None


class Source(Protocol):
    """A dataset: a download into a folder, described as raw tables."""

    @property
    def info(self) -> DatasetInfo:
        """The catalog entry."""

    def identity(self) -> dict[str, object]:
        """Return the inputs of the content (digest of the archive, options of the generator) as JSON values."""

    def fetch(self, request: FetchRequest, emit: Emit) -> dict[str, object]:
        """Fill `request.folder`; return facts for the manifest, such as the digest and the `ceiling`.

        Raises:
            DataError: The download or the archive is wrong or damaged.
        """

    def tables(self, folder: Path) -> tuple[RawTable, ...]:
        """Describe the raw tables in a fetched folder, the one named "interactions" first."""


@dataclass(frozen=True)
class DatasetFactory:
    """Decorator for dataset factories of other packages; configs accept no undecorated function.

    Attributes:
        open: Function of the dataset's name and the other keys of its config section; returns a `Source`.
    """

    open: Callable[[str, Mapping[str, object]], Source]

    def __call__(self, name: str, options: Mapping[str, object]) -> Source:
        """Open the dataset."""
        return self.open(name, options)


_PARTS = ("info", "identity", "fetch", "tables")
"""Attributes of a `Source`."""


def open_source(name: str, options: Mapping[str, object] | None = None) -> Source:
    """Open a dataset of the catalog, or by the import path of another package's factory (docs/security.md).

    Raises:
        ConfigError: The name is unknown or not trusted, the path is not a factory, or an option is invalid.
    """
    path = registry.lookup(registry.DATASETS, name, what="dataset")
    factory = registry.load(path)
    if registry.is_own(path):
        own: Source = factory(name, options or {})
        return own
    return _open_foreign(factory, path, name, options or {})


def _open_foreign(factory: object, path: str, name: str, options: Mapping[str, object]) -> Source:
    if not isinstance(factory, DatasetFactory):
        raise ConfigError(
            f"{path!r} is not declared as a dataset",
            hint="decorate it with @DatasetFactory of recsys_cli.data",
        )
    with guarded(f"{path!r} cannot be opened"):
        source = factory(name, options)
        missing = [part for part in _PARTS if not hasattr(source, part)]
    if missing:
        raise ConfigError(f"{path!r} returned no Source: it has no {', '.join(missing)}")
    guard_class(type(source), f"the dataset {path} failed")
    return source


def open_given(name: str, options: Mapping[str, object], path: str) -> Source:
    """Open a file with the interactions of one split; for a `files` dataset, in the dialect of its own files.

    Raises:
        ConfigError: The name is unknown, or an option is invalid.
    """
    from recsys_cli.data.files import Files

    dataset = open_source(name, options)
    return (
        dataset.with_interactions(path) if isinstance(dataset, Files) else open_source("files", {"interactions": path})
    )


def options_of(name: str) -> DatasetOptions | None:
    """Return the options of a dataset of the catalog; None for other packages, whose options are opaque."""
    path = registry.DATASETS.get(name)
    options: DatasetOptions | None = registry.load(path.partition(":")[0] + ":options")(name) if path else None
    return options


def catalog() -> list[DatasetInfo]:
    """List all named datasets, in the catalog's order."""
    return [registry.load(path.partition(":")[0] + ":info")(name) for name, path in registry.DATASETS.items()]
