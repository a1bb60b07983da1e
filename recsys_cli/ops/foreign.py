"""Ops of other packages: an entry point or import path in a config, with their modules and the checks of these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import ValidationError, ValidatorFunctionWrapHandler

from recsys_cli import plugins
from recsys_cli.errors import ConfigError
from recsys_cli.features.columns import POSITION, ROW_NUMBER, ROW_WEIGHT
from recsys_cli.ops.flow import Derived, Flow, OpContext
from recsys_cli.ops.op import Op, Tables
from recsys_cli.ops.values import Apply, Types
from recsys_cli.packages import pl

Table = TypeVar("Table")
_FORMS = {
    "aggregator": "aggregator",
    "filter": "filter",
    "encoder": "implementation for single rows (encoder)",
}


class ForeignOp(Op):
    """Base class of ops of other packages (docs/plugins.md); `modules` names the implementations.

    "polars" and "nvtabular" have `apply`, and `learn` for a fitted op; "aggregator" has `merge` and `finalize`, "encoder"
    has `compiled`, and "filter" has `choose`. They get the op first, then the arguments of the methods below.

    Example:
        class Half(ForeignOp):
            columnwise: ClassVar[bool] = True
            modules: ClassVar[dict[str, str]] = {"polars": "my_package.half.on_polars"}
            columns: tuple[str, ...]

            def outputs(self, inputs):
                return calculated(numbers(inputs))

        # my_package/half/on_polars.py
        def apply(op, state, frame):
            return frame.with_columns(pl.col(name) / 2 for name in op.columns)

        # in a config: {op: "my_package.half:Half", columns: [price]}
    """

    op: str
    """Name of the entry point, or import path of the class."""

    def polars(self, state: Tables, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Compute the columns by the module; its query runs here, so that its errors name the op.

        Raises:
            ConfigError: The module fails, or changes number or order of rows.
        """
        module = self.module("polars")
        before = frame.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(POSITION)).collect()
        after = module.collected(module.apply(self, state, before.lazy()))
        positions = after.get_column(POSITION).to_numpy() if POSITION in after.columns else None
        module.check_rows(positions, before.height)
        return after.drop(POSITION).lazy()

    def learn(self, frame: pl.LazyFrame, weight: pl.Expr) -> Mapping[str, pl.LazyFrame]:
        """Return the partial aggregates of the module."""
        module = self.module("polars")
        queries = module.tables(module.learn(self, frame.collect().lazy(), weight), self.learns)
        return {name: module.collected(query).lazy() for name, query in queries.items()}

    def nvtabular(self, state: Tables, rows: pa.Table, folder: Path) -> pa.Table:
        """Compute the columns by the module.

        Raises:
            ConfigError: The module fails, or changes number or order of rows.
        """
        module = self.module("nvtabular")
        after = module.apply(self, state, rows.append_column(POSITION, pa.array(np.arange(rows.num_rows))), folder)
        if not isinstance(after, pa.Table):
            raise ConfigError(f"{module.title} returns {type(after).__name__} instead of a pyarrow.Table")
        positions = after.column(POSITION).to_numpy() if POSITION in after.column_names else None
        module.check_rows(positions, rows.num_rows)
        return after.drop_columns([POSITION])

    def learn_on_nvtabular(self, rows: pa.Table, folder: Path) -> Tables:
        """Return the partial aggregates of the module."""
        module = self.module("nvtabular")
        return module.tables(module.learn(self, _repeated(rows), folder), self.learns)

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Merge partial aggregates by the module."""
        return self.module("aggregator").merge(parts)

    def finalize(self, merged: Tables) -> dict[str, pa.Table]:
        """Return the state of the module."""
        module = self.module("aggregator")
        return dict(module.tables(module.finalize(self, merged), self.states))

    def numpy(self, state: Tables, types: Types) -> Apply:
        """Return the function of the module."""
        module = self.module("encoder")
        apply: Apply = plugins.guard(module.compiled(self, state, types), f"{module.title} failed")
        return apply

    def choose(self, rows: Flow, context: OpContext) -> Flow:
        """Return the rows of the module, checked in each pass."""
        module = self.module("filter")
        chosen = module.choose(self, rows, context)
        if not isinstance(chosen, Flow):
            raise ConfigError(
                f"{module.title} returns {type(chosen).__name__} instead of a Flow of recsys_cli.ops.flow"
            )
        return ForeignRows(chosen, module)

    def refusal(self, engine: str) -> str | None:
        """Return the reason against a role in `modules`, or None."""
        if engine not in self.modules:
            reason = None if engine in _FORMS else super().refusal(engine)
            declared = ", ".join(sorted(self.modules)) or "none"
            what = _FORMS.get(engine, f"implementation for the engine {engine}")
            return reason or f"{self.name} has no {what}; its package declares: {declared}"
        declared, owner = self.modules[engine], type(self).__module__
        if plugins.belongs(declared, owner):
            return None
        package = owner.partition(".")[0]
        return f"{self.name} names {declared!r} as its {engine}, outside its package {package} and not trusted"

    def refusal_for_rows(self) -> str | None:
        """Return the reason why the op has no values for single rows, or None."""
        if "encoder" in self.modules:
            return self.refusal("encoder")
        return super().refusal_for_rows() or self.refusal("encoder")

    def module(self, role: str) -> ForeignModule:
        """Import a module.

        Raises:
            ConfigError: The op has none in this role, or it cannot be imported.
        """
        if (reason := self.refusal(role)) is not None:
            raise ConfigError(reason)
        declared = self.modules[role]
        with plugins.guarded(f"{self.name}: cannot load {declared!r}"):
            return ForeignModule(import_module(declared), f"the op {self.name} ({declared})")


@dataclass(frozen=True)
class ForeignModule:
    """Module of an op of another package, with guarded functions.

    Attributes:
        module: The module.
        title: Name of the op and the module in messages.
    """

    module: Any
    title: str

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a function of the module; its exceptions become a ConfigError."""
        with self.guarded():
            function: Callable[..., Any] = plugins.guard(getattr(self.module, name), f"{self.title} failed")
        return function

    def guarded(self) -> AbstractContextManager[None]:
        """Convert the exceptions of a block that runs code of the module."""
        return plugins.guarded(f"{self.title} failed", hint=plugins.FIX_PLUGIN)

    def collected(self, query: object) -> pl.DataFrame:
        """Run a query of the module."""
        if not isinstance(query, pl.LazyFrame):
            raise ConfigError(f"{self.title} returns {type(query).__name__} instead of a polars.LazyFrame")
        with self.guarded():
            return query.collect(engine="in-memory")

    def tables(self, tables: Mapping[str, Table], names: Iterable[str]) -> Mapping[str, Table]:
        """Return tables of aggregates or states, none of them missing."""
        if missing := [name for name in names if name not in tables]:
            raise ConfigError(f"{self.title} returns no table {', '.join(map(repr, missing))}")
        return tables

    def check_rows(self, positions: npt.NDArray[np.int64] | None, num_rows: int) -> None:
        """Check that an implementation keeps number and order of rows.

        Args:
            positions: The positions 0 to N - 1 after the op, shape (N,); None if the op drops the column.
            num_rows: Number of rows before the op.

        Raises:
            ConfigError: It does not.
        """
        if positions is None:
            problem = "drops columns of other ops"
        elif len(positions) != num_rows:
            problem = f"changes the number of rows from {num_rows:,} to {len(positions):,}"
        elif not np.array_equal(positions, np.arange(num_rows)):
            problem = "changes the order of rows, or a column of other ops"
        else:
            return
        hint = "keep all rows in order, and all columns; only an op of phase 'rows' may drop rows"
        raise ConfigError(f"{self.title} {problem}", hint=hint)


