"""A feature plan with its fitted state."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from recsys_cli.errors import DataError
from recsys_cli.features.parquet import read_parquet
from recsys_cli.features.schema import Column, Kind, Role, Schema, file_of
from recsys_cli.features.spec import Spec
from recsys_cli.ops.plan import FeaturePlan
from recsys_cli.ops.program import COLD, GATHERED, INTERACTIONS, Program
from recsys_cli.packages import pc

TIME_FORMAT = b"time format"
"""Metadata of a raw column of times: their format in the files."""


def time_formats(raw: pa.Schema) -> dict[str, str]:
    """Return the formats of the times at fit time, by raw column; none in data of earlier versions."""
    noted = {field.name: (field.metadata or {}).get(TIME_FORMAT) for field in raw}
    return {name: how.decode() for name, how in noted.items() if how is not None}


@dataclass(frozen=True)
class FittedPlan:
    """Feature plan with engine-neutral fitted state, by position of the op and name of the table.

    Attributes:
        inputs: Columns and types of the raw tables used for fitting; of the interactions, the input columns only.
    """

    plan: FeaturePlan
    inputs: Mapping[str, pa.Schema]
    state: Mapping[tuple[int, str], pa.Table]

    @cached_property
    def program(self) -> Program:
        """The compiled plan, with cardinalities."""
        return self.plan.compile(self.inputs, self.state)

    def for_new_rows(self, have: Collection[str]) -> FittedPlan:
        """Return the plan for new rows of given columns, without the outputs that depend on missing columns.

        The program lists those as `lacking`. Ops that select rows and joins are left out: the dimension tables exist.
        """
        lacks = frozenset(self.inputs[INTERACTIONS].names) - set(have)
        plan = replace(self)
        plan.__dict__["program"] = self.plan.compile(self.inputs, self.state, lacks=lacks)
        return plan

    @property
    def vocabularies(self) -> dict[str, pa.Table]:
        """Vocabularies with `value` (raw type) and `count` (int64); row i is id i + 3."""
        return {
            name: table
            for (index, name), table in self.state.items()
            if index >= 0 and name in self.plan.ops[index].vocabularies
        }

    def vocabulary_of(self, column: str) -> pa.Table:
        """Return a column's vocabulary with the column's own counts, also for a joint vocabulary."""
        index, op = self.plan.encoder_of(column)
        counts = self.state[index, op.counts_of(column)].column("count")
        return pa.table({"value": self.state[index, op.vocabulary_of(column)].column("value"), "count": counts})

    def cold_keys(self, key: str) -> pa.Table | None:
        """Return the cold keys of a joined table, see `steps.COLD`; None without any."""
        table = self.state.get((COLD, key))
        return table if table is not None and table.num_rows else None

    def has_cold(self, key: str, *, train: bool) -> bool:
        """Return whether train rows, or else held-out rows, may have cold keys."""
        table = self.cold_keys(key)
        return table is not None and (not train or bool(pc.max(table.column("count")).as_py()))

    def of(self, index: int) -> dict[str, pa.Table]:
        """Return the fitted state of an op, by table name."""
        return {name: table for (position, name), table in self.state.items() if position == index}

    def schema(self, layout: str) -> Schema:
        """Return the schema of the prepared columns; in the "flat" layout joined columns belong to the interactions."""
        kept = {name: (spec, home) for name, spec, home in self.program.columns if name not in self.plan.drop}
        # The main label comes first, in any order of the ops.
        labels = iter([name for name in self.plan.labels if name in kept])
        order = [next(labels) if self.plan.roles.get(name) is Role.LABEL else name for name in kept]
        columns = ((name, *kept[name]) for name in order)
        return Schema(
            columns=tuple(self._column(n, spec, home if layout == "star" else None) for n, spec, home in columns)
        )

    def _column(self, name: str, spec: Spec, home: str | None) -> Column:
        role = self.plan.roles.get(name, Role.FEATURE)
        shared: dict[str, Any] = {"name": name, "role": role, "ragged": spec.ragged, "table": home, "tags": spec.tags}
        shared |= {"lengths": spec.lengths}
        if spec.categorical:
            return Column(
                kind=Kind.CATEGORICAL, dtype="int32", cardinality=spec.cardinality, vocabulary=spec.vocabulary,
                buckets=spec.buckets, weights=self.plan.list_weights.get(name), **shared,
            )  # fmt: skip
        if role is Role.LABEL:
            shared["task"] = self.plan.tasks[name]
        if role is Role.TIMESTAMP:
            return Column(kind=Kind.NUMERIC, **_as_time(spec), **shared)
        dtype: Any = spec.dtype or "float32"
        return Column(kind=Kind.NUMERIC, dtype=dtype, **shared)

    def write(self, folder: Path) -> None:
        """Write plan.json, vocab/<name>.parquet, and the other state to state/<position>/<name>.parquet."""
        (folder / "plan.json").write_text(self.plan.model_dump_json(indent=2) + "\n")
        for name, schema in self.inputs.items():
            _write(schema.empty_table(), folder / "state" / "inputs" / file_of(name))
        for (index, name), table in self.state.items():
            in_vocab = index >= 0 and name in self.plan.ops[index].vocabularies
            _write(table, folder / ("vocab" if in_vocab else f"state/{index}") / file_of(name))

    @classmethod
    def read(cls, folder: Path) -> FittedPlan:
        """Read the files of `write`; a `DataError` for missing files and those of another version."""
        try:
            plan = FeaturePlan.model_validate_json((folder / "plan.json").read_text())
            inputs = {
                unquote(p.stem): pq.read_schema(p) for p in sorted((folder / "state" / "inputs").glob("*.parquet"))
            }
            if INTERACTIONS not in inputs:
                raise ValueError("the columns of the interactions are missing")
            state = {}
            for index, op in enumerate(plan.ops):
                for name in op.states:
                    source = folder / ("vocab" if name in op.vocabularies else f"state/{index}")
                    state[index, name] = read_parquet(source / file_of(name))
            for position in (GATHERED, COLD):
                for path in sorted((folder / "state" / str(position)).glob("*.parquet")):
                    state[position, unquote(path.stem)] = read_parquet(path)
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise DataError(
                f"{folder}: not a fitted plan of this version: {error}", hint="recsys etl --force"
            ) from error
        return cls(plan, inputs, state)


def _as_time(spec: Spec) -> dict[str, Any]:
    """Return the stored type of a time: its own unit, so that distinct times stay distinct."""
    if pa.types.is_timestamp(spec.element):
        return {"dtype": "int64", "unit": spec.element.unit}
    if pa.types.is_date(spec.element):
        return {"dtype": "int64", "unit": "s"}
    real = pa.types.is_floating(spec.element) and not (spec.dtype or "").startswith("int")
    return {"dtype": "float64" if real else "int64"}


def _write(table: pa.Table, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="zstd")
