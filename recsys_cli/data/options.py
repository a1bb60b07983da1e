"""Validation of dataset options: all mistakes in one error, with suggestions for unknown keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from recsys_cli.data.raw_files import holds_secret
from recsys_cli.data.selection import SinceValue
from recsys_cli.data.selection import check as check_since
from recsys_cli.data.source import NULLS, RawColumn, RawType
from recsys_cli.errors import ConfigError
from recsys_cli.frozen import Frozen
from recsys_cli.registry import suggest

Options = TypeVar("Options", bound=BaseModel)


def parse_options(
    model: type[Options], options: Mapping[str, object], *, dataset: str, hint: str | None = None
) -> Options:
    """Parse the config's dataset section into typed options.

    Raises:
        ConfigError: Some options are invalid; the message lists all of them.
    """
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        known = list(model.model_fields)
        lines = [_line(dict(detail), known) for detail in error.errors(include_url=False)]
        raise ConfigError(
            "\n  ".join([f"dataset {dataset!r} cannot be opened:", *lines]),
            hint=hint or (f"options of {dataset}: {', '.join(known)}" if known else f"{dataset} has no options"),
        ) from error


def _line(detail: dict[str, Any], known: list[str]) -> str:
    where = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        return f"dataset.{where}: unknown option{suggest(where, known)}"
    if detail["type"] == "missing":
        return f"dataset.{where}: is required"
    # A check over several fields has no location; pydantic adds a prefix to the text of a ValueError.
    text = str(detail["msg"]).removeprefix("Value error, ")
    got = repr(detail["input"])
    got = "" if holds_secret(got) else f" (got {got})"
    return f"dataset.{where}: {text}{got}" if where else f"dataset: {text}"


_LONGEST_NAME = 255
_TIMES = ("iso", "s", "ms", "us", "ns")
_DIRECTIVES = tuple(f"%{letter}" for letter in "YymdeHIMSfpzbBaAj")


class ListOptions(Frozen):
    """Format of list fields in text files."""

    separator: str = Field(min_length=1)
    """Separator of the elements, as "|" in "Comedy|Drama"."""
    empty: str = ""
    """Representation of an empty list, such as "(no genres listed)"."""

    @model_validator(mode="before")
    @classmethod
    def _only_separator(cls, value: Any) -> Any:
        return {"separator": value} if isinstance(value, str) else value


class TableOptions(Frozen):
    """Files and dialect of a table; a path or list of paths is short for `files`."""

    files: tuple[str, ...] = Field((), min_length=1)
    """Path, glob ("ratings/*.csv.gz"), folder or URL ("s3://bucket/*.parquet"), or a list of these.

    Paths are relative to the working directory. Folders named column=value below a folder become columns.
    """
    format: Literal["csv", "parquet", "jsonl", "delta", "iceberg"] | None = None
    """Format of files without a known suffix: csv is text with any separator, jsonl text with an object per line; delta and
    iceberg name one table, by its folder or URL, or as CATALOG.NAMESPACE.TABLE of Iceberg. Default: by suffix, and by the log
    of a local folder."""
    separator: str | None = Field(None, min_length=1)
    """Field separator of text, one character or more, or "\\s+" for any number of spaces and tabs; None for the default of the
    suffix, a comma or a tab."""
    quote: str | None = Field('"', min_length=1, max_length=1)
    """Quote character around fields with separators or line ends; null for quotes as ordinary characters."""
    encoding: Literal["utf-8", "latin-1"] = "utf-8"
    """Character encoding of text."""
    decimal: Literal[".", ","] = "."
    """Decimal mark of numbers in text, as in "3,5"."""
    nulls: tuple[str, ...] = NULLS
    """Texts that are missing values, besides the empty one; [] for tables where NA or None is a real value. A quoted "NA" of a
    text file is always real."""
    names: tuple[str, ...] = ()
    """Names of the columns in order, for text without a header; of .npy files, an array per column, the file names by default."""
    types: dict[str, RawType] = Field(default_factory=dict)
    """Types of columns, to override inference: string keeps the zeros of "007". For lists, the type of the elements."""
    times: dict[str, str] = Field(default_factory=dict)
    """Formats of time columns: `iso`, a strptime format such as "%d.%m.%Y %H:%M" (UTC without a zone), or for numbers
    since 1970 their unit `s`, `ms`, `us` or `ns`. Default for `features.timestamp`: detected in the first rows."""
    lists: dict[str, ListOptions] = Field(default_factory=dict)
    """List columns of text, with the separator of the elements: {genres: "|"}. A last column with the separator of the fields
    takes the rest of the line, as in `user item item item`."""
    explode: str | None = None
    """List column with a row for each element instead of one for the list; the other columns repeat."""
    clicks: str | None = None
    """Name of a new column with the 0 or 1 at the end of the elements of `explode`, as in impressions `N1-1 N2-0`."""
    order: str | None = None
    """Name of a new column with the number of the row in the table, after `explode`: a time for tables without one."""
    line: str | None = None
    """Name of a new column with the number of the row before `explode`: a session for lines of items without an id."""
    rename: dict[str, str] = Field(default_factory=dict)
    """New names of columns in a table to join, for a key with another name than in the interactions: {id: user_id}."""
    version: int | None = Field(None, ge=0)
    """Version of a Delta table or snapshot id of an Iceberg table. Default: the newest."""
    query: str | None = None
    """SELECT statement, in place of files, for DuckDB or the database; it reads only. `recsys download` keeps its rows."""
    database: str | None = None
    """Environment variable with the query's database: the path of a DuckDB or SQLite file, or an address
    (postgres://, mysql://). Never the address itself, because configs are stored. Default: files only."""
    since: dict[str, SinceValue] = Field(default_factory=dict)
    """New rows only, by the least value of a column: {timestamp: 2026-01-31}, {event_id: 1000000}, or a time span
    before the newest row: {timestamp: 30d} (s, min, h, d, w). Whole partition folders before it are not read."""

    @model_validator(mode="before")
    @classmethod
    def _only_files(cls, value: Any) -> Any:
        if isinstance(value, str | list | tuple):
            value = {"files": value}
        if not isinstance(value, Mapping):
            raise ValueError("has to be a path, a list of paths, or a mapping with files or a query")
        files = value.get("files")
        return {**value, "files": (files,)} if isinstance(files, str) else value

    @model_validator(mode="after")
    def _one_origin(self) -> TableOptions:
        if (self.query is None) == (not self.files):
            raise ValueError("needs either files or a query")
        if self.query is None and self.database is not None:
            raise ValueError("database is for a query")
        if self.query is not None and holds_secret(self.query):
            raise ValueError(
                "the query holds a secret, and configs are stored: name a variable with the address as database"
            )
        if any(map(holds_secret, self.files)):
            raise ValueError(
                "an address of files has a password or a signature, and configs are stored: export PLAYS=ADDRESS, and set "
                "files: $PLAYS"
            )
        kind = "query" if self.query is not None else self.format
        if self.version is not None and kind not in {None, "delta", "iceberg"}:
            raise ValueError("version is for Delta and Iceberg tables")
        if kind in {"query", "delta", "iceberg"}:
            text = [name for name in ("separator", "quote", "encoding", "names", "lists") if name in self.dialect]
            if text:
                raise ValueError(f"{', '.join(text)} is for text")
            if len(self.files) > 1:
                raise ValueError(f"format {kind} takes one table, by one address in files")
        return self

    @field_validator("files")
    @classmethod
    def _files_have_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for file in value:
            if "://" not in file and any(
                len(part.encode(errors="replace")) > _LONGEST_NAME for part in file.split("/")
            ):
                raise ValueError(f"has a file name of more than {_LONGEST_NAME} bytes: {file[:40]}…")
        return value

    @field_validator("database")
    @classmethod
    def _database_is_a_variable(cls, value: str | None) -> str | None:
        if value is not None and not value.isidentifier():  # the message leaves out the value, possibly an address
            raise ValueError("has to be the name of an environment variable with the address, such as PLAYS")
        return value

    @field_validator("since")
    @classmethod
    def _since_is_valid(cls, value: dict[str, SinceValue]) -> dict[str, SinceValue]:
        for moment in value.values():
            check_since(moment)
        return value

    @model_validator(mode="after")
    def _declared_columns_are_named(self) -> TableOptions:
        for option, columns in (("types", self.types), ("times", self.times), ("lists", self.lists)):
            unknown = [column for column in columns if self.names and column not in self.names]
            if unknown:
                raise ValueError(f"{option} has {', '.join(unknown)}, not in names")
        if len(set(self.names)) < len(self.names):
            raise ValueError("names has a duplicate")
        return self

    @model_validator(mode="after")
    def _clicks_are_exploded(self) -> TableOptions:
        if self.clicks is not None and self.explode is None:
            raise ValueError("clicks needs explode, the list column of the candidates")
        return self

    @model_validator(mode="after")
    def _only_the_last_takes_the_rest(self) -> TableOptions:
        wrong = [
            name
            for name, one in self.lists.items()
            if one.separator == self.separator and name != (*self.names, "")[-2]
        ]
        if wrong:
            raise ValueError(
                f"lists: {wrong[0]} has the separator of the fields; only the last of names takes the rest of a line"
            )
        return self

    @model_validator(mode="after")
    def _dialect_is_unambiguous(self) -> TableOptions:
        separator, quote = self.separator or "", self.quote or ""
        if not quote.isascii() or quote in {"\r", "\n", "\0"}:
            raise ValueError(f"quote has to be an ASCII character other than a line end, not {quote!r}")
        if set(separator) & {"\r", "\n"}:
            raise ValueError(f"separator contains a line end: {separator!r}")
        if quote and quote in separator:
            raise ValueError(
                f"separator {separator!r} contains the quote {quote!r}; quote: null makes quotes ordinary characters"
            )
        return self

    @field_validator("times")
    @classmethod
    def _formats_are_valid(cls, value: dict[str, str]) -> dict[str, str]:
        for how in value.values():
            invalid = [part for part in re.findall("%.?", how) if part not in _DIRECTIVES]
            if "%f" in how.replace(".%f", ""):
                invalid.append("%f without a dot before it")
            if invalid or ("%" not in how and how not in _TIMES):
                raise ValueError(
                    f"{how!r} is not a time format{f' ({invalid[0]})' if invalid else ''}: use {', '.join(_TIMES)}, "
                    f"or a format of {' '.join(_DIRECTIVES)}; the only zone name is a literal UTC, as in %H:%M UTC"
                )
        return value

    @property
    def copied_as(self) -> Literal["delta", "iceberg", "query"] | None:
        """The kind of a table to copy; None for files that are read in place."""
        if self.query is not None:
            return "query"
        if self.format in {"delta", "iceberg"}:
            return self.format
        if self.format is None and len(self.files) == 1 and (folder := Path(self.files[0])).is_dir():
            if (folder / "_delta_log").is_dir():
                return "delta"
            if any((folder / "metadata").glob("*.metadata.json")):
                return "iceberg"
        return None

    @property
    def dialect(self) -> dict[str, Any]:
        """The dialect options with non-default values."""
        return self.model_dump(exclude={"files"}, exclude_defaults=True)

    @property
    def columns(self) -> tuple[RawColumn, ...]:
        """The columns with a declared name, type, time format or list separator."""
        return tuple(map(self._column, self.names or dict.fromkeys((*self.types, *self.times, *self.lists))))

    def _column(self, name: str) -> RawColumn:
        dtype = self.types.get(name)
        if (lists := self.lists.get(name)) is None:
            return RawColumn(name, dtype, nullable=True, time=self.times.get(name))
        return RawColumn(name, dtype or "string", separator=lists.separator, empty=lists.empty, nullable=True)


class FilesOptions(Frozen):
    """Files of the interactions and of the tables to join."""

    interactions: TableOptions
    """The table of interactions: a path, glob, folder, URL or a list of these, or a mapping with dialect options."""
    tables: dict[str, TableOptions] = Field(default_factory=dict)
    """Tables to join, by name, in the same form."""

    @field_validator("tables")
    @classmethod
    def _no_table_is_named_interactions(cls, value: dict[str, TableOptions]) -> dict[str, TableOptions]:
        if "interactions" in value:
            raise ValueError("'interactions' is a key next to tables, not a table")
        return value

    @field_validator("interactions")
    @classmethod
    def _interactions_keep_their_names(cls, value: TableOptions) -> TableOptions:
        if value.rename:
            raise ValueError(
                "rename is for tables to join; features.ops rename columns of the interactions (op: Rename)"
            )
        return value

    @property
    def named(self) -> dict[str, TableOptions]:
        """All tables by name."""
        return {"interactions": self.interactions, **self.tables}
