"""The task that the roles allow, or why there is none; its split, model and batch size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from recsys_cli.detect.profiles import Profile, mean
from recsys_cli.detect.roles import ENOUGH, positive_text
from recsys_cli.detect.tables import Table
from recsys_cli.errors import ConfigError, listed
from recsys_cli.etl.reading.times import NotATimeError, to_times
from recsys_cli.features.schema import TICKS
from recsys_cli.registry import AUTO

Kind = Literal["ratings", "labels", "implicit", "counts", "events", "sessions", "histories", "clicks", "impressions"]
Asked = Literal["rank", "label"]
"""Rank the catalog, or predict the rating or label."""
_FEW_FEATURES = 3
_BASKETS = 1.5
"""Lists of a user from which on they are baskets, not a history each."""


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
    is_log = item is None and (user is None or len(table.columns) >= _FEW_FEATURES + 2)
    if asked != "rank" and label is not None and is_log:
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
    if _has_baskets(table, item):
        return "implicit", f"rank the items for a {owner}, from lists of items with times, such as baskets"
    if item.is_list or "explode" in table.sample.options:
        return "histories", "rank the next items of a history; one list of items per row"
    if (label := table.of("label")) is not None:
        value = f"{label.name} {positive_text(label) or 1}"
        return "labels", f"rank the items for a {owner}; rows with {value} are positive"
    if (rating := table.of("rating")) is not None:
        return "ratings", f"rank the items for a {owner}; rows with a high {rating.name} are positive"
    if "event" in table.roles:
        return (
            "events",
            "rank the items of a user's next events; models trained in steps, such as sasrec, weight stronger events",
        )
    if owner == "session":
        return "sessions", "rank the next items of a session; the session takes the place of the user"
    if "count" in table.roles:
        return "counts", "rank the items for a user; models trained in steps, such as sasrec, weight larger counts"
    return "implicit", "rank the items for a user, from interactions without ratings"


def _has_baskets(table: Table, item: Profile) -> bool:
    """Whether owners have several lists, each with its time: the time orders them, not the position in the table."""
    owner = table.of("user") or table.of("session")
    several = owner is not None and owner.rows >= _BASKETS * owner.unique
    return several and item.is_list and "timestamp" in table.roles and "explode" not in table.sample.options


def _refuse_empty(table: Table) -> None:
    if table.sample.bad and not table.sample.rows.num_rows:
        raise ConfigError(
            f"{table.sample.name}: none of its {table.sample.bad:,} rows has a value for each of the columns "
            f"({listed(table.columns)})",
            hint="check the separator and the quotes of the file",
        )
    if not table.sample.rows.num_rows:
        raise ConfigError(
            f"{table.sample.name}: columns ({listed(table.columns)}) and no rows", hint="name a file with interactions"
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


_KNOWN, _TIED = 0.3, 0.3
"""Share of the latest rows of known users, and of users whose rows have one time."""
_SMALL = 200_000
"""Rows below which an epoch has few steps, and its validation much noise."""
_MANY_ROWS, _MANY_CATEGORIES = 5_000_000, 10
NEW_ORDER = ("position", "row_number", "file_order")
"""Names for a new column with the order of the rows."""
_SHARES = {"valid": 0.1, "test": 0.1}
_TEMPORAL = {"method": "temporal", **_SHARES}


def split_of(task: Task, table: Table) -> tuple[dict[str, Any], str]:
    """Return the split section and its reason."""
    time = table.of("timestamp")
    if task.kind == "histories":
        return {"method": "leave-last-out"}, "the last item of each history is test, the one before it valid"
    if task.kind == "impressions":
        return dict(_TEMPORAL), f"the latest impressions are test, the ones before valid{_by_order(table)}"
    if task.is_session and task.ranks and "order" not in table.roles:
        return {"method": "session", **_SHARES}, f"whole sessions; the latest to end are test{_by_order(table)}"
    if time is None and task.ranks and "order" in table.roles:
        why = f"the last row by {table.roles['order'].column} is test, the one before it valid"
        return {"method": "leave-last-out"}, why
    if time is None:
        why = "if the table has a time column, set features.timestamp and use temporal"
        return {"method": "random", **_SHARES, "seed": 42}, why
    if task.kind != "clicks" and (share := _known_users(table, str(task.user), time)) < _KNOWN:
        return _split_of_new_users(task, table, time, share)
    return dict(_TEMPORAL), "the latest rows are test, the rows before them valid: as in production"


def _split_of_new_users(task: Task, table: Table, time: Profile, share: float) -> tuple[dict[str, Any], str]:
    """Return the split where few of the latest users have earlier rows; rows of one time, such as a form's, have no last."""
    why = f"with temporal, only {share:.0%} of the test rows would be of users in train"
    rows = pl.DataFrame(table.sample.rows.select([task.user, time.name]))
    times = rows.group_by(task.user).agg(pl.len(), pl.col(time.name).n_unique()).filter(pl.col("len") > 1)
    if task.ranks and mean(times[time.name] == 1) <= _TIED:
        return {"method": "leave-last-out"}, f"each user's last row is test; {why}"
    return {"method": "random", **_SHARES, "seed": 42}, f"optimistic for a live system, but {why}"


