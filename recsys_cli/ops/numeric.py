"""Base of the ops that compute the numbers of each column by themselves, and of those that fill nulls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BeforeValidator, Field, FiniteFloat, model_validator

from recsys_cli.features.spec import Spec, is_list
from recsys_cli.ops.op import Op, Tables, as_tuple, calculated, numbers
from recsys_cli.ops.values import (
    Apply,
    Array,
    Columns,
    Types,
    Values,
    caster,
    element,
    mapped,
    null_mask,
    numpy_type,
    retype,
)
from recsys_cli.packages import np, pa, pl

VALUE, WEIGHT = "value", "weight"
"""Columns of `finite_values`: a value, and its number of interactions."""
FILLED = "_filled"
"""Suffix of the indicator column of a filled column."""


def _once(columns: tuple[str, ...]) -> tuple[str, ...]:
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        raise ValueError(f"named twice: {', '.join(twice)}")
    return columns


DistinctNames = Annotated[tuple[str, ...], BeforeValidator(as_tuple), Field(min_length=1), AfterValidator(_once)]
"""Column names, at least one and each once; or a single name."""
Number = Annotated[int, Field(ge=-(2**63), lt=2**63)] | FiniteFloat
"""64-bit integer or finite float."""


class NumericOp(Op):
    """Op that replaces the numbers of each of its columns; lists by element.

    A subclass gives the function of a column on NumPy and on Polars, over values in the type of the calculation. Nulls are
    NaN in floats; in integers they stay null.
    """

    columnwise: ClassVar[bool] = True

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the specs of the new numbers: float64 between ops, float32 when written."""
        return calculated(numbers(inputs))

    def calculation(self, kind: pa.DataType) -> pa.DataType:
        """Return the type of the calculation for a type of values."""
        return pa.float64()

    def result(self, calculation: pa.DataType) -> pa.DataType:
        """Return the type of the results."""
        return calculation

    def on_numpy(self, name: str, kind: pa.DataType, state: Tables) -> Callable[[Array], Array]:
        """Return the function of a column's values on NumPy."""
        raise NotImplementedError

    def on_polars(self, values: pl.Expr, name: str, kind: pa.DataType, state: Tables) -> pl.Expr:
        """Return the function of a column's values on Polars; by default it runs on NumPy."""
        raise NotImplementedError

    @property
    def runs_on_numpy(self) -> bool:
        """Whether the op has no Polars form of its own."""
        return type(self).polars is NumericOp.polars and type(self).on_polars is NumericOp.on_polars

    def on_nvtabular(self, library: Any, columns: Mapping[str, str], state: Tables) -> Any:
        """Return the op of NVTabular for columns, by name in its workflow; None if NVTabular has no equal op."""

    def numpy(self, state: Tables, types: Types) -> Apply:
        """Compute each column."""
        functions = {}
        for name in self.reads:
            kind = self.calculation(element(types[name]))
            functions[name] = _on_values(caster(kind), self.on_numpy(name, kind, state))
            retype(types, name, self.result(kind))
        return mapped(functions)

    def polars(self, state: Tables, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Compute each column."""
        if type(self).on_polars is NumericOp.on_polars:
            return super().polars(state, frame)
        types = {name: self.calculation(kind) for name, kind in elements(frame, self.reads).items()}
        return frame.with_columns(
            changed(frame, types, lambda values, name: self.on_polars(values, name, types[name], state))
        )

    def nvtabular(self, state: Tables, rows: pa.Table, folder: Path) -> pa.Table:
        """Compute each column in a workflow of NVTabular, if it has an equal op."""

        def workflow(library: Any, columns: Mapping[str, str]) -> Any:
            return self.on_nvtabular(library, columns, state)

        if type(self).on_nvtabular is NumericOp.on_nvtabular:
            return super().nvtabular(state, rows, folder)
        from recsys_cli.ops.nvtabular import run_on_numbers

        types = {name: self.calculation(element(rows.schema.field(name).type)) for name in self.reads}
        return run_on_numbers(rows, types, workflow)


def _on_values(cast: Callable[[Values], Values], function: Callable[[Array], Array]) -> Callable[[Values], Values]:
    def computed(values: Values) -> Values:
        values = cast(values)
        return values.with_data(function(values.data), values.nulls)

    return computed


def calculated_type(kind: pa.DataType, *constants: float | None) -> pa.DataType:
    """Return the type of a calculation with constants, None ignored: that of values, or of list elements.

    int64 for integers and booleans, uint64 for uint64; float64 for other types, or if a constant does not fit.
    """
    given = [value for value in constants if value is not None]
    whole = all(isinstance(value, int) or value.is_integer() for value in given)
    if pa.types.is_uint64(kind) and whole and all(0 <= value < 2**64 for value in given):
        return pa.uint64()
    signed = pa.types.is_integer(kind) and not pa.types.is_uint64(kind)
    if (signed or pa.types.is_boolean(kind)) and whole and all(-(2**63) <= value < 2**63 for value in given):
        return pa.int64()
    return pa.float64()


def dtype_of(kind: pa.DataType) -> pl.DataType:
    """Return the Polars type of a calculation or a result."""
    return pl.Series(pl.from_arrow(pa.array([], kind))).dtype


def elements(frame: pl.LazyFrame, columns: Sequence[str]) -> dict[str, pa.DataType]:
    """Return the types of columns; of the elements for lists."""
    types = frame.select(columns).collect_schema()
    inner = {name: kind.inner if isinstance(kind, pl.List | pl.Array) else kind for name, kind in types.items()}
    return {field.name: field.type for field in pl.DataFrame(schema=inner).to_arrow().schema}


def changed(
    frame: pl.LazyFrame,
    types: Mapping[str, pa.DataType],
    function: Callable[[pl.Expr, str], pl.Expr],
    *,
    suffix: str = "",
) -> list[pl.Expr]:
    """Return expressions for transformed columns, by element for lists.

    `types` are those of the calculation; `function` gets values (floats may include NaN) and the column's name.
    """
    kinds = frame.select(list(types)).collect_schema()
    expressions = []
    for name, kind in types.items():
        values, dtype = pl.col(name), dtype_of(kind)
        if isinstance(kinds[name], pl.List | pl.Array):
            lists = pl.List(dtype)
            filled = values.cast(lists).fill_null(pl.lit([], dtype=lists))
            expressions.append(filled.list.eval(function(pl.element(), name)).alias(name + suffix))
        else:
            expressions.append(function(values.cast(dtype), name).alias(name + suffix))
    return expressions


def finite_values(
    frame: pl.LazyFrame, column: str, weight: pl.Expr, *, kind: pa.DataType | None = None
) -> pl.LazyFrame:
    """Return the finite values of a column, or of its list elements, as VALUE with a positive WEIGHT.

    `kind` is the type of the calculation, float64 by default.
    """
    is_ragged = isinstance(frame.select(column).collect_schema()[column], pl.List | pl.Array)
    single = pl.Float64() if kind is None else dtype_of(kind)
    dtype = pl.List(single) if is_ragged else single
    values = frame.select(pl.col(column).cast(dtype).alias(VALUE), weight.alias(WEIGHT))
    values = values.explode(VALUE) if is_ragged else values
    return values.filter(pl.col(VALUE).is_finite() & (pl.col(WEIGHT) > 0))


class FillingOp(NumericOp):
    """Op that fills nulls by a constant for each column, optionally with an indicator column."""

    if TYPE_CHECKING:  # each op has the fields at their own positions among the others
        columns: tuple[str, ...]
        add_binary_cols: bool

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        both = sorted({name + FILLED for name in self.columns} & set(self.columns))
        if self.add_binary_cols and both:
            raise ValueError(f"add_binary_cols would overwrite the columns {', '.join(both)}; rename them first")
        return self

    def constant(self, name: str, state: Tables) -> float:
        """Return the constant of a column."""
        raise NotImplementedError

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the filled columns and the indicators, int8."""
        return self.filled(inputs) | {
            name + FILLED: Spec(spec.holding(pa.int8()), dtype="int8", lengths=spec.lengths)
            for name, spec in inputs.items()
            if self.add_binary_cols
        }

    def filled(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the filled columns."""
        return super().outputs(inputs)

    def numpy(self, state: Tables, types: Types) -> Apply:
        """Fill nulls and NaN; add the indicators."""
        fills = {}
        for name in self.columns:
            kind = self.calculation(element(types[name]))
            fills[name] = _filler(self.constant(name, state), kind)
            if self.add_binary_cols:
                types[name + FILLED] = pa.list_(pa.int8()) if is_list(types[name]) else pa.int8()
            retype(types, name, kind)

        def apply(columns: Columns, rows: int) -> None:
            for name, fill in fills.items():
                columns[name], flags = fill(columns[name])
                if self.add_binary_cols:
                    columns[name + FILLED] = flags

        return apply

    def polars(self, state: Tables, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Fill nulls and NaN; add the indicators."""
        types = {name: self.calculation(kind) for name, kind in elements(frame, self.columns).items()}
        constants = {name: self.constant(name, state) for name in self.columns}
        columns = changed(frame, types, lambda values, name: _fill(values, types[name], constants[name]))
        if self.add_binary_cols:
            columns += changed(
                frame, types, lambda values, name: _missing(values, types[name]).cast(pl.Int8), suffix=FILLED
            )
        return frame.with_columns(columns)


def _filler(constant: float, kind: pa.DataType) -> Callable[[Values], tuple[Values, Values]]:
    cast, fill = caster(kind), numpy_type(kind).type(constant)

    def filler(values: Values) -> tuple[Values, Values]:
        values = cast(values)
        nulls = null_mask(values)
        if nulls is None:
            return values, values.with_data(np.zeros(len(values.data), dtype=np.int8))
        return values.with_data(np.where(nulls, fill, values.data)), values.with_data(nulls.astype(np.int8))

    return filler


def _missing(values: pl.Expr, kind: pa.DataType) -> pl.Expr:
    return values.is_null() | values.is_nan() if pa.types.is_floating(kind) else values.is_null()


def _fill(values: pl.Expr, kind: pa.DataType, constant: float) -> pl.Expr:
    if not pa.types.is_floating(kind):
        return values.fill_null(int(constant))
    # `otherwise` covers null as well, because is_not_nan() of null is null.
    return pl.when(values.is_not_nan()).then(values).otherwise(float(constant))
