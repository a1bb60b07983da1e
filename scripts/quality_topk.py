"""How well models rank ml-latest-small on fixed splits, beside what others measured on the same rows with another evaluator.

usage: quality_topk.py ZIP [--splits make_splits.py] [--on loo temporal] [--models popularity item-knn ease …] [--seeds 0 1 2]

ZIP is MovieLens latest-small. The splits are made by the given script: `loo` holds out each user's last two rows for test and
valid, `temporal` the last two tenths of all rows, where most users of test are new. Every rating counts, models have their
default options (on `temporal` those that quality.md chose on its valid), and each is fitted to train; what users met in train
and valid is their history at the test (protocol P1 of ../shared/baselines/quality.md). What was measured before of models or
splits that are not named stays in the result.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from fixed_splits import SCRIPT, make_splits
from measure import RESULTS, keep, machine, run

from recsys_cli.models import kind_of

HERE = Path(__file__).resolve().parent
RECSYS = str(Path(sys.executable).with_name("recsys"))
NAME = "quality_topk"
SPLITS = ("loo", "temporal")
METRICS = ("hr@10", "recall@10", "ndcg@10", "mrr@10")
PUBLISHED = {
    "loo": {
        "popularity": {"hr@10": 0.0410, "recall@10": 0.0410, "ndcg@10": 0.0188, "mrr@10": 0.0122},
        "item-knn": {"hr@10": 0.0689, "recall@10": 0.0689, "ndcg@10": 0.0313, "mrr@10": 0.0200},
        "ease": {"hr@10": 0.0918, "recall@10": 0.0918, "ndcg@10": 0.0449, "mrr@10": 0.0311},
        "ials": {"hr@10": 0.0754, "recall@10": 0.0754, "ndcg@10": 0.0346, "mrr@10": 0.0224},
        "mf bpr": {"hr@10": 0.0607, "recall@10": 0.0607, "ndcg@10": 0.0302, "mrr@10": 0.0211},
        "sasrec": {"hr@10": 0.0530, "recall@10": 0.0530, "ndcg@10": 0.0225, "mrr@10": 0.0135},
    },
    "temporal": {
        "popularity": {"hr@10": 0.7027, "recall@10": 0.0520, "ndcg@10": 0.3250, "mrr@10": 0.5192},
        "item-knn": {"hr@10": 0.7568, "recall@10": 0.0487, "ndcg@10": 0.3175, "mrr@10": 0.5164},
        "ease": {"hr@10": 0.7568, "recall@10": 0.0536, "ndcg@10": 0.3327, "mrr@10": 0.5288},
        "ials": {"hr@10": 0.7342, "recall@10": 0.0537, "ndcg@10": 0.3354, "mrr@10": 0.5324},
    },
}
"""quality.md, P1: itemknn_shrink stands for item-knn, als for ials (± 0.0043, 0.0018, 0.0016 over seeds on
loo), bpr for mf bpr (± 0.0107, 0.0056, 0.0047)."""
OPTIONS = {
    "temporal": {
        "item-knn": ("model.num_neighbors=20",),
        "ease": ("model.regularization=5000",),
        "ials": (
            "model.embedding_dim=32",
            "model.regularization=0.01",
            "model.alpha=4",
        ),  # its alpha of 5 is the whole confidence
    }
}
"""What quality.md chose for its figures and the defaults are not."""
VARIANTS = {
    "mf bpr": ("mf", "model.loss=bpr", "train.epochs=24"),
    "mf warp": ("mf", "model.loss=warp", "train.epochs=24"),
}
"""Losses other than mf's own, by the name of their row; bpr learns more slowly, and the epoch that is best on valid counts."""
CONFIG = """
dataset: {{name: movielens-latest-small}}
split: {{method: files, train: {0}/train.parquet, valid: {0}/valid.parquet, test: {0}/test.parquet}}
features:
  user: userId
  item: movieId
  label: met
  timestamp: timestamp
  ops:
    - {{op: JoinExternal, table: movies, on: movieId, columns: [genres]}}
    - {{op: Categorify, columns: [userId, movieId, genres]}}
    - {{op: LambdaOp, expression: "rating > 0", output: met, dtype: int8}}  # every rating
evaluate: {{split: test, relevance: all, k: [10], max_ranking_users: null, bootstrap: 10}}  # intervals are not kept
"""


def main() -> None:
    """Fit and evaluate each model on each split and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zip", type=Path)
    parser.add_argument("--splits", type=Path, default=SCRIPT)
    parser.add_argument("--on", nargs="+", choices=SPLITS, default=SPLITS)
    parser.add_argument("--models", nargs="+", default=["popularity", "item-knn", "ease", "slim", "ials"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    given = parser.parse_args()

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        files = make_splits(given.zip, given.splits, folder)
        run([RECSYS, "-q", "-w", str(folder), "download", "movielens-latest-small", "--from-file", str(given.zip)])
        found = {
            split: {model: _measured(model, files / split, folder, given.seeds) for model in given.models}
            for split in given.on
        }
    before = json.loads((RESULTS / f"{NAME}.json").read_text()) if (RESULTS / f"{NAME}.json").is_file() else {}
    keep(
        NAME,
        {
            "work": "ml-latest-small, every rating counts, fitted to train, history train and valid, full ranking of items with a "
            "train row; mean over seeds, and their standard deviation where there are several",
            **{split: before.get(split, {}) | found.get(split, {}) for split in SPLITS},
            "published": {"source": "shared/baselines/quality.md, P1, another evaluator", **PUBLISHED},
            "machine": machine("torch", "numpy", "implicit"),
        },
    )


def _measured(model: str, split: Path, folder: Path, seeds: list[int]) -> dict[str, Any]:
    """Return the mean figures of a model over seeds, and whom they are of."""
    config = folder / f"{split.name}.yaml"
    config.write_text(CONFIG.format(split), encoding="utf-8")
    name, *varied = VARIANTS.get(model, (model,))
    options = (*varied, *OPTIONS.get(split.name, {}).get(name, ()))
    runs = []
    for seed in seeds[:1] if kind_of(name).deterministic else seeds:
        run([RECSYS, "-q", "-w", str(folder), "run", str(config), f"model.name={name}", f"train.seed={seed}", *options])
        latest = max((folder / "runs").iterdir(), key=lambda path: path.stat().st_mtime)
        runs.append(json.loads((latest / "evaluation.json").read_text(encoding="utf-8")))
        print(split.name, model, seed, _figures(runs[-1]), flush=True)
    figures = [_figures(found) for found in runs]
    means = {metric: round(statistics.mean(each[metric] for each in figures), 4) for metric in METRICS}
    spread = {metric: round(statistics.stdev(each[metric] for each in figures), 4) for metric in METRICS if figures[1:]}
    counts = runs[0]["counts"]
    users = {"users": counts["users_ranked"], "seeds": len(runs)}
    if counts["users_new"]:
        users |= {"of them new": counts["users_new"], "new, with rows in valid": counts["users_new_with_history"]}
    return {**users, **means} | ({"standard_deviation": spread} if spread else {})


def _figures(evaluation: dict[str, Any]) -> dict[str, float]:
    return {metric: round(evaluation["ranking"]["model"][metric]["value"], 6) for metric in METRICS}


if __name__ == "__main__":
    main()
