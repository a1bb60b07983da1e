"""FeaturePlan: the ops in order and which column plays which part. FittedPlan: the same with what was learnt from train."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field

from recsys_cli.errors import ConfigError, DataError
from recsys_cli.features.ops import (
    AnyOp,
    Categorify,
    DropLowCardinality,
    JoinExternal,
    LambdaOp,
    NegativeSampling,
    Rename,
    TimeWindow,
)
from recsys_cli.features.program import COLD, GATHERED, INTERACTIONS, Program, State, compile_plan
from recsys_cli.features.schema import Column, Kind, Role, Schema, Task, file_of
from recsys_cli.features.spec import Spec

_NUMBERS = {Role.LABEL, Role.WEIGHT, Role.LIST_WEIGHT}
"""Parts that only numbers can play."""

_ONE_PER_ROW = {Role.USER, Role.ITEM, Role.LABEL, Role.WEIGHT, Role.TIMESTAMP}
"""Parts of which an interaction has one each."""


class Label(BaseModel):
    """A label, and how it is predicted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """The column."""
    task: Task = "binary"
    """`binary`: it is 0 or 1 (or between, as how sure a yes is), and predicted by a probability. `regression`: it is a number in
    units of its own, such as stars or seconds, trained by the squared error, and predicted and measured in these units."""


