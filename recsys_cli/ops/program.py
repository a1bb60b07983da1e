"""Compiled plan; no rows are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from recsys_cli.errors import ConfigError
from recsys_cli.features.spec import Spec
from recsys_cli.ops import JoinExternal, NegativeSampling
from recsys_cli.ops.op import Op
from recsys_cli.ops.steps import COLD, FLAT, GATHERED, INTERACTIONS, Gather, Locate, PlanStep, State
from recsys_cli.packages import pa
from recsys_cli.registry import suggest

__all__ = [
    "COLD", "FLAT", "GATHERED", "INTERACTIONS", "Gather", "Locate", "PlanStep", "Program", "State", "compile_plan",
]  # fmt: skip


@dataclass
class _Column:
    """Column during compilation: type, table and first pass with its values."""

    spec: Spec
    home: str | None = None
    ready: int = 0
    written: bool = False
    """Output of an op, and so part of the prepared data."""
    lacks: frozenset[str] = frozenset()
    """Missing columns of new rows, required for this one."""
    sources: frozenset[str] = frozenset()
    """Raw columns with the row's own value in this one, such as `rating`, or `movies.genres` of a joined table."""


@dataclass(frozen=True)
class Program:
    """Plan compiled for given tables.

    Attributes:
        rows: Ops before the split: row selection and the columns required for it.
        draw: The op for sampled rows, or None.
        steps: Steps after the split.
        joins: Joins with their positions.
        reads: Columns of the raw interactions in use, without duplicates.
        columns: Resulting columns as (name, spec, table), interactions first.
        problems: Reasons against execution; the rest is compiled as far as possible.
        sources: Raw columns behind each column, as of the row itself.
        lacking: Columns that cannot be computed for new rows, each with its missing raw columns.
        aside: Raw columns that are read and never prepared.
    """

    rows: tuple[tuple[int, Op], ...]
    draw: NegativeSampling | None
    steps: tuple[PlanStep, ...]
    joins: tuple[tuple[int, JoinExternal], ...]
    reads: tuple[str, ...]
    columns: tuple[tuple[str, Spec, str | None], ...]
    problems: tuple[str, ...]
    sources: Mapping[str, frozenset[str]] = field(default_factory=dict)
    lacking: Mapping[str, frozenset[str]] = field(default_factory=dict)
    aside: tuple[str, ...] = ()

    @property
    def passes(self) -> int:
        """Number of passes over train for fitting."""
        return max((step.ready for step in self.steps), default=0)

    @property
    def keys(self) -> tuple[str, ...]:
        """Key columns of the joined tables, in order."""
        return tuple(dict.fromkeys(op.on for _, op in self.joins))

    def fits(self, number: int, home: str | None) -> list[PlanStep]:
        """Return the steps to fit in a pass over one table."""
        return [step for step in self.steps if step.fitted and step.after == number and step.home == home]

    def pass_steps(
        self, number: int, home: str | None, *, sampled: bool | None = None
    ) -> list[tuple[PlanStep, Literal["fit", "apply"]]]:
        """Return the required steps of a pass over one table, None for the interactions.

        `sampled` selects the ops to fit: True for those fitted on sampled rows as well, False for the others, None for
        all.
        """
        needed: set[str] = set()
        chosen: list[tuple[PlanStep, Literal["fit", "apply"]]] = []
        for step in reversed([step for step in self.steps if step.home == home]):
            if step.fitted and step.after == number and sampled in {None, step.op.fits_on_sampled}:
                chosen.append((step, "fit"))
                needed |= set(step.op.reads)
            elif step.acts and step.ready <= number and needed & set(step.writes):
                chosen.append((step, "apply"))
                needed |= set(step.op.reads_to_apply)
        return chosen[::-1]

    def columns_read(self, number: int) -> tuple[str, ...]:
        """Return the raw columns of the interactions required in a pass."""
        computed: set[str] = set()
        needed: dict[str, None] = {}
        for step, verb in self.pass_steps(number, None):
            reads = step.op.reads if verb == "fit" else step.op.reads_to_apply
            needed |= dict.fromkeys(name for name in reads if name not in computed)
            computed |= set(step.writes)
        return tuple(needed)

    def transforms(self, home: str | None) -> list[PlanStep]:
        """Return the steps of the fitted plan for one table."""
        return [step for step in self.steps if step.home == home and step.acts]


