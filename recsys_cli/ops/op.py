"""Base class of all ops: what a plan knows of an op, and its forms on NumPy, Polars and NVTabular."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias, TypeVar

from pydantic import BeforeValidator

from recsys_cli.errors import ConfigError
from recsys_cli.features.columns import ROW_WEIGHT
from recsys_cli.features.spec import Spec
from recsys_cli.frozen import Frozen
from recsys_cli.ops.flow import Flow, OpContext
from recsys_cli.ops.values import Apply, Types, computed
from recsys_cli.packages import pa, pl
from recsys_cli.registry import is_own

Phase = Literal["rows", "draw", "columns"]
Tables: TypeAlias = "Mapping[str, pa.Table]"
"""Tables by name: partial aggregates, or the fitted state."""
Key = TypeVar("Key")
Value = TypeVar("Value")


class FrozenDict(dict[Key, Value]):
    """Read-only mapping, hashable as a field of a frozen op."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def as_tuple(value: Any) -> Any:
    """Return a single text or number as a tuple."""
    return (value,) if isinstance(value, str | int) else value


Names = Annotated[tuple[str, ...], BeforeValidator(as_tuple)]
"""Column names, or a single one."""


class Forms:
    """Forms of a step of a plan: the engines run those on Polars and NVTabular, requests that on NumPy, the reference.

    A fitted step learns partial aggregates of a part of train (`learn`), merges them in the order of the parts, and
    finalizes its state. `merge` and `finalize` are deterministic: threads and clusters give the same bytes.

    Attributes:
        phase: `rows` selects or computes interactions before the split; `draw` adds sampled rows to the splits; `columns`
            computes columns after the split.
        fitted: Fits statistics on train.
        acts: Computes something; False for an op that only annotates columns.
        fits_on_sampled: Is fitted on the rows of NegativeSampling as well.
        needs_row_numbers: Assigns train rows to folds by number; always runs on the interactions.
    """

    phase: ClassVar[Phase] = "columns"
    fitted: ClassVar[bool] = False
    acts: ClassVar[bool] = True
    fits_on_sampled: ClassVar[bool] = False
    needs_row_numbers: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """Name in a config, and in messages."""
        return type(self).__name__

    @property
    def reads(self) -> tuple[str, ...]:
        """Input columns."""
        return tuple(getattr(self, "columns", ()))

    @property
    def reads_to_apply(self) -> tuple[str, ...]:
        """Input columns of the fitted op; new rows may lack the others, such as a target."""
        return self.reads

    @property
    def encodes(self) -> tuple[str, ...]:
        """Columns replaced by vocabulary ids; each has a `vocabulary_of` and a `counts_of`."""
        return ()

    @property
    def renames(self) -> Mapping[str, str]:
        """New column names by old name."""
        return {}

    @property
    def may_drop(self) -> tuple[str, ...]:
        """Columns that the fitted op may drop."""
        return ()

    @property
    def casts(self) -> Mapping[str, str]:
        """Expressions for the exact values of the columns cast to integers, by column."""
        return {}

    @property
    def learns(self) -> tuple[str, ...]:
        """Names of the partial aggregates of a part of train: one per column by default."""
        return self.reads if self.fitted else ()

    @property
    def states(self) -> tuple[str, ...]:
        """Names of the tables of the fitted state."""
        return self.learns

    @property
    def runs_on_numpy(self) -> bool:
        """Whether the op has no Polars form of its own."""
        return type(self).polars is Forms.polars

    def numpy(self, state: Tables, types: Types) -> Apply:
        """Return the step as a function of NumPy columns; `types` gets the types of its outputs."""
        raise NotImplementedError

    def polars(self, state: Tables, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Add or change the columns of a query, by default on NumPy; number and order of rows stay."""
        return pl.LazyFrame(computed(self.numpy, state, frame.collect().to_arrow()))

    def nvtabular(self, state: Tables, rows: pa.Table, folder: Path) -> pa.Table:
        """Add or change columns of rows; by default on NumPy, because NVTabular lacks the op, or computes it differently.

        Args:
            state: The fitted state.
            rows: The rows.
            folder: Folder for files of NVTabular; created by the op.
        """
        return computed(self.numpy, state, rows)

    def learn(self, frame: pl.LazyFrame, weight: pl.Expr) -> Mapping[str, pl.LazyFrame]:
        """Return the queries for the partial aggregates of a part; each row counts as `weight` interactions."""
        raise NotImplementedError

    def learn_on_nvtabular(self, rows: pa.Table, folder: Path) -> Tables:
        """Return the partial aggregates of a part; by default on Polars, as the NVTabular statistics depend on the parts."""
        weight = pl.col(ROW_WEIGHT) if ROW_WEIGHT in rows.column_names else pl.lit(1, pl.Int64)
        queries = self.learn(pl.LazyFrame(rows), weight)
        tables = pl.collect_all(list(queries.values()), engine="in-memory")
        return {name: table.to_arrow() for name, table in zip(queries, tables, strict=True)}

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Merge partial aggregates of one name, in the order of the parts, to one that can be merged again."""
        raise NotImplementedError

    def finalize(self, merged: Tables) -> dict[str, pa.Table]:
        """Return the fitted state from the merged aggregates."""
        raise NotImplementedError


class Op(Frozen, Forms):
    """Description of one preparation step, with its forms. Ops of other packages derive from it as well (docs/plugins.md).

    Attributes:
        columnwise: Computes each of its `columns` independently, so they may live in different tables.
        replaces: Keeps only the columns that it writes.
        drops_only: Only drops rows; skipped when features of new rows are computed.
        train_only: Drops rows of train only, if the splits are given as files.
        format: Version of the result, raised by a fix that changes rows or values: older prepared data is rebuilt.
    """

    columnwise: ClassVar[bool] = False
    replaces: ClassVar[bool] = False
    drops_only: ClassVar[bool] = False
    train_only: ClassVar[bool] = False
    format: ClassVar[int] = 1

    op: str
    """Name in a config: of the class, or of another package's entry point or import path."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Guard an op of another package."""
        if not is_own(cls.__module__):
            from recsys_cli.ops.foreign import guard_op

            guard_op(cls)

    @property
    def title(self) -> str:
        """Name in messages."""
        return self.name

    def exposed(self, output: str) -> tuple[str, ...]:
        """Return the input columns with a row's own value in an output, in train too."""
        return (output,) if self.columnwise and output in self.reads else self.reads

    @property
    def separable(self) -> bool:
        """Whether the op may be split by column, to run in different tables and passes."""
        return self.columnwise

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of input files, relative to the working directory; their content is part of the cache key."""
        return ()

    @property
    def vocabularies(self) -> tuple[str, ...]:
        """Names of the fitted vocabularies: the states written to vocab/."""
        return ()

    @property
    def joined_by(self) -> str | None:
        """Key of the joined table; None without a join."""
        return None

    @property
    def expressions(self) -> Mapping[str, str]:
        """LambdaOp expressions of the columns computed row by row, by column."""
        return {}

    @property
    def times(self) -> tuple[str, ...]:
        """Columns of times."""
        return ()

    @property
    def marks_samples(self) -> str | None:
        """Column that marks sampled rows; None without sampling."""
        return None

    @property
    def reads_all(self) -> bool:
        """Whether all columns of the interactions are inputs."""
        return False

    @property
    def row_wise(self) -> bool:
        """Whether the result of a row depends on no other row before the split."""
        return self.phase != "rows"

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Return the output columns; None for a dropped column.

        Raises:
            ConfigError: Unsuitable inputs; the caller adds the name of the op to the message.
        """
        raise NotImplementedError

    def fitted_outputs(self, outputs: dict[str, Spec | None], state: Tables) -> dict[str, Spec | None]:
        """Refine the output columns by the fitted state, such as the size of a vocabulary."""
        return {name: spec and self.fitted_output(name, spec, state) for name, spec in outputs.items()}

    def fitted_output(self, name: str, spec: Spec, state: Tables) -> Spec:
        """Refine one output column by the fitted state."""
        return spec

    def only(self, columns: tuple[str, ...]) -> Self:
        """Return the op restricted to some of its columns."""
        return self.model_copy(update={"columns": columns})

    def choose(self, rows: Flow, context: OpContext) -> Flow:
        """Return the rows of an op of phase "rows"."""
        raise NotImplementedError

    def refusal(self, engine: str) -> str | None:
        """Return the reason why an engine cannot compute the op, or None."""
        if self.phase == "rows":
            return f"{self.name} chooses rows before the split, outside the engines"
        if self.phase == "draw":
            return f"{self.name} samples rows after the split, outside the engines"
        if not self.acts and not self.fitted:
            return f"{self.name} only describes columns, so the engines have nothing to compute"
        return None

    def refusal_for_rows(self) -> str | None:
        """Return the reason why the op has no values for single rows, or None."""
        if self.drops_only:
            return f"{self.name} only drops rows, so single rows skip it"
        if self.phase == "rows":
            return f"{self.name} reads other rows; bring its output columns"
        if self.phase == "draw":
            return f"{self.name} samples rows of a data set"
        if self.joined_by:
            return f"{self.name} joins a table; the tables by id have its columns"
        return None if self.acts else f"{self.name} only describes columns"


class RowFilter(Op):
    """Op that only drops interactions, before the split."""

    phase: ClassVar[Phase] = "rows"
    drops_only: ClassVar[bool] = True

    def outputs(self, inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
        """Refuse lists; no column changes."""
        scalars(inputs)
        return {}


def numbers(inputs: Mapping[str, Spec]) -> Mapping[str, Spec]:
    """Return the columns; a `ConfigError` if one is not numeric."""
    for name, spec in inputs.items():
        if not spec.is_number:
            held = "encoded ids" if spec.categorical else spec.element
            raise ConfigError(f"{name!r} holds {held}; numbers are needed")
    return inputs


def scalars(inputs: Mapping[str, Spec]) -> Mapping[str, Spec]:
    """Return the columns; a `ConfigError` if one holds lists."""
    for name, spec in inputs.items():
        if spec.ragged:
            raise ConfigError(f"{name!r} holds a list in each row; single values are needed")
    return inputs


def lists(inputs: Mapping[str, Spec]) -> Mapping[str, Spec]:
    """Return the columns; a `ConfigError` if one holds single values."""
    for name, spec in inputs.items():
        if not spec.ragged:
            raise ConfigError(f"{name!r} holds a single value in each row; lists are needed")
    return inputs


def calculated(inputs: Mapping[str, Spec]) -> dict[str, Spec | None]:
    """Return the specs of overwritten numeric columns: float64 between ops, float32 when written."""
    return {name: spec.computed(pa.float64()) for name, spec in inputs.items()}
