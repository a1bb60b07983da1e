"""Application of a fitted plan to files of new rows: in order, in the flat layout, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from recsys_cli.config import RunConfig
from recsys_cli.cpu import Threads
from recsys_cli.data import RawColumn, RawTable, open_given
from recsys_cli.data.source import RawType
from recsys_cli.errors import DataError, listed
from recsys_cli.etl.engine import Engine, check_ops, choose
from recsys_cli.etl.filters import choose_rows
from recsys_cli.etl.reading.reader import Reader, interactions_reader
from recsys_cli.etl.reading.times import as_stored, detection
from recsys_cli.etl.staging import rows_per_shard
from recsys_cli.etl.transform import ROW_GROUP_ROWS, Written, count_missing, flattened, prepare
from recsys_cli.events import Emit, Message, Progress
from recsys_cli.features.columns import ROW_NUMBER
from recsys_cli.features.schema import Role, Schema
from recsys_cli.features.spec import is_list, is_text
from recsys_cli.ops.fitted_plan import FittedPlan, time_formats
from recsys_cli.ops.values import nan_to_null
from recsys_cli.workspace import PreparedData, replacing

_MAY_LACK = frozenset({Role.LABEL, Role.WEIGHT, Role.TIMESTAMP, Role.SAMPLED})
"""Roles that new rows may lack: no model needs them for prediction."""
_READ_AS: tuple[tuple[pa.DataType, RawType], ...] = (
    (pa.float32(), "float32"), (pa.float64(), "float64"), (pa.bool_(), "bool"),
)  # fmt: skip


@dataclass(frozen=True)
class Applied:
    """Summary of prepared new rows.

    Attributes:
        left_out: Columns absent from the file, each with the raw columns missing for it.
        missing: Counts of `null`, `unseen` and all `values`, by categorical column.
    """

    output: Path
    rows: int
    schema: Schema
    left_out: Mapping[str, tuple[str, ...]]
    missing: Mapping[str, Mapping[str, int]]
    engine: str


@dataclass
class NewRows:
    """New interactions, in the types of the interactions at fit time.

    Attributes:
        paths: Files, globs, folders or URLs, in order.
        fitted_on: Columns and types of the interactions at fit time.
    """

    config: RunConfig
    paths: Sequence[str]
    fitted_on: pa.Schema

    def schema(self) -> pa.Schema:
        """Return the columns of the plan that all files have."""
        have = [set(reader.schema().names) for reader in self._all]
        return pa.schema([column for column in self.fitted_on if all(column.name in names for names in have)])

    @property
    def names(self) -> tuple[str, ...]:
        """All columns of the first file."""
        return tuple(self._all[0].schema().names)

    def batches(self) -> Iterator[pa.Table]:
        """Yield the rows."""
        schema = self.schema()
        for path, reader in zip(self.paths, self._all, strict=True):
            for batch in replace(reader, columns=schema.names).batches():
                yield pa.table([_cast(batch.column(f.name), f, path) for f in schema], schema=schema)

    @cached_property
    def _all(self) -> list[Reader]:
        return [self._reader(path) for path in self.paths]

    def _reader(self, path: str) -> Reader:
        dataset, features = self.config.dataset, self.config.features
        table = open_given(dataset.name, dataset.options, path).tables(Path())[0]
        whole = replace(interactions_reader(self.config, table), every_row=True, skip_bad=False)
        known = time_formats(self.fitted_on)
        times = {one.name for one in self.fitted_on if pa.types.is_timestamp(one.type)} | {*whole.times}
        read = partial(
            replace, whole, times={name: detection(known.get(name)) for name in self.fitted_on.names if name in times}
        )
        if table.format == "csv" and not table.header:
            return read(table=_described(table, [column.name for column in table.columns], self.fitted_on, path))
        # Without the described columns: the config may describe a column absent from the file.
        stored = read(
            table=replace(table, columns=(), explode=None, clicks=None, order=None, line=None), times={}, ids=()
        ).schema()
        table, names = _reshaped_once(table, stored), stored.names
        if table.format == "csv":
            floats = [
                name for name in features.raw_ids if name in names and pa.types.is_floating(stored.field(name).type)
            ]
            table = replace(table, columns=_with_floats(table.columns, floats))
            in_files = [name for name in names if name not in table.partitions]
            return read(table=_described(table, in_files, self.fitted_on, path))
        return read(table=replace(table, columns=tuple(column for column in table.columns if column.name in names)))


def apply_plan(
    data: PreparedData, rows: NewRows, output: Path, *, fitted: FittedPlan, scratch: Path, emit: Emit
) -> Applied:
    """Apply a fitted plan to new rows, with the tables by id of prepared data, and write one parquet file atomically.

    Raises:
        DataError: The rows lack a required column, or are not readable.
        MissingExtraError: The engine is not installed.
    """
    config = rows.config.etl
    if config.cluster is not None:
        emit(Message("etl.cluster has no effect here: new rows are prepared in this process", "warning"))
    fitted = flattened(fitted, {key: pq.read_table(data.table(key)) for key in fitted.program.keys})
    fitted = fitted.for_new_rows(rows.schema().names)
    left_out = _left_out(fitted, rows)
    name, engine = choose(config.engine, scratch, device=config.device, emit=emit)
    check_ops(engine, fitted.plan.ops)
    chosen = choose_rows(fitted.program, rows, scratch / "rows", emit, part="new")
    prepared = partial(_prepared, engine, fitted, fitted.schema("flat"))
    size = min(rows_per_shard(config.model_copy(update={"shard_rows": None}), chosen.schema()), ROW_GROUP_ROWS * 8)
    written = Written()
    with (
        replacing(output) as partial_path,
        pq.ParquetWriter(partial_path, prepared(chosen.schema().empty_table()).schema) as file,
    ):
        for table in Threads(engine.threads).map(prepared, _cut(chosen.batches(), size)):
            file.write_table(table, row_group_size=ROW_GROUP_ROWS)
            written += Written(table.num_rows, count_missing(table, fitted.schema("flat")))
            emit(Progress("prepare", written.rows, None))
    emit(Progress("prepare", written.rows, written.rows))
    chosen.discard()
    missing = {column: dict(counts) for column, counts in written.missing.items()}
    return Applied(output, written.rows, fitted.schema("flat"), left_out, missing, name)


def _left_out(fitted: FittedPlan, rows: NewRows) -> dict[str, tuple[str, ...]]:
    """Return the columns that cannot be computed, each with its missing raw columns."""
    plan = fitted.plan
    lacking = {name: tuple(sorted(raw)) for name, raw in fitted.program.lacking.items() if name not in plan.drop}
    needed = {name: raw for name, raw in lacking.items() if plan.roles.get(name) not in _MAY_LACK}
    if not needed:
        return lacking
    raw = sorted({column for columns in needed.values() for column in columns})
    raise DataError(
        f"{', '.join(rows.paths)}: no column {', '.join(raw)}, required by {', '.join(needed)}; "
        f"the columns are {listed(rows.names)}",
        hint="add it: new rows need all raw columns of the prepared data, except labels, weights and times",
    )


def _prepared(engine: Engine, fitted: FittedPlan, schema: Schema, rows: pa.Table) -> pa.Table:
    if ROW_NUMBER in rows.column_names:
        rows = rows.drop_columns([ROW_NUMBER])
    return prepare(engine, fitted, rows, schema)


def _cut(batches: Iterator[pa.Table], size: int) -> Iterator[pa.Table]:
    for batch in batches:
        for first in range(0, batch.num_rows, size):
            yield batch.slice(first, size)


def _reshaped_once(table: RawTable, stored: pa.Schema) -> RawTable:
    """Return the description of a file, without `explode` and `order` for rows that have been exploded and numbered before."""
    table = replace(
        table,
        order=None if table.order in stored.names else table.order,
        line=None if table.line in stored.names else table.line,
    )
    if table.format == "csv" or table.explode not in stored.names:
        return table
    held = stored.field(table.explode).type
    is_split = any(one.name == table.explode and one.separator is not None for one in table.columns)
    if table.clicks in stored.names or not (is_list(held) or (is_text(held) and is_split)):  # or a list of one text
        single = tuple(replace(one, separator=None) if one.name == table.explode else one for one in table.columns)
        return replace(table, explode=None, clicks=None, columns=single)
    return table


def _described(table: RawTable, names: Sequence[str], fitted_on: pa.Schema, path: str) -> RawTable:
    """Return a text file's description with the types at fit time."""
    described = {column.name: column for column in table.columns}
    columns = [described.get(name, RawColumn(name, None, nullable=True)) for name in names]
    typed = {
        column.name: _typed(column, fitted_on.field(column.name).type, path)
        for column in columns
        if column.name in fitted_on.names
    }
    return replace(table, columns=tuple(typed.get(c.name, c) for c in columns if not table.header or c.name in typed))


