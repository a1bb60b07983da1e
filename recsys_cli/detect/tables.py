"""The interactions among the tables, and the tables of users and items with their keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

import polars as pl

from recsys_cli.detect.features import treatments
from recsys_cli.detect.names import words
from recsys_cli.detect.profiles import Profile, mean, profiles
from recsys_cli.detect.roles import ITEM_WORDS, USER_WORDS, Role, roles, title_of
from recsys_cli.detect.sampling import Sample, sampled

_OVERLAP = 0.3
_OF_SIDE = {"user": USER_WORDS, "item": ITEM_WORDS}


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
        if shown is None:
            found.append(Table(sample, columns, roles(columns, given, headless=sample.is_headless)))
        else:
            found.append(_candidates(sample, columns, shown, given))
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
    """Return the table of interactions: with user and item, many rows of each, and a target; then the one with most rows."""

    def rank(table: Table) -> tuple[int, int, int, int]:
        names = set(table.roles)
        item = table.of("item")
        pairs = bool(names & {"user", "session"}) and item is not None and not item.is_key
        history = bool(names & {"user", "session"}) and item is not None and item.is_list
        targets = bool(names & {"rating", "label", "event", "count"})
        known = pairs or history or "impression" in names
        return int(known), int(history or not _is_keyed(table)), int(targets), table.sample.total

    return max(tables, key=rank)


def _is_keyed(table: Table) -> bool:
    """Whether the rows have a user or an item each, or a first column of ids in text without a header: no interactions."""
    keys = [table.of(role) for role in ("user", "item")]
    if table.sample.is_headless:
        keys.append(next(iter(table.columns.values()), None))
    return any(one is not None and one.is_key and one.may_be_id and one.time is None for one in keys)


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


def dimensions(main: Table, others: Sequence[Table]) -> tuple[list[Dimension], list[tuple[Table, str]]]:
    """Return the tables with a row per user or item, those with titles first, and the other ones with the reason."""
    joined: list[Dimension] = []
    unused: list[tuple[Table, str]] = []
    for table in sorted(others, key=lambda one: "title" not in one.roles):
        found = _dimension(main, table, taken={name for one in joined for name in one.table.columns})
        if isinstance(found, str):
            unused.append((table, found))
        else:
            joined.append(found)
    return joined, unused


def _dimension(main: Table, table: Table, *, taken: Collection[str]) -> Dimension | str:
    """Return a table to join, with new names for columns that other tables have; or why it is not joined."""
    others = {one.column for role, one in main.roles.items() if role not in {"user", "item"}}  # such as orders of users
    unique = [name for name, one in table.columns.items() if one.is_key and one.may_be_id and (name not in others)]
    keys = [
        (share, side, name)
        for name in unique
        for side in ("item", "user")
        if side in main.roles and (share := _share(main, table, name, side)) >= _OVERLAP
    ]
    if not keys:
        owners = " or ".join(f"{role}s ({main.roles[role].column})" for role in ("user", "item") if role in main.roles)
        if not table.columns:
            return "its columns have no values or lists of values"
        return (
            f"its column {', '.join(unique)} has few of the {owners} of {main.sample.name}"
            if unique
            else f"no column has another id in each row, as a table of {owners or 'users or items'} has"
        )
    _, side, key = max(keys, key=lambda one: one[0])
    own = main.roles[side].column
    if own != key and own in table.columns:
        return f"its key is {key}, but it has another column {own}, the name of the {side} in {main.sample.name}"
    if "clicks" in main.sample.options and table.columns[key].is_numeric:  # candidates are texts
        table = replace(table, sample=sampled(table.sample.name, {**table.sample.options, "types": {key: "string"}}))
    sample, free = table.sample, {name: one for name, one in table.columns.items() if name != key}
    named = table.roles["title"].column if "title" in table.roles else None
    title = named if named in free else title_of(free) if side == "item" else None
    if sample.is_headless:
        names = {title: "title"} if "title" not in {*main.columns, *taken} else {}
        new = {name: own if name == key else names.get(name, f"{sample.name}_{name}") for name in table.columns}
        sample = sample.renamed(new)
    else:
        own_names = {name: f"{sample.name}_{name}" if name in taken else name for name in table.columns}
        new = own_names | {key: own}
        rename = {name: other for name, other in new.items() if name != other}
        options = {**sample.options, **({"rename": rename} if rename else {})}
        sample = replace(sample, options=options, rows=sample.rows.rename_columns(list(new.values())))
    kept = {"title": Role(new[title], "short texts")} if title else {}
    columns = profiles(sample.rows)
    if not kept and not treatments(one for name, one in columns.items() if name != own).used:
        return "none of its columns is a feature: all rows have one value, or each its own"
    return Dimension(Table(sample, columns, kept), side, own)


def _share(main: Table, table: Table, key: str, side: str) -> float:
    """Return the share of known keys, plus a bonus for equal names, for the name of the table and for few other keys."""
    own = main.of(side)
    if own is None or own.is_list:
        return 0.0
    role = table.roles.get(side)
    name = {form for word in words(table.sample.name) for form in (word, word.removesuffix("s"))}
    is_named = bool(name & _OF_SIDE[side]) or (role is not None and role.column == key)
    if not (found := _overlap(main.sample, own.name, table.sample, key)):
        return 0.0
    found += (key == own.name) + 0.5 * is_named + 0.2 * (side == "item" and "title" in table.roles)
    return found + 0.2 * _overlap(table.sample, key, main.sample, own.name)


def _overlap(main: Sample, own: str, table: Sample, key: str) -> float:
    """Return the share of the distinct values of a column of the interactions in a column of another table."""
    ours, theirs = (
        pl.Series("", pl.from_arrow(sample.rows.column(name))) for sample, name in ((main, own), (table, key))
    )
    if (ours.dtype == pl.String) != (theirs.dtype == pl.String) and "clicks" not in main.options:
        return 0.0
    mine = ours.drop_nulls().unique().cast(pl.String)
    return mean(mine.is_in(theirs.cast(pl.String).implode()))
