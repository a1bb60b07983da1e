"""All steps from files to a config: tables, roles, task, open questions and text."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.data.raw_files import is_url, unpacked_name
from recsys_cli.detect.features import SEPARATES, with_times_before
from recsys_cli.detect.names import ALIASES, simplified
from recsys_cli.detect.profiles import Profile
from recsys_cli.detect.proposal import MANY_REPEATED, Proposal, config_text, propose
from recsys_cli.detect.roles import ENOUGH, TARGETS, positive_text
from recsys_cli.detect.sampling import tables as sampled
from recsys_cli.detect.tables import Dimension, Table, dimensions, interactions_of, named, read
from recsys_cli.detect.task import Asked, Task, task_of
from recsys_cli.errors import ConfigError, DataError, listed
from recsys_cli.registry import suggest

_ROLES = frozenset({"user", "session", "item", "label"})
_LONGEST_NAME = 100
_CHOICES = 8
"""Columns named where a role is open."""


@dataclass(frozen=True)
class Question:
    """A role without a column, and the columns that may have it."""

    role: str
    choices: tuple[str, ...]
    samples: tuple[str, ...] = ()
    """A value of each choice."""

    @property
    def problem(self) -> str:
        """The open question as a problem."""
        named = [f"{name} ({sample:.30})" for name, sample in zip(self.choices, self.samples, strict=False)][:_CHOICES]
        choices = f", such as {', '.join(named)}" if named else ""
        return f"cannot guess the {self.role} column; set it with --{self.role}{choices}"


def _named(table: Table) -> str:
    """Return the name of a table with its first file, if it has files."""
    name, address = table.sample.name, table.sample.address
    return name if address == name else f"{name} ({address})"


@dataclass(frozen=True)
class Understanding:
    """The roles and the task of some tables, and the config; without `proposal`, questions are open."""

    interactions: Table
    joined: Sequence[Dimension]
    unused: Sequence[tuple[Table, str]]
    questions: tuple[Question, ...] = ()
    task: Task | None = None
    proposal: Proposal | None = None
    without_effect: tuple[str, ...] = ()
    """Given columns that the task leaves out, as options."""

    @property
    def source(self) -> str:
        """Name of the first file, or of the folder, of the interactions."""
        path = Path(re.sub(r"^(zip|tar)://", "", self.interactions.sample.address.partition("::")[0]))
        return path.name or path.resolve().name

    @property
    def config_name(self) -> str:
        """Name of the config to write: of the files, or of their table if these have no name of their own."""
        address = self.interactions.sample.address
        if not is_url(address) or "::" in address:
            return f"{Path(unpacked_name(self.source.removeprefix('$'))).stem}.yaml"
        name = re.sub(r"[*?\[\]{}]+", "", Path(unpacked_name(Path(address.partition("?")[0]).name)).stem).strip("-_. ")
        return f"{name[:_LONGEST_NAME] or self.interactions.sample.name}.yaml"

    def text(self, path: str) -> str:
        """Return the config as commented YAML."""
        assert self.proposal is not None, "open questions"
        assert self.task is not None, "open questions"
        return config_text(self.proposal, self.task, source=self.source, path=path)

    def skipping_bad_rows(self) -> Understanding:
        """Return the same with a config that skips unreadable rows."""
        assert self.proposal is not None, "open questions"
        comments = {
            **self.proposal.comments,
            "etl.on_bad_rows": "some rows cannot be read; rejected.jsonl will list them",
        }
        sections = {**self.proposal.sections, "etl": {"on_bad_rows": "skip"}}
        return replace(self, proposal=replace(self.proposal, sections=sections, comments=comments))

    @property
    def _missing(self) -> list[str]:
        """Remarks on rows without a user, an item or another value of a role."""
        main, required = self.interactions, {"user", "item", "rating", "label"}
        columns = {name: main.columns[role.column] for name, role in main.roles.items() if name in required}
        found = [
            f"{one.nulls:,} of {one.rows:,} rows have no {name} in column {one.name} (empty, NA, NULL, None or nan) and are left "
            "out; where such texts are real values, set nulls: [] next to the files"
            for name, one in columns.items()
            if one.nulls
        ]
        for one in (one for one in columns.values() if one.kind == "text"):
            if broken := sum("\n" in (text or "") for text in main.sample.rows[one.name].to_pylist()):
                ending = "have a line break: a closing quote may be missing, and two rows read as one"
                found.append(f"{broken:,} of {one.rows:,} values of {one.name} {ending}")
        return found + [
            f"column {name} has one value ({one.samples[0]}) in all sampled rows: every row is positive"
            for name, one in main.columns.items()
            if one.unique == 1 and one.rows >= ENOUGH and simplified(name) in (*ALIASES["rating"], *ALIASES["label"])
        ]

    @property
    def notes(self) -> list[str]:
        """Remarks on the tables."""
        sample = self.interactions.sample
        others = (*(one.table for one in self.joined), *(table for table, _ in self.unused))
        notes = [remark for one in (self.interactions, *others) for remark in one.sample.remarks]
        notes += self._missing
        notes += [f"table {_named(table)} is not used: {reason}" for table, reason in self.unused]
        if sample.total < ENOUGH:
            notes.append(f"{sample.name} has {sample.total:,} rows: enough for a config, not for a model")
        notes += [
            f"{one.name}: {one.compound!r} is a list of other values; write all lists of the column with one separator"
            for table in (self.interactions, *(one.table for one in self.joined))
            for one in table.columns.values()
            if one.compound is not None
        ]
        if odd := [one for one in self.interactions.columns.values() if one.odd is not None]:
            types = ", ".join(f"{one.name}: {one.type_but_for_odd}" for one in odd)
            notes.append(
                f"text among numbers: {', '.join(f'{one.odd:.30} in {one.name}' for one in odd)}; remove these rows, or write "
                f"dataset.interactions as {{files: {self.source}, types: {{{types}}}}}, with etl.on_bad_rows=skip"
            )
        if self.proposal is None or self.task is None:
            return notes
        notes += [
            f"{one.name} may be a time, and is not used as one: day and month of {one.samples[0]} are ambiguous, or its format "
            f"is unknown; features.timestamp={one.name} needs its format in dataset.interactions.times, and no Categorify"
            for one in self.interactions.columns.values()
            if "timestamp" not in self.interactions.roles
            and one.kind == "text" and re.match(r"\d{1,2}[/.-]\d{1,2}[/.-]\d{4}\b", " ".join(one.samples))
        ]  # fmt: skip
        notes += [f"{option} has no effect: the task is to {self.task.words}" for option in self.without_effect]
        notes += [
            f"features.ops keep the rows with {op['expression']}: {why}"
            for op, why in self.proposal.ops
            if op["op"] == "Filter"
        ]
        if self.proposal.repeated >= MANY_REPEATED:
            keeps = "keep seen items; evaluate.repeats=false leaves them out"
            leaves_out = "leave seen items out; evaluate.repeats=true keeps them"
            copies = "" if "timestamp" in self.interactions.roles else "; without times, they may be copies of rows"
            notes.append(
                f"{self.proposal.repeated:.0%} of the sampled rows repeat an earlier pair of user and item, such as second "
                f"purchases: rankings {keeps if self.proposal.repeats else leaves_out}{copies}"
            )
        if self.proposal.of_rows:
            notes.append(
                f"features of the interaction, not of its user or item: {listed(self.proposal.of_rows)}; with them the "
                "model scores rows but cannot rank the catalog; to rank, leave them out of features.ops"
            )
        return notes + [
            _outcome_note(name, auc, self.interactions.roles["label"].column)
            for name, auc in self.proposal.strong.items()
        ]


def understand(patterns: Sequence[str], given: Mapping[str, str | None], asked: Asked | None = None) -> Understanding:
    """Look at files, folders, URLs or zip archives and return roles, task and config; without `asked` the table decides the task.

    Raises:
        ConfigError: A file is no table, a given column does not fit, or the tables cannot train a recommender.
        DataError: A file is unreadable, or a rating is infinite or NaN.
    """
    all_tables = read(sampled(patterns), given)
    first = interactions_of(all_tables)
    _check_given(first, given)
    main = with_times_before(named(first))
    joined, unused = dimensions(main, [table for table in all_tables if table is not first])
    _refuse_parts(main, [table for table, _ in unused])
    _refuse_infinite(main)
    task = task_of(main, asked)
    if task is None:
        return Understanding(main, joined, unused, questions=_questions(main))
    proposal = propose(task, main, joined)
    roles = {
        **{role: one.column for role, one in main.roles.items()},
        "timestamp": proposal.sections["features"].get("timestamp"),
    }
    without_effect = [f"--{role} {column}" for role, column in given.items() if column and roles.get(role) != column]
    return Understanding(main, joined, unused, task=task, proposal=proposal, without_effect=tuple(without_effect))


def _outcome_note(column: str, auc: float, label: str) -> str:
    advice = (
        "left out, because it is probably known only after the outcome"
        if auc >= SEPARATES
        else "leave it out of features.ops if it is known only after the outcome"
    )
    return f"column {column} alone predicts {label} (AUC {auc:.2f}): {advice}"


def _refuse_parts(main: Table, unused: Sequence[Table]) -> None:
    """Refuse files that look like parts of one table: most columns in common, and no rating, label, count or event of one alone."""
    for table in unused:
        ours, theirs = set(main.columns), set(table.columns)
        own = ours ^ theirs
        targets = {one.roles[role].column for one in (main, table) for role in TARGETS if role in one.roles}
        are_files = "files" in main.sample.options and "files" in table.sample.options and not table.sample.is_headless
        if are_files and 2 * len(ours & theirs) > max(len(ours), len(theirs)) and not own & targets:
            what = (
                f"most columns, but not by all: {listed(sorted(own))}"
                if own
                else "their columns, but not by their format"
            )
            raise ConfigError(
                f"{main.sample.address} and {table.sample.address} are parts of one table by {what}",
                hint="give both the same columns in the same format, or leave one out: "
                f"recsys init {shlex.quote(main.sample.address)}",
            )


def _refuse_infinite(table: Table) -> None:
    """Refuse infinite and NaN ratings, labels and counts: no threshold or weight follows from them."""
    for role in TARGETS:
        column = table.of(role)
        if column is not None and column.is_numeric:
            values = table.sample.rows.column(column.name).cast(pa.float64())
            if wrong := pc.sum(pc.invert(pc.is_finite(values))).as_py():
                what = f"{wrong:,} of {column.rows:,} values of the {role} column {column.name} are infinite or NaN"
                raise DataError(f"{table.sample.address}: {what}", hint="correct these rows, or leave them out")


def _questions(table: Table) -> tuple[Question, ...]:
    binary = _binary(table)
    taken = {role.column for role in table.roles.values()} | {one.name for one in binary}
    free = [one for name, one in table.columns.items() if name not in taken and (one.may_be_id or one.is_list)]
    free.sort(key=lambda one: one.time is not None or not 2 < one.unique < one.rows)  # values that recur first
    open_roles = [role for role in ("user", "item") if role not in table.roles]
    if "session" in table.roles:
        open_roles.remove("user")
    if binary and not free and _ROLES.isdisjoint(table.roles):
        free, open_roles = binary, ["label"]
    choices, samples = tuple(one.name for one in free), tuple(next(iter(one.samples), "") for one in free)
    return tuple(Question(role, choices, samples) for role in open_roles)


def _binary(table: Table) -> list[Profile]:
    """Return the columns of 0 and 1, or of two texts such as yes and no."""
    return [one for one in table.columns.values() if one.unique == 2 and (one.is_binary or positive_text(one))]


def problems_error(table: Table, problems: Sequence[str], *, command: str = "") -> ConfigError:
    """Return the error of problems with the columns of a table; labels with features need neither user nor item."""
    binary = [shlex.quote(one.name) for one in _binary(table)]
    hint = f"its columns are {listed(table.columns)}"
    if binary and _ROLES.isdisjoint(table.roles):
        hint += f"; to predict one from the others: {command}--label {binary[0]}"
    return ConfigError("\n  ".join([f"{table.sample.address}:", *problems, *table.sample.remarks]), hint=hint)


def _check_given(table: Table, given: Mapping[str, str | None]) -> None:
    problems = [
        f"--{role} {column}: no such column{suggest(column, table.columns)}"
        for role, column in given.items()
        if column is not None and column not in table.columns
    ]
    problems += [
        f"the {role} column {column!r} has to be numeric"
        for role in ("rating", "label")
        if (column := given.get(role)) in table.columns
        and not table.columns[str(column)].is_numeric
        and (role == "rating" or positive_text(table.columns[str(column)]) is None)
    ]
    if problems:
        raise problems_error(table, problems)
