"""Ties in time of real tables, by the data report of the leave-last-out split: in file order, and shuffled by twenty seeds.

usage: ties.py DATA
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import polars as pl
from measure import keep, machine

from recsys_cli.config import RunConfig
from recsys_cli.etl.report import Facts
from recsys_cli.stages.etl import etl
from recsys_cli.workspace import Workspace

SEEDS = range(1, 21)


def tables(data: Path) -> dict[str, pl.DataFrame]:
    """Return user, item and time of each table, in the order of its file."""
    with zipfile.ZipFile(data / "ml-latest-small.zip") as archive:
        ratings = pl.read_csv(archive.read("ml-latest-small/ratings.csv")).select("userId", "movieId", "timestamp")
    with zipfile.ZipFile(data / "movietweetings-100k.zip") as archive:
        lines = [line.split("::") for line in archive.read("ratings.dat").decode().splitlines()]
        tweets = pl.DataFrame([(int(user), int(item), int(time)) for user, item, _, time in lines], orient="row")
    names = ["user", "time", "latitude", "longitude", "place"]
    places = pl.read_csv(data / "gowalla-nyc.csv.gz", separator="\t", has_header=False, new_columns=names)
    places = places.select("user", "place", pl.col("time").str.to_datetime("%Y-%m-%dT%H:%M:%SZ").dt.epoch("s"))
    found = {"ml-latest-small": ratings, "MovieTweetings 100K": tweets, "Gowalla, New York": places}
    return {
        name: table.rename(dict(zip(table.columns, ("user", "item", "time"), strict=True)))
        for name, table in found.items()
    }


def report(table: pl.DataFrame, folder: Path, **split: Any) -> Facts:
    """Prepare a table, and return its report."""
    table.with_columns(label=pl.lit(1, pl.Int8)).write_parquet(folder / "rows.parquet")
    config = {
        "dataset": {"name": "files", "interactions": str(folder / "rows.parquet")},
        "split": {"method": "leave-last-out", **split},
        "features": {
            "user": "user", "item": "item", "label": "label", "timestamp": "time",
            "ops": [{"op": "Categorify", "columns": ["user", "item"]}],
        },
    }  # fmt: skip
    return Facts.read(etl(RunConfig.model_validate(config), Workspace(folder / "workspace"), force=True).artifact.facts)


def measure(table: pl.DataFrame, folder: Path) -> dict[str, Any]:
    """Return the ties of the test split, and the number of shuffles with an alarm."""
    facts = report(table, folder)
    shuffled = [report(table, folder, tie_seed=seed) for seed in SEEDS]
    alarms = [any(test.p < 0.05 for ties in one.ties.values() for test in ties.orders.values()) for one in shuffled]
    test = facts.ties["test"]
    share = f"{100 * test.tied / test.targets:.1f} % [{100 * test.low:.1f}, {100 * test.high:.1f}]"
    ranks = {name: f"{one.mean:.3f} [{one.low:.3f}, {one.high:.3f}]" for name, one in test.orders.items()}
    return {
        "users": test.targets,
        "tied": share,
        **ranks,
        "alarms": f"{sum(alarms)} of {len(alarms)}" if ranks else None,
    }


def main() -> None:
    """Measure all tables, as they are and by day."""
    results = {}
    for name, table in tables(Path(sys.argv[1])).items():
        for kind, rows in (("", table), (", by day", table.with_columns(pl.col("time") // 86_400 * 86_400))):
            with tempfile.TemporaryDirectory() as folder:
                results[name + kind] = measure(rows, Path(folder))
    keep("ties", machine("polars", "numpy") | {"tables": results})


if __name__ == "__main__":
    main()
