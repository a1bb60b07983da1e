"""A plan worked out for given tables: which op runs where and in which pass over train, and what comes out. No row is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, cast

import pyarrow as pa

from recsys_cli.errors import ConfigError
from recsys_cli.features.ops import AnyOp, JoinExternal, NegativeSampling
from recsys_cli.features.ops.op import Op
from recsys_cli.features.spec import Spec
from recsys_cli.features.steps import COLD, FLAT, GATHERED, INTERACTIONS, Gather, Locate, PlanStep, State
from recsys_cli.registry import suggest

__all__ = [
    "COLD",
    "FLAT",
    "GATHERED",
    "INTERACTIONS",
    "Gather",
    "Locate",
    "PlanStep",
    "Program",
    "State",
    "compile_plan",
]


@dataclass
class _Column:
    """Where a column is and when it is known."""

    spec: Spec
    home: str | None = None
    known: int = 0
    written: bool = False
    """Whether an op made it, so that it belongs to what is prepared."""
    lacks: frozenset[str] = frozenset()
    """What new rows do not have, and without which it cannot be computed for them."""


@dataclass(frozen=True)
class Program:
    """A plan for given tables.

    Attributes:
        rows: Ops that run before the split, in order: they choose the interactions, and what that choice needs.
        draw: The op that adds rows after the split, or None.
        steps: What runs after the split, in order.
        joins: The joins, with their positions, in order.
        reads: Columns of the raw interactions that are needed, each once.
        columns: What is there at the end: (name, what it is, where it lives), interactions first, then tables.
        problems: Why it cannot run; all of it is only worked out as far as they allow.
        lacking: For new rows that do not have all raw columns: what cannot be computed, and for lack of which of them.
    """

    rows: tuple[tuple[int, AnyOp], ...]
    draw: NegativeSampling | None
    steps: tuple[PlanStep, ...]
    joins: tuple[tuple[int, JoinExternal], ...]
    reads: tuple[str, ...]
    columns: tuple[tuple[str, Spec, str | None], ...]
    problems: tuple[str, ...]
    lacking: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def passes(self) -> int:
        """How many passes over train it takes to learn everything."""
        return max((step.known for step in self.steps), default=0)

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns whose ids number a table, in order."""
        return tuple(dict.fromkeys(op.on for _, op in self.joins))

    def fits(self, number: int, home: str | None) -> list[PlanStep]:
        """Return the steps that learn in a pass, in one table."""
        return [step for step in self.steps if step.fitted and step.after == number and step.home == home]

    def walk(
        self, number: int, home: str | None, *, drawn: bool | None = None
    ) -> list[tuple[PlanStep, Literal["fit", "apply"]]]:
        """Return what a pass has to do to rows of one table, in order, and nothing that it need not.

        Args:
            number: The pass.
            home: The key of the dimension table; None for the interactions.
            drawn: Only what learns from drawn rows as well, or only what does not; None for all.
        """
        needed: set[str] = set()
        chosen: list[tuple[PlanStep, Literal["fit", "apply"]]] = []
        for step in reversed([step for step in self.steps if step.home == home]):
            if step.fitted and step.after == number and drawn in {None, step.op.fits_on_sampled}:
                chosen.append((step, "fit"))
                needed |= set(step.op.reads)
            elif step.acts and step.known <= number and needed & set(step.writes):
                chosen.append((step, "apply"))
                needed |= set(step.op.reads_to_apply)
        return chosen[::-1]

    def columns_read(self, number: int) -> tuple[str, ...]:
        """Return the raw columns of the interactions that a pass looks at."""
        made: set[str] = set()
        needed: dict[str, None] = {}
        for step, verb in self.walk(number, None):
            reads = step.op.reads if verb == "fit" else step.op.reads_to_apply
            needed |= dict.fromkeys(name for name in reads if name not in made)
            made |= set(step.writes)
        return tuple(needed)

    def transforms(self, home: str | None) -> list[PlanStep]:
        """Return what rows of one table go through in the end."""
        return [step for step in self.steps if step.home == home and step.acts]


