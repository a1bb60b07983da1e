"""Tables of the given files, each with a sample of its first rows."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from recsys_cli.data.files import Files, FilesOptions
from recsys_cli.data.locate import locate
from recsys_cli.data.remote import RawFile, is_url
from recsys_cli.data.streams import unpacked_name
from recsys_cli.detect.dialect import dialect, is_number
from recsys_cli.errors import ConfigError, DataError
from recsys_cli.etl.reading.reader import Reader
from recsys_cli.features.spec import is_list

SAMPLE_ROWS = 200_000
_CHUNK = 4 << 20
_NO_TABLE = re.compile(r"(?i)(^|/)(readme|license|\.|__macosx)|\.(md|html?|pdf|docx?|png|jpe?g|py|sh|npy|json5|ya?ml)$")


@dataclass(frozen=True)
class Sample:
    """A table of the user.

    Attributes:
        name: Name for the config.
        options: The table's section in the config, `files` among them.
        rows: The first rows.
        total: Number of rows, estimated unless `is_whole`.
        bad: Number of unreadable rows in the sample.
    """

    name: str
    options: dict[str, Any]
    rows: pa.Table
    total: int
    is_whole: bool
    bad: int = 0

    @property
    def is_headless(self) -> bool:
        """Whether the column names are placeholders."""
        return str(self.options.get("names", ("",))[0]) == "column1"

    def renamed(self, names: Sequence[str]) -> Sample:
        """Return the table with other names for the columns of text without a header."""
        return replace(self, options={**self.options, "names": tuple(names)}, rows=self.rows.rename_columns(names))


def tables(patterns: Sequence[str]) -> list[Sample]:
    """Return the tables of some paths, globs, folders, URLs and zip archives; files of one shape are one table.

    Raises:
        ConfigError: There is no file, or a file is no table.
        DataError: A file is unreadable.
    """
    groups: dict[tuple[object, ...], tuple[dict[str, Any], list[str], list[str]]] = {}
    for pattern in patterns:
        members = _members(pattern)
        for path in members:
            files = _files(path)
            options = dialect(files[0])
            shape = (*_shape(path, files[0], options),)
            _, paths, names = groups.setdefault(shape, (options, [], []))
            paths.append(path)
            names.append(files[0].name)
    if not groups:
        raise ConfigError("no table in these files", hint="name CSV, TSV, JSON lines or Parquet files")
    found: dict[str, Sample] = {}
    for options, paths, names in groups.values():
        name = _name(names[0], taken=found)
        found[name] = _sampled(name, {"files": paths[0] if len(paths) == 1 else tuple(paths), **options})
    return list(found.values())


def _members(pattern: str) -> list[str]:
    """Return a pattern, or the tables in a zip archive."""
    path = Path(pattern)
    if is_url(pattern) or not path.is_file() or not zipfile.is_zipfile(path):
        return [pattern] if is_url(pattern) or path.is_file() else [str(file) for file in _files(pattern)]
    with zipfile.ZipFile(path) as archive:
        names = [info.filename for info in archive.infolist() if not info.is_dir() and info.file_size]
    return [f"zip://{name}::{pattern}" for name in names if not _NO_TABLE.search(name)]


def _files(pattern: str) -> tuple[RawFile, ...]:
    try:
        return locate("interactions", [pattern])
    except DataError as error:
        raise ConfigError(
            f"no file {pattern}" if "there is no file" in str(error) else str(error), hint=error.hint
        ) from error


def _shape(path: str, file: RawFile, options: dict[str, Any]) -> tuple[object, ...]:
    """Return what files of one table share: the dialect, and the columns with their types."""
    suffix = Path(unpacked_name(file.name)).suffix.lower()
    rows = _sampled("probe", {"files": path, **options}, limit=100).rows
    cells = [str(column[0].as_py()) if len(column) else "" for column in rows.columns] if "names" in options else []
    kinds = [is_number(cell) for cell in cells]
    return suffix, repr({**options, "encoding": None}), tuple(rows.column_names), tuple(kinds)


def _name(file: str, *, taken: dict[str, Sample]) -> str:
    stem = re.sub(r"\W+", "_", Path(unpacked_name(file)).stem).strip("_") or "table"
    stem = "events" if stem == "interactions" else stem
    return next(name for name in (stem, *(f"{stem}_{n}" for n in range(2, 1_000))) if name not in taken)


def raw_table(options: dict[str, Any]) -> Any:
    """Return the description of a table for the reader."""
    return Files(FilesOptions.model_validate({"interactions": options})).tables(Path())[0]


def _is_nested(kind: pa.DataType) -> bool:
    """Whether the values of a column are no values or lists of values; such columns stay out of the config."""
    inner = kind.value_type if is_list(kind) else kind
    return bool(pa.types.is_nested(inner) or (is_list(kind) and pa.types.is_null(inner)) or pa.types.is_binary(inner))


def _sampled(name: str, options: dict[str, Any], *, limit: int = SAMPLE_ROWS) -> Sample:
    reader = Reader(raw_table(options), skip_bad=True, chunk_bytes=_CHUNK, threads=1)
    try:
        reader.columns = tuple(field.name for field in reader.schema() if not _is_nested(field.type))
        parts, count, is_whole = [reader.schema().empty_table()], 0, True
        with closing(reader.batches()) as batches:
            for batch in batches:
                parts.append(batch)
                count += batch.num_rows
                if count >= limit:
                    is_whole = next(iter(batches), None) is None and count <= limit
                    break
        rows = pa.concat_tables(parts).slice(0, limit)
        total = rows.num_rows if is_whole else max(reader.estimated_rows(), count)
    except DataError as error:
        if "not a Parquet file" in str(error):
            raise ConfigError(str(error).replace("Parquet", "parquet", 1), hint=error.hint) from error
        raise
    return Sample(name, options, rows, total, is_whole, bad=len(reader.rejected))
