"""Test AUC of a shipped config on fixed splits of ml-latest-small, mean over seeds, beside what a logistic regression reaches.

usage: quality.py ZIP [--splits make_splits.py] [--config ml-latest-small] [--seeds 0 1 2]

ZIP is MovieLens latest-small. The splits are made by the given script (rows are the same every time), and the config runs on
them as shipped: its early stopping looks at a part of train, never at test.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from fixed_splits import SCRIPT, figures_on_test, hold_out, make_splits, means, split_of
from measure import keep, machine, run

HERE = Path(__file__).resolve().parent
RECSYS = str(Path(sys.executable).with_name("recsys"))
HOLD_OUT = 0.05
"""Share of train that early stopping looks at, as for the peers' figures."""


def main() -> None:
    """Train and evaluate once a seed and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zip", type=Path)
    parser.add_argument("--splits", type=Path, default=SCRIPT)
    parser.add_argument("--config", default="ml-latest-small")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    given = parser.parse_args()

    found = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        files = make_splits(given.zip, given.splits, folder) / "random"
        recsys = [RECSYS, "-q", "-w", str(folder / "workspace")]
        run([*recsys, "download", "movielens-latest-small", "--from-file", str(given.zip)])
        config = str(HERE.parent / "configs" / f"{given.config}.yaml")
        for seed in given.seeds:
            parts = hold_out(files / "train.parquet", folder, share=HOLD_OUT, number=seed)
            split = split_of({**parts, "test": str(files / "test.parquet")})
            run([*recsys, "run", config, split, f"train.seed={seed}", "evaluate.max_ranking_users=10"])
            found.append(figures_on_test(folder / "workspace"))
            print(seed, found[-1], flush=True)
    mean, spread = means(found)
    keep(
        "quality_ml_latest_small",
        {
            "work": f"configs/{given.config}.yaml on the fixed random split, label rating > 3, test rows",
            "seeds": given.seeds,
            "mean": mean,
            "standard_deviation": spread,
            "logistic_regression_on_user_and_item": {"auc": 0.7944, "source": "shared/baselines/quality.md"},
            "machine": machine("torch", "numpy", "polars"),
        },
    )


if __name__ == "__main__":
    main()