@dataclass(frozen=True)
class ForeignRows(Derived):
    """Rows of a filter of another package.

    Attributes:
        rows: The rows.
        module: The module of the op.
    """

    rows: Flow
    module: ForeignModule

    def schema(self) -> pa.Schema:
        """Return the names and types of the columns."""
        with self.module.guarded():
            return self.rows.schema()

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows, or some of their columns.

        Raises:
            ConfigError: The filter fails, or changes the order of rows.
        """
        read = None if columns is None else list(dict.fromkeys([*columns, ROW_NUMBER]))
        last = -1
        with self.module.guarded():
            for batch in self.rows.batches(read):
                numbers = batch.column(ROW_NUMBER).to_numpy()
                if (np.diff(numbers, prepend=last) <= 0).any():
                    raise ConfigError(
                        f"{self.module.title} changes the order of rows, or repeats rows",
                        hint="yield each row at most once, in the order of the input, with its row number",
                    )
                last = numbers[-1] if len(numbers) else last
                yield batch if columns is None else batch.select(list(columns))


def read_op(value: Any, own: ValidatorFunctionWrapHandler) -> Op:
    """Validate an op of a config: a built-in one by `own`, one of another package by its class."""
    if isinstance(value, ForeignOp):
        return value
    try:
        builtin: Op = own(value)
        return builtin
    except ValidationError as error:
        if error.errors()[0]["type"] != "union_tag_invalid" or not isinstance(value["op"], str):
            raise
        try:
            kind = _foreign(value["op"])
        except ConfigError as problem:
            raise ValueError(f"{problem.message}; {problem.hint}" if problem.hint else problem.message) from problem
        if kind is None:
            raise
    try:
        return kind.model_validate(value)
    except ValidationError:
        raise
    except Exception as error:  # validators of another package may raise anything
        cause = f"{type(error).__name__}: {error}"
        raise ValueError(f"the options of {value['op']} cannot be checked: {cause}") from error


def _foreign(name: str) -> type[ForeignOp] | None:
    path = plugins.resolve(name, what="op")
    if path is None:
        return None
    kind: type[ForeignOp] = plugins.load(path)
    plugins.require_subclass(kind, ForeignOp, path)
    plugins.guard_class(kind, f"the op {path} failed")
    return kind


def _repeated(rows: pa.Table) -> pa.Table:
    """Repeat every row by its ROW_WEIGHT, because modules for NVTabular know no weights."""
    if ROW_WEIGHT not in rows.column_names:
        return rows
    weights = rows.column(ROW_WEIGHT).to_numpy()
    return rows.drop_columns([ROW_WEIGHT]).take(pa.array(np.repeat(np.arange(rows.num_rows), weights)))
