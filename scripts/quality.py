"""Test AUC of a shipped config on fixed splits of ml-latest-small, mean over seeds, beside what a logistic regression reaches.

usage: quality.py ZIP [--splits make_splits.py] [--config ml-latest-small] [--seeds 0 1 2]

ZIP is MovieLens latest-small. The splits are made by the given script (rows are the same every time), and the config runs on
them as shipped: its early stopping looks at a part of train, never at test.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from measure import keep, machine, run

HERE = Path(__file__).resolve().parent
RECSYS = str(Path(sys.executable).with_name("recsys"))
HOLD_OUT = 0.05
"""Share of train that early stopping looks at, as for the peers' figures."""


def main() -> None:
    """Train and evaluate once a seed and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zip", type=Path)
    parser.add_argument("--splits", type=Path, default=HERE.parents[1] / "shared" / "baselines" / "make_splits.py")
    parser.add_argument("--config", default="ml-latest-small")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    given = parser.parse_args()

    found = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        files = _splits(given.zip, given.splits, folder)
        recsys = [RECSYS, "-q", "-w", str(folder / "workspace")]
        run([*recsys, "download", "movielens-latest-small", "--from-file", str(given.zip)])
        config = str(HERE.parent / "configs" / f"{given.config}.yaml")
        for seed in given.seeds:
            split = _hold_out(files, seed, folder)
            run([*recsys, "run", config, f"split={split}", f"train.seed={seed}", "evaluate.ranking_users=10"])
            found.append(_test_figures(folder / "workspace"))
            print(seed, found[-1], flush=True)
    means = {name: round(statistics.mean(figures[name] for figures in found), 4) for name in found[0]}
    spread = (
        {name: round(statistics.stdev(figures[name] for figures in found), 4) for name in found[0]} if found[1:] else {}
    )
    keep(
        "quality_ml_latest_small",
        {
            "work": f"configs/{given.config}.yaml on the fixed random split, label rating > 3, test rows",
            "seeds": given.seeds,
            "mean": means,
            "standard_deviation": spread,
            "logistic_regression_on_user_and_item": {"auc": 0.7944, "source": "shared/baselines/quality.md"},
            "machine": machine("torch", "numpy", "polars"),
        },
    )


def _splits(archive: Path, script: Path, folder: Path) -> Path:
    with zipfile.ZipFile(archive) as opened:
        member = next(name for name in opened.namelist() if name.endswith("ratings.csv"))
        (folder / "ratings.csv").write_bytes(opened.read(member))
    run([sys.executable, str(script), str(folder), str(folder / "splits")])
    return folder / "splits" / "random"


def _hold_out(files: Path, seed: int, folder: Path) -> str:
    """Take a part of train for early stopping; its rows are in random order already."""
    train = pq.read_table(files / "train.parquet")
    size = int(train.num_rows * HOLD_OUT)
    start = seed * size
    rest = pa.concat_tables([train.slice(0, start), train.slice(start + size)])
    paths = {"train": folder / f"train-{seed}.parquet", "valid": folder / f"valid-{seed}.parquet"}
    pq.write_table(rest, paths["train"])
    pq.write_table(train.slice(start, size), paths["valid"])
    return json.dumps({"method": "files", **{k: str(v) for k, v in paths.items()}, "test": str(files / "test.parquet")})


def _test_figures(workspace: Path) -> dict[str, float]:
    latest = max((workspace / "runs").iterdir(), key=lambda path: path.stat().st_mtime)
    measured = json.loads((latest / "evaluation.json").read_text(encoding="utf-8"))
    assert measured["split"] == "test"
    return {name: measured["pointwise"]["model"][name]["value"] for name in ("auc", "log_loss", "accuracy")}


if __name__ == "__main__":
    main()
