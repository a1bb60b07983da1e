"""The interactions among the tables, and the tables of users and items with their keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from recsys_cli.detect.profiles import Profile, mean, profiles
from recsys_cli.detect.roles import Role, roles
from recsys_cli.detect.sampling import Sample

_OVERLAP = 0.3
_NAMES = {"user": "user", "session": "session", "item": "item", "rating": "rating", "label": "label", "event": "event",
          "count": "count", "timestamp": "timestamp", "title": "title"}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """A table with the profiles and roles of its columns."""

    sample: Sample
    columns: Mapping[str, Profile]
    roles: Mapping[str, Role]

    def of(self, role: str) -> Profile | None:
        """Return the profile of a role's column."""
        return self.columns[self.roles[role].column] if role in self.roles else None


@dataclass(frozen=True)
class Dimension:
    """A table of users or items.

    Attributes:
        side: "user" or "item".
        key: Key column of the table; in the interactions it may have another name.
    """

    table: Table
    side: str
    key: str


def read(samples: Sequence[Sample], given: Mapping[str, str | None]) -> list[Table]:
    """Return the tables with profiles and roles."""
    found = []
    for sample in samples:
        columns = profiles(sample.rows)
        found.append(Table(sample, columns, roles(columns, given, headless=sample.is_headless)))
    return found


def interactions_of(tables: Sequence[Table]) -> Table:
    """Return the table of interactions: with user, item and a target before others, then the one with most rows."""

    def rank(table: Table) -> tuple[int, int, int]:
        names = set(table.roles)
        item = table.of("item")
        pairs = bool(names & {"user", "session"}) and item is not None and not item.is_key
        history = bool(names & {"user", "session"}) and item is not None and item.is_list
        targets = bool(names & {"rating", "label", "event", "count", "impressions"})
        return int(pairs or history or "impressions" in names), int(targets), table.sample.total

    return max(tables, key=rank)


def named(table: Table) -> Table:
    """Name the columns of a file without a header by their roles."""
    if not table.sample.is_headless:
        return table
    if "user" not in table.roles and "label" in table.roles and len(table.columns) > 5:
        new = _feature_names(table)
    else:
        by_column = {role.column: _NAMES.get(name, name) for name, role in table.roles.items()}
        new = {column: by_column.get(column, column) for column in table.columns}
    sample = table.sample.renamed(tuple(new.values()))
    return Table(
        sample, profiles(sample.rows), {name: Role(new[role.column], role.reason) for name, role in table.roles.items()}
    )


def _feature_names(table: Table) -> dict[str, str]:
    """Return names such as I1 for numbers and C1 for categories."""
    new: dict[str, str] = {}
    for name, one in table.columns.items():
        role = next((role for role, found in table.roles.items() if found.column == name), None)
        letter = "I" if one.is_numeric else "C"
        new[name] = role or f"{letter}{1 + sum(other.startswith(letter) for other in new.values())}"
    return new


def dimensions(main: Table, others: Sequence[Table]) -> tuple[list[Dimension], list[Table]]:
    """Return the tables with a row per user or item, and the other ones."""
    joined: list[Dimension] = []
    unused: list[Table] = []
    for table in others:
        found = None if any(table is one.table for one in joined) else _dimension(main, table)
        if found is None or any(found.side == one.side or found.key == one.key for one in joined):
            unused.append(table)
        else:
            joined.append(found)
    return joined, unused


def _dimension(main: Table, table: Table) -> Dimension | None:
    best: tuple[float, str, str] | None = None
    for name, column in table.columns.items():
        if not (column.is_key and column.may_be_id):
            continue
        for side in ("item", "user"):
            own = main.of(side)
            if own is None or own.is_list:
                continue
            share = _overlap(main.sample, own.name, table.sample, name) + (name == own.name)
            if share >= _OVERLAP and (best is None or share > best[0]):
                best = (share, side, name)
    if best is None:
        return None
    _, side, key = best
    own = main.of(side)
    if table.sample.is_headless and own is not None:
        new = {name: own.name if name == key else f"{table.sample.name}_{name}" for name in table.columns}
        title = table.roles.get("title")
        sample = table.sample.renamed(tuple(new.values()))
        kept = {"title": Role(new[title.column], title.reason)} if title else {}
        return Dimension(Table(sample, profiles(sample.rows), kept), side, own.name)
    return Dimension(table, side, key)


def _overlap(main: Sample, own: str, table: Sample, key: str) -> float:
    """Return the share of the distinct values of a column of the interactions in a column of another table."""
    ours, theirs = (
        pl.Series("", pl.from_arrow(sample.rows.column(name))) for sample, name in ((main, own), (table, key))
    )
    if (ours.dtype == pl.String) != (theirs.dtype == pl.String):
        return 0.0
    mine = ours.drop_nulls().unique().cast(pl.String)
    return mean(mine.is_in(theirs.cast(pl.String).implode()))