def time_of(task: Task, table: Table) -> str | None:
    """Return the column of the time or the order, possibly a new one: `order` of the dataset."""
    if task.kind == "histories":
        return str(table.sample.options.get("order", NEW_ORDER[0]))
    if (time := table.roles.get("timestamp")) is not None:
        return time.column
    if task.ranks and (order := table.roles.get("order")) is not None:
        return order.column
    if task.kind == "impressions" or (task.is_session and task.ranks):
        return next(name for name in NEW_ORDER if name not in table.columns)
    return None


def _by_order(table: Table) -> str:
    return "" if "timestamp" in table.roles else "; without a time column by the order of the rows in the files"


def _known_users(table: Table, user: str, time: Profile) -> float:
    """Return the share of the latest tenth of the rows whose user has rows in the first eight tenths."""
    values = table.sample.rows.column(time.name)
    if time.kind == "time" and str(values.type) == "string":
        try:
            values = to_times(values, f"float64 {time.time}" if time.time in TICKS else str(time.time))
        except NotATimeError:  # a few rows with other texts
            return 1.0
    frame = pl.DataFrame({
        "user": pl.from_arrow(table.sample.rows.column(user)), "time": pl.from_arrow(values),
    }).sort("time", maintain_order=True)  # fmt: skip
    early, late = frame.head(round(0.8 * len(frame))), frame.tail(round(0.1 * len(frame)))
    return mean(late["user"].is_in(early["user"].unique().implode())) if len(late) else 1.0


def model_of(task: Task, table: Table, *, categories: int = 0) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """Return the model section with its reason, and the train section, empty for the defaults of the model."""
    rows = table.sample.total
    if task.ranks:
        other = "; to predict its label or rating: recsys init --task label"
        other = f"others: recsys ls models{other if task.kind in {'labels', 'ratings'} else ''}"
        return {"name": AUTO}, f"the best of several on valid by NDCG@10; {other}", {}
    size: dict[str, Any] = {"batch_size": batch_size(rows)}
    patience = {"early_stopping": 4 if rows < _SMALL else 2}
    train = {"epochs": 20, **size, "learning_rate": 0.002, **patience}
    if task.kind in {"clicks", "impressions"}:
        train = {"epochs": 10, **size, **patience} if rows <= _MANY_ROWS else {"epochs": 1, **size}
        if task.kind == "impressions":
            train["monitor"] = "auc"
            why = "ranks an impression's candidates by user, item and their features; also dlrm, dcn-v2, lightgbm"
            return {"name": "deepfm"}, why, train
        name = "dlrm" if categories >= _MANY_CATEGORIES else "dcn-v2"
        return {"name": name}, "predicts the label from all features; also mlp, deepfm, lightgbm", train
    advice = "predicts labels of rows; to rank the catalog: auto. Options: recsys ls models NAME"
    return {"name": "mlp"}, advice, train


def batch_size(rows: int) -> int:
    """Return the rows of a training step: a power of two, so that an epoch has some hundred steps."""
    if rows < _SMALL:
        return max(64, 1 << round(math.log2(max(1, rows / 200))))
    return next((size for limit, size in ((2_000_000, 4_096), (20_000_000, 16_384)) if rows < limit), 32_768)
