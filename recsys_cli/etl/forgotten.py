"""Tables and prepared data without forgotten ids. Other ids keep their numbers; a forgotten value is null in its vocabulary."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, reduce
from html import escape
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recsys_cli.config import load
from recsys_cli.etl.filters import RowCount
from recsys_cli.etl.report import EtlCounts, write_report
from recsys_cli.etl.transform import write_table
from recsys_cli.features.columns import USER_HASH, row_column
from recsys_cli.features.hashing import can_hash, hash_values
from recsys_cli.features.parquet import read_parquet
from recsys_cli.features.schema import FIRST, UNSEEN, Column, Role, file_of
from recsys_cli.features.spec import cast_ids, is_list, is_text
from recsys_cli.features.split import SPLITS
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.grouping import KEY, members, name_of
from recsys_cli.ops.program import GATHERED
from recsys_cli.ops.values import set_column
from recsys_cli.workspace import PreparedData

FORGOTTEN = "forgotten"
"""Key of manifests: how often the prepared data has forgotten ids. Also the folder of receipts."""
_REASONS = "because"
"""Column of titles and ids of items in a file of recommendations."""


@dataclass(frozen=True)
class Forgotten:
    """Users and items to forget.

    Attributes:
        ids: Raw ids as text, by role.
        names: Names of the columns with ids, by role.
        numeric: Roles whose ids are whole numbers, so that 011 is 11.
    """

    ids: Mapping[Role, tuple[str, ...]]
    names: Mapping[Role, set[str]]
    numeric: set[Role]

    def roles(self, name: str) -> list[Role]:
        """Return the roles of a column with ids to forget."""
        return [role for role, names in self.names.items() if name in names and self.ids[role]]

    def mask(self, role: Role, values: pa.Array) -> pa.Array:
        """Return the mask of forgotten values, in any spelling of `cast_ids`."""
        values = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
        wanted = cast_ids(self.ids[role], values.type).drop_null()
        if is_text(values.type):
            wanted = pa.array([one for one in values.unique().to_pylist() if self.is_one(role, one)], values.type)
        return pc.is_in(values, value_set=wanted)

    def is_one(self, role: Role, value: Any) -> bool:
        """Whether one value is a forgotten id; null is none."""
        text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        number = cast_ids([text], pa.int64())[0].as_py() if role in self.numeric else None
        return value is not None and (text in self.ids[role] or (number is not None and number in self._numbers))

    def is_in(self, content: bytes) -> bool:
        """Whether a text has an id as a word, in any spelling and in the escapes of JSON, CSV and HTML."""
        return self._pattern.search(content) is not None

    @cached_property
    def _numbers(self) -> list[int]:
        return cast_ids([one for role in self.numeric for one in self.ids[role]], pa.int64()).drop_null().to_pylist()

    @cached_property
    def _pattern(self) -> re.Pattern[bytes]:
        ids = [one for ids in self.ids.values() for one in ids]
        texts = {part for one in ids for part in (one, escape(one), json.dumps(one)[1:-1], one.replace('"', '""'))}
        words = [re.escape(one.encode()) for one in sorted(texts)] + [b"0*%d" % one for one in self._numbers]
        return re.compile(rb"(?<!\w)(?:" + b"|".join(words) + rb")(?!\w)")


def rewrite(source: Path, target: Path | None, forgotten: Forgotten) -> int:
    """Write a table with a header, JSON lines or Parquet without the rows of forgotten ids; None only counts.

    Elements of lists in Parquet become null. A file that is no table has no rows.

    Returns:
        The number of rows removed or changed.
    """
    suffix = source.with_suffix("").suffix if source.suffix == ".gz" else source.suffix
    if suffix in {".parquet", ".pq"}:
        return _parquet(source, target, forgotten)
    if suffix not in {".csv", ".tsv", ".jsonl", ".ndjson"}:
        return 0
    separator = {".csv": ",", ".tsv": "\t"}.get(suffix)
    found, names = 0, None
    with ExitStack() as stack:
        out = stack.enter_context(opened(target, "wb", like=source)) if target else None
        for record in _records(stack.enter_context(opened(source)), separator):
            if separator and names is None:
                names = _fields(record, separator)
            elif forgotten.is_in(record) and _is_forgotten(record, names, separator, forgotten):
                found += 1
                continue
            if out:
                out.write(record)
    return found


def opened(path: Path, mode: str = "rb", *, like: Path | None = None) -> Any:
    """Open a file, through gzip by its suffix, or by that of another file."""
    return (gzip.open if (like or path).suffix == ".gz" else open)(path, mode)


def _records(lines: BinaryIO, separator: str | None) -> Iterator[bytes]:
    record = b""
    for line in lines:
        record += line
        if separator is None or record.count(b'"') % 2 == 0:  # or else a line end inside quotes
            yield record
            record = b""
    yield from [record] if record else []


def _fields(record: bytes, separator: str) -> list[str]:
    return next(csv.reader([record.decode(errors="replace").removeprefix("\ufeff")], delimiter=separator), [])


def _is_forgotten(record: bytes, names: list[str] | None, separator: str | None, forgotten: Forgotten) -> bool:
    try:
        row = (
            dict(zip(names or (), _fields(record, separator), strict=False)) if separator else dict(json.loads(record))
        )
    except (ValueError, TypeError):
        return False
    is_reason = forgotten.is_in(str(row.get(_REASONS)).encode())
    return is_reason or any(
        forgotten.is_one(role, value) for name, value in row.items() for role in forgotten.roles(name)
    )


def _parquet(source: Path, target: Path | None, forgotten: Forgotten) -> int:
    if pq.read_schema(source).names == ["value", "count"]:  # a vocabulary, where rows keep their places
        gone = np.zeros(pq.read_metadata(source).num_rows, dtype=bool)
        for role in forgotten.roles(unquote(source.stem)):
            gone |= forgotten.mask(role, read_parquet(source)["value"].combine_chunks()).to_numpy(zero_copy_only=False)
        if target:
            _tombstone(source, gone, target)
        return int(gone.sum())
    with ExitStack() as stack:
        file = stack.enter_context(pq.ParquetFile(source))
        columns = [name for name in file.schema_arrow.names if forgotten.roles(name) or name == _REASONS]
        out = stack.enter_context(pq.ParquetWriter(target, file.schema_arrow)) if target else None
        found = 0
        for group in range(file.num_row_groups if columns else 0):
            rows = file.read_row_group(group, None if out else columns)
            before, changed = rows.num_rows, 0
            for name, role in [(one, role) for one in columns for role in forgotten.roles(one)]:
                values = rows.column(name).combine_chunks()
                if is_list(values.type):
                    lists = values.to_pylist()
                    new = [one and [None if forgotten.is_one(role, part) else part for part in one] for one in lists]
                    changed += sum(old != made for old, made in zip(lists, new, strict=True))
                    rows = set_column(rows, name, pa.array(new, values.type))
                else:
                    rows = rows.filter(pc.invert(forgotten.mask(role, values)))
            if _REASONS in columns:
                rows = rows.filter([not forgotten.is_in(str(one).encode()) for one in rows[_REASONS].to_pylist()])
            found += changed + before - rows.num_rows
            if out:
                out.write_table(rows)
    return found


class ForgottenData:
    """Prepared data with the places of forgotten ids.

    Args:
        data: The prepared data.
        forgotten: The ids.
    """

    def __init__(self, data: PreparedData, forgotten: Forgotten) -> None:
        self.data, self._forgotten = data, forgotten
        known = (data.schema.only(role) for role, ids in forgotten.ids.items() if ids)
        self._columns = [column for column in known if column.vocabulary]
        self._hashes = pa.array([], pa.uint64())
        """Hashes of users without an id."""
        self._ids = {column.name: pa.array(self._encoded(column), pa.int64()) for column in self._columns}
        """Encoded ids and table rows of cold keys, by column."""

    def _encoded(self, column: Column) -> list[int]:
        values = read_parquet(self.data.vocabulary(str(column.vocabulary)), ["value"])["value"].combine_chunks()
        ids: list[int] = (np.flatnonzero(self._forgotten.mask(column.role, values)) + FIRST).tolist()
        if column.role is Role.USER and can_hash(values.type):
            self._hashes = pa.array(hash_values(cast_ids(self._forgotten.ids[Role.USER], values.type).drop_null()))
        if not (path := self.data.cold_keys(column.name)).is_file():
            return ids
        cold = read_parquet(path, ["value", "row"]).combine_chunks()
        return ids + cold["row"].filter(self._forgotten.mask(column.role, cold["value"].combine_chunks())).to_pylist()

    @cached_property
    def rows(self) -> int:
        """Number of rows to remove."""
        wanted = {USER_HASH, *(name for key in self._ids for name in (key, row_column(key)))}
        shards = [path for split in SPLITS for path in self.data.shards(split)]
        read = (read_parquet(path, [name for name in pq.read_schema(path).names if name in wanted]) for path in shards)
        return sum(pc.sum(self._drops(rows)).as_py() or 0 for rows in read)

    @property
    def is_affected(self) -> bool:
        """Whether the data has a forgotten id."""
        rejected = self.data.folder / "rejected.jsonl"
        is_rejected = rejected.is_file() and self._forgotten.is_in(rejected.read_bytes())
        return is_rejected or any(map(len, self._ids.values())) or self.rows > 0

    def _drops(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return the mask of rows of forgotten ids."""
        wanted = {name: ids for key, ids in self._ids.items() for name in (key, row_column(key))}
        masks = [
            pc.is_in(rows[name], value_set=ids.cast(rows[name].type))
            for name, ids in {**wanted, USER_HASH: self._hashes}.items()
            if name in rows.column_names and not is_list(rows[name].type)
        ]
        return reduce(pc.or_, masks, pa.chunked_array([np.zeros(rows.num_rows, dtype=bool)]))

    def write(self, folder: Path, manifest: dict[str, Any]) -> None:
        """Change the files of a copy, whose files are links, and the entries of its manifest."""
        data, fitted = PreparedData(folder), FittedPlan.read(folder)
        for split, path in [(one, path) for one in SPLITS for path in data.shards(one)]:
            rows = read_parquet(path)
            kept = self._replaced(rows.filter(pc.invert(self._drops(rows))))
            manifest["rows"][split] -= rows.num_rows - kept.num_rows
            write_table(kept, path)
        for column in self._columns:
            ids, cold = self._ids[column.name], data.cold_keys(column.name)
            gathered = [name for index, name in fitted.state if index == GATHERED and name.split("/")[1] == column.name]
            by_id = [folder / "state" / str(GATHERED) / file_of(name) for name in gathered]
            for path in filter(Path.is_file, [*by_id, data.table(column.name)]):
                table = self._replaced(read_parquet(path))
                index = np.arange(table.num_rows)
                index[ids.to_numpy()] = UNSEEN
                write_table(table.take(pa.array(index)), path)
            self._write_groups(fitted, folder, column)
            vocabulary = data.vocabulary(str(column.vocabulary))
            _tombstone(vocabulary, np.isin(np.arange(pq.read_metadata(vocabulary).num_rows) + FIRST, ids))
            if cold.is_file():
                _tombstone(cold, np.isin(read_parquet(cold)["row"], ids))
        if (path := folder / "rejected.jsonl").is_file():
            lines = [line for line in path.read_bytes().splitlines(keepends=True) if not self._forgotten.is_in(line)]
            path.unlink()
            path.write_bytes(b"".join(lines))
        _report_again(data, manifest)
        manifest[FORGOTTEN] = manifest.get(FORGOTTEN, 0) + 1

    def _replaced(self, rows: pa.Table) -> pa.Table:
        """Return rows with forgotten ids in other columns of their vocabulary, such as lists, as unseen."""
        for one in self._columns:
            same = [column.name for column in self.data.schema.categorical if column.vocabulary == one.vocabulary]
            for name in set(same) & set(rows.column_names):
                values = rows[name].combine_chunks()
                ids = values.values if is_list(values.type) else values
                found = pc.is_in(ids, value_set=self._ids[one.name].cast(ids.type))
                new = pc.if_else(found, pa.scalar(UNSEEN, ids.type), ids)
                rows = set_column(
                    rows, name, type(values).from_arrays(values.offsets, new) if is_list(values.type) else new
                )
        return rows

    def _write_groups(self, fitted: FittedPlan, folder: Path, column: Column) -> None:
        """Remove the groups of forgotten ids from the statistics."""
        encoder, names = fitted.plan.encoder_of(column.name)[0], {column.name, fitted.plan.raw_name(column.name)}
        for path in folder.glob("state/[0-9]*/*.parquet"):
            index, stem = int(path.parent.name), path.stem
            for group in getattr(fitted.plan.ops[index], "columns", ()):
                keys = [f"{KEY}{at}" for at, member in enumerate(members(group)) if member in names]
                if keys and stem.startswith(file_of(name_of(group))[:-8]) and keys[0] in pq.read_schema(path).names:
                    values = (table := read_parquet(path))[keys[0]].combine_chunks()
                    ids = self._ids[column.name].cast(values.type) if encoder < index else None
                    mask = (
                        pc.is_in(values, value_set=ids)
                        if ids is not None
                        else self._forgotten.mask(column.role, values)
                    )
                    write_table(table.filter(pc.invert(mask)), path)


def _tombstone(path: Path, gone: Any, target: Path | None = None) -> None:
    table = read_parquet(path)
    for name, empty in (("value", None), ("count", 0)):
        values = table[name].combine_chunks()
        table = set_column(table, name, pc.if_else(pa.array(gone), pa.scalar(empty, values.type), values))
    write_table(table, target or path)


def _report_again(data: PreparedData, manifest: dict[str, Any]) -> None:
    config = load(data.folder / "config.yaml")
    chosen = {name: tuple(RowCount(**one) for one in counts) for name, counts in manifest["chosen"].items()}
    rows, quality, cold, bad = (manifest[name] for name in ("rows", "quality", "cold", "bad_rows"))
    for path in (data.report, data.facts):  # links, which the report would overwrite
        path.unlink(missing_ok=True)
    counted = EtlCounts(config.dataset.called, config.split.method, rows, quality, cold, bad, chosen)
    write_report(data.folder, FittedPlan.read(data.folder), counted)
