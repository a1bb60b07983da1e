"""Ops of other packages: an entry point or import path in a config, and the guard of their methods."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError, ValidatorFunctionWrapHandler

from recsys_cli import plugins
from recsys_cli.errors import ConfigError
from recsys_cli.features.columns import POSITION, ROW_NUMBER
from recsys_cli.ops.flow import Derived, Flow
from recsys_cli.ops.op import Op, Tables
from recsys_cli.packages import np, pa, pl

_KEEP_ROWS = "keep all rows in order, and all columns; only an op of phase 'rows' may drop rows"


def read_op(value: Any, own: ValidatorFunctionWrapHandler) -> Op:
    """Validate an op of a config: a built-in one by `own`, one of another package by its class."""
    if isinstance(value, Op):
        return value
    try:
        builtin: Op = own(value)
        return builtin
    except ValidationError as error:
        if error.errors()[0]["type"] != "union_tag_invalid" or not isinstance(value["op"], str):
            raise
        try:
            kind = foreign_op(value["op"])
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


def foreign_op(name: str) -> type[Op] | None:
    """Return an op of another package; None if the name is neither an entry point nor an import path."""
    path = plugins.resolve(name, what="op")
    if path is None:
        return None
    kind: type[Op] = plugins.load(path)
    plugins.require_subclass(kind, Op, path)
    return kind


def guard_op(kind: type[Op]) -> None:
    """Guard the methods of an op of another package, in place: errors name the op, and rows are checked."""
    title = f"the op {kind.__module__}:{kind.__qualname__}"
    for name in ("numpy", "polars", "nvtabular", "learn", "finalize", "choose"):
        setattr(kind, name, _guarded(getattr(kind, name), name, f"{title} ({name}) failed"))
    kind.polars = _checked(kind.polars, title)  # type: ignore[method-assign]
    plugins.guard_class(kind, f"{title} failed")


def _guarded(function: Callable[..., Any], name: str, what: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(op: Op, *given: Any) -> Any:
        with plugins.guarded(what, hint=plugins.FIX_PLUGIN):
            result = function(op, *given)
            match name:  # results are used up here, so that a late exception or a missing table names the op
                case "numpy":
                    return plugins.guard(result, what)
                case "polars":
                    return result.collect(engine="in-memory").lazy()
                case "learn":
                    return {table: result[table].collect(engine="in-memory").lazy() for table in op.learns}
                case "finalize":
                    return {table: result[table] for table in op.states}
                case "choose":
                    return _ForeignRows(_flow(result), what)
            return result

    return call


def _flow(rows: object) -> Flow:
    if not isinstance(rows, Flow):
        raise TypeError(f"{type(rows).__name__} is no Flow of recsys_cli.ops.flow")
    return rows


def _checked(polars: Callable[..., pl.LazyFrame], title: str) -> Callable[..., pl.LazyFrame]:
    """Return the Polars form with a check of number and order of rows."""
    position = f"{POSITION} {title}"

    @functools.wraps(polars)
    def call(op: Op, state: Tables, frame: pl.LazyFrame) -> pl.LazyFrame:
        before = frame.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(position)).collect()
        after = polars(op, state, before.lazy()).collect()
        if position not in after.columns:
            problem = "drops columns of other ops"
        elif after.height != before.height:
            problem = f"changes the number of rows from {before.height:,} to {after.height:,}"
        elif not after.get_column(position).equals(before.get_column(position)):
            problem = "changes the order of rows, or a column of other ops"
        else:
            return after.drop(position).lazy()
        raise ConfigError(f"{title} {problem}", hint=_KEEP_ROWS)

    return call


@dataclass(frozen=True)
class _ForeignRows(Derived):
    """Rows chosen by an op of another package."""

    rows: Flow
    what: str

    def schema(self) -> pa.Schema:
        """Return the names and types of the columns."""
        with plugins.guarded(self.what, hint=plugins.FIX_PLUGIN):
            return self.rows.schema()

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows, or some of their columns; a `ConfigError` for repeated rows and another order."""
        read = None if columns is None else list(dict.fromkeys([*columns, ROW_NUMBER]))
        last = -1
        with plugins.guarded(self.what, hint=plugins.FIX_PLUGIN):
            for batch in self.rows.batches(read):
                numbers = batch.column(ROW_NUMBER).to_numpy()
                if (np.diff(numbers, prepend=last) <= 0).any():
                    raise ValueError("it changes the order of rows, or repeats rows")
                last = numbers[-1] if len(numbers) else last
                yield batch if columns is None else batch.select(list(columns))