@dataclass
class _Compiler:
    """Traverses the ops and tracks the table and pass of each column."""

    tables: Mapping[str, pa.Schema]
    state: State | None
    columns: dict[str, _Column] = field(default_factory=dict)
    steps: list[PlanStep] = field(default_factory=list)
    joins: list[tuple[int, JoinExternal]] = field(default_factory=list)
    reads: dict[str, None] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    absent: set[str] = field(default_factory=set)
    """Outputs of ops with problems; their absence is no problem of its own."""
    encoded: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    """Keys of the joined tables."""
    last: int = -1
    """Position of the last op of row selection."""
    lacks: frozenset[str] | None = None
    """Missing columns of new rows; None if the plan is not for new rows."""
    rows: list[tuple[int, Op]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for raw in self.tables[INTERACTIONS]:
            name = frozenset({raw.name})
            self.columns[raw.name] = _Column(Spec(raw.type), lacks=name & (self.lacks or frozenset()), sources=name)

    def run(self, index: int, op: Op) -> None:
        try:
            if op.joined_by:
                self._join(index, cast("JoinExternal", op))
            else:
                missing = [name for name in op.reads if name not in self.columns]
                for name in missing:
                    self._missing(name)
                if missing:
                    self.absent |= {*op.expressions, *op.renames.values()}
                else:
                    self._compute(index, op)
        except ConfigError as error:
            self.absent |= {*op.expressions, *op.renames.values()}
            self.problems.append(f"{op.title}: {error.message}")

    def use(self, name: str) -> None:
        if name in self.columns:
            self._read(name)
        else:
            self._missing(name)

    def _missing(self, name: str) -> None:
        if name in self.absent:
            return
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
            after = max((column.ready for column in columns.values()), default=0)
            outputs = part.outputs({name: column.spec for name, column in columns.items()})
            if self.state is not None and part.fitted:
                outputs = part.fitted_outputs(outputs, {name: self.state[index, name] for name in part.states})
            lacks = frozenset().union(*(columns[name].lacks for name in part.reads_to_apply))
            if self.lacks is not None and op.phase == "draw":
                lacks |= set(outputs)  # new rows are never sampled
            sources = _sources(part, columns, outputs)
            self._write(PlanStep(index, part, home, after, tuple(outputs)), outputs, lacks, sources)

    def _write(
        self,
        step: PlanStep,
        outputs: Mapping[str, Spec | None],
        lacks: frozenset[str],
        sources: Mapping[str, frozenset[str]],
    ) -> None:
        op = cast("Op", step.op)
        self._check_keys(step, outputs)
        self._check_names(step, outputs)
        if step.index <= self.last and op.phase != "draw" and not lacks:
            self.rows.append((step.index, op))
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
                    del self.columns[name]  # computed columns follow the order of the ops
                self.columns[name] = _Column(
                    spec, step.home, step.ready, written=True, lacks=lacks, sources=sources[name]
                )

    def _check_names(self, step: PlanStep, outputs: Mapping[str, Spec | None]) -> None:
        taken = [name for name, spec in outputs.items() if spec is not None and name in self.columns]
        if taken and step.op.renames:
            raise ConfigError(f"column {taken[0]!r} exists already; choose another name")

    def _check_keys(self, step: PlanStep, outputs: Mapping[str, Spec | None]) -> None:
        """Check that keys of joins stay, are raw until their Categorify, and need a single pass."""
        taken = {op.on for _, op in self.joins} & set(outputs)
        if taken and (step.op.renames or step.op.may_drop):
            raise ConfigError(f"{sorted(taken)[0]!r} is the key of a joined table and has to stay")
        keys = {op.on for _, op in self.joins if op.on in self.columns and not self.columns[op.on].spec.categorical}
        for name in keys & set(outputs):
            if name not in step.op.encodes:
                raise ConfigError(f"{name!r} is the key of a joined table; put this op after the Categorify of the key")
            if step.after:
                raise ConfigError(f"{name!r} is the key of a join, so it cannot depend on a statistic of train")

    def _parts(self, index: int, op: Op) -> Iterator[tuple[Op, str | None]]:
        """Split an op by the tables of its columns, or move the columns to the interactions."""
        homes = {name: self.columns[name].home for name in op.reads}
        tables = dict.fromkeys([*homes.values(), None] if op.needs_row_numbers else homes.values())
        if len(tables) <= 1:
            yield from self._by_pass(op, next(iter(tables), None))
        elif op.columnwise and not op.separable:
            lives = ", ".join(
                f"{n} in {f'the table by {home}' if home else 'the interactions'}" for n, home in homes.items()
            )
            raise ConfigError(f"columns of a joint vocabulary have to belong to one table; here {lives}")
        elif op.columnwise:
            for home in tables:
                yield from self._by_pass(op.only(tuple(n for n in op.reads if homes[n] == home)), home)
        else:
            for home in tables:
                if home is not None:
                    self._gather(index, home, tuple(name for name in op.reads if homes[name] == home))
            yield op, None

    def _by_pass(self, op: Op, home: str | None) -> Iterator[tuple[Op, str | None]]:
        """Split an op by the first pass with its inputs and by missing columns, so that no column waits for another."""
        waits = {name: (self.columns[name].ready, tuple(sorted(self.columns[name].lacks))) for name in op.reads}
        if not op.separable or len(set(waits.values())) <= 1:
            yield op, home
            return
        for wait in sorted(set(waits.values())):
            yield op.only(tuple(name for name in op.reads if waits[name] == wait)), home

    def _gather(self, index: int, home: str, names: tuple[str, ...]) -> None:
        key = self.columns[home]
        if not key.spec.categorical:
            raise ConfigError(
                f"it reads {', '.join(names)} of the table by {home} and columns of other tables; "
                f"put it after the Categorify of {home!r}"
            )
        after = max(key.ready, *(self.columns[name].ready for name in names))
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
        table = self.tables[op.table]
        names = ", ".join(table.names)
        self.problems += [
            f"{op.name}: no column {name!r} in table {op.table}{suggest(name, table.names)}; there are {names}"
            for name in (op.on, *op.columns)
            if name not in table.names
        ]
        self.problems += [
            f"{op.name}: column {name!r} exists already"
            for name in op.columns
            if name in self.reads or (name in self.columns and self.columns[name].written)
        ]
        if op.on not in self.encoded:
            self.problems.append(f"{op.name}: the key {op.on!r} has to be categorified; its ids number the table")
        elif op.on in self.columns and self.columns[op.on].spec.ragged:
            self.problems.append(
                f"{op.name}: the key {op.on!r} holds a list in each row; a join needs a single key per row"
            )
        self.joins.append((index, op))
        specs = {name: Spec(table.field(name).type) for name in op.columns if name in table.names}
        for name, spec in specs.items():
            # Ids number the rows of the table, and are available after the first pass.
            lacks = self.columns[op.on].lacks if op.on in self.columns else frozenset()
            sources = frozenset({f"{op.table}.{name}"})
            self.columns[name] = _Column(spec, op.on, ready=1, written=True, lacks=lacks, sources=sources)


def _locate(key: str) -> PlanStep:
    op = Locate(key)
    return PlanStep(COLD, op, None, 1, (op.output,))  # cold keys are available after the first pass


def _sources(op: Op, columns: Mapping[str, _Column], outputs: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return the raw columns behind each output of an op; the outputs of a group or of sampling are sources themselves."""
    if op.replaces or op.phase == "draw":
        return {name: frozenset({name}) for name in outputs}
    found = {
        output: frozenset[str]().union(*(columns[name].sources for name in op.exposed(output))) for output in outputs
    }
    if op.columnwise and op.separable:
        for name in op.reads:
            part = op.only((name,)).outputs({name: columns[name].spec})
            found |= dict.fromkeys(part, columns[name].sources)
    return found


def compile_plan(
    ops: Sequence[Op],
    roles: Sequence[str],
    tables: Mapping[str, pa.Schema],
    *,
    aside: Sequence[str] = (),
    state: State | None = None,
    lacks: frozenset[str] | None = None,
) -> Program:
    """Compile the ops in order, with the columns of the roles; other arguments as of `FeaturePlan.compile`.

    Raw columns `aside` are read and never prepared.
    """
    last = max((position for position, op in enumerate(ops) if op.phase != "columns"), default=-1)
    early = [op for op in ops[: last + 1] if op.fitted or op.joined_by]
    encoded = frozenset(column for op in ops for column in op.encodes)
    keys = frozenset(op.joined_by for op in ops if op.joined_by)
    compiler = _Compiler(tables, state, encoded=encoded, keys=keys, last=last, lacks=lacks)
    compiler.problems += [
        f"{op.title} comes before {ops[last].title}, but rows are selected before any op is fitted or joined; "
        f"move {ops[last].name} up"
        for op in early
    ]
    for index, op in enumerate(ops):
        compiler.run(index, op)
    for name in (*roles, *aside):
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
        sources={name: column.sources for name, column in named},
        lacking={name: column.lacks for name, column in named if column.lacks},
        aside=tuple(aside),
    )
