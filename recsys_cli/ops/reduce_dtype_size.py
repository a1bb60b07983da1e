"""The smallest integer type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from recsys_cli.features.spec import Spec
from recsys_cli.ops.expression import Name, shown
from recsys_cli.ops.normalize import RangeOp
from recsys_cli.ops.numeric import VALUE, DistinctNames, calculated_type, elements, finite_values
from recsys_cli.ops.op import Tables, numbers
from recsys_cli.ops.values import Apply, Types, Values, caster, element, mapped, numpy_type, retype
from recsys_cli.packages import np, pa, pl

TYPES = ("int8", "int16", "int32", "int64")
"""Integer types, smallest first."""


class ReduceDtypeSize(RangeOp):
    """Store integers in the smallest type for the range of train, other numbers as float32.

    Fitted: minimum and maximum of each integer column in train; of joined columns over the train interactions, of lists
    over all elements. Types: int8, int16, int32, int64; booleans and columns without values are int8. Numbers out of
    range, in other splits only, become the nearest limit.
    Nulls: null becomes 0 in integer types; in float32 null and NaN stay null, inf stays inf, and overflow becomes inf.
    Lists: element by element; a null list becomes an empty one.
    Output: the fitted type, named as the input; later ops calculate with this type.
    """

    op: Literal["ReduceDtypeSize"] = "ReduceDtypeSize"
    columns: DistinctNames
    """Numeric columns, each with its own type."""

    @property
    def casts(self) -> Mapping[str, str]:
        """Expressions for the input columns."""
        return {name: shown(Name(name)) for name in self.columns}

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the columns with the widest types."""
        described: dict[str, Spec | None] = {}
        for name, spec in numbers(inputs).items():
            dtype = "int64" if is_whole(spec.element) else "float32"
            described[name] = spec.computed(pa.type_for_alias(dtype), dtype=dtype)
        return described

    def fitted_output(self, name: str, spec: Spec, state: Mapping[str, pa.Table]) -> Spec:
        """Add the fitted type."""
        dtype = spec.dtype if spec.dtype == "float32" else reduced(state[name])
        return replace(spec, type=spec.holding(pa.type_for_alias(dtype)), dtype=dtype)

    def calculation(self, kind: pa.DataType) -> pa.DataType:
        """Return an integer type for integers and booleans."""
        return calculated_type(kind)

    def learn(self, frame: pl.LazyFrame, weight: pl.Expr) -> dict[str, pl.LazyFrame]:
        """Compute the range of integer columns, null for float columns; lists by element."""
        ends = {"low": pl.col(VALUE).min(), "high": pl.col(VALUE).max()}
        within = [end.clip(upper_bound=2**63 - 1).cast(pl.Int64).alias(name) for name, end in ends.items()]
        nothing = [pl.lit(None, pl.Int64).alias(name) for name in ends]
        types = {name: calculated_type(kind) for name, kind in elements(frame, self.columns).items()}
        return {
            column: frame.select(nothing)
            if pa.types.is_floating(kind)
            else finite_values(frame, column, weight, kind=kind).select(within)
            for column, kind in types.items()
        }

    def numpy(self, state: Tables, types: Types) -> Apply:
        """Cast to the smallest types for the values of train."""
        functions = {}
        for name in self.columns:
            kind = calculated_type(element(types[name]))
            dtype = "float32" if pa.types.is_floating(kind) else reduced(state[name])
            functions[name] = _single if pa.types.is_floating(kind) else _smaller(kind, dtype)
            retype(types, name, pa.type_for_alias(dtype))
        return mapped(functions)


def _single(values: Values) -> Values:
    return values.with_data(caster(pa.float64())(values).data.astype(np.float32))


def _smaller(kind: pa.DataType, dtype: str) -> Callable[[Values], Values]:
    cast, wide = caster(kind), numpy_type(kind).type
    low, high = wide(0 if kind == pa.uint64() else np.iinfo(dtype).min), wide(np.iinfo(dtype).max)

    def smaller(values: Values) -> Values:
        data = np.clip(cast(values).data, low, high).astype(dtype)
        return values.with_data(data if values.nulls is None else np.where(values.nulls, data.dtype.type(0), data))

    return smaller


def is_whole(kind: pa.DataType) -> bool:
    """Whether a type is integer or boolean."""
    return pa.types.is_integer(kind) or pa.types.is_boolean(kind)


def reduced(state: pa.Table) -> str:
    """Return the smallest type for the range `low` to `high`, null without values."""
    low, high = (state.column(name)[0].as_py() or 0 for name in ("low", "high"))
    return next(name for name in TYPES if np.iinfo(name).min <= low and high <= np.iinfo(name).max)
