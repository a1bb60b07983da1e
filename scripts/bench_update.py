"""`recsys update` of a day against the full run before it: processor seconds and peak memory of whole processes.

usage: bench_update.py [--rows 25000000] [--days 3] [--models mf] [--folder FOLDER]

A year of a growing shop in weekly files, and the days after it in a file each: users join, items are added, each user prefers a
twentieth of the items. The first update is the full run: all rows prepared, the model trained for ONE epoch (a lower bound; the
defaults train longer), evaluated and published. Each day adds its rows. The result goes to scripts/results/update.json.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
from measure import Run, figures, keep, log_config, machine, run

RECSYS = shutil.which("recsys", path=str(Path(sys.executable).parent)) or "recsys"
DAY, START, YEAR, GROUPS = 86_400, 1_700_006_400, 364, 20
TRAIN = "train: {device: cpu, trackers: [], epochs: 1, early_stopping: null}\n"


class Shop:
    """Rows of a growing shop, `rows` a year."""

    def __init__(self, rows: int) -> None:
        self.random, self.per_day = np.random.default_rng(1), rows / YEAR
        self.joined = np.sort(self.random.uniform(-200, 1.1 * YEAR, max(100, rows // 156)))
        self.activity = self.random.lognormal(0, 1.2, len(self.joined))
        items = max(GROUPS, rows // 417 // GROUPS * GROUPS)
        self.popularity = 1 / self.random.permutation(np.arange(1, items + 1)) ** 0.9
        self.added = np.where(self.random.random(items) < 0.8, -1, self.random.uniform(0, 1.1 * YEAR, items))

    def write(self, path: Path, first: int, days: int) -> int:
        """Write the rows of some days, and return their number."""
        number = round(days * self.per_day)
        activity = self.activity[: np.searchsorted(self.joined, first)]
        user = self.random.choice(len(activity), number, p=activity / activity.sum())
        popularity = self.popularity * (self.added <= first)
        item = self.random.choice(len(popularity), number, p=popularity / popularity.sum())
        item = item // GROUPS * GROUPS + user % GROUPS
        time = START + first * DAY + np.sort(self.random.integers(0, days * DAY, number))
        rating = self.random.integers(1, 6, number).astype(np.float32)
        pl.DataFrame({"user": user, "item": item, "rating": rating, "time": time}).write_parquet(path)
        return number


def main() -> None:
    """Run the full run and the days of each model, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=25_000_000)
    parser.add_argument("--days", type=int, default=3)
    parser.add_argument("--models", default="mf")
    parser.add_argument("--folder", type=Path, help="for scratch files, 3 GB at 25 M rows")
    given = parser.parse_args()
    found = {"machine": machine("torch", "polars"), "rows": given.rows, "models": {}}
    for model in given.models.split(","):
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            found["models"][model] = replay(model, given.rows, given.days, Path(folder))
    keep("update", found)


def replay(model: str, rows: int, days: int, folder: Path) -> dict[str, object]:
    """Return the figures of one model."""
    log, shop = folder / "log", Shop(rows)
    log.mkdir()
    config = folder / "shop.yaml"
    config.write_text(log_config(log / "*.parquet", model, time="time") + TRAIN)
    for week in range(YEAR // 7):
        shop.write(log / f"{week:03}.parquet", 7 * week, 7)
    update = [RECSYS, "-q", "-w", str(folder / "workspace"), "update", str(config), "--accept", "gate"]
    full, daily = run(update), list[Run]()
    for day in range(days):
        number = shop.write(log / f"{YEAR + day}.parquet", YEAR + day, 1)
        daily.append(run([*update, "update.full_every=null"]))
    published = folder / "workspace" / "published" / "shop"
    version, delta = published / "current", max((published / "deltas").iterdir())
    size = sum(path.stat().st_size for path in version.resolve().rglob("*") if path.is_file())
    return {
        "rows_of_a_day": number,
        "full": figures([full]),
        "day": figures(daily),
        "cpu_of_a_day_to_full": round(max(one.cpu for one in daily) / full.cpu, 4),
        "memory_of_a_day_to_full": round(max(one.peak_gb for one in daily) / full.peak_gb, 4),
        "delta_to_bundle": round(delta.stat().st_size / size, 4),
    }


if __name__ == "__main__":
    main()
