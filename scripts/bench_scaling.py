"""What preparing data costs from 1 M to 100 M interactions, from CSV and from parquet: seconds and memory, and a plot of them.

usage: bench_scaling.py FOLDER [--rows 1 3 10 25 50 100]

FOLDER gets 100 M planted interactions (`synthetic`, four times MovieLens-25M), their first so many millions as files of
their own, and the same as parquet. Each run is a whole process of the recipe of configs/ml25m.yaml.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.csv as pc
import pyarrow.parquet as pq
from matplotlib.figure import Figure
from measure import RESULTS, keep, machine, run

RECSYS = str(Path(sys.executable).with_name("recsys"))
USERS, ITEMS = 650_164, 62_423
RECIPE = """
dataset:
  name: files
  interactions: {interactions}
  tables: {{movies: {{files: {movies}, lists: {{genres: "|"}}}}}}
split: {{method: random, valid: 0.2}}
features:
  user: userId
  item: movieId
  label: label
  timestamp: timestamp
  ops:
    - {{op: JoinExternal, table: movies, on: movieId, columns: [genres]}}
    - {{op: Categorify, columns: [userId, movieId, genres]}}
    - {{op: LambdaOp, expression: "rating > 3", output: label, dtype: int8}}
"""


def main() -> None:
    """Make the files, run each size, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--rows", type=int, nargs="*", default=[1, 3, 10, 25, 50, 100], help="millions, the largest last"
    )
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    source = _generated(given.folder, given.rows[-1])
    found: list[dict[str, Any]] = []
    for form in ("csv", "parquet"):
        for millions in given.rows:
            path = _part(source, millions, form)
            found.append({"form": form, "millions": millions} | _measured(path, source.with_name("movies.csv")))
            print(json.dumps(found[-1]), flush=True)
    keep(
        "scaling",
        {
            "work": "the 25 M recipe at other sizes, whole process",
            "runs": found,
            "machine": machine("polars", "pyarrow"),
        },
    )
    _plot(found, RESULTS / "scaling.svg")


def _generated(folder: Path, millions: int) -> Path:
    """Return ratings.csv with so many millions of planted interactions."""
    workspace = folder / "generated"
    ratings = workspace / "raw" / "synthetic" / "ratings.csv"
    if not ratings.is_file():
        config = folder / "generated.yaml"
        size = f"rows: {millions * 1_000_000}, users: {USERS * millions // 100}, items: {ITEMS}, activity: 1.2"
        config.write_text(
            f"dataset: {{name: synthetic, {size}}}\n"
            "features: {user: userId, item: movieId, label: rating, ops: [{op: Categorify, columns: [userId, movieId]}]}\n"
        )
        run([RECSYS, "-q", "-w", str(workspace), "download", str(config)])
    return ratings


def _part(source: Path, millions: int, form: str) -> Path:
    """Return the first so many millions of rows as a file."""
    path = source.with_name(f"ratings-{millions}.csv")
    if not path.is_file():
        with path.open("wb") as target:
            subprocess.run(["head", "-n", str(millions * 1_000_000 + 1), str(source)], stdout=target, check=True)
    if form == "csv":
        return path
    parquet = path.with_suffix(".parquet")
    if not parquet.is_file():
        with pc.open_csv(path) as batches, pq.ParquetWriter(parquet, batches.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
    return parquet


def _measured(interactions: Path, movies: Path) -> dict[str, Any]:
    folder = interactions.parent
    config = folder / "scaling.yaml"
    config.write_text(RECIPE.format(interactions=interactions, movies=movies))
    taken = run([RECSYS, "-q", "-w", str(folder / "workspace"), "etl", str(config), "--force"])
    rows = int(interactions.stem.split("-")[1]) * 1_000_000
    return {
        "seconds": round(taken.seconds, 2),
        "cpu_seconds": round(taken.cpu, 2),
        "peak_gb": round(taken.peak_gb, 3),
        "million_rows_per_second": round(rows / taken.seconds / 1e6, 3),
    }


def _plot(found: list[dict[str, Any]], path: Path) -> None:
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    for axes, figure_of, label in zip(
        figure.subplots(1, 2), ("seconds", "peak_gb"), ("seconds, whole process", "peak memory, GB"), strict=True
    ):
        for form in ("csv", "parquet"):
            runs = [one for one in found if one["form"] == form]
            axes.plot([one["millions"] for one in runs], [one[figure_of] for one in runs], marker="o", label=form)
        axes.set_xlabel("million interactions")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        axes.legend()
    figure.savefig(path)


if __name__ == "__main__":
    main()
