"""Days of a table, one update each: continued models against models trained anew on the same rows, paired by user.

usage: replay.py RATINGS [--models mf,sasrec] [--days 10] [--share 0.15] [--set KEY=VALUE ...] [--name replay]

RATINGS is a CSV with a header of user, item, rating and time, such as ratings.csv of MovieLens, or `synthetic`. The first update
takes all but the last `--share` of the rows, in order of time; the rest comes in `--days` files of equal size. Each update
publishes; then a model of the same config is trained on the same prepared data from the start. Both rank the held-out rows,
which neither has seen. The result goes to scripts/results/NAME.json: NDCG@10 of continued, new and yesterday's models, the
difference with its 95 % interval over users and days, processor seconds of an update and of a training anew, without its
preparation.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from measure import keep, log_config, machine

from recsys_cli.config import load
from recsys_cli.data.planted import END, YEAR, PlantedWorld
from recsys_cli.data.synthetic import SyntheticOptions
from recsys_cli.evaluation.compare.outcomes import Outcomes, by_users
from recsys_cli.stages.daily import State
from recsys_cli.stages.gate import outcomes
from recsys_cli.stages.train import train
from recsys_cli.stages.update import update
from recsys_cli.workspace import Workspace

MORE = "train: {device: cpu, trackers: []}\nupdate: {full_every: null, held_out: 0.5}\n"
CHECKS = ("rows", "late", "time", "gate", "unknown users", "unknown items", "one user", "values of rating")
"""Days of equal size are no days of a calendar."""


def main() -> None:
    """Replay each model and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ratings")
    parser.add_argument("--models", default="mf,two-tower,sasrec")
    parser.add_argument("--days", type=int, default=10)
    parser.add_argument("--share", type=float, default=0.15)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--name", default="replay")
    given = parser.parse_args()
    rows = synthetic(given) if given.ratings == "synthetic" else pl.read_csv(given.ratings)
    rows.columns = ["user", "item", "rating", "timestamp", *rows.columns[4:]]
    rows = rows.select("user", "item", "rating", "timestamp").sort("timestamp")
    found: dict[str, Any] = {"machine": machine(), "rows": len(rows), **vars(given), "models": {}}
    for model in given.models.split(","):
        with tempfile.TemporaryDirectory() as folder:
            found["models"][model] = replay(model, rows, given, Path(folder))
        keep(given.name, found)


def synthetic(given: argparse.Namespace) -> pl.DataFrame:
    """Return planted ratings: a user's are spread over a few days, and each day a fiftieth of the items has new ids."""
    world = PlantedWorld(SyntheticOptions(users=2_000, items=1_000, rows=50_000))
    (found,) = world.ratings()
    spread = np.random.default_rng(1).uniform(0, 0.05 * world.size.years * YEAR, len(found.user)).astype(int)
    columns = {"user": found.user, "item": found.item, "rating": found.half_stars, "time": found.timestamp + spread}
    rows = pl.DataFrame(columns).filter(pl.col("time") < END).sort("time").with_row_index("day")
    first = len(rows) * (1 - given.share)
    day = (pl.col("day") - first) * given.days / (len(rows) - first) + 1
    is_new = pl.col("item") % 50 < day.floor()
    return rows.select("user", pl.col("item") + 1_000_000 * (is_new & (day >= 1)), "rating", "time")


def replay(model: str, rows: pl.DataFrame, given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return the figures of one model."""
    (folder / "log").mkdir()
    path, workspace = folder / "shop.yaml", Workspace(folder / "workspace")
    path.write_text(log_config(folder / "log" / "*.csv", model, time="timestamp") + MORE)
    config, first = load(path, given.set), round(len(rows) * (1 - given.share))
    ends = np.linspace(first, len(rows), given.days + 1).astype(int)
    rows[: ends[0]].write_csv(folder / "log" / "000.csv")
    _, seconds = timed(update, config, workspace, "shop")
    figures: list[tuple[float, ...]] = []
    differences = []
    for day, (start, stop) in enumerate(itertools.pairwise(ends), 1):
        rows[start:stop].write_csv(folder / "log" / f"{day:03}.csv")
        made, of_day = timed(update, config, workspace, "shop", accept=CHECKS)
        assert made.verdict == "promoted", made
        version = State.read(workspace.root / "daily" / "shop" / "state.json").versions[-1]
        data = workspace.data(version["data"])
        anew, of_training = timed(train, load(data.folder / "config.yaml"), workspace, force=True)
        continued, new = (values(one, data) for one in (workspace.run(version["run"]), anew.artifact))
        workspace.remove(anew.artifact)
        differences.append(continued - new)
        figures.append((continued.mean(), new.mean(), made.gate.yesterday, of_day, of_training))
    tested = by_users(np.concatenate(differences)[:, None], resamples=1_000, seed=1)[0]
    names = ("continued", "anew", "yesterday", "seconds_of_update", "seconds_of_training_anew")
    means = {name: round(statistics.mean(of), 4) for name, of in zip(names, zip(*figures, strict=True), strict=True)}
    gain, *interval = (round(one, 4) for one in (tested.value, tested.low, tested.high))
    return {
        **means,
        "difference": {"gain": gain, "interval": interval, "p": round(tested.p, 3)},
        "users_and_days": sum(map(len, differences)),
        "by_day": [round(float(one.mean()), 4) for one in differences],
        "first_update": seconds,
    }


def timed(work: Callable[..., Any], *given: Any, **options: Any) -> tuple[Any, float]:
    """Call a function; return its result and processor seconds."""
    started = time.process_time()
    return work(*given, **options), round(time.process_time() - started, 2)


def values(run: Any, data: Any) -> np.ndarray:
    """Return NDCG@10 of each user on the held-out rows."""
    metric, rankings = outcomes(run, data, lambda _: None)
    return Outcomes.of(rankings, metrics={metric}).users[metric]


if __name__ == "__main__":
    main()
