"""The task that the roles allow, and refusals of tables without one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from recsys_cli.detect.profiles import Profile
from recsys_cli.detect.roles import ENOUGH, positive_text
from recsys_cli.detect.tables import Table
from recsys_cli.errors import ConfigError, listed

Kind = Literal["ratings", "labels", "implicit", "counts", "events", "sessions", "histories", "clicks", "impressions"]
Asked = Literal["rank", "label"]
"""Rank the catalog, or predict the rating or label."""
_FEW_FEATURES = 3


@dataclass(frozen=True)
class Task:
    """The task, in words for the config, and the column in the role of the user, possibly of sessions.

    `ranks` is False if the rating or label of given rows is predicted, not the items of the catalog ranked.
    """

    kind: Kind
    words: str
    user: str | None = None
    is_session: bool = False
    ranks: bool = True


def task_of(table: Table, asked: Asked | None = None) -> Task | None:
    """Return the task of the interactions; None if the columns of user and item are unknown.

    Args:
        table: The interactions.
        asked: What to do; None: predict the label in logs of shown rows, and rank the catalog for all other tables.

    Raises:
        ConfigError: The table cannot train a recommender, or not for what is asked.
    """
    _refuse_empty(table)
    user, session, item, label, shown = (table.of(role) for role in ("user", "session", "item", "label", "impression"))
    if asked == "label" and not {"label", "rating"} & set(table.roles):
        raise ConfigError(
            f"{table.sample.name}: --task label predicts a label or a rating, and no column has either",
            hint="name one with --label or --rating, or leave out --task label to rank the items",
        )
    if asked != "rank" and shown is not None and item is not None and label is not None:
        viewer = user or session or shown
        _refuse_one(viewer, "user", table)
        _refuse_one(item, "item", table)
        return Task(
            "impressions", f"predict {label.name} among the candidates of an impression", user=viewer.name, ranks=False
        )
    if (
        asked != "rank"
        and label is not None
        and item is None
        and (user is None or len(table.columns) >= _FEW_FEATURES + 2)
    ):
        features = [one for one in table.columns.values() if one.name != label.name and one.kind != "empty"]
        if len(features) >= _FEW_FEATURES:
            return Task("clicks", f"predict {label.name} of a row", ranks=False)
    owner = user or session
    if owner is None or item is None:
        return None
    _refuse_one(owner, "user" if user else "session", table)
    if not item.is_list:
        _refuse_one(item, "item", table)
        _refuse_repeated(owner, item, table)
    kind, words = _pairs(table, item, owner="session" if user is None else "user")
    if asked == "label" and kind in {"labels", "ratings"}:
        what = "the label of a user and an item" if kind == "labels" else "which items a user rates as positive"
        return Task(kind, f"predict {what}", user=owner.name, is_session=user is None, ranks=False)
    return Task(kind, words, user=owner.name, is_session=user is None)


def _pairs(table: Table, item: Profile, *, owner: str) -> tuple[Kind, str]:
    if item.is_list or "explode" in table.sample.options:
        return "histories", "rank the next items of a history; one list of items per row"
    if (label := table.of("label")) is not None:
        return (
            "labels",
            f"rank the items for a {owner}; rows with {label.name} {positive_text(label) or 1} are positive",
        )
    if (rating := table.of("rating")) is not None:
        return "ratings", f"rank the items for a {owner}; rows with a high {rating.name} are positive"
    if "event" in table.roles:
        return "events", "rank the items of a user's next events; rows of stronger events have larger weights"
    if owner == "session":
        return "sessions", "rank the next items of a session; the session takes the place of the user"
    if "count" in table.roles:
        return "counts", "rank the items for a user; rows of larger counts have larger weights"
    return "implicit", "rank the items for a user, from interactions without ratings"


def _refuse_empty(table: Table) -> None:
    if table.sample.bad and not table.sample.rows.num_rows:
        raise ConfigError(
            f"{table.sample.name}: none of its {table.sample.bad:,} rows has a value for each of the columns "
            f"({listed(table.columns)})",
            hint="check the separator and the quotes of the file",
        )
    if not table.sample.rows.num_rows:
        raise ConfigError(
            f"{table.sample.name}: columns ({listed(table.columns)}) and no rows",
            hint="name a file with interactions",
        )


def _refuse_repeated(owner: Profile, item: Profile, table: Table) -> None:
    pairs = table.sample.rows.group_by([owner.name, item.name]).aggregate([]).num_rows
    if pairs < ENOUGH <= owner.rows and "explode" not in table.sample.options:
        raise ConfigError(
            f"{table.sample.name}: the {owner.rows:,} rows repeat {pairs} pairs of {owner.name} and {item.name}, "
            "too few to train on",
            hint="add other users and items, or name other columns with --user and --item",
        )


def _refuse_one(column: Profile, what: str, table: Table) -> None:
    if column.unique <= 1 and column.rows >= ENOUGH:
        value = f" ({column.samples[0]})" if column.samples else ""
        raise ConfigError(
            f"{table.sample.name}: all {column.rows:,} rows have one {what}{value} in column {column.name}: "
            "recommendations come from many users with several items",
            hint=f"name another column with --{'user' if what == 'session' else what}, or add the data of other users",
        )
