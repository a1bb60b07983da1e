"""JoinGroupby: moments of parts put together (Chan, Golub and LeVeque 1979), and the statistics that they give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
import pyarrow as pa

from recsys_cli.errors import DataError
from recsys_cli.etl.fitting.grouping import in_order, key_names, plain, stacked
from recsys_cli.features.ops import JoinGroupby

_INT32 = 2**31 - 1


def merge(parts: Sequence[pa.Table]) -> pa.Table:
    """Put together what parts tell of the same group, in order of first appearance."""
    together = stacked(parts)
    places = [name.removeprefix("num") for name in together.columns if name.startswith("num")]
    moments = [moment for place in places for moment in _moments(place)]
    grouped = together.group_by(key_names(together), maintain_order=True)
    return grouped.agg([pl.col("rows").sum(), *moments]).to_arrow()


def _moments(place: str) -> list[pl.Expr]:
    number, mean = pl.col(f"num{place}"), pl.col(f"mean{place}")
    # From one of the means on, so that the mean of equal means is that to the last digit.
    start = pl.when(mean.min().is_finite()).then(mean.min()).otherwise(0.0)
    overall = start + ((mean - start) * number).sum() / number.sum()
    return [
        number.sum(),
        pl.col(f"sum{place}").sum(),
        overall.fill_nan(None).alias(f"mean{place}"),
        (pl.col(f"square{place}") + (mean - overall) ** 2 * number).sum().alias(f"square{place}"),
        pl.col(f"min{place}").min(),
        pl.col(f"max{place}").max(),
    ]


def finish(op: JoinGroupby, merged: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Return a table of the statistics that are asked for, by group.

    Raises:
        DataError: A group has more rows than int32 can tell.
    """
    state = {}
    for name in op.learns:
        table = in_order(stacked([merged[name]]))
        if "count" in op.stats and table.height and int(table.get_column("rows").max()) > _INT32:  # type: ignore[arg-type]
            raise DataError(f"JoinGroupby: a group of {name} has more than {_INT32} rows", hint="leave out its count")
        found = [pl.col("rows").alias("count")] if "count" in op.stats else []
        found += [_statistic(stat, at) for at in range(len(op.cont_cols)) for stat in op.described]
        state[name] = plain(table.select(*key_names(table), *found))
    return state


def _statistic(name: str, at: int) -> pl.Expr:
    number = pl.col(f"num{at}")
    variance = pl.when(number > 1).then(pl.col(f"square{at}").fill_nan(None) / (number - 1))
    found = {"var": variance, "std": variance.sqrt()}.get(name, pl.col(f"{name}{at}").fill_nan(None))
    return found.alias(f"{name}{at}")
