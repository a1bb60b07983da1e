"""FeaturePlan: the ops in order and which column plays which part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, cast

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from recsys_cli.errors import ConfigError
from recsys_cli.features.ops import AnyOp, Categorify, JoinExternal
from recsys_cli.features.ops.op import Op
from recsys_cli.features.program import Program, State, compile_plan
from recsys_cli.features.schema import Role, Task

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
        return [*parts, *((op.marks_samples, Role.SAMPLED) for op in self.ops if op.marks_samples)]

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
        return tuple(column for op in self.ops for column in op.encodes)

    def encoder_of(self, column: str) -> tuple[int, Categorify]:
        """Return the op that makes ids of a column, after its position."""
        return next((index, cast("Categorify", op)) for index, op in enumerate(self.ops) if column in op.encodes)

    @property
    def joins(self) -> tuple[JoinExternal, ...]:
        """The joins, in order."""
        return tuple(cast("JoinExternal", op) for op in self.ops if op.joined_by)

    def raw_name(self, column: str) -> str:
        """Return what a column is called before the Renames that come after the rows are chosen: as it is staged."""
        last = max((position for position, op in enumerate(self.ops) if op.phase != "columns"), default=-1)
        for op in reversed(self.ops[last + 1 :]):
            column = _old_name(op, column)
        return column

    @property
    def raw_times(self) -> tuple[str, ...]:
        """The raw columns that have to hold times: the timestamp, and what TimeWindow looks at, unless an op computes it."""
        named = [(self.timestamp, len(self.ops))] if self.timestamp else []
        named += [(name, position) for position, op in enumerate(self.ops) for name in op.times]
        found = (self._raw_before(name, position) for name, position in named)
        return tuple(dict.fromkeys(name for name in found if name is not None))

    def _raw_before(self, column: str, position: int) -> str | None:
        """Return the raw column behind a column before an op; None where an op computes it."""
        for op in reversed(self.ops[:position]):
            if column in op.expressions:
                return None
            column = _old_name(op, column)
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
        names = [name for op in self.ops for name in op.vocabularies]
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
        if sum(op.phase == "draw" for op in self.ops) > 1:
            problems.append("NegativeSampling is there twice; one of them can draw all rows")
        problems += self._wrong_drops()
        problems += [
            f"{op.title}: {output!r} is made of the label {name!r}, and would tell a model the answer; leave it out, or drop it"
            for op in self.ops
            for output in op.expressions
            for name in op.reads
            if name in self.labels and output not in {*self.roles, *self.drop}
        ]
        problems += [
            f"{name!r} is dropped, and it is named as {role}" for name, role in self.roles.items() if name in self.drop
        ]
        return problems

    def _wrong_drops(self) -> list[str]:
        problems = []
        for position, op in enumerate(self.ops):
            problems += [
                f"{op.title}: {name!r} is named as {role} and cannot be dropped"
                for name, role in self.roles.items()
                if name in op.may_drop
            ]
            problems += [
                f"{later.title} reads {name!r}, which {op.title} may drop; let it come before that"
                for later in self.ops[position + 1 :]
                for name in later.reads
                if name in op.may_drop
            ]
        return problems

    def _wrong_columns(self, program: Program) -> list[str]:
        names = [*program.lacking, *(name for name, _, _ in program.columns)]
        names += [name for op in self.ops for name in op.may_drop]
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


def _old_name(op: Op, column: str) -> str:
    """Return the name that a column has before an op."""
    return next((old for old, new in op.renames.items() if new == column), column)
