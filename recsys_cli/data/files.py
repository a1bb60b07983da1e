"""The user's own tables: text and parquet files that stay where they are, on this machine or at a URL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from recsys_cli.data.locate import locate
from recsys_cli.data.options import parse_options
from recsys_cli.data.source import DatasetInfo, DatasetOptions, FetchRequest, RawColumn, RawTable, RawType
from recsys_cli.data.streams import COMPRESSIONS, stamp, unpacked_name
from recsys_cli.errors import ConfigError
from recsys_cli.events import Emit

INFO = DatasetInfo(name="files", rows=None, size=None, licence="your own")
SUFFIXES: dict[str, tuple[Literal["csv", "parquet"], str]] = {
    ".csv": ("csv", ","),
    ".tsv": ("csv", "\t"),
    ".parquet": ("parquet", ","),
    ".pq": ("parquet", ","),
}
_TIMES = ("iso", "s", "ms", "us", "ns")
_DIRECTIVES = tuple(f"%{letter}" for letter in "YymdeHIMSfpzbBaAj")
PARQUET = frozenset(suffix for suffix, (kind, _) in SUFFIXES.items() if kind == "parquet")


class ListOptions(BaseModel):
    """How a list is written in one field of a text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    separator: str = Field(min_length=1)
    """What stands between its elements, as "|" in "Comedy|Drama"."""
    empty: str = ""
    """The text that means a list without elements, such as "(no genres listed)"."""

    @model_validator(mode="before")
    @classmethod
    def _only_separator(cls, value: Any) -> Any:
        return {"separator": value} if isinstance(value, str) else value


class TableOptions(BaseModel):
    """Where a table is and how it is written; all but `files` may be left out, and then `files` alone may be written."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    files: tuple[str, ...] = Field(min_length=1)
    """Path, glob ("ratings/*.csv.gz"), folder or URL ("s3://bucket/*.parquet"), or a list; relative to the working directory."""
    format: Literal["csv", "parquet"] | None = None
    """What the files are, where their names do not say it; csv is text with any separator."""
    separator: str | None = Field(None, min_length=1)
    """What stands between the fields of a text, one character or more; None for that of the suffix, a comma or a tab."""
    quote: str | None = Field('"', min_length=1, max_length=1)
    """What fields with separators or line ends in them are wrapped in; null where quotes are ordinary characters."""
    encoding: Literal["utf-8", "latin-1"] = "utf-8"
    """How letters are written in a text."""
    names: tuple[str, ...] = ()
    """Names of the columns in order, for a text whose first line does not name them."""
    types: dict[str, RawType] = Field(default_factory=dict)
    """Types of columns where the first rows mislead: string keeps the zeros of "007". Of a list, the type of its elements."""
    times: dict[str, str] = Field(default_factory=dict)
    """How columns of times are written: `iso`, a format such as "%d.%m.%Y %H:%M" (as of strptime; what has no zone is UTC), or for
    numbers their unit since 1970, `s`, `ms`, `us` or `ns`. Without it the first rows tell it for `features.timestamp`."""
    lists: dict[str, ListOptions] = Field(default_factory=dict)
    """Columns with a list in each field of a text, with what separates its elements: {genres: "|"}."""

    @model_validator(mode="before")
    @classmethod
    def _only_files(cls, value: Any) -> Any:
        if isinstance(value, str | list | tuple):
            value = {"files": value}
        if not isinstance(value, Mapping):
            raise ValueError("has to be a path, a list of paths, or a mapping with files")
        files = value.get("files")
        return {**value, "files": (files,)} if isinstance(files, str) else value

    @model_validator(mode="after")
    def _described_columns_are_named(self) -> TableOptions:
        for option, columns in (("types", self.types), ("times", self.times), ("lists", self.lists)):
            unknown = [column for column in columns if self.names and column not in self.names]
            if unknown:
                raise ValueError(f"{option} has {', '.join(unknown)}, which is not in names")
        if len(set(self.names)) < len(self.names):
            raise ValueError("names has a name twice")
        return self

    @model_validator(mode="after")
    def _fields_can_be_told_apart(self) -> TableOptions:
        separator, quote = self.separator or "", self.quote or ""
        if not quote.isascii() or quote in {"\r", "\n", "\0"}:
            raise ValueError(f"quote has to be an ASCII character and no line end, not {quote!r}")
        if set(separator) & {"\r", "\n"}:
            raise ValueError(f"separator has a line end in it: {separator!r}")
        if quote and quote in separator:
            raise ValueError(
                f"separator {separator!r} has the quote {quote!r} in it; quote: null takes it as an ordinary character"
            )
        return self

    @field_validator("times")
    @classmethod
    def _can_be_read(cls, value: dict[str, str]) -> dict[str, str]:
        for how in value.values():
            odd = [part for part in re.findall("%.?", how) if part not in _DIRECTIVES]
            if "%f" in how.replace(".%f", ""):
                odd.append("%f without a dot before it")
            if odd or ("%" not in how and how not in _TIMES):
                raise ValueError(
                    f"{how!r} is no way to write times{f' ({odd[0]})' if odd else ''}: {', '.join(_TIMES)}, or a format of "
                    f"{' '.join(_DIRECTIVES)}; the name of a zone stands there as it is, such as %H:%M UTC, and has to be UTC"
                )
        return value

    @property
    def dialect(self) -> dict[str, Any]:
        """What was said of how it is written."""
        return self.model_dump(exclude={"files"}, exclude_defaults=True)

    @property
    def columns(self) -> tuple[RawColumn, ...]:
        """The columns of which something was said."""
        return tuple(map(self._column, self.names or dict.fromkeys((*self.types, *self.times, *self.lists))))

    def _column(self, name: str) -> RawColumn:
        dtype = self.types.get(name)
        if (how := self.lists.get(name)) is None:
            return RawColumn(name, dtype, nullable=True, time=self.times.get(name))
        return RawColumn(name, dtype or "string", separator=how.separator, empty=how.empty, nullable=True)


class FilesOptions(BaseModel):
    """Where the tables are."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    interactions: TableOptions
    """The table of interactions: a path, glob, folder, URL or list of them, or a mapping that says how it is written as well."""
    tables: dict[str, TableOptions] = Field(default_factory=dict)
    """Tables to join, by name, each the same."""

    @field_validator("tables")
    @classmethod
    def _interactions_apart(cls, value: dict[str, TableOptions]) -> dict[str, TableOptions]:
        if "interactions" in value:
            raise ValueError("'interactions' is a key beside tables, not one of them")
        return value

    @property
    def named(self) -> dict[str, TableOptions]:
        """All tables by name."""
        return {"interactions": self.interactions, **self.tables}


