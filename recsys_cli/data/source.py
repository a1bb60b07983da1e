"""What a dataset is: facts for the catalog, how to fetch it, and how its raw tables are laid out in files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from pydantic import BaseModel

from recsys_cli.data.remote import RawFile
from recsys_cli.events import Emit

RawType = Literal["int32", "int64", "float32", "float64", "string", "bool", "timestamp", "timestamp with zone"]
"""Types of values in raw files; times are written as in ISO 8601, all with an offset (kept as UTC) or all without."""


@dataclass(frozen=True)
class RawColumn:
    """One column of a raw table, as it stands in the file.

    Attributes:
        name: Name used everywhere after reading, whatever the file's header says.
        dtype: Type of the value, or of the list's elements; None for what the first rows look like.
        separator: For a list column, what separates its elements inside the field ("|" in MovieLens genres).
        empty: For a list column, the text that means an empty list, such as "(no genres listed)".
        nullable: False where an empty field makes the row a bad row.
        time: For a column of times, how they are written: `iso`, a unit of numbers since 1970 (`s`, `ms`, `us`, `ns`), a format
            of strptime, or `detect` for what the first rows look like; None where the type says it.
    """

    name: str
    dtype: RawType | None
    separator: str | None = None
    empty: str | None = None
    nullable: bool = False
    time: str | None = None


@dataclass(frozen=True)
class RawTable:
    """One raw table: its files and the dialect that they are written in.

    Attributes:
        name: "interactions" for the table of interactions; any other name for a table that can be joined.
        files: Its parts, in order; CSV-like text (packed where the suffix says so) or parquet, by `format`.
        columns: The columns in file order, or, where a header or parquet names them, those that are described.
            Of all others names and types are taken from the files.
        format: "csv" (any separator) or "parquet".
        separator: Field separator; may be longer than one character ("::" in older MovieLens sets).
        header: Whether the first line names the columns.
        encoding: "utf-8" or "latin-1".
        quote: Quote character, or None where quotes are ordinary characters.
        flags: List columns spread over 0/1 columns in the file: list name → the flag columns, each named as the
            list element that it stands for (genres in ml-100k). The flag columns are dropped after reading.
    """

    name: str
    files: tuple[RawFile, ...]
    columns: tuple[RawColumn, ...] = ()
    format: Literal["csv", "parquet"] = "csv"
    separator: str = ","
    header: bool = True
    encoding: Literal["utf-8", "latin-1"] = "utf-8"
    quote: str | None = '"'
    flags: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class DatasetInfo:
    """The catalog's line about a dataset.

    Attributes:
        name: What the user types.
        rows: Number of interactions (None where it depends on options).
        size: Bytes to download, or about the bytes written for a generated set; None where it is the user's own.
        licence: One short phrase.
        homepage: Where a person reads more; may be empty.
        notice: What the licence asks to be shown when the data is fetched; may be empty.
    """

    name: str
    rows: int | None
    size: int | None
    licence: str
    homepage: str = ""
    notice: str = ""

    @property
    def is_own(self) -> bool:
        """Whether these are the user's own files, which stay where they are: there is nothing to download."""
        return self.size is None


@dataclass(frozen=True)
class DatasetOptions:
    """The keys of a config's dataset section beside the name.

    Attributes:
        type: What they are checked by.
        preset: Defaults that the dataset's name has in place of the type's.
    """

    type: type[BaseModel]
    preset: Mapping[str, object] = field(default_factory=dict)

    def spelled_out(self, options: Mapping[str, object]) -> dict[str, object]:
        """Return options that are good, as plain values, with every default."""
        return self.type.model_validate({**self.preset, **options}).model_dump(mode="json")


@dataclass(frozen=True)
class FetchRequest:
    """How the user wants a dataset to be fetched.

    Attributes:
        folder: An empty folder to fill; the caller renames it into place when `fetch` returns.
        cache: A folder that outlives a failed attempt, for partial downloads that can be resumed.
        mirror: Base URL to take instead of the publisher's.
        from_file: A local archive to unpack instead of downloading.
    """

    folder: Path
    cache: Path
    mirror: str | None = None
    from_file: Path | None = None


class Source(Protocol):
    """A dataset that can be fetched into a folder and described as raw tables."""

    @property
    def info(self) -> DatasetInfo:
        """The catalog's line."""

    def identity(self) -> dict[str, object]:
        """Return what the content depends on (digest of the archive, or the generator's options): JSON values."""

    def fetch(self, request: FetchRequest, emit: Emit) -> dict[str, object]:
        """Fill `request.folder`; return facts for the manifest, such as the digest found and `ceiling`.

        Raises:
            DataError: The download or the archive is not what it should be.
        """

    def tables(self, folder: Path) -> tuple[RawTable, ...]:
        """Describe the raw tables in a fetched folder, the one named "interactions" first."""


@dataclass(frozen=True)
class DatasetFactory:
    """Decorator that declares a function of another package as one that opens a dataset; a config may name no other.

    Attributes:
        open: Takes the name that the config has for the dataset, and the other keys of its section; returns a `Source`.
    """

    open: Callable[[str, Mapping[str, object]], Source]

    def __call__(self, name: str, options: Mapping[str, object]) -> Source:
        """Open the dataset."""
        return self.open(name, options)
