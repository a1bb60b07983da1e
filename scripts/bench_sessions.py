"""Sessions to prepared data against the MovieLens recipe on as many rows: whole processes, in turn.

usage: bench_sessions.py FOLDER [--rows 10e6] [--rounds 3]

Sessions are text in YooChoose's layout by `configs/yoochoose.yaml`: ISO times, duplicates and rare items removed, split by
session. MovieLens is `configs/ml25m.yaml` on `synthetic-25m`. Makes both where FOLDER has none; download is not timed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from measure import Run, figures, keep, machine, run, spread

HERE = Path(__file__).resolve().parent
CONFIGS = HERE.parent / "configs"
RATINGS_PER_USER = 154
RECSYS = str(Path(sys.executable).with_name("recsys"))


def main() -> None:
    """Prepare both in turn and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--name", default="sessions", help="name of the file with the results")
    given = parser.parse_args()
    raw = given.folder / f"yoochoose-{given.rows}"
    if not raw.is_dir():
        run([sys.executable, str(HERE / "make_sessions_shape.py"), str(given.rows), str(raw)])
    with tempfile.TemporaryDirectory(dir=given.folder) as scratch:
        recsys = [RECSYS, "-q", "-w", f"{scratch}/workspace"]
        ratings = _ratings(given.rows, Path(scratch))
        run([*recsys, "download", "yoochoose", "--from-file", str(raw)])
        run([*recsys, "download", ratings])
        sessions: list[Run] = []
        movielens: list[Run] = []
        for _ in range(given.rounds):
            movielens.append(run([*recsys, "etl", ratings, "--force"]))
            sessions.append(run([*recsys, "etl", str(CONFIGS / "yoochoose.yaml"), "--force"]))
    pairs = list(zip(sessions, movielens, strict=True))
    result = {
        "work": f"{given.rows:,} rows of text to prepared data, whole process; min / median / max",
        "sessions": figures(sessions),
        "movielens": figures(movielens),
        "rows_per_second_of_movielens": spread([theirs.seconds / ours.seconds for ours, theirs in pairs]),
        "rows_per_cpu_second_of_movielens": spread([theirs.cpu / ours.cpu for ours, theirs in pairs]),
        "memory_of_movielens": spread([ours.peak_gb / theirs.peak_gb for ours, theirs in pairs]),
    }
    keep(given.name, result | {"machine": machine("polars", "pyarrow", "numpy")})


def _ratings(rows: int, folder: Path) -> str:
    """Write the config of MovieLens 25M for generated ratings, with as many per user."""
    config = (CONFIGS / "ml25m.yaml").read_text(encoding="utf-8")
    generated = f"name: synthetic-25m\n  rows: {rows}\n  users: {rows // RATINGS_PER_USER}"
    (folder / "ratings.yaml").write_text(config.replace("name: movielens-25m", generated), encoding="utf-8")
    return str(folder / "ratings.yaml")


if __name__ == "__main__":
    main()
