"""Tables behind the arguments of `recsys init`: files, archives, lakes, databases and queries, each with a sample of its rows."""

from __future__ import annotations

import os
import re
import shlex
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from recsys_cli.data.databases import is_database, quoted, table_queries
from recsys_cli.data.files import SUFFIXES, Files, FilesOptions, TableOptions, address, locate
from recsys_cli.data.raw_files import RawFile, holds_secret, is_url, unpacked_name
from recsys_cli.data.source import RawTable
from recsys_cli.detect.dialect import HeadingsError, dialect, is_number
from recsys_cli.detect.names import is_known
from recsys_cli.errors import ConfigError, DataError, RecsysError, listed
from recsys_cli.etl.reading.reader import Reader
from recsys_cli.etl.reading.rows import missing_texts
from recsys_cli.features.spec import is_list

_NO_TABLE = re.compile(
    r"(?i)(^|/)(readme|licen[cs]e|citation|changelog|\.|_|__macosx)"
    r"|\.(md|rst|html?|pdf|docx?|png|jpe?g|svg|py|ipynb|sh|pl|npy|npz|pkl|pt|json5|ya?ml|sql|bib|tex|log|md5|sha\d+)$"
)
_QUERY = re.compile(r"(?is)\s*(select|with|from)\s")
_CATALOG_TABLE = re.compile(r"[\w-]+(\.[\w-]+){2,}")
_ARCHIVES = {"zip": (".zip",), "tar": (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")}


def copied_tables(patterns: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """Return the names and options of the tables in lakes and databases; without plain columns the query is None.

    A query applies to the database among the patterns, if there is one.

    Raises:
        ConfigError: No environment variable has the address of a database, or a query has several databases.
    """
    queries = [pattern for pattern in patterns if is_query(pattern)]
    others = [pattern for pattern in patterns if pattern not in queries]
    databases = {pattern: {"database": variable(pattern, "a database")} for pattern in others if is_database(pattern)}
    if queries and len(databases) > 1:
        raise ConfigError("a query of several databases", hint="name one database, and its query")
    found: list[tuple[str, dict[str, Any]]] = []
    for query in queries:
        named = re.search(r"(?is)\bfrom\s+[\"']?([^\s\"';]+)", query)
        database = next(iter(databases.values()), {})
        found.append((Path(named[1]).stem if named else "query", {"query": query.strip().rstrip(";"), **database}))
    for one, database in () if queries else databases.items():
        found += [(name, {"query": query, **database}) for name, query in table_queries(one)]
    for pattern in others:
        if pattern not in databases and (lake := _lake_table(pattern)):
            found.append((pattern.rstrip("/").rpartition("/")[2].rpartition(".")[2], lake))
    return found


def is_copied(pattern: str) -> bool:
    """Whether a pattern names a table of a lake or a database."""
    return is_query(pattern) or is_database(pattern) or _lake_table(pattern) is not None


def is_query(pattern: str) -> bool:
    """Whether a text is a query."""
    return _QUERY.match(pattern) is not None and not os.path.exists(pattern)  # noqa: PTH110 - no error for long texts


def members(pattern: str) -> list[str]:
    """Return a path or URL of a file or of a partitioned folder, or the paths of the tables in a folder, glob or archive.

    Raises:
        ConfigError: There is no file.
    """
    if holds_secret(pattern):
        pattern = f"${variable(pattern, 'a signed address')}"
    kind = _archive(address(pattern))
    if kind is not None and pattern.startswith("$"):
        raise ConfigError(f"{pattern} is an archive", hint="download it, and name its file")
    if pattern.startswith("$"):
        return [pattern]
    if kind is None and is_partitioned(pattern):
        return [pattern]
    if kind is None and (is_url(pattern) or Path(pattern).is_file()):
        return [pattern]
    if kind is None:
        folder = f"{pattern}/" if Path(pattern).is_dir() else ""
        paths = [str(file) for file in located(pattern)]
        return [path for path in paths if not folder or not _NO_TABLE.search(path.removeprefix(folder))]
    files = located(f"{kind}://**::{pattern}")
    return [str(file) for file in files if not _NO_TABLE.search(str(file).partition("::")[0].partition("://")[2])]


def is_partitioned(pattern: str) -> bool:
    """Whether a pattern is a local folder of one table with folders named column=value."""
    return not is_url(pattern) and Path(pattern).is_dir() and any(one.is_dir() for one in Path(pattern).glob("*=*"))


def located(pattern: str) -> tuple[RawFile, ...]:
    """Return the files of a pattern.

    Raises:
        ConfigError: There is no file.
    """
    try:
        return locate("interactions", [pattern])
    except DataError as error:
        missing = "there is no file" in str(error)
        raise ConfigError(f"no file {pattern}" if missing else str(error), hint=error.hint) from error


def _archive(pattern: str) -> str | None:
    """Return the protocol for the members of an archive."""
    if "::" in pattern:
        return None
    if is_url(pattern):
        address = pattern.partition("?")[0].lower()
        return next((kind for kind, suffixes in _ARCHIVES.items() if address.endswith(suffixes)), None)
    if not Path(pattern).is_file():
        return None
    if zipfile.is_zipfile(pattern):
        return "zip"
    return "tar" if pattern.lower().endswith(_ARCHIVES["tar"]) and tarfile.is_tarfile(pattern) else None


def _lake_table(pattern: str) -> dict[str, Any] | None:
    if is_url(pattern):
        return _remote_lake(pattern)
    if TableOptions.model_validate(pattern).copied_as is not None:
        return {"files": pattern}
    if _CATALOG_TABLE.fullmatch(pattern) and not Path(pattern).exists() and _has_catalog(pattern.partition(".")[0]):
        return {"files": pattern, "format": "iceberg"}
    return None


def _remote_lake(url: str) -> dict[str, Any] | None:
    """Return the options of a table in a folder of object storage; web servers have no folders."""
    if url.startswith("http") or "::" in url or Path(url).suffix or "*" in url:
        return None
    for kind, mark in (("delta", "_delta_log/*.json"), ("iceberg", "metadata/*.metadata.json")):
        try:
            if locate("interactions", [f"{url.rstrip('/')}/{mark}"]):
                return {"files": url, "format": kind}
        except DataError:
            continue
    return None


def _has_catalog(name: str) -> bool:
    """Whether pyiceberg knows a catalog."""
    try:
        from pyiceberg.utils.config import Config
    except ImportError:
        return False
    return Config().get_catalog_config(name) is not None


def variable(address: str, what: str) -> str:
    """Return the environment variable with the address of a database or a signed URL; configs hold no such addresses.

    Raises:
        ConfigError: There is none.
    """
    found = (name for name, value in os.environ.items() if value == address and name.isidentifier() and name != "_")
    if (name := next(found, None)) is not None:
        return name
    is_server = "://" in address
    shown = f"{address.partition('://')[0]}://…" if is_server else address
    raise ConfigError(
        f"{shown} is {what}, and configs name the environment variable of its address",
        hint=f'export SHOP={shown if is_server else shlex.quote(address)}, then recsys init "$SHOP"; with a query: recsys init '
        '"$SHOP" "SELECT …"',
    )


SAMPLE_ROWS = 200_000
_LATER_ROWS, _MOST_ROWS = 25_000, 2_000_000
_SPLIT_WORDS = {
    "train": "train", "training": "train", "base": "train", "valid": "valid", "validation": "valid", "val": "valid", "dev": "valid",
    "test": "test", "testing": "test",
}  # fmt: skip
_TYPED_SUFFIXES = frozenset({".user", ".item", ".inter", ".genre", ".occupation", ".link", ".kg"})
_INDEX = re.compile(r"(Unnamed: \d+(\.\d+)*|__index_level_\d+__)?")
_CHUNK = 4 << 20


@dataclass(frozen=True)
class Sample:
    """A table of the user.

    Attributes:
        name: Name for the config.
        options: The table's section in the config, `files` among them.
        rows: The first rows, and of larger tables some of the middle and the end.
        total: Number of rows, estimated unless `is_whole`.
        bad: Number of unreadable rows in the sample.
        remarks: What is not read of the table.
        splits: Files of the splits by name, where the table is given in these; its own file is that of train.
    """

    name: str
    options: dict[str, Any]
    rows: pa.Table
    total: int
    is_whole: bool
    bad: int = 0
    remarks: tuple[str, ...] = ()
    splits: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_headless(self) -> bool:
        """Whether the column names are placeholders."""
        return str(self.options.get("names", ("",))[0]) == "column1"

    @property
    def address(self) -> str:
        """The first file, or the name of a table without files."""
        files = self.options.get("files", self.name)
        return str(files if isinstance(files, str) else files[0])

    def renamed(self, new: Mapping[str, str]) -> Sample:
        """Return the table with other names for the columns of text without a header, by old name."""
        options = {**self.options, "names": tuple(new[name] for name in self.options["names"])}
        options |= {name: new[options[name]] for name in ("explode", "clicks", "line") if name in options}
        if "lists" in options:
            options["lists"] = {new[name]: one for name, one in options["lists"].items()}
        return replace(
            self, options=options, rows=self.rows.rename_columns([new[name] for name in self.rows.column_names])
        )


def tables(patterns: Sequence[str]) -> list[Sample]:
    """Return the tables of some paths, globs, folders, URLs, archives, lakes and databases; files of one shape are one table.

    Raises:
        ConfigError: There is no file, or a file is no table.
        DataError: A file is unreadable.
    """
    groups: dict[tuple[object, ...], tuple[dict[str, Any], list[str], list[str]]] = {}
    all_paths = [path for pattern in patterns if not is_copied(pattern) for path in members(pattern)]
    no_tables: dict[str, RecsysError] = {}
    for path in all_paths:
        files = located(path)
        try:
            options = dialect(files[0])
            shape = _shape(path, files[0], options) if len(all_paths) > 1 else ()
        except (ConfigError, DataError) as error:
            if path in patterns or isinstance(error, HeadingsError):
                raise
            no_tables[path] = error  # in a folder as published
            continue
        _, paths, names = groups.setdefault(shape, (options, [], []))
        paths.append(path)
        names.append(Path(path).name if is_partitioned(path) else files[0].name)
    found: dict[str, Sample] = {}
    for options, paths, names in groups.values():
        splits, whole = _splits(paths)
        name = _name(names[paths.index(whole[0])], taken=found)
        together = next((one for one in patterns if len(whole) > 1 and _is_all_of(one, whole)), None)
        sample = sampled(name, {"files": together or (whole[0] if len(whole) == 1 else tuple(whole)), **options})
        left_out = [path for path in paths if path not in {*whole, *splits.values()}]
        remarks = sample.remarks
        if left_out:
            remarks += (
                f"{name}: files of its splits are left out, because they repeat its rows: {', '.join(left_out)}",
            )
        found[name] = replace(sample, splits=splits, remarks=remarks)
    for stem, options in copied_tables(patterns):
        name = _name(stem, taken=found)
        has_columns = options.get("query", "") is not None
        found[name] = sampled(name, options) if has_columns else Sample(name, options, pa.table({}), 0, is_whole=True)
    if not found and no_tables:
        raise next(iter(no_tables.values()))
    if not found:
        raise ConfigError("no table in these files", hint="name CSV, TSV, JSON lines or Parquet files")
    first, *rest = found.values()
    notes = tuple(f"{path} is left out: {str(error).removeprefix(f'{path}: ')}" for path, error in no_tables.items())
    return [replace(first, remarks=first.remarks + notes), *rest]


def _is_all_of(pattern: str, paths: Sequence[str]) -> bool:
    """Whether a glob or folder has these files alone: it stays in the config, for files to come."""
    return (
        not is_copied(pattern) and _archive(pattern) is None and [str(one) for one in located(pattern)] == list(paths)
    )


def _splits(paths: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the files of the splits by name, and the files of the table: that of train, or all that are not of a split."""
    parts: dict[str | None, list[str]] = {}
    for path in paths:
        words = re.split(r"[^a-z]+", Path(path.partition("::")[0]).name.lower())
        parts.setdefault(next((_SPLIT_WORDS[word] for word in words if word in _SPLIT_WORDS), None), []).append(path)
    if not {"train", "test"} <= set(parts):
        return {}, list(paths)
    if whole := parts.get(None):
        return {}, whole
    if any(len(files) > 1 for files in parts.values()):
        return {}, list(paths)
    splits: dict[str, str] = {name: parts[name][0] for name in ("train", "valid", "test") if name in parts}
    return splits, [splits["train"]]


def _shape(path: str, file: RawFile, options: dict[str, Any]) -> tuple[object, ...]:
    """Return what files of one table share: the dialect, and the columns with their types."""
    suffix = Path(unpacked_name(file.name)).suffix.lower()
    rows = sampled("probe", {"files": path, **options}, limit=100).rows
    cells = [str(column[0].as_py()) if len(column) else "" for column in rows.columns] if "names" in options else []
    kinds = [is_number(cell) for cell in cells]
    return (
        suffix if suffix in SUFFIXES else "",
        repr({**options, "encoding": None}),
        frozenset(rows.column_names),
        tuple(kinds),
    )


def _name(file: str, *, taken: dict[str, Sample]) -> str:
    own = Path(unpacked_name(file))
    stem = re.sub(r"\W+", "_", own.name if own.suffix in _TYPED_SUFFIXES else own.stem).strip("_") or "table"
    stem = "events" if stem == "interactions" else stem
    return next(name for name in (stem, *(f"{stem}_{n}" for n in range(2, 1_000))) if name not in taken)


def _why_not(column: pa.Field) -> str | None:
    """Return why a column stays out of the config; None for other columns."""
    if _INDEX.fullmatch(column.name):
        return f"the column {column.name!r} is the number of the row, as pandas writes it, and is not used"
    if not _is_nested(column.type):
        return None
    if not (keys := _keys(column)):
        return f"the column {column.name} has values of type {column.type}, which are not read"
    what = "lists of objects" if is_list(column.type) else "objects"
    return f"the column {column.name} has {what} ({listed(keys)}), which are not read"


def _keys(column: pa.Field) -> list[str]:
    """Return the keys of a column of objects or of lists of objects; empty for other columns."""
    inner = column.type.value_type if is_list(column.type) else column.type
    return [one.name for one in inner] if pa.types.is_struct(inner) else []


def _flat(columns: list[pa.Field], table: RawTable) -> str:
    """Return a query, quoted for a shell, that makes columns of objects: of keys usual for a role or else all; and of a list."""
    paths = [(one.name, key) for one in columns if not is_list(one.type) for key in _keys(one)]
    usual = [(name, key) for name, key in paths if is_known(key) or is_known(f"{name}_{key}")]
    found = [f"{quoted(name)}.{quoted(key)} AS {quoted(f'{name}_{key}')}" for name, key in usual or paths]
    lists = sorted((one for one in columns if is_list(one.type)), key=lambda one: not any(map(is_known, _keys(one))))
    found += [f"unnest({quoted(one.name)}, recursive := true)" for one in lists[:1]]
    names = ", ".join(quoted(one.name) for one in columns)
    return shlex.quote(f"SELECT * EXCLUDE ({names}), {', '.join(found)} FROM {quoted(str(table.files[0]))}")  # noqa: S608 - printed


def _is_nested(kind: pa.DataType) -> bool:
    """Whether the values of a column are no values or lists of values; such columns stay out of the config."""
    inner = kind.value_type if is_list(kind) else kind
    return bool(pa.types.is_nested(inner) or (is_list(kind) and pa.types.is_null(inner)) or pa.types.is_binary(inner))


def sampled(name: str, options: dict[str, Any], *, limit: int = SAMPLE_ROWS) -> Sample:
    """Return the first rows of a table, given by its section in the config, and some of its middle and its end.

    Raises:
        ConfigError: A file is no table.
        DataError: A file is unreadable.
    """
    source = Files(FilesOptions.model_validate({"interactions": options}))
    with TemporaryDirectory(prefix="recsys-") as folder:
        totals = source.sample(Path(folder), limit)
        reader = Reader(source.tables(Path(folder))[0], skip_bad=True, chunk_bytes=_CHUNK, threads=1, padded=set())
        try:
            schema = reader.schema()
            left_out = {one.name: _why_not(one) for one in schema}
            reader.columns = tuple(name for name, reason in left_out.items() if reason is None)
            rows, is_whole = reader.head(3 * limit)
            total = rows.num_rows if is_whole else max(reader.estimated_rows(), rows.num_rows)
            remarks = [f"{name}: {reason}" for reason in left_out.values() if reason]
            if nested := [one for one in schema if left_out[one.name] and _keys(one)]:
                remarks.append(f"{name}: a query makes columns of objects: recsys init {_flat(nested, reader.table)}")
            if not is_whole and limit == SAMPLE_ROWS:
                later, has_end = reader.later(_LATER_ROWS, _MOST_ROWS)
                rows = pa.concat_tables([rows.slice(0, limit), later])
                if not has_end:
                    remarks.append(f"{name}: only the first {_MOST_ROWS:,} rows are sampled: it is packed or remote")
            if reader.padded:  # after the first rows, which typed the column
                texts = dict.fromkeys(sorted(reader.padded), "string")
                return sampled(name, {**options, "types": {**options.get("types", {}), **texts}}, limit=limit)
            rows = missing_texts(rows, rows.column_names, reader.table)
        except DataError as error:
            if "not a Parquet file" in str(error):
                raise ConfigError(str(error).replace("Parquet", "parquet", 1), hint=error.hint) from error
            raise
    copied = totals.get("interactions", 0)
    is_whole = is_whole and copied <= limit
    return Sample(name, options, rows, max(total, copied), is_whole, len(reader.rejected), tuple(remarks))
