"""NDCG@10 of a two-stage stack over its stages at several moments of ml-latest-small or a synthetic world.

usage: quality_stages.py ZIP [--datasets movielens-latest-small synthetic] [--folder FOLDER]

ZIP is MovieLens latest-small. At each moment the rows before it are train and valid, the next tenth of all rows is test: train
ends a tenth before the moment, and valid is the tenth between. At each moment the stack has the options that were best on
the valid rows of this moment and all earlier ones. Each user's rows of all moments are one cluster of the paired interval, and
its significance is corrected for the number of stages.
FOLDER keeps the runs, and those there are not trained again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from measure import RESULTS, keep, machine, run
from quality_topk import RECSYS

import recsys_cli as recsys
from recsys_cli.evaluation.clusters import by_owner
from recsys_cli.evaluation.compare.comparison import Difference, figures_of
from recsys_cli.evaluation.compare.outcomes import Outcomes
from recsys_cli.evaluation.rankings import Rankings

CONFIG = Path(__file__).resolve().parents[1] / "configs" / "two-stage-ml-latest-small.yaml"
MOMENTS = {"movielens-latest-small": (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9), "synthetic": (0.8, 0.9)}
"""Shares of the rows before a moment, by dataset."""
NAME = "quality_stages"
WINDOW = 0.1
METRIC = "ndcg@10"
STACKS = {
    "as shipped": [],
    "without re-ranking": ["model.rerank=[]"],
    "smaller trees": ["model.rerank=[]", "model.ranker.num_leaves=7", "model.ranker.learning_rate=0.03"],
    "shorter windows": ["model.rerank=[]", "model.holdout.share=0.05", "model.holdout.rounds=8"],
}
"""Options of the stack to choose from, by name."""
STAGES = {
    "recent popularity": {"name": "popularity", "half_life": 15_552_000},
    "popularity": {"name": "popularity"},
    "ease": {"name": "ease"},
    "item-knn": {"name": "item-knn"},
}
"""The stack's generators as models of their own."""

Users = dict[int, float]
"""The metric by hash of the user."""


def write_split(ratings: pl.DataFrame, moment: float, folder: Path) -> dict[str, str]:
    """Write the rows around a moment, and return the `split` section."""
    ends = [round(len(ratings) * share) for share in (0, moment - WINDOW, moment, moment + WINDOW)]
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for name, start, end in zip(("train", "valid", "test"), ends, ends[1:], strict=False):
        paths[name] = str(folder / f"{name}.parquet")
        ratings[start:end].write_parquet(paths[name])
    return {"method": "files", **paths}


def measured(config: recsys.RunConfig, workspace: recsys.Workspace) -> dict[str, Users]:
    """Train a model once, and return its metric on valid and test."""
    found = {}
    trained = recsys.train(config, workspace, progress=False)
    for split in ("valid", "test"):
        recsys.evaluate(trained, config=config.evaluate.model_copy(update={"split": split, "k": (10,)}), progress=False)
        rankings = Rankings.read(trained.rankings)
        values = Outcomes.of(rankings, metrics={METRIC}).users[METRIC]
        found[split] = dict(zip(np.sort(rankings.user_hashes).tolist(), values.tolist(), strict=True))
    return found


def at_moment(moment: float, dataset: str, workspace: recsys.Workspace) -> dict[str, dict[str, Users]]:
    """Return the metric of all stacks and stages at a moment."""
    ratings = pl.read_csv(workspace.root / "raw" / dataset / "ratings.csv").sort("timestamp", maintain_order=True)
    split = write_split(ratings, moment, workspace.root / "splits" / dataset / f"{moment:g}")
    base = recsys.load_config(CONFIG).model_dump(exclude_unset=True)
    base |= {"dataset": {"name": dataset}, "split": split}
    recsys.etl(recsys.load_config(base), workspace, progress=False)
    configs = {name: recsys.load_config(base, overrides) for name, overrides in STACKS.items()}
    configs |= {name: recsys.load_config({**base, "model": model}) for name, model in STAGES.items()}
    found = {}
    for name, config in configs.items():
        found[name] = measured(config, workspace)
        means = {split: round(float(np.mean(list(users.values()))), 4) for split, users in found[name].items()}
        print(dataset, moment, name, means, f"{len(found[name]['test'])} users", flush=True)
    return found


def chosen(moments: list[dict[str, dict[str, Users]]]) -> str:
    """Return the stack with the highest mean over the valid users of some moments."""
    means = {name: np.mean([value for found in moments for value in found[name]["valid"].values()]) for name in STACKS}
    return max(means, key=lambda name: means[name])


def pooled(moments: list[dict[str, dict[str, Users]]], names: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the gains of the chosen stacks over each stage on the test users of all moments, and the chosen stacks."""
    choices = [chosen(moments[: number + 1]) for number in range(len(moments))]
    values, owners = defaultdict(list), []
    for found, choice in zip(moments, choices, strict=True):
        ranked = sorted(found[choice]["test"])
        owners += ranked
        for name in ["two-stage", *names]:
            of_users = found[choice if name == "two-stage" else name]["test"]
            values[name] += [of_users[user] for user in ranked]
    systems = {
        name: Outcomes.of_users({METRIC: by_owner(-np.array(part), np.array(owners, np.uint64))})
        for name, part in values.items()
    }
    (figure,) = figures_of(systems, [METRIC], resamples=2_000, seed=0)
    users = len(set(owners))
    gains = {
        name: {
            "gain": round(one.value, 4), "interval": [round(one.low, 4), round(one.high, 4)], "verdict": one.verdict,
            "smallest gain with 80 % power": detectable(one),
        }
        for name, one in figure.differences.items()
    }  # fmt: skip
    means = {name: round(float(np.mean(part)), 4) for name, part in values.items()}
    return {"rankings": len(owners), "users": users, METRIC: means, "gain over": gains}, choices


def detectable(one: Difference) -> float:
    """Return the gain with a significant result in four of five tests of this size."""
    return round((1.96 + 0.84) * (one.high - one.low) / 2 / 1.96, 4)


def main() -> None:
    """Measure all moments and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zip", type=Path)
    parser.add_argument("--datasets", nargs="+", choices=list(MOMENTS), default=list(MOMENTS))
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    before = RESULTS / f"{NAME}.json"
    results = json.loads(before.read_text(encoding="utf-8")) if before.is_file() else {}
    with tempfile.TemporaryDirectory() as scratch:
        workspace = recsys.Workspace(given.folder or Path(scratch))
        for dataset in given.datasets:
            source = [] if dataset == "synthetic" else ["--from-file", str(given.zip)]
            run([RECSYS, "-q", "-w", str(workspace.root), "download", dataset, *source])
            moments = [at_moment(moment, dataset, workspace) for moment in MOMENTS[dataset]]
            figures, choices = pooled(moments, list(STAGES))
            results[dataset] = {
                **figures, "chosen": dict(zip(map(str, MOMENTS[dataset]), choices, strict=True)),
                "at each moment": {
                    str(moment): {
                        name: {split: round(float(np.mean(list(users.values()))), 4) for split, users in parts.items()}
                        for name, parts in found.items()
                    }
                    for moment, found in zip(MOMENTS[dataset], moments, strict=True)
                },
            }  # fmt: skip
            keep(
                "quality_stages", {"work": __doc__.splitlines()[0], **results, "machine": machine("torch", "lightgbm")}
            )


if __name__ == "__main__":
    main()
