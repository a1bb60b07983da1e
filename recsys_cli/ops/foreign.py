"""Ops of other packages: an entry point or import path in a config."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError, ValidatorFunctionWrapHandler

from recsys_cli import plugins
from recsys_cli.errors import ConfigError
from recsys_cli.ops.op import Op


class ForeignOp(Op):
    """Base class of ops of other packages (docs/plugins.md); `modules` names the implementations.

    A module for an engine has `apply`, and `learn` for a fitted op, with the signatures of `Computing` in `computing` of that
    engine. "aggregator" has `merge` and `finalize` (`etl.aggregators.Aggregator`), "filter" has `choose` (`etl.filters`).

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
