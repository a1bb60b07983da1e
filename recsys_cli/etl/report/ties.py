"""Ties in time: held-out targets with the time of other events of their user, and whether an order of the items tells them.

If ties are shuffled, each of the m events of a user at one time is the target equally often: the mean of its relative rank by any
order of the items is 1/2, with a variance that depends on the ranks alone. Users are independent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import polars as pl

from recsys_cli.etl.report.facts import RankTest, Ties
from recsys_cli.features.split import SPLITS, TRAIN

_LEVEL, _MIN_USERS = 0.05, 20
_GROUP = "group"


@dataclass(frozen=True)
class ItemOrders:
    """The orders of the items, by id; shape (num_items,).

    Attributes:
        rows: Number of train rows.
        positions: Sum of the row numbers of these in the raw input; None if ties are shuffled, which leaves no numbers.
        values: Rank of the raw value; -1 for ids without a value.
    """

    rows: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64] | None
    values: npt.NDArray[np.int64]


def audit_ties(rows: pl.DataFrame, items: ItemOrders) -> dict[str, Ties]:
    """Return the ties of each held-out split.

    Args:
        rows: The events of users at the times of their held-out ones: group (user and time), user, item, number, and split (code).
        items: The orders of the items.
    """
    before = pl.col("number") > pl.col("number").min().over(_GROUP)
    shares = rows.with_columns(tied=before).filter(pl.col("split") != TRAIN).group_by("split", "user")
    by_user = shares.agg(targets=pl.len(), tied=pl.col("tied").sum()).sort("user")
    compared = _compared(rows, items)
    orders = compared.columns[3:]
    level = _LEVEL / (len(orders) * by_user.get_column("split").n_unique())
    return {
        SPLITS[code]: _ties(own, {name: _rank_test(compared, name, code, level) for name in orders})
        for code in range(1, len(SPLITS))
        if len(own := by_user.filter(pl.col("split") == code))
    }


def _ties(users: pl.DataFrame, orders: Mapping[str, RankTest | None]) -> Ties:
    targets, tied = (users.get_column(name).to_numpy() for name in ("targets", "tied"))
    share = tied.sum() / targets.sum()
    error = 1.96 * math.sqrt(((tied - share * targets) ** 2).sum()) / targets.sum()
    return Ties(
        targets=int(targets.sum()),
        tied=int(tied.sum()),
        low=max(0.0, share - error),
        high=min(1.0, share + error),
        orders={name: test for name, test in orders.items() if test is not None},
    )


def _compared(rows: pl.DataFrame, items: ItemOrders) -> pl.DataFrame:
    """Return group, user and split of the events, and the value of their item in each order.

    Items compare by the train rows of other groups. Those with too few for an id, if this event were held out, are left out:
    they are never targets.
    """
    train = pl.col("split") == TRAIN
    own = rows.with_columns(
        own=train.sum().over(_GROUP, "item"), at=pl.col("number").filter(train).sum().over(_GROUP, "item")
    )
    ids = own.get_column("item").to_numpy()
    others = items.rows[ids] - own.get_column("own").to_numpy()
    has_value = items.values >= 0
    kept = (items.values[ids] >= 0) & (others >= max(1, items.rows[has_value].min(initial=np.iinfo(np.int64).max)))
    orders = {"value": items.values[ids]}
    if items.positions is not None:
        orders["position"] = (items.positions[ids] - own.get_column("at").to_numpy()) / np.maximum(others, 1)
    of_group = own.select(_GROUP, "user", "split", **{name: pl.Series(order) for name, order in orders.items()})
    return of_group.filter(pl.Series(kept))


def _rank_test(compared: pl.DataFrame, order: str, code: int, level: float) -> RankTest | None:
    """Test the mean rank of the targets of a split, among events of no later one, against shuffled ties; None for few users."""
    target, rank = pl.col("split") == code, pl.col("rank") - 0.5
    earlier = compared.filter(pl.col("split") <= code).filter(pl.len().over(_GROUP) > 1)
    ranked = earlier.with_columns(rank=(pl.col(order).rank().over(_GROUP) - 1) / (pl.len().over(_GROUP) - 1))
    groups = ranked.group_by(_GROUP, "user").agg(
        size=pl.len(), targets=target.sum(), total=rank.filter(target).sum(), variance=rank.pow(2).mean()
    )
    drawn, size = pl.col("targets"), pl.col("size")  # without replacement
    variance = pl.col("variance") * drawn * (size - drawn) / (size - 1)
    users = (
        groups.with_columns(variance=variance)
        .filter(pl.col("variance") > 0)
        .sort("user", _GROUP)
        .group_by("user", maintain_order=True)
        .agg(mean=pl.col("total").sum() / drawn.sum(), variance=pl.col("variance").sum() / drawn.sum() ** 2)
    )
    if len(users) < _MIN_USERS:
        return None
    means = users.get_column("mean").to_numpy()
    mean, error = math.fsum(means) / len(means), math.sqrt(math.fsum(users.get_column("variance"))) / len(means)
    reach = NormalDist().inv_cdf(1 - level / 2) * float(means.std(ddof=1)) / math.sqrt(len(means))
    p = math.erfc(abs(mean) / error / math.sqrt(2))
    return RankTest(
        users=len(means),
        mean=0.5 + mean,
        low=max(0.0, 0.5 + mean - reach),
        high=min(1.0, 0.5 + mean + reach),
        p=p,
        is_found=p < level,
    )