def _with_floats(columns: Sequence[RawColumn], names: Sequence[str]) -> tuple[RawColumn, ...]:
    """Return the columns with ids such as 17.0 as floats; the reader makes them whole numbers."""
    declared = {column.name: column for column in columns}
    floats = (declared.get(name, RawColumn(name, None, nullable=True)) for name in names)
    return (*(one for one in columns if one.name not in names), *(replace(one, dtype="float64") for one in floats))


def _typed(column: RawColumn, kind: pa.DataType, path: str) -> RawColumn:
    if pa.types.is_timestamp(kind):  # see `times` of the reader
        return column
    return replace(column, dtype=column.dtype or _read_as(kind, column, path))


def _read_as(kind: pa.DataType, column: RawColumn, path: str) -> RawType:
    if is_list(kind):
        if column.separator is None:
            raise DataError(
                f"{path}: column {column.name} has lists, and the separator of its elements in a text file is unknown",
                hint="convert the new rows to parquet, or prepare the data with dataset.interactions.lists",
            )
        kind = kind.value_type
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return "int64"
    return next((read for held, read in _READ_AS if kind == held), "string")


def _cast(values: pa.ChunkedArray, field: pa.Field, path: str) -> pa.ChunkedArray:
    if values.type == field.type:
        return values
    if not pa.types.is_floating(field.type):
        values = nan_to_null(values)
    try:
        return as_stored(values, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(
            f"{path}: column {field.name} is {values.type}, and the plan was fitted on {field.type}: {error}",
            hint=f"convert the column to {field.type}",
        ) from error