class FeaturePlan(BaseModel):
    """What the prepared data holds: the columns that ops wrote, and those that are named here."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    user: str
    """Column with the user's id; has to be categorified."""
    item: str
    """Column with the item's id; has to be categorified."""
    label: str | Label | Annotated[tuple[str | Label, ...], Field(min_length=1)]
    """Column to predict, or a list of them; metrics and reports are about the first. One that is a number in units of its own,
    such as a rating to be predicted as such, is written {name: rating, task: regression}."""
    weight: str | None = None
    """Column with how much a row counts in the loss, 0 or more; the model never sees it, and new rows need not have it."""
    list_weights: dict[str, str] = {}
    """Which list column's elements are weighted by which list of numbers where they are summed, such as
    {genres: genre_scores}. The lists of a row have the same length; the numbers are no feature of their own."""
    timestamp: str | None = None
    """Column with the time of the interaction, which every row needs; kept in the prepared data, never shown to the model.
    Times, dates, texts (see `times` of a table), or numbers: s, ms, µs or ns since 1970 by their size, or in their own unit."""
    ops: tuple[AnyOp, ...]
    """What to compute, in order."""
    drop: tuple[str, ...] = ()
    """Columns that ops computed on the way to others, and that the prepared data leaves out."""

    @property
    def roles(self) -> dict[str, Role]:
        """The part of each column that is named here, or that tells drawn rows apart."""
        return dict(self._parts)

    @property
    def _parts(self) -> list[tuple[str, Role]]:
        """Columns and their parts, as they are named: a column that has two is there twice."""
        parts = [(self.user, Role.USER), (self.item, Role.ITEM), *((name, Role.LABEL) for name in self.labels)]
        parts += [(name, Role.TIMESTAMP) for name in (self.timestamp,) if name]
        parts += [(name, Role.WEIGHT) for name in (self.weight,) if name]
        parts += [(name, Role.LIST_WEIGHT) for name in dict.fromkeys(self.list_weights.values())]
        return [*parts, *((op.output, Role.SAMPLED) for op in self.ops if isinstance(op, NegativeSampling))]

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns to predict, the main one first."""
        return tuple(label.name for label in self._labels)

    @property
    def tasks(self) -> dict[str, Task]:
        """How each label is predicted, the main one first."""
        return {label.name: label.task for label in self._labels}

    @property
    def _labels(self) -> tuple[Label, ...]:
        written = self.label if isinstance(self.label, tuple) else (self.label,)
        return tuple(Label(name=one) if isinstance(one, str) else one for one in written)

    @property
    def categorified(self) -> tuple[str, ...]:
        """Columns that get ids of a vocabulary, in order."""
        return tuple(column for op in self.ops if isinstance(op, Categorify) for column in op.columns)

    @property
    def joins(self) -> tuple[JoinExternal, ...]:
        """The joins, in order."""
        return tuple(op for op in self.ops if isinstance(op, JoinExternal))

    @property
    def lambdas(self) -> tuple[LambdaOp, ...]:
        """The computed columns, in order."""
        return tuple(op for op in self.ops if isinstance(op, LambdaOp))

    def raw_name(self, column: str) -> str:
        """Return what a column is called before the Renames that come after the rows are chosen: as it is staged."""
        last = max((place for place, op in enumerate(self.ops) if op.phase != "columns"), default=-1)
        for op in reversed(self.ops[last + 1 :]):
            if isinstance(op, Rename):
                column = next((old for old, new in op.columns.items() if new == column), column)
        return column

    @property
    def raw_times(self) -> tuple[str, ...]:
        """The raw columns that have to hold times: the timestamp, and what TimeWindow looks at, unless an op computes it."""
        named = [(self.timestamp, len(self.ops))] if self.timestamp else []
        named += [(op.column, place) for place, op in enumerate(self.ops) if isinstance(op, TimeWindow)]
        found = (self._raw_before(name, place) for name, place in named)
        return tuple(dict.fromkeys(name for name in found if name is not None))

    def _raw_before(self, column: str, place: int) -> str | None:
        """Return the raw column behind a column before an op; None where an op computes it."""
        for op in reversed(self.ops[:place]):
            if isinstance(op, Rename):
                column = next((old for old, new in op.columns.items() if new == column), column)
            elif isinstance(op, LambdaOp) and op.output == column:
                return None
        return column

    def compile(
        self, tables: Mapping[str, pa.Schema], state: State | None = None, *, lacks: frozenset[str] | None = None
    ) -> Program:
        """Work out the plan for given tables, before any row is read.

        Args:
            tables: Columns and types by table, "interactions" among them.
            state: What was learnt, where it is known.
            lacks: For new rows: columns of the interactions that they do not have. What needs those is left out.

        Raises:
            ConfigError: All problems at once, one a line.
        """
        program = compile_plan(self.ops, tuple(self.roles), tables, state=state, lacks=lacks)
        problems = [*self.wrong_roles(), *program.problems, *self._wrong_columns(program)]
        if problems:
            raise ConfigError("features: " + "\n".join(problems), hint="the columns above are what the raw tables have")
        return program

    def wrong_roles(self) -> list[str]:
        """Say what is wrong with the plan whatever the tables are: which roles the ops do not serve."""
        problems = [
            f"the {role} column {column!r} has to be in a Categorify op"
            for role, column in (("user", self.user), ("item", self.item))
            if column not in self.categorified
        ]
        twice = {column for column in self.categorified if self.categorified.count(column) > 1}
        problems += [f"{column!r} is categorified twice" for column in sorted(twice)]
        names = [name for op in self.ops if isinstance(op, Categorify) for name in op.vocabularies]
        same = {name for name in names if names.count(name) > 1} - twice
        problems += [f"two vocabularies are called {name!r}; rename a column" for name in sorted(same)]
        problems += [
            f"the {role} {name!r} is categorified; a {role} has to be a number"
            for name, role in self._parts
            if role in _NUMBERS and name in self.categorified
        ]
        parts: dict[str, list[Role]] = {}
        for name, role in self._parts:
            parts.setdefault(name, []).append(role)
        problems += [
            f"{name!r} is named as {' and as '.join(roles)}; a column plays one part"
            for name, roles in parts.items()
            if len(roles) > 1
        ]
        if sum(isinstance(op, NegativeSampling) for op in self.ops) > 1:
            problems.append("NegativeSampling is there twice; one of them can draw all rows")
        problems += self._wrong_drops()
        problems += [
            f"{op.title}: {op.output!r} is made of the label {name!r}, and would tell a model the answer; leave it out, or drop it"
            for op in self.lambdas
            for name in op.reads
            if name in self.labels and op.output not in {*self.roles, *self.drop}
        ]
        problems += [
            f"{name!r} is dropped, and it is named as {role}" for name, role in self.roles.items() if name in self.drop
        ]
        return problems

    def _wrong_drops(self) -> list[str]:
        problems = []
        for place, op in enumerate(self.ops):
            if isinstance(op, DropLowCardinality):
                problems += [
                    f"{op.title}: {name!r} is named as {role} and cannot be dropped"
                    for name, role in self.roles.items()
                    if name in op.columns
                ]
                problems += [
                    f"{later.title} reads {name!r}, which {op.title} may drop; let it come before that"
                    for later in self.ops[place + 1 :]
                    for name in later.reads
                    if name in op.columns
                ]
        return problems

    def _wrong_columns(self, program: Program) -> list[str]:
        names = [*program.lacking, *(name for name, _, _ in program.columns)]
        names += [name for op in self.ops if isinstance(op, DropLowCardinality) for name in op.columns]
        problems = [f"drop: no op computes {name!r}" for name in self.drop if name not in names]
        for name, spec, home in program.columns:
            role = self.roles.get(name)
            if spec.ragged and role in _ONE_PER_ROW:
                problems.append(
                    f"{role}: {name!r} holds a list in each row ({spec.type}), and the {role} has to be one value; "
                    "name another column, or give each element a row of its own in the raw data"
                )
                continue
            if role is Role.TIMESTAMP and name not in self.drop and pa.types.is_string(spec.element):
                problems.append(f"the timestamp {name!r} is a text; it has to be a time or a number")
            if name in self.drop or spec.categorical or role is Role.TIMESTAMP:
                continue
            if not spec.is_number:
                problems.append(f"{name!r} is not a number, so it has to be categorified, or named in drop")
            elif home is not None and role in {Role.LABEL, Role.WEIGHT}:
                problems.append(f"the {role} {name!r} comes from a table; it has to belong to the interaction")
        return problems + self._wrong_lists(program)

    def _wrong_lists(self, program: Program) -> list[str]:
        """Say which columns of `list_weights` are not two lists side by side, of ids and of numbers."""
        problems = []
        there = {name: (spec, home) for name, spec, home in program.columns if name not in self.drop}
        for name, weights in self.list_weights.items():
            if name not in there:
                if name not in program.lacking:
                    problems.append(f"list_weights: no op makes ids of {name!r}, or it is dropped")
            elif not (there[name][0].categorical and there[name][0].ragged):
                problems.append(f"list_weights: {name!r} is no column of lists that are categorified")
            elif weights in there and not there[weights][0].ragged:
                problems.append(f"list_weights: {weights!r} holds no list in each row, as {name!r} does")
            elif weights in there and there[weights][1] != there[name][1]:
                problems.append(f"list_weights: {name!r} and {weights!r} have to live in the same table")
        return problems


@dataclass(frozen=True)
class FittedPlan:
    """A plan and its engine-neutral state: whichever engine fitted it, any engine can apply it.

    Attributes:
        plan: The plan.
        inputs: Columns and types of the raw tables that it was fitted on; of the interactions only those that are read.
        state: What was learnt, by place of the op and name of the table.
    """

    plan: FeaturePlan
    inputs: Mapping[str, pa.Schema]
    state: Mapping[tuple[int, str], pa.Table]

    @cached_property
    def program(self) -> Program:
        """The plan worked out, cardinalities included."""
        return self.plan.compile(self.inputs, self.state)

    def for_new_rows(self, have: Collection[str]) -> FittedPlan:
        """Return the plan for rows that it was not fitted on, which may lack columns: what needs those is left out.

        Its program says what is lacking. Ops that choose rows are no part of it, nor are joins: the tables by id are there.

        Args:
            have: The columns of the new rows.
        """
        lacks = frozenset(self.inputs[INTERACTIONS].names) - set(have)
        made = replace(self)
        made.__dict__["program"] = self.plan.compile(self.inputs, self.state, lacks=lacks)
        return made

    @property
    def vocabularies(self) -> dict[str, pa.Table]:
        """Each vocabulary by its name: `value` (raw type) and `count` (int64); row i is id i + 3."""
        return {
            name: table
            for (index, name), table in self.state.items()
            if index >= 0 and self._is_vocabulary(index, name)
        }

    def vocabulary_of(self, column: str) -> pa.Table:
        """Return a column's vocabulary with the counts of its own values, where it shares the vocabulary with others."""
        index, op = next(
            (index, op) for index, op in enumerate(self.plan.ops) if isinstance(op, Categorify) and column in op.columns
        )
        counts = self.state[index, op.counts_of(column)].column("count")
        return pa.table({"value": self.state[index, op.vocabulary_of(column)].column("value"), "count": counts})

    def cold_keys(self, key: str) -> pa.Table | None:
        """Return the keys of joined tables that the key's vocabulary lacks, as `steps.COLD` says; None where there is none."""
        found = self.state.get((COLD, key))
        return found if found is not None and found.num_rows else None

    def has_cold(self, key: str, *, train: bool) -> bool:
        """Return whether rows of train, or held-out rows, may have cold keys."""
        found = self.cold_keys(key)
        return found is not None and (not train or bool(pc.max(found.column("count")).as_py()))

    def _is_vocabulary(self, index: int, name: str) -> bool:
        op = self.plan.ops[index]
        return isinstance(op, Categorify) and name in op.vocabularies

    def of(self, index: int) -> dict[str, pa.Table]:
        """Return what one op has learnt, by name."""
        return {name: table for (place, name), table in self.state.items() if place == index}

    def schema(self, layout: str) -> Schema:
        """Describe the prepared columns.

        Args:
            layout: "star", or "flat" where joined columns stand in the interactions.
        """
        kept = {name: (spec, home) for name, spec, home in self.program.columns if name not in self.plan.drop}
        labels = iter(
            [name for name in self.plan.labels if name in kept]
        )  # the main one first, whichever op came first
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
        """Write plan.json, vocab/<name>.parquet, and what else was learnt to state/<place>/<name>.parquet."""
        (folder / "plan.json").write_text(self.plan.model_dump_json(indent=2) + "\n")
        for name, schema in self.inputs.items():
            _write(schema.empty_table(), folder / "state" / "inputs" / file_of(name))
        for (index, name), table in self.state.items():
            in_vocab = index >= 0 and self._is_vocabulary(index, name)
            _write(table, folder / ("vocab" if in_vocab else f"state/{index}") / file_of(name))

    @classmethod
    def read(cls, folder: Path) -> FittedPlan:
        """Read what `write` wrote.

        Raises:
            DataError: The files are missing or not of this version.
        """
        try:
            plan = FeaturePlan.model_validate_json((folder / "plan.json").read_text())
            inputs = {
                unquote(p.stem): pq.read_schema(p) for p in sorted((folder / "state" / "inputs").glob("*.parquet"))
            }
            if INTERACTIONS not in inputs:
                raise ValueError("it does not say what it was fitted on")
            state = {}
            for index, op in enumerate(plan.ops):
                for name in op.states:
                    in_vocab = isinstance(op, Categorify) and name in op.vocabularies
                    beside = folder / ("vocab" if in_vocab else f"state/{index}")
                    state[index, name] = pq.read_table(beside / file_of(name))
            for place in (GATHERED, COLD):
                for path in sorted((folder / "state" / str(place)).glob("*.parquet")):
                    state[place, unquote(path.stem)] = pq.read_table(path)
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise DataError(
                f"{folder}: not a fitted plan that this version reads: {error}", hint="recsys etl --force"
            ) from error
        return cls(plan, inputs, state)


def _as_time(spec: Spec) -> dict[str, Any]:
    """Return how a time is written: in its own unit, so that no two events become one."""
    if pa.types.is_timestamp(spec.element):
        return {"dtype": "int64", "unit": spec.element.unit}
    if pa.types.is_date(spec.element):
        return {"dtype": "int64", "unit": "s"}
    real = pa.types.is_floating(spec.element) and not (spec.dtype or "").startswith("int")
    return {"dtype": "float64" if real else "int64"}


def _write(table: pa.Table, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="zstd")
