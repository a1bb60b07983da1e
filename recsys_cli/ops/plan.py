"""FeaturePlan: the ops in execution order, and the roles of columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, cast

from pydantic import Field

from recsys_cli.errors import ConfigError
from recsys_cli.features.columns import PREFIX
from recsys_cli.features.schema import Role, Task, file_of
from recsys_cli.frozen import Frozen
from recsys_cli.ops import AnyOp, Categorify, JoinExternal
from recsys_cli.ops.op import Op
from recsys_cli.ops.program import Program, State, compile_plan
from recsys_cli.packages import pa
from recsys_cli.registry import suggest

_NUMBERS = {Role.LABEL, Role.WEIGHT, Role.LIST_WEIGHT}
"""Roles of numeric columns."""

_ONE_PER_ROW = {Role.USER, Role.ITEM, Role.LABEL, Role.WEIGHT, Role.TIMESTAMP}
"""Roles with one value per interaction."""

_SHOWN = 40
_MAX_FILE_NAME = 255
"""Longest file name of a vocabulary, a table or a state, in bytes: the limit of file systems."""


class Label(Frozen):
    """Label and prediction task."""

    name: str
    """Label column."""
    task: Task = "binary"
    """`binary`: a label in [0, 1], predicted as a probability. `regression`: a number in units of its own, such as stars or
    seconds, trained by squared error, predicted and measured in these units."""


class FeaturePlan(Frozen):
    """Contents of the prepared data: the outputs of the ops, and the columns with a role."""

    user: str
    """User id column; has to be categorified."""
    item: str
    """Item id column; has to be categorified."""
    label: str | Label | Annotated[tuple[str | Label, ...], Field(min_length=1)]
    """Target column, or a list of them; the first is the main label of metrics and reports. Write a numeric target, such as
    a rating, as {name: rating, task: regression}."""
    weight: str | None = None
    """Column of row weights, at least 0: a row of weight 2 counts as two rows, one of weight 0 as none. Never a feature, and
    optional in new rows. `train` says if a model counts each pair of user and item once."""
    list_weights: dict[str, str] = Field({})
    """Columns of element weights by list column, for weighted sums of embeddings, such as {genres: genre_scores}. Both lists
    of a row need the same length; the weights are no feature of their own."""
    timestamp: str | None = None
    """Time column of the interactions, without nulls; stored in the prepared data, never a feature. Times, dates, text (see
    `times` of a table), or numbers: s, ms, µs or ns since 1970, detected by size, or a unit of their own."""
    impression: str | None = None
    """Raw column of impression ids: the rows of one id and user are candidates that were shown together, with label 1 for a
    click. The evaluation measures AUC, MRR, NDCG@5 and NDCG@10 per impression. Never a feature, and optional in new rows."""
    ops: tuple[AnyOp, ...]
    """Ops in execution order."""
    drop: tuple[str, ...] = ()
    """Intermediate columns to leave out of the prepared data."""
    known: tuple[str, ...] = ()
    """Features that are known before the label although they are computed from the same raw columns, such as two fields of
    one text; they are refused as leaks otherwise."""

    @property
    def roles(self) -> dict[str, Role]:
        """Roles by column, including the mark of sampled rows."""
        return dict(self._role_list)

    @property
    def _role_list(self) -> list[tuple[str, Role]]:
        """Columns with their roles; a column with two roles appears twice."""
        parts = [(self.user, Role.USER), (self.item, Role.ITEM), *((name, Role.LABEL) for name in self.labels)]
        parts += [(name, Role.TIMESTAMP) for name in (self.timestamp,) if name]
        parts += [(name, Role.WEIGHT) for name in (self.weight,) if name]
        parts += [(name, Role.LIST_WEIGHT) for name in dict.fromkeys(self.list_weights.values())]
        return [*parts, *((op.marks_samples, Role.SAMPLED) for op in self.ops if op.marks_samples)]

    @property
    def labels(self) -> tuple[str, ...]:
        """Target columns, the main label first."""
        return tuple(label.name for label in self._labels)

    @property
    def tasks(self) -> dict[str, Task]:
        """Tasks by label, the main label first."""
        return {label.name: label.task for label in self._labels}

    @property
    def _labels(self) -> tuple[Label, ...]:
        labels = self.label if isinstance(self.label, tuple) else (self.label,)
        return tuple(Label(name=one) if isinstance(one, str) else one for one in labels)

    @property
    def categorified(self) -> tuple[str, ...]:
        """Columns with a vocabulary, in order."""
        return tuple(column for op in self.ops for column in op.encodes)

    def encoder_of(self, column: str) -> tuple[int, Categorify]:
        """Return the position and the Categorify of a column."""
        return next((index, cast("Categorify", op)) for index, op in enumerate(self.ops) if column in op.encodes)

    @property
    def joins(self) -> tuple[JoinExternal, ...]:
        """The joins, in order."""
        return tuple(cast("JoinExternal", op) for op in self.ops if op.joined_by)

    def raw_name(self, column: str) -> str:
        """Return the staged name of a column: before the Renames after row selection."""
        last = max((position for position, op in enumerate(self.ops) if op.phase != "columns"), default=-1)
        for op in reversed(self.ops[last + 1 :]):
            column = _old_name(op, column)
        return column

    @property
    def raw_times(self) -> tuple[str, ...]:
        """Raw columns of times: the timestamp and the inputs of TimeWindow, unless an op computes them."""
        named = [(self.timestamp, len(self.ops))] if self.timestamp else []
        named += [(name, position) for position, op in enumerate(self.ops) for name in op.times]
        return self._raw(named)

    @property
    def raw_ids(self) -> tuple[str, ...]:
        """Raw columns of users, items and keys of joined tables, unless an op computes them."""
        keys = ((op.joined_by, position) for position, op in enumerate(self.ops) if op.joined_by)
        return self._raw(((self.user, len(self.ops)), (self.item, len(self.ops)), *keys))

    def _raw(self, named: Iterable[tuple[str, int]]) -> tuple[str, ...]:
        """Return the distinct raw names of columns before ops, without computed columns."""
        raw = (self._raw_before(name, position) for name, position in named)
        return tuple(dict.fromkeys(name for name in raw if name is not None))

    def raw_source(self, column: str) -> str | None:
        """Return the raw name of a column of the prepared data; None for a computed column."""
        return self._raw_before(column, len(self.ops))

    def _raw_before(self, column: str, position: int) -> str | None:
        """Return the raw name of an input column of an op; None for a computed column."""
        for op in reversed(self.ops[:position]):
            if column in op.expressions:
                return None
            column = _old_name(op, column)
        return column

    def compile(
        self, tables: Mapping[str, pa.Schema], state: State | None = None, *, lacks: frozenset[str] | None = None
    ) -> Program:
        """Compile the plan for the columns and types of the raw tables, "interactions" among them, without reading rows.

        Outputs that depend on the columns that new rows lack are left out.

        Raises:
            ConfigError: All problems of the plan, one per line.
        """
        aside = [name for name in (self.impression,) if name and name not in (lacks or ())]
        program = compile_plan(self.ops, tuple(self.roles), tables, aside=aside, state=state, lacks=lacks)
        problems = [*self.wrong_roles(), *program.problems, *self._wrong_columns(program)]
        problems += [
            f"{feature!r} leaks the label {label!r}: both are computed from {', '.join(sorted(shared))} of the same row; "
            "remove it, name it in drop, use TargetEncoding for statistics out of fold, or name it in known if its value is "
            "known before the label"
            for feature, label, shared in self._shared_sources(program)
            if shared == program.sources[label] and state is None
        ]
        problems += [
            f"impression: {name!r} is computed by an op; name a raw column of the interactions"
            for name in aside
            if name in tables["interactions"].names and name not in program.reads
        ]
        problems += _wrong_names(program, tables)
        if problems:
            raise ConfigError(
                "features: " + "\n".join(problems), hint="fix features; the columns above are those of the raw tables"
            )
        return program

    def possible_leaks(self, program: Program) -> list[str]:
        """Return remarks on features that share some raw columns with a label of several."""
        return [
            f"{feature!r} and the label {label!r} are both computed from {', '.join(sorted(shared))}: a leak, unless its value is "
            "known before the label"
            for feature, label, shared in self._shared_sources(program)
        ]

    def _shared_sources(self, program: Program) -> list[tuple[str, str, frozenset[str]]]:
        """Return pairs of a feature and a label with their raw columns in common."""
        features = [name for name, _, _ in program.columns if name not in {*self.roles, *self.drop, *self.known}]
        pairs = ((feature, label) for feature in features for label in self.labels if label in program.sources)
        shared = ((feature, label, program.sources[feature] & program.sources[label]) for feature, label in pairs)
        return [found for found in shared if found[2]]

    def wrong_roles(self) -> list[str]:
        """Return the problems of roles and ops, independent of the tables."""
        problems = [
            f"the {role} column {column!r} has to be in a Categorify op{self._meant(column)}"
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
            for name, role in self._role_list
            if role in _NUMBERS and name in self.categorified
        ]
        parts: dict[str, list[Role]] = {}
        for name, role in self._role_list:
            parts.setdefault(name, []).append(role)
        problems += [
            f"{name!r} is named as {' and as '.join(roles)}; a column plays one part"
            for name, roles in parts.items()
            if len(roles) > 1
        ]
        if sum(op.phase == "draw" for op in self.ops) > 1:
            problems.append("NegativeSampling is repeated; one op samples all negatives")
        problems += self._wrong_drops()
        problems += [
            f"{name!r} is dropped, and it is named as {role}" for name, role in self.roles.items() if name in self.drop
        ]
        return problems

    def _meant(self, column: str) -> str:
        """Return the suggestion for a column without a mention in the ops; an empty string for a known one."""
        return "" if any(column in op.reads for op in self.ops) else suggest(column, self.categorified)

    def _wrong_drops(self) -> list[str]:
        problems = []
        for position, op in enumerate(self.ops):
            problems += [
                f"{op.title}: {name!r} is named as {role} and cannot be dropped"
                for name, role in self.roles.items()
                if name in op.may_drop
            ]
            problems += [
                f"{later.title} reads {name!r}, which {op.title} may drop; move {later.name} before {op.name}"
                for later in self.ops[position + 1 :]
                for name in later.reads
                if name in op.may_drop
            ]
        return problems

    def _wrong_columns(self, program: Program) -> list[str]:
        names = [*program.lacking, *(name for name, _, _ in program.columns)]
        names += [name for op in self.ops for name in op.may_drop]
        encoded = {name for op in self.ops for name in op.encodes}
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
            if not spec.is_number and name not in encoded:
                problems.append(f"{name!r} is not a number, so it has to be categorified, or named in drop")
            elif home is not None and role in {Role.LABEL, Role.WEIGHT}:
                problems.append(f"the {role} {name!r} comes from a table; it has to belong to the interaction")
        return problems + self._wrong_lists(program)

    def _wrong_lists(self, program: Program) -> list[str]:
        """Return the problems of `list_weights`: pairs other than a list of ids with a list of numbers in one table."""
        problems = []
        columns = {name: (spec, home) for name, spec, home in program.columns if name not in self.drop}
        for name, weights in self.list_weights.items():
            if name not in columns:
                if name not in program.lacking:
                    problems.append(f"list_weights: no op makes ids of {name!r}, or it is dropped")
            elif not (columns[name][0].categorical and columns[name][0].ragged):
                problems.append(f"list_weights: {name!r} is no column of categorified lists")
            elif weights in columns and not columns[weights][0].ragged:
                problems.append(f"list_weights: {weights!r} holds no list in each row, as {name!r} does")
            elif weights in columns and columns[weights][1] != columns[name][1]:
                problems.append(f"list_weights: {name!r} and {weights!r} have to belong to the same table")
        return problems


def _wrong_names(program: Program, tables: Mapping[str, pa.Schema]) -> list[str]:
    """Return the problems of column names: empty, reserved, or without a file name."""
    columns = [*program.reads, *(name for name, _, _ in program.columns)]
    problems = {name: reason for name in columns if (reason := _wrong_name(name))}
    if not problems:
        states = [name for step in program.steps for name in step.op.states]
        problems = {name: reason for name in states if (reason := _too_long(name))}
    where = {
        name: f"column {position} of {table}: "
        for table, schema in tables.items()
        for position, name in enumerate(schema.names, start=1)
    }
    return [f"{where.get(name, '')}the name {name[:_SHOWN]!r} {why}; rename it" for name, why in problems.items()]


def _wrong_name(name: str) -> str | None:
    """Return the reason against a column name; None for a valid one."""
    if not name:
        return "is empty"
    if name.startswith(PREFIX):
        return f"begins with the reserved character {PREFIX!r}"
    if "\0" in name:
        return "contains NUL"
    return _too_long(name)


def _too_long(name: str) -> str | None:
    """Return the reason against the name of a file; None for a valid one."""
    num_bytes = len(file_of(name))
    limit = f"its file name, escaped, has {num_bytes} bytes, and file systems allow {_MAX_FILE_NAME}"
    return f"is too long: {limit}" if num_bytes > _MAX_FILE_NAME else None


def _old_name(op: Op, column: str) -> str:
    return next((old for old, new in op.renames.items() if new == column), column)