class Files:
    """The user's files as a Source; nothing is copied."""

    def __init__(self, options: FilesOptions) -> None:
        self._options = options

    @property
    def info(self) -> DatasetInfo:
        """The catalog's line."""
        return INFO

    def identity(self) -> dict[str, object]:
        """Return how every table is read, and size and time of change (or a server's tag) of its files.

        So an edited file is a new dataset.

        Raises:
            DataError: A file does not exist.
        """
        how = {name: table.dialect for name, table in self._options.named.items() if table.dialect}
        files = {table.name: [stamp(file) for file in table.files] for table in self.tables(Path())}
        return {"files": files, "how": how}

    def fetch(self, request: FetchRequest, emit: Emit) -> dict[str, object]:  # noqa: ARG002 - nothing to do but look
        """Check that the files are there; the folder stays empty.

        Raises:
            ConfigError: A suffix is not known, or differs inside a table.
            DataError: A file does not exist.
        """
        tables = self.tables(request.folder)
        return {"files": sum(len(table.files) for table in tables)}

    def tables(self, folder: Path) -> tuple[RawTable, ...]:  # noqa: ARG002 - the files are elsewhere
        """Describe the user's files; names and types that nothing was said of are taken from the files themselves.

        Raises:
            ConfigError: A suffix is not known, or differs inside a table; or an option is not for such files.
            DataError: A file does not exist.
            MissingExtraError: A URL needs a package that is not installed.
        """
        return tuple(_table(name, options) for name, options in self._options.named.items())

    def with_interactions(self, path: str) -> Files:
        """Return the same for another file with interactions, written as those of this one."""
        mine = self._options.interactions
        of_text = Path(path).suffix.lower() not in PARQUET
        plain = TableOptions(files=(path,), types=mine.types, times=mine.times)
        given = mine.model_copy(update={"files": (path,)}) if of_text else plain
        return Files(FilesOptions(interactions=given))


def _table(name: str, options: TableOptions) -> RawTable:
    files = locate(name, options.files)
    kind, separator = _format(name, options, [file.name for file in files])
    if kind == "parquet":
        text_only = [option for option in ("separator", "quote", "encoding", "names") if option in options.dialect]
        if text_only:
            raise ConfigError(f"table {name!r}: {', '.join(text_only)} is for text, and its files are parquet")
        return RawTable(name, files, options.columns, format=kind)
    return RawTable(
        name, files, options.columns, separator=options.separator or separator, header=not options.names,
        encoding=options.encoding, quote=options.quote,
    )  # fmt: skip


def _format(name: str, options: TableOptions, names: list[str]) -> tuple[Literal["csv", "parquet"], str]:
    suffixes = sorted({Path(unpacked_name(file)).suffix.lower() for file in names})
    if options.format is not None:
        return options.format, ","
    if options.separator is not None and PARQUET.isdisjoint(suffixes):
        return "csv", options.separator
    if len(suffixes) != 1 or suffixes[0] not in SUFFIXES:
        raise ConfigError(
            f"table {name!r}: cannot read files that end in {', '.join(suffixes) or 'nothing'} as one table",
            hint=f"all files of a table end in the same one of {', '.join(SUFFIXES)}, packed ({', '.join(COMPRESSIONS)}) or not; "
            "or say what they are: {files: …, format: csv}",
        )
    return SUFFIXES[suffixes[0]]


def info(name: str) -> DatasetInfo:
    """Return the catalog's line, which says little: the files are the user's."""
    return replace(INFO, name=name)


def options(name: str) -> DatasetOptions:  # noqa: ARG001 - the same for each
    """Return where the tables are, and how they are written."""
    return DatasetOptions(FilesOptions)


def source(name: str, options: Mapping[str, object]) -> Files:
    """Open the user's own files.

    Raises:
        ConfigError: An option is wrong.
    """
    known, of_table = (", ".join(model.model_fields) for model in (FilesOptions, TableOptions))
    hint = f"options of {name}: {known}; of a table that is more than a path: {of_table}"
    return Files(parse_options(FilesOptions, options, dataset=name, hint=hint))
