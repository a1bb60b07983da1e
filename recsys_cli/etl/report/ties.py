"""Ties in time: held-out rows with the time of other rows of their user, and whether an order of the items tells them.

If ties are shuffled, each row of a user at one time is the target equally often: the mean of its relative rank by any order of the
items is 1/2, with a variance that depends on the ranks alone. Users are independent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import polars as pl

from recsys_cli.etl.report.facts import RankTest, Ties


def audit_ties(rows: pl.DataFrame, code: int, orders: Mapping[str, npt.NDArray[np.int64]], *, tests: int) -> Ties:
    """Return the ties of a held-out split.

    Args:
        rows: Rows of each user at the user's last time in the split: user, item, number, and split (code).
        code: The split.
        orders: By item: rows of train (`rows`), rank of the raw value (`value`, -1 without one), and sum of the positions of its
            train rows in the file (`position`), which shuffled ties do not have.
        tests: Number of tests of the report, to correct for (Bonferroni).
    """
    is_target = pl.col("split") == code
    is_tied = is_target & (pl.col("number") > pl.col("number").min().over("user"))
    users = rows.select("user", targets=is_target, tied=is_tied).group_by("user").sum().sort("user")
    targets, tied_targets = (users.get_column(name).to_numpy() for name in ("targets", "tied"))
    share = tied_targets.sum() / targets.sum()
    reach = 1.96 * math.sqrt(math.fsum((tied_targets - share * targets) ** 2)) / targets.sum()
    compared = _compared(rows, code, orders)
    tested = {name: _rank_test(compared, name, code, tests) for name in orders if name != "rows"}
    return Ties(
        targets=int(targets.sum()),
        tied=int(tied_targets.sum()),
        low=max(0.0, share - reach),
        high=min(1.0, share + reach),
        orders={name: test for name, test in tested.items() if test is not None},
    )


def _compared(rows: pl.DataFrame, code: int, orders: Mapping[str, npt.NDArray[np.int64]]) -> pl.DataFrame:
    """Return the rows of no later split, with the place of their item in each order by other train rows.

    Items whose other train rows are too few for an id are never targets, and left out.
    """
    in_train = pl.col("split") == 0
    own = [in_train.sum().over("user", "item"), (pl.col("number") * in_train).sum().over("user", "item")]
    of_train, positions = rows.select(rows=own[0], at=own[1]).get_columns()
    items = rows.get_column("item").to_numpy()
    has_id = orders["value"] >= 0
    others = orders["rows"][items] - of_train.to_numpy()
    kept = has_id[items] & (others >= max(1, orders["rows"][has_id].min(initial=1 << 62)))
    places = {"value": orders["value"][items]}
    if "position" in orders:
        places["position"] = (orders["position"][items] - positions.to_numpy()) / np.maximum(others, 1)
    placed = rows.with_columns(**{name: pl.Series(place) for name, place in places.items()})
    return placed.filter(pl.Series(kept) & (pl.col("split") <= code))


def _rank_test(compared: pl.DataFrame, order: str, code: int, tests: int) -> RankTest | None:
    """Test the mean rank of the targets against shuffled ties; None for too few users."""
    at, same, is_target = pl.col("at"), ("user", order), pl.col("split") == code
    place = (at.min().over(same) + at.max().over(same)) / 2 - at.min().over("user")
    ranked = compared.sort(same).with_row_index("at")
    ranked = ranked.select("user", place=place, size=pl.len().over("user"), drawn=is_target)
    rank, size, drawn = pl.col("place") / (pl.col("size") - 1) - 0.5, pl.col("size"), pl.col("drawn")
    sums = ranked.filter(size > 1).select("user", "drawn", "size", squares=rank**2, mean=rank * drawn).group_by("user")
    users = sums.agg(pl.col("drawn", "squares", "mean").sum(), size.first()).filter(drawn > 0).sort("user")
    variance = pl.col("squares") / size * (size - drawn) / (size - 1) / drawn  # drawn without replacement
    users = users.select(pl.col("mean") / drawn, variance=variance).filter(pl.col("variance") > 0)
    if len(users) < 20:  # too few for the normal distribution
        return None
    means = users.get_column("mean").to_numpy()
    center, error = math.fsum(means) / len(means), math.sqrt(math.fsum(users.get_column("variance"))) / len(means)
    reach = NormalDist().inv_cdf(1 - 0.025 / tests) * float(means.std(ddof=1)) / math.sqrt(len(means))
    low, high = max(0.0, 0.5 + center - reach), min(1.0, 0.5 + center + reach)
    p = min(1.0, tests * math.erfc(abs(center) / error / math.sqrt(2)))
    return RankTest(users=len(means), mean=0.5 + center, low=low, high=high, p=p)
