"""FeaturePlan: the ops in order and which column plays which part. FittedPlan: the same with what was learnt from train."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict

from recsys_cli.errors import ConfigError, DataError
from recsys_cli.features import expression as expressions
from recsys_cli.features.ops import AnyOp, Categorify, JoinExternal, LambdaOp
from recsys_cli.features.schema import FIRST, Column, Kind, Role, Schema
from recsys_cli.registry import suggest


class FeaturePlan(BaseModel):
    """What the prepared data holds: the columns an op wrote, and those that are named here."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    user: str
    """Column with the user's id; has to be categorified."""
    item: str
    """Column with the item's id; has to be categorified."""
    label: str
    """Column to predict."""
    timestamp: str | None = None
    """Column with the time of the interaction (seconds); kept in the prepared data, never shown to the model."""
    ops: tuple[AnyOp, ...]
    """What to compute, in order."""

    @property
    def categorified(self) -> tuple[str, ...]:
        """Columns that get ids, in order."""
        return tuple(column for op in self.ops if isinstance(op, Categorify) for column in op.columns)

    @property
    def joins(self) -> tuple[JoinExternal, ...]:
        """The joins, in order."""
        return tuple(op for op in self.ops if isinstance(op, JoinExternal))

    @property
    def lambdas(self) -> tuple[LambdaOp, ...]:
        """The computed columns, in order."""
        return tuple(op for op in self.ops if isinstance(op, LambdaOp))

    def join_of(self, column: str) -> JoinExternal | None:
        """Return the join that brings a column, or None where it is one of the interactions' own."""
        return next((op for op in self.joins if column in op.columns), None)

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns of the raw interactions that are needed, each once."""
        joined = {column for op in self.joins for column in op.columns}
        computed: set[str] = set()
        needed: list[str] = []
        for op in self.ops:
            match op:
                case LambdaOp():
                    needed += sorted(expressions.columns(expressions.parse(op.expression)) - computed)
                    computed.add(op.output)
                case Categorify():
                    needed += [column for column in op.columns if column not in joined | computed]
                case JoinExternal():
                    needed.append(op.on)
        needed += [c for c in (self.user, self.item, self.label, self.timestamp) if c and c not in computed]
        return tuple(dict.fromkeys(needed))

    def check(self, tables: Mapping[str, pa.Schema]) -> None:
        """Check the plan against the raw tables before any work.

        Args:
            tables: Columns and types by table, "interactions" among them.

        Raises:
            ConfigError: All problems at once, one a line.
        """
        problems = [
            *self._missing_columns(tables),
            *self._wrong_joins(tables),
            *self._wrong_expressions(tables["interactions"]),
            *self.wrong_roles(),
        ]
        if problems:
            raise ConfigError("features: " + "\n".join(problems), hint="the columns above are what the raw tables have")

    def _missing_columns(self, tables: Mapping[str, pa.Schema]) -> list[str]:
        have = tables["interactions"].names
        return [
            f"no column {column!r} in the interactions{suggest(column, have)}; there are {', '.join(have)}"
            for column in self.reads
            if column not in have
        ]

    def _wrong_joins(self, tables: Mapping[str, pa.Schema]) -> list[str]:
        problems = []
        for op in self.joins:
            if op.table not in tables:
                others = sorted(set(tables) - {"interactions"})
                problems.append(f"JoinExternal: no table {op.table!r}{suggest(op.table, others)}; there are {others}")
                continue
            have = tables[op.table].names
            problems += [
                f"JoinExternal: no column {column!r} in table {op.table}{suggest(column, have)}; there are {', '.join(have)}"
                for column in (op.on, *op.columns)
                if column not in have
            ]
            problems += [
                f"JoinExternal: column {column!r} is there already" for column in op.columns if column in self.reads
            ]
            if op.on not in self.categorified:
                problems.append(f"JoinExternal: the key {op.on!r} has to be categorified, because ids number its table")
            problems += self._texts(op, tables[op.table])
        return problems

    def _texts(self, op: JoinExternal, schema: pa.Schema) -> list[str]:
        types = {column: schema.field(column).type for column in op.columns if column in schema.names}
        return [
            f"JoinExternal: {column!r} is not a number, so it has to be categorified"
            for column, kind in types.items()
            if column not in self.categorified and not (pa.types.is_integer(kind) or pa.types.is_floating(kind))
        ]

    def _wrong_expressions(self, interactions: pa.Schema) -> list[str]:
        problems = []
        kinds: dict[str, expressions.Kind] = {}
        for op in self.lambdas:
            expression = expressions.parse(op.expression)
            try:
                for name in expressions.columns(expression) & set(interactions.names) - set(kinds):
                    kinds[name] = expressions.kind_of_type(interactions.field(name).type, name)
                if expressions.columns(expression) <= set(kinds):
                    expressions.check(expression, kinds)
            except ConfigError as error:
                problems.append(f"LambdaOp {op.expression!r}: {error.message}")
            kinds[op.output] = "number"
        return problems

    def wrong_roles(self) -> list[str]:
        """Say what is wrong with the plan whatever the tables are: which roles the ops do not serve."""
        problems = [
            f"the {role} column {column!r} has to be in a Categorify op"
            for role, column in (("user", self.user), ("item", self.item))
            if column not in self.categorified
        ]
        twice = {column for column in self.categorified if self.categorified.count(column) > 1}
        problems += [f"{column!r} is categorified twice" for column in sorted(twice)]
        if self.label in self.categorified:
            problems.append(f"the label {self.label!r} is categorified; a label has to be a number")
        return problems

    def prepared_schema(
        self, cardinalities: Mapping[str, int], types: Mapping[str, pa.DataType], *, layout: str
    ) -> Schema:
        """Describe the prepared columns.

        Args:
            cardinalities: Rows of the embedding table of each categorified column.
            types: Raw type of every column that is read or joined.
            layout: "star" or "flat".
        """
        own = [c for c in self.categorified if self.join_of(c) is None]
        outputs = [op.output for op in self.lambdas]
        named = [c for c in (self.label, self.timestamp) if c and c not in outputs]
        columns = [self._column(c, cardinalities, types) for c in dict.fromkeys([*own, *outputs, *named])]
        for op in self.joins:
            home = op.on if layout == "star" else None
            columns += [self._column(c, cardinalities, types).model_copy(update={"table": home}) for c in op.columns]
        return Schema(columns=tuple(columns))

    def _column(self, name: str, cardinalities: Mapping[str, int], types: Mapping[str, pa.DataType]) -> Column:
        roles = {self.user: Role.USER, self.item: Role.ITEM, self.label: Role.LABEL, self.timestamp: Role.TIMESTAMP}
        role = roles.get(name, Role.FEATURE)
        ragged = name in types and (pa.types.is_list(types[name]) or pa.types.is_large_list(types[name]))
        if name in cardinalities:
            return Column(
                name=name, role=role, kind=Kind.CATEGORICAL, dtype="int32", cardinality=cardinalities[name], vocabulary=name,
                ragged=ragged,
            )  # fmt: skip
        computed = next((op.dtype for op in self.lambdas if op.output == name), None)
        dtype: Any = computed or ("int64" if role is Role.TIMESTAMP else "float32")
        return Column(name=name, role=role, kind=Kind.NUMERIC, dtype=dtype, ragged=ragged)


@dataclass(frozen=True)
class FittedPlan:
    """A plan and its engine-neutral state: whichever engine fitted it, any engine can apply it.

    Attributes:
        plan: The plan.
        vocabularies: For each categorified column a table of `value` (raw type) and `count` (int64); row i is id i + 3.
    """

    plan: FeaturePlan
    vocabularies: Mapping[str, pa.Table]

    @property
    def cardinalities(self) -> dict[str, int]:
        """Rows of each column's embedding table: the vocabulary and padding, null and unseen."""
        return {name: table.num_rows + FIRST for name, table in self.vocabularies.items()}

    def write(self, folder: Path) -> None:
        """Write plan.json and vocab/<column>.parquet."""
        (folder / "vocab").mkdir(parents=True, exist_ok=True)
        (folder / "plan.json").write_text(self.plan.model_dump_json(indent=2) + "\n")
        for name, table in self.vocabularies.items():
            pq.write_table(table, folder / "vocab" / f"{name}.parquet", compression="zstd")

    @classmethod
    def read(cls, folder: Path) -> FittedPlan:
        """Read what `write` wrote.

        Raises:
            DataError: The files are missing or not of this version.
        """
        try:
            plan = FeaturePlan.model_validate_json((folder / "plan.json").read_text())
            vocabularies = {name: pq.read_table(folder / "vocab" / f"{name}.parquet") for name in plan.categorified}
        except (OSError, ValueError) as error:
            raise DataError(
                f"{folder}: not a fitted plan that this version reads: {error}", hint="recsys etl --force"
            ) from error
        return cls(plan, vocabularies)
