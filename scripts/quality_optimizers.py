"""Validation AUC of each embedding optimizer on the planted synthetic data and on MovieLens latest-small, mean over seeds.

usage: quality_optimizers.py ZIP [--seeds 0 1 2]

ZIP is MovieLens latest-small. The shipped configs demo.yaml and ml-latest-small.yaml are trained as they are but for the
optimizer: dense Adam, and each of sparse tables. Learning rates of the tables were chosen on a tenth of train that was held
out, never on valid: ten times the learning rate for adagrad, 3 for sgd, in both. The result goes to
scripts/results/quality_optimizers.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from measure import keep, machine, run

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
RECSYS = str(Path(sys.executable).with_name("recsys"))
DATASETS = {"demo": "synthetic-small", "ml-latest-small": "movielens-latest-small"}
SGD_RATE = 3.0


def rules(config: Path) -> dict[str, list[str]]:
    """Return what each optimizer changes in a config."""
    rate = yaml.safe_load(config.read_text(encoding="utf-8"))["train"]["learning_rate"]
    sparse = ["train.sparse_embeddings=true", "train.embedding_weight_decay=0"]
    return {
        "dense adam": ["train.sparse_embeddings=false"],
        "sparse adam": sparse,
        "sparse adagrad": [
            *sparse, "train.embedding_optimizer=adagrad", f"train.embedding_learning_rate={10 * rate}"
        ],
        "sparse sgd": [*sparse, "train.embedding_optimizer=sgd", f"train.embedding_learning_rate={SGD_RATE}"],
    }  # fmt: skip


def best_auc(workspace: Path, config: Path, overrides: list[str]) -> float:
    """Train once; return the valid AUC of the best epoch."""
    recsys = [RECSYS, "-q", "-w", str(workspace)]
    before = set((workspace / "runs").glob("*"))
    run([*recsys, "train", str(config), *overrides, "train.trackers=[]"])
    (made,) = set((workspace / "runs").glob("*")) - before
    return float(json.loads((made / "manifest.json").read_text(encoding="utf-8"))["valid"]["auc"])


def main() -> None:
    """Train each optimizer once a seed on each data set and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zip", type=Path)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    given = parser.parse_args()
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        workspace = Path(scratch)
        recsys = [RECSYS, "-q", "-w", str(workspace)]
        for name, dataset in DATASETS.items():
            local = [] if dataset.startswith("synthetic") else ["--from-file", str(given.zip)]
            run([*recsys, "download", dataset, *local])
            config = CONFIGS / f"{name}.yaml"
            run([*recsys, "etl", str(config)])
            found[name] = {}
            for rule, changes in rules(config).items():
                areas = [best_auc(workspace, config, [*changes, f"train.seed={seed}"]) for seed in given.seeds]
                found[name][rule] = {
                    "valid_auc": round(statistics.mean(areas), 4),
                    "standard_deviation": round(statistics.stdev(areas), 4) if areas[1:] else None,
                }
                print(name, rule, found[name][rule], flush=True)
    where = machine("torch", "numpy", "polars")
    keep("quality_optimizers", {"seeds": given.seeds, "valid_auc_of_the_best_epoch": found, "machine": where})


if __name__ == "__main__":
    main()