@dataclass
class _Compiler:
    """Walks over the ops and notes where each column is."""

    tables: Mapping[str, pa.Schema]
    state: State | None
    columns: dict[str, _Column] = field(default_factory=dict)
    steps: list[PlanStep] = field(default_factory=list)
    joins: list[tuple[int, JoinExternal]] = field(default_factory=list)
    reads: dict[str, None] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    encoded: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    """Columns by which tables are joined."""
    last: int = -1
    """Position of the last op that chooses rows."""
    lacks: frozenset[str] | None = None
    """Raw columns that new rows do not have; None where it is not for new rows."""
    rows: list[tuple[int, AnyOp]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for raw in self.tables[INTERACTIONS]:
            self.columns[raw.name] = _Column(Spec(raw.type), lacks=frozenset({raw.name}) & (self.lacks or frozenset()))

    def run(self, index: int, op: Op) -> None:
        """Note what an op does; a problem is kept, so that all are named at once."""
        try:
            if op.joined_by:
                self._join(index, cast("JoinExternal", op))
            else:
                missing = [name for name in op.reads if name not in self.columns]
                for name in missing:
                    self._missing(name)
                if not missing:
                    self._compute(index, op)
        except ConfigError as error:
            self.problems.append(f"{op.title}: {error.message}")

    def use(self, name: str) -> None:
        """Note that the plan names a column in one of its roles."""
        if name in self.columns:
            self._read(name)
        else:
            self._missing(name)

    def _missing(self, name: str) -> None:
        raw = ", ".join(self.tables[INTERACTIONS].names)
        self.problems.append(f"no column {name!r} in the interactions{suggest(name, self.columns)}; there are {raw}")

    def _read(self, name: str) -> None:
        column = self.columns[name]
        if column.home is None and not column.written:
            self.reads[name] = None

    def _compute(self, index: int, op: Op) -> None:
        for name in op.reads:
            self._read(name)
        for part, home in self._parts(index, op):
            columns = {name: self.columns[name] for name in part.reads}
            after = max((column.known for column in columns.values()), default=0)
            outputs = part.outputs({name: column.spec for name, column in columns.items()})
            if self.state is not None and part.fitted:
                outputs = part.fitted_outputs(outputs, {name: self.state[index, name] for name in part.states})
            lacks = frozenset().union(*(columns[name].lacks for name in part.reads_to_apply))
            if self.lacks is not None and op.phase == "draw":
                lacks |= set(outputs)  # whether a row was drawn is no question of new rows
            self._write(PlanStep(index, part, home, after, tuple(outputs)), outputs, lacks)

    def _write(self, step: PlanStep, outputs: Mapping[str, Spec | None], lacks: frozenset[str]) -> None:
        op = cast("Op", step.op)
        self._check_keys(step, outputs)
        self._check_names(step, outputs)
        if step.index <= self.last and op.phase != "draw" and not lacks:
            self.rows.append((step.index, cast("AnyOp", op)))
        elif (op.acts or op.fitted) and op.phase == "columns" and not lacks:
            if step.home is None:
                self.steps += [_locate(name) for name in dict.fromkeys(op.encodes) if name in self.keys]
            self.steps.append(step)
        if op.replaces:
            self.columns = {name: column for name, column in self.columns.items() if name in outputs}
        for name, spec in outputs.items():
            before = self.columns.get(name)
            if spec is None:
                del self.columns[name]
            elif before is not None and not op.acts:
                self.columns[name] = replace(before, spec=spec)
            else:
                if before is not None and not before.written:
                    del self.columns[name]  # so that columns stand in the order in which ops made them
                self.columns[name] = _Column(spec, step.home, step.known, written=True, lacks=lacks)

    def _check_names(self, step: PlanStep, outputs: Mapping[str, Spec | None]) -> None:
        """Check that a new name is not that of another column, which would be lost."""
        taken = [name for name, spec in outputs.items() if spec is not None and name in self.columns]
        if taken and step.op.renames:
            raise ConfigError(f"there is a column {taken[0]!r} already")

    def _check_keys(self, step: PlanStep, outputs: Mapping[str, Spec | None]) -> None:
        """Check that the keys of joins stay, are raw until they become ids, and that this needs only one pass."""
        taken = {op.on for _, op in self.joins} & set(outputs)
        if taken and (step.op.renames or step.op.may_drop):
            raise ConfigError(f"it would take away {sorted(taken)[0]!r}, by which a table is joined")
        keys = {op.on for _, op in self.joins if op.on in self.columns and not self.columns[op.on].spec.categorical}
        for name in keys & set(outputs):
            if name not in step.op.encodes:
                raise ConfigError(
                    f"it would change {name!r}, by which a table is joined; let the Categorify of it come first"
                )
            if step.after:
                raise ConfigError(f"{name!r} is the key of a join, so it cannot depend on something learnt from train")

    def _parts(self, index: int, op: Op) -> Iterator[tuple[Op, str | None]]:
        """Cut an op where its columns live in several tables, or bring them to the interactions."""
        homes = {name: self.columns[name].home for name in op.reads}
        tables = dict.fromkeys([*homes.values(), None] if op.needs_row_numbers else homes.values())
        if len(tables) <= 1:
            yield from self._by_pass(op, next(iter(tables), None))
        elif op.columnwise and not op.separable:
            lives = ", ".join(
                f"{n} in {f'the table by {home}' if home else 'the interactions'}" for n, home in homes.items()
            )
            raise ConfigError(f"its columns have to live in one table, because they share a vocabulary; here {lives}")
        elif op.columnwise:
            for home in tables:
                yield from self._by_pass(op.only(tuple(n for n in op.reads if homes[n] == home)), home)
        else:
            for home in tables:
                if home is not None:
                    self._gather(index, home, tuple(name for name in op.reads if homes[name] == home))
            yield op, None

    def _by_pass(self, op: Op, home: str | None) -> Iterator[tuple[Op, str | None]]:
        """Cut an op where some of its columns are known earlier than others, or at all, so that those do not wait."""
        waits = {name: (self.columns[name].known, tuple(sorted(self.columns[name].lacks))) for name in op.reads}
        if not op.separable or len(set(waits.values())) <= 1:
            yield op, home
            return
        for wait in sorted(set(waits.values())):
            yield op.only(tuple(name for name in op.reads if waits[name] == wait)), home

    def _gather(self, index: int, home: str, names: tuple[str, ...]) -> None:
        key = self.columns[home]
        if not key.spec.categorical:
            raise ConfigError(
                f"it reads {', '.join(names)} of the table by {home} beside columns of other tables; "
                f"let it come after the Categorify of {home!r}"
            )
        after = max(key.known, *(self.columns[name].known for name in names))
        if not key.lacks:
            self.steps.append(PlanStep(GATHERED, Gather(home, names, index), None, after, names))

    def _join(self, index: int, op: JoinExternal) -> None:
        if op.table not in self.tables:
            others = sorted(set(self.tables) - {INTERACTIONS})
            raise ConfigError(f"no table {op.table!r}{suggest(op.table, others)}; there are {others}")
        if op.on in self.columns:
            self._read(op.on)
        else:
            self._missing(op.on)
        have = self.tables[op.table]
        there = ", ".join(have.names)
        self.problems += [
            f"{op.name}: no column {name!r} in table {op.table}{suggest(name, have.names)}; there are {there}"
            for name in (op.on, *op.columns)
            if name not in have.names
        ]
        self.problems += [
            f"{op.name}: column {name!r} is there already"
            for name in op.columns
            if name in self.reads or (name in self.columns and self.columns[name].written)
        ]
        if op.on not in self.encoded:
            self.problems.append(f"{op.name}: the key {op.on!r} has to be categorified, because ids number its table")
        elif op.on in self.columns and self.columns[op.on].spec.ragged:
            self.problems.append(
                f"{op.name}: the key {op.on!r} holds a list in each row, and a join takes one key a row"
            )
        self.joins.append((index, op))
        known = {name: Spec(have.field(name).type) for name in op.columns if name in have.names}
        for name, spec in known.items():
            # Its rows are numbered by ids, which are known after the first pass.
            lacks = self.columns[op.on].lacks if op.on in self.columns else frozenset()
            self.columns[name] = _Column(spec, op.on, known=1, written=True, lacks=lacks)


def _locate(key: str) -> PlanStep:
    op = Locate(key)
    return PlanStep(COLD, op, None, 1, (op.output,))  # cold keys are known after the first pass


def compile_plan(
    ops: Sequence[AnyOp],
    roles: Sequence[str],
    tables: Mapping[str, pa.Schema],
    *,
    state: State | None = None,
    lacks: frozenset[str] | None = None,
) -> Program:
    """Work out a plan for given tables.

    Args:
        ops: The ops, in order.
        roles: Columns that the plan names beside its ops: user, item, labels, weights, timestamp.
        tables: Columns and types by table, "interactions" among them.
        state: What was learnt, where it is known: then cardinalities are, too.
        lacks: For new rows: columns of the interactions that they do not have. What needs those is left out.
    """
    last = max((position for position, op in enumerate(ops) if op.phase != "columns"), default=-1)
    early = [op for op in ops[: last + 1] if op.fitted or op.joined_by]
    encoded = frozenset(column for op in ops for column in op.encodes)
    keys = frozenset(op.joined_by for op in ops if op.joined_by)
    compiler = _Compiler(tables, state, encoded=encoded, keys=keys, last=last, lacks=lacks)
    compiler.problems += [
        f"{op.title} comes before {ops[last].title}, which chooses rows; rows are chosen before anything is learnt or joined, "
        f"so move {ops[last].name} up"
        for op in early
    ]
    for index, op in enumerate(ops):
        compiler.run(index, cast("Op", op))
    for name in roles:
        compiler.use(name)
    draw = next((cast("NegativeSampling", op) for op in ops[: last + 1] if op.phase == "draw"), None)
    named = [(name, column) for name, column in compiler.columns.items() if column.written or name in roles]
    named.sort(key=lambda pair: not pair[1].written)
    order = dict.fromkeys([None, *(column.home for _, column in named)])
    return Program(
        rows=tuple(compiler.rows),
        draw=draw,
        steps=tuple(compiler.steps),
        joins=tuple(compiler.joins),
        reads=tuple(name for name in compiler.reads if name not in (lacks or ())),
        columns=tuple((n, c.spec, home) for home in order for n, c in named if c.home == home and not c.lacks),
        problems=tuple(dict.fromkeys(compiler.problems)),
        lacking={name: column.lacks for name, column in named if column.lacks},
    )
