"""The interactions among the tables, and the tables of users and items with their keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

import polars as pl

from recsys_cli.detect.names import words
from recsys_cli.detect.profiles import Profile, mean, profiles
from recsys_cli.detect.roles import Role, roles
from recsys_cli.detect.sampling import Sample, sampled

_OVERLAP = 0.3


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
        key: Key column of the interactions, and of the table with its section in the config.
    """

    table: Table
    side: str
    key: str


def read(samples: Sequence[Sample], given: Mapping[str, str | None]) -> list[Table]:
    """Return the tables with profiles and roles."""
    found = []
    for sample in samples:
        columns = profiles(sample.rows)
        shown = next((one for one in columns.values() if one.is_impressions), None)
        found.append(
            Table(sample, columns, roles(columns, given, headless=sample.is_headless))
            if shown is None
            else _candidates(sample, columns, shown, given)
        )
    return found


def _candidates(
    sample: Sample, columns: Mapping[str, Profile], shown: Profile, given: Mapping[str, str | None]
) -> Table:
    """Return impressions such as "N1-1 N2-0" as a table with a row per candidate."""
    rest = {name: one for name, one in columns.items() if name != shown.name and not one.is_list}
    found = roles(rest, given, headless=sample.is_headless)
    keys = [name for name, one in rest.items() if one.is_key and one.may_be_id]
    kept: dict[str, Role] = {role: found[role] for role in ("user", "session", "timestamp") if role in found}
    impression = next((name for name in keys if name not in {role.column for role in kept.values()}), None)
    if impression is None and "timestamp" in kept:
        impression = kept["timestamp"].column
    clicks = next(name for name in ("click", "clicked", "is_click") if name not in columns)
    lists = {} if shown.kind == "list" else {"lists": {shown.name: " "}}
    exploded = sampled(sample.name, {**sample.options, **lists, "explode": shown.name, "clicks": clicks})
    kept |= {
        "item": Role(shown.name, "candidates with clicks, a row each"), "label": Role(clicks, "the 0 or 1 after a candidate"),
        **({"impression": Role(impression, "the candidates of a row")} if impression else {}),
    }  # fmt: skip
    return Table(exploded, profiles(exploded.rows), kept)


def interactions_of(tables: Sequence[Table]) -> Table:
    """Return the table of interactions: with user, item and a target before others, then the one with most rows."""

    def rank(table: Table) -> tuple[int, int, int]:
        names = set(table.roles)
        item = table.of("item")
        pairs = bool(names & {"user", "session"}) and item is not None and not item.is_key
        history = bool(names & {"user", "session"}) and item is not None and item.is_list
        targets = bool(names & {"rating", "label", "event", "count"})
        return int(pairs or history or "impression" in names), int(targets), table.sample.total

    return max(tables, key=rank)


def named(table: Table) -> Table:
    """Name the columns of a file without a header by their roles."""
    if not table.sample.is_headless:
        return table
    is_log = "user" not in table.roles and "label" in table.roles and len(table.columns) > 5
    names = _feature_names(table) if is_log else {name: name for name in table.columns}
    new = names | {role.column: name for name, role in table.roles.items()}
    sample = table.sample.renamed(new)
    return Table(
        sample, profiles(sample.rows), {name: Role(new[role.column], role.reason) for name, role in table.roles.items()}
    )


def _feature_names(table: Table) -> dict[str, str]:
    """Return names such as I1 for numbers and C1 for categories, for the columns without a role."""
    numbers = {"I": count(1), "C": count(1)}
    taken = {role.column for role in table.roles.values()}
    letters = {name: "I" if one.is_numeric else "C" for name, one in table.columns.items() if name not in taken}
    return {name: f"{letter}{next(numbers[letter])}" for name, letter in letters.items()}


def dimensions(main: Table, others: Sequence[Table]) -> tuple[list[Dimension], list[Table]]:
    """Return the tables with a row per user or item, one of each with preference to titles, and the other ones."""
    joined: list[Dimension] = []
    unused: list[Table] = []
    for table in sorted(others, key=lambda one: "title" not in one.roles):
        found = None if any(table is one.table for one in joined) else _dimension(main, table)
        if found is None or any(found.side == one.side for one in joined):
            unused.append(table)
        else:
            joined.append(found)
    return joined, unused


def _dimension(main: Table, table: Table) -> Dimension | None:
    keys = [
        (share, side, name)
        for name, column in table.columns.items()
        for side in ("item", "user")
        if column.is_key and column.may_be_id and (share := _share(main, table, name, side)) >= _OVERLAP
    ]
    if not keys:
        return None
    _, side, key = max(keys, key=lambda one: one[0])
    own = main.roles[side].column
    if own != key and own in table.columns:
        return None
    if "clicks" in main.sample.options and table.columns[key].is_numeric:  # candidates are texts
        table = replace(table, sample=sampled(table.sample.name, {**table.sample.options, "types": {key: "string"}}))
    sample = table.sample
    if sample.is_headless:
        new = {name: own if name == key else f"{sample.name}_{name}" for name in table.columns}
        sample = sample.renamed(new)
    else:
        new = {name: own if name == key else name for name in table.columns}
        options = {**sample.options, **({} if own == key else {"rename": {key: own}})}
        sample = replace(sample, options=options, rows=sample.rows.rename_columns(list(new.values())))
    title = table.roles.get("title")
    kept = {"title": Role(new[title.column], title.reason)} if title and title.column != key else {}
    return Dimension(Table(sample, profiles(sample.rows), kept), side, own)


def _share(main: Table, table: Table, key: str, side: str) -> float:
    """Return the share of known keys, plus a bonus for equal names and for the name of the table."""
    own = main.of(side)
    if own is None or own.is_list:
        return 0.0
    role = table.roles.get(side)
    is_named = side in " ".join(words(table.sample.name)) or (role is not None and role.column == key)
    return _overlap(main.sample, own.name, table.sample, key) + (key == own.name) + 0.5 * is_named


def _overlap(main: Sample, own: str, table: Sample, key: str) -> float:
    """Return the share of the distinct values of a column of the interactions in a column of another table."""
    ours, theirs = (
        pl.Series("", pl.from_arrow(sample.rows.column(name))) for sample, name in ((main, own), (table, key))
    )
    if (ours.dtype == pl.String) != (theirs.dtype == pl.String) and "clicks" not in main.options:
        return 0.0
    mine = ours.drop_nulls().unique().cast(pl.String)
    return mean(mine.is_in(theirs.cast(pl.String).implode()))
