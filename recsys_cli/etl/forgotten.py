"""Tables and prepared data without forgotten ids. Other ids keep their numbers; a forgotten value is null in its vocabulary."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from html import escape
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recsys_cli.config import load
from recsys_cli.cpu import Threads
from recsys_cli.etl.filters import RowCount
from recsys_cli.etl.report import EtlCounts, write_report
from recsys_cli.etl.transform import write_table
from recsys_cli.features.columns import USER_HASH, row_column
from recsys_cli.features.hashing import can_hash, hash_values
from recsys_cli.features.parquet import read_parquet
from recsys_cli.features.schema import FIRST, UNSEEN, Column, Role
from recsys_cli.features.spec import cast_ids, is_list, is_text
from recsys_cli.features.split import SPLITS
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.grouping import KEY, GroupOp, members, name_of
from recsys_cli.ops.program import COLD, GATHERED
from recsys_cli.ops.target_encoding import FOLDS
from recsys_cli.ops.values import set_column
from recsys_cli.workspace import PreparedData

FORGOTTEN = "forgotten"
"""Key of manifests: how often the prepared data has forgotten ids. Also the folder of receipts."""
REMADE = (*SPLITS, "vocab", "state", "plan.json", "report.*", "rejected.jsonl")
"""Files of prepared data that `ForgottenData.write` makes anew."""
PARQUET = frozenset({".parquet", ".pq"})
_SEPARATORS = {".csv": ",", ".tsv": "\t", ".jsonl": None, ".ndjson": None}
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

    def matches(self, name: str, value: Any) -> bool:
        """Whether a value of a column is an id, or a reason has one as a word."""
        if name == _REASONS:
            return self.is_in(str(value).encode())
        return any(self.is_one(role, value) for role in self.roles(name))

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
    if suffix in PARQUET:
        return _parquet(source, target, forgotten)
    found = 0
    with ExitStack() as stack:
        out = stack.enter_context(opened(target, "wb", like=source)) if target else None
        lines = stack.enter_context(opened(source))
        for row, content in _rows(lines, _SEPARATORS[suffix]) if suffix in _SEPARATORS else ():
            if forgotten.is_in(content) and any(forgotten.matches(*cell) for cell in row.items()):
                found += 1
            elif out:
                out.write(content)
    return found


def opened(path: Path, mode: str = "rb", *, like: Path | None = None) -> Any:
    """Open a file, through gzip by its suffix, or by that of another file."""
    return (gzip.open if (like or path).suffix == ".gz" else open)(path, mode)


def _rows(lines: BinaryIO, separator: str | None) -> Iterator[tuple[Mapping[Any, Any], bytes]]:
    """Yield the rows of a table, or of JSON lines, with their bytes; a header and what cannot be read are without values."""
    if separator is None:
        yield from ((_values(line), line) for line in lines)
        return
    read: list[bytes] = []

    def texts() -> Iterator[str]:
        for line in lines:
            read.append(line)
            yield line.decode("utf-8-sig", errors="replace")

    table = csv.DictReader(texts(), delimiter=separator)
    for row in chain([{}] if table.fieldnames else [], table):
        yield row, b"".join(read)
        read.clear()
    yield {}, b"".join(read)  # empty lines


def _values(line: bytes) -> dict[str, Any]:
    try:
        return dict(json.loads(line))
    except (ValueError, TypeError):
        return {}


def _parquet(source: Path, target: Path | None, forgotten: Forgotten) -> int:
    with ExitStack() as stack:
        file = stack.enter_context(pq.ParquetFile(source))
        columns = [name for name in file.schema_arrow.names if forgotten.roles(name) or name == _REASONS]
        out = stack.enter_context(pq.ParquetWriter(target, file.schema_arrow)) if target else None
        found = 0
        for group in range(file.num_row_groups if columns else 0):
            rows = file.read_row_group(group, None if out else columns)
            for name in columns:
                rows, number = _without(rows, name, forgotten)
                found += number
            if out:
                out.write_table(rows)
    return found


def _without(rows: pa.Table, name: str, forgotten: Forgotten) -> tuple[pa.Table, int]:
    """Return the rows without forgotten ids in a column, and the number of changed ones."""
    values = rows.column(name).combine_chunks()
    if is_list(values.type) and name != _REASONS:
        lists = values.to_pylist()
        new = [one and [None if forgotten.matches(name, part) else part for part in one] for one in lists]
        changed = sum(old != made for old, made in zip(lists, new, strict=True))
        return set_column(rows, name, pa.array(new, values.type)), changed
    masks = [forgotten.mask(role, values) for role in forgotten.roles(name)]
    if name == _REASONS:
        masks = [pa.array([forgotten.matches(name, one) for one in values.to_pylist()])]
    kept = rows.filter(pc.invert(reduce(pc.or_, masks)))
    return kept, rows.num_rows - kept.num_rows


class ForgottenData:
    """Prepared data with the places of forgotten ids."""

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
        """Change the files of a copy without those of `REMADE`, and the entries of its manifest."""
        data, fitted = PreparedData(folder), FittedPlan.read(self.data.folder)
        for split in SPLITS:
            for path in self.data.shards(split):
                rows = read_parquet(path)
                kept = self._replaced(rows.filter(pc.invert(self._drops(rows))))
                manifest["rows"][split] -= rows.num_rows - kept.num_rows
                write_table(kept, folder / split / path.name)
        for column in self._columns:
            if (path := data.table(column.name)).is_file():
                write_table(self._as_unseen(read_parquet(path), column), path)
            state = {of: self._corrected(fitted, *of, table, column) for of, table in fitted.state.items()}
            fitted = replace(fitted, state=state)
        fitted.write(folder)
        if (path := self.data.folder / "rejected.jsonl").is_file():
            lines = path.read_bytes().splitlines(keepends=True)
            (folder / path.name).write_bytes(b"".join(line for line in lines if not self._forgotten.is_in(line)))
        _report_again(data, fitted, manifest)
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
                new = type(values).from_arrays(values.offsets, new) if is_list(values.type) else new
                rows = set_column(rows, name, new)
        return rows

    def _as_unseen(self, table: pa.Table, column: Column) -> pa.Table:
        """Return a table by id with the row of unseen ids in place of the forgotten ones."""
        index = np.arange(table.num_rows)
        index[self._ids[column.name].to_numpy()] = UNSEEN
        return self._replaced(table).take(pa.array(index))

    def _corrected(self, fitted: FittedPlan, index: int, name: str, table: pa.Table, column: Column) -> pa.Table:
        """Return a table of the fitted state without the ids of a column."""
        if index == GATHERED:
            return self._as_unseen(table, column) if name.split("/")[1] == column.name else table
        if index == COLD:
            return _tombstones(table, np.isin(table["row"], self._ids[column.name])) if name == column.name else table
        op, ids = fitted.plan.ops[index], self._ids[column.name]
        if name in op.vocabularies:
            gone = np.isin(np.arange(table.num_rows) + FIRST, ids)
            return _tombstones(table, gone) if name == column.vocabulary else table
        is_encoded = fitted.plan.encoder_of(column.name)[0] < index
        groups = {name_of(group): members(group) for group in op.columns} if isinstance(op, GroupOp) else {}
        for at, member in enumerate(groups.get(name.removesuffix(FOLDS), ())):
            if member in {column.name, fitted.plan.raw_name(column.name)}:
                keys = table[f"{KEY}{at}"].combine_chunks()
                own = pc.is_in(keys, ids.cast(keys.type)) if is_encoded else self._forgotten.mask(column.role, keys)
                table = table.filter(pc.invert(own))
        return table


def _tombstones(table: pa.Table, gone: Any) -> pa.Table:
    """Return a vocabulary with null in place of forgotten values."""
    for name, empty in (("value", None), ("count", 0)):
        values = table[name].combine_chunks()
        table = set_column(table, name, pc.if_else(pa.array(gone), pa.scalar(empty, values.type), values))
    return table


def _report_again(data: PreparedData, fitted: FittedPlan, manifest: dict[str, Any]) -> None:
    config = load(data.folder / "config.yaml")
    chosen = {name: tuple(RowCount(**one) for one in counts) for name, counts in manifest["chosen"].items()}
    rows, quality, cold, bad = (manifest[name] for name in ("rows", "quality", "cold", "bad_rows"))
    counted = EtlCounts(config.dataset.called, config.split.method, rows, quality, cold, bad, chosen)
    write_report(data.folder, fitted, counted, Threads())
