"""What ranking models reach on the test rows of the fixed random split of ml-latest-small, mean over seeds, beside peers.

usage: quality_ranking.py ZIP [--task liked|rating] [--models lightgbm dcn-v2 ...] [--seeds 0 1 2] [--splits make_splits.py]

ZIP is MovieLens latest-small. `liked` is whether a rating is above 3, in AUC; `rating` the rating itself, in stars, beside the user
and item mean. Each model is trained with its own defaults. A part of train is held out for models that choose their epoch by it,
another part for each seed; models that learn all at once take all of train. Test is looked at once a run. Results of earlier calls
for other models stay in the task's file: scripts/results/quality_ranking.json, quality_ratings.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from fixed_splits import SCRIPT, figures_on_test, hold_out, latest_run, make_splits, means, split_of
from measure import RESULTS, keep, machine, run
from rating_tasks import TASKS, Task

from recsys_cli.models import kind_of
from recsys_cli.models.ranking.model import RankingModel
from recsys_cli.registry import MODELS, load

RECSYS = str(Path(sys.executable).with_name("recsys"))
HOLD_OUT = 0.05
"""Share of train that the choice of an epoch looks at, as for the peers' figures."""


def ranking_models() -> list[str]:
    """Return the registered models that predict a row's label."""
    kinds = {name: load(f"{package}.model:Model") for name, package in MODELS.items()}
    return [name for name, kind in kinds.items() if name == "lightgbm" or issubclass(kind, RankingModel)]


def measured(task: Task, model: str, seeds: list[int], files: Path, folder: Path) -> dict[str, Any]:
    """Train and evaluate a model once a seed; return its figures, and those of the task's baselines."""
    fitted = kind_of(model).rows == "all"
    config = folder / f"{model}.yaml"
    sections = {
        "dataset": {"name": "movielens-latest-small"},
        "features": task.graded if fitted else task.features,
        "model": {"name": model},
        "evaluate": {"max_ranking_users": 10},
    }
    config.write_text(yaml.safe_dump(sections, sort_keys=False), encoding="utf-8")
    found, beside = [], {name: [] for name in task.baselines}
    for seed in seeds:
        parts = {"train": str(files / "train.parquet")}
        if not fitted:
            parts = hold_out(files / "train.parquet", folder, share=HOLD_OUT, number=seed)
        split = split_of({**parts, "test": str(files / "test.parquet")})
        workspace = folder / "workspace"
        run([RECSYS, "-q", "-w", str(workspace), "run", str(config), split, f"train.seed={seed}"])
        manifest = json.loads((latest_run(workspace) / "manifest.json").read_text(encoding="utf-8"))
        found.append({**figures_on_test(workspace, task.figures), "seconds": manifest["seconds"]["train"]})
        for name in task.baselines:
            beside[name].append(figures_on_test(workspace, task.figures, of=name))
        print(model, seed, found[-1], flush=True)
    mean, spread = means(found)
    baselines = {name: means(figures)[0] for name, figures in beside.items()}
    return {
        "seeds": seeds,
        "mean": mean,
        "standard_deviation": spread,
        **({"baselines": baselines} if baselines else {}),
        "machine": machine("torch", "numpy"),
    }


def main() -> None:
    """Measure the models and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zip", type=Path)
    parser.add_argument("--task", choices=list(TASKS), default="liked")
    parser.add_argument("--models", nargs="*", choices=ranking_models())
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--splits", type=Path, default=SCRIPT)
    given = parser.parse_args()
    task = TASKS[given.task]
    kept = RESULTS / f"{task.results}.json"
    models = json.loads(kept.read_text(encoding="utf-8"))["models"] if kept.is_file() else {}
    peers = {"peers (shared/baselines/quality.md)": task.peers} if task.peers else {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        files = make_splits(given.zip, given.splits, folder) / "random"
        workspace = ["-w", str(folder / "workspace")]
        run([RECSYS, "-q", *workspace, "download", "movielens-latest-small", "--from-file", str(given.zip)])
        for model in given.models or task.models or ranking_models():
            models[model] = measured(task, model, given.seeds, files, folder)
            keep(task.results, {"work": task.work, "models": models, **peers})


if __name__ == "__main__":
    main()
