"""Test AUC of ranking models on the fixed random split of ml-latest-small, mean over seeds, beside what peers reach.

usage: quality_ranking.py ZIP [--models lightgbm dcn-v2 ...] [--seeds 0 1 2] [--splits make_splits.py]

ZIP is MovieLens latest-small. Each model is trained with its own defaults. A part of train is held out for models that choose
their epoch by it, another part for each seed; models that learn all at once take all of train. Test is looked at once a run.
Results of earlier calls for other models stay in scripts/results/quality_ranking.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from fixed_splits import SCRIPT, hold_out, latest_run, make_splits, means, split_of, test_figures
from measure import RESULTS, keep, machine, run

from recsys_cli.models.model import Fitted
from recsys_cli.models.ranking.pointwise import Pointwise
from recsys_cli.registry import MODELS, load

RECSYS = str(Path(sys.executable).with_name("recsys"))
NAME = "quality_ranking"
WORK = (
    "fixed random split of ml-latest-small, label rating > 3, test rows; each model with its own defaults; models that learn all "
    "at once have the rating as a second label, the others hold out 5 % of train to choose their epoch by"
)
HOLD_OUT = 0.05
"""Share of train that the choice of an epoch looks at, as for the peers' figures."""
PEERS = {
    "bias_lr": {"auc": 0.7944, "log_loss": 0.5263, "accuracy": 0.7366},
    "fm": {"auc": 0.7964, "log_loss": 0.5275, "accuracy": 0.7384},
    "mlp": {"auc": 0.7819, "log_loss": 0.5443, "accuracy": 0.7237},
    "mlp_reg": {"auc": 0.7960, "log_loss": 0.5332, "accuracy": 0.7303},
    "gbm_te": {"auc": 0.8209, "log_loss": 0.4963, "accuracy": 0.7560},
    "gbm_cf": {"auc": 0.8282, "log_loss": 0.4883, "accuracy": 0.7602},
}
"""What shared/baselines/quality.md has for the same rows."""
FEATURES = {
    "user": "userId",
    "item": "movieId",
    "label": "label",
    "timestamp": "timestamp",
    "ops": [
        {"op": "JoinExternal", "table": "movies", "on": "movieId", "columns": ["genres"]},
        {"op": "Categorify", "columns": ["userId", "movieId", "genres"]},
        {"op": "LambdaOp", "expression": "rating > 3", "output": "label", "dtype": "int8"},
    ],
}
GRADED = {
    **FEATURES,
    "label": ["label", "stars"],
    "ops": [
        *FEATURES["ops"],
        {"op": "LambdaOp", "expression": "(rating - 0.5) / 4.5", "output": "stars", "dtype": "float32"},
    ],
}
"""The same with a second label that is the rating itself; the first one is what is measured."""


def ranking_models() -> list[str]:
    """Return the registered models that predict a row's label."""
    kinds = {name: load(f"{package}.model:Model") for name, package in MODELS.items()}
    return [name for name, kind in kinds.items() if name == "lightgbm" or issubclass(kind, Pointwise)]


def measured(model: str, seeds: list[int], files: Path, folder: Path) -> dict[str, Any]:
    """Train and evaluate a model once a seed; return its figures."""
    fitted = issubclass(load(f"{MODELS[model]}.model:Model"), Fitted)
    config = folder / f"{model}.yaml"
    sections = {
        "dataset": {"name": "movielens-latest-small"},
        "features": GRADED if fitted else FEATURES,
        "model": {"name": model},
        "evaluate": {"ranking_users": 10},
    }
    config.write_text(yaml.safe_dump(sections, sort_keys=False), encoding="utf-8")
    found = []
    for seed in seeds:
        parts = {"train": str(files / "train.parquet")}
        if not fitted:
            parts = hold_out(files / "train.parquet", folder, share=HOLD_OUT, number=seed)
        split = split_of({**parts, "test": str(files / "test.parquet")})
        workspace = folder / "workspace"
        run([RECSYS, "-q", "-w", str(workspace), "run", str(config), split, f"train.seed={seed}"])
        manifest = json.loads((latest_run(workspace) / "manifest.json").read_text(encoding="utf-8"))
        found.append({**test_figures(workspace), "seconds": manifest["seconds"]["train"]})
        print(model, seed, found[-1], flush=True)
    mean, spread = means(found)
    return {"seeds": seeds, "mean": mean, "standard_deviation": spread, "machine": machine("torch", "numpy")}


def main() -> None:
    """Measure the models and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zip", type=Path)
    parser.add_argument("--models", nargs="*", default=ranking_models(), choices=ranking_models())
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--splits", type=Path, default=SCRIPT)
    given = parser.parse_args()
    kept = RESULTS / f"{NAME}.json"
    models = json.loads(kept.read_text(encoding="utf-8"))["models"] if kept.is_file() else {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        files = make_splits(given.zip, given.splits, folder) / "random"
        workspace = ["-w", str(folder / "workspace")]
        run([RECSYS, "-q", *workspace, "download", "movielens-latest-small", "--from-file", str(given.zip)])
        for model in given.models:
            models[model] = measured(model, given.seeds, files, folder)
            keep(NAME, {"work": WORK, "models": models, "peers (shared/baselines/quality.md)": PEERS})


if __name__ == "__main__":
    main()
