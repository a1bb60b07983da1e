"""The split for the data, and the model and batch size for data and machine."""

from __future__ import annotations

import math
from typing import Any

import polars as pl

from recsys_cli.detect.profiles import Profile, mean
from recsys_cli.detect.tables import Table
from recsys_cli.detect.task import Task
from recsys_cli.etl.reading.times import NotATimeError, to_times
from recsys_cli.features.schema import TICKS
from recsys_cli.registry import AUTO

_KNOWN = 0.3
_SMALL = 200_000
"""Rows below which an epoch has few steps, and its validation much noise."""
_MANY_ROWS, _MANY_CATEGORIES = 5_000_000, 10
NEW_ORDER = ("position", "row_number", "file_order")
"""Names for a new column with the order of the rows."""
_SHARES = {"valid": 0.1, "test": 0.1}


def split_of(task: Task, table: Table) -> tuple[dict[str, Any], str]:
    """Return the split section and its reason."""
    time = table.of("timestamp")
    if task.kind == "histories":
        return {"method": "leave-last-out"}, "the last item of each history is test, the one before it valid"
    if task.kind == "impressions":
        return {
            "method": "temporal",
            **_SHARES,
        }, f"the latest impressions are test, the ones before valid{_by_order(table)}"
    if task.is_session and task.ranks and "order" not in table.roles:
        return {"method": "session", **_SHARES}, f"whole sessions; the latest to end are test{_by_order(table)}"
    if time is None and task.ranks and "order" in table.roles:
        return {
            "method": "leave-last-out"
        }, f"the last row by {table.roles['order'].column} is test, the one before it valid"
    if time is None:
        return (
            {"method": "random", **_SHARES, "seed": 42},
            "if the table has a time column, set features.timestamp and use temporal",
        )
    if task.kind != "clicks" and (share := _known_users(table, str(task.user), time)) < _KNOWN:
        why = f"with temporal, only {share:.0%} of the test rows would be of users in train"
        if task.ranks:
            return {"method": "leave-last-out"}, f"each user's last row is test; {why}"
        return {"method": "random", **_SHARES, "seed": 42}, f"optimistic for a live system, but {why}"
    return {"method": "temporal", **_SHARES}, "the latest rows are test, the rows before them valid: as in production"


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
        other = (
            "; to predict its label or rating: recsys init --task label" if task.kind in {"labels", "ratings"} else ""
        )
        return {"name": AUTO}, f"the best of several on valid by NDCG@10; others: recsys ls models{other}", {}
    size: dict[str, Any] = {"batch_size": batch_size(rows)}
    patience = {"early_stopping": 4 if rows < _SMALL else 2}
    train = {"epochs": 20, **size, "learning_rate": 0.002, **patience}
    if task.kind in {"clicks", "impressions"}:
        train = {"epochs": 10, **size, **patience} if rows <= _MANY_ROWS else {"epochs": 1, **size}
        if task.kind == "impressions":
            why = (
                "ranks the candidates of an impression by users, items and their features; also dlrm, dcn-v2, lightgbm"
            )
            return {"name": "deepfm"}, why, train
        if rows <= _MANY_ROWS:
            train["monitor"] = "log_loss"
        name = "dlrm" if categories >= _MANY_CATEGORIES else "dcn-v2"
        return {"name": name}, "predicts the label from all features; also mlp, deepfm, lightgbm", train
    advice = "predicts labels of rows; to rank the catalog: auto. Options: recsys ls models NAME"
    return {"name": "mlp"}, advice, train


def batch_size(rows: int) -> int:
    """Return the rows of a training step: a power of two, so that an epoch has some hundred steps."""
    if rows < _SMALL:
        return max(64, 1 << round(math.log2(max(1, rows / 200))))
    return next((size for limit, size in ((2_000_000, 4_096), (20_000_000, 16_384)) if rows < limit), 32_768)
