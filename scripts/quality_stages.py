"""NDCG@10 of a two-stage stack over single stages at several moments of ratings or of a synthetic world.

usage: quality_stages.py [--zip ZIP] [--datasets movielens-latest-small synthetic] [--data NAME=FILE …] [--moments 0.8 0.9]
       [--without sasrec] [--folder FOLDER]

ZIP is MovieLens latest-small, FILE a CSV with columns user, item, rating and timestamp. At each moment the rows before it are
train and valid, the next tenth of all rows is test: train ends a tenth before the moment, and valid is the tenth between.
At each moment the stack and each single stage have the options that were best on the valid rows of this moment and all
earlier ones. Each user's rows of all moments are one cluster of the paired interval, and its significance is corrected for the
number of stages. Figures of datasets that are not named stay in the result. FOLDER keeps the runs, and those there are not
trained again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from measure import RESULTS, keep, machine, run
from quality_topk import RECSYS

import recsys_cli as recsys
from recsys_cli.evaluation.clusters import by_owner
from recsys_cli.evaluation.compare.comparison import Difference, figures_of
from recsys_cli.evaluation.compare.outcomes import Outcomes
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.features.schema import UNSEEN

CONFIG = Path(__file__).resolve().parents[1] / "configs" / "two-stage-ml-latest-small.yaml"
ZIPPED = ("movielens-latest-small", "synthetic")
"""Datasets with genres, downloaded by name."""
MOMENTS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Shares of the rows before a moment."""
NAME = "quality_stages"
WINDOW = 0.1
METRIC = "ndcg@10"
DAY = 86_400
STACK = "two-stage"
RE_RANKED = "as shipped"
"""The variant that needs genres."""
STACKS = {
    RE_RANKED: [],
    "without re-ranking": ["model.rerank=[]"],
    "cross-entropy": ["model.rerank=[]", "model.ranker.objective=binary", "model.ranker.num_leaves=7"],
}
"""Options of the stack to choose from, by name."""
STAGES: dict[str, dict[str, dict[str, Any]]] = {
    "recent popularity": {
        f"{rows}, {days} days": {"name": "popularity", "half_life": days * DAY, "positive_only": rows == "positives"}
        for rows in ("all", "positives")
        for days in (10, 30, 90, 180)
    },
    "popularity": {"all": {"name": "popularity"}, "positives": {"name": "popularity", "positive_only": True}},
    "ease": {"all": {"name": "ease"}, "positives": {"name": "ease", "positive_only": True}},
    "item-knn": {"all": {"name": "item-knn"}, "positives": {"name": "item-knn", "positive_only": True}},
    "sasrec": {"long": {"name": "sasrec", "max_seq_len": None}},
}
"""Single stages: variants to choose from, by stage and name."""
LABELS = [
    {"op": "Categorify", "columns": ["user", "item"]},
    {"op": "LambdaOp", "expression": "rating > 3", "output": "label", "dtype": "int8"},
]
COLUMNS = {"user": "user", "item": "item", "label": "label", "timestamp": "timestamp", "ops": LABELS}
"""The `features` section of a file."""

Users = dict[int, float]
"""The metric by hash of the user."""


@dataclass
class Moment:
    """The metric at a moment.

    Attributes:
        systems: Users of valid and test by system and variant.
        in_train: Hashes of test users with rows in train; others are cold-start.
    """

    systems: dict[str, dict[str, dict[str, Users]]] = field(default_factory=dict)
    in_train: set[int] = field(default_factory=set)


def write_split(ratings: pl.DataFrame, moment: float, folder: Path) -> dict[str, str]:
    """Write the rows around a moment, and return the `split` section."""
    ends = [round(len(ratings) * share) for share in (0, moment - WINDOW, moment, moment + WINDOW)]
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for name, start, end in zip(("train", "valid", "test"), ends, ends[1:], strict=False):
        paths[name] = str(folder / f"{name}.parquet")
        ratings[start:end].write_parquet(paths[name])
    return {"method": "files", **paths}


def measured(config: recsys.RunConfig, workspace: recsys.Workspace, moment: Moment) -> dict[str, Users]:
    """Train a model once, and return its metric on valid and test."""
    found = {}
    trained = recsys.train(config, workspace, progress=False)
    for split in ("valid", "test"):
        recsys.evaluate(trained, config=config.evaluate.model_copy(update={"split": split, "k": (10,)}), progress=False)
        rankings = Rankings.read(trained.rankings)
        values = Outcomes.of(rankings, metrics={METRIC}).users[METRIC]
        found[split] = dict(zip(np.sort(rankings.user_hashes).tolist(), values.tolist(), strict=True))
        if split == "test":
            moment.in_train = set(rankings.user_hashes[rankings.users != UNSEEN].tolist())
    return found


def base_of(dataset: str, file: Path | None, workspace: recsys.Workspace) -> tuple[dict[str, Any], pl.DataFrame]:
    """Return the config of a dataset without split, and its ratings in order of time."""
    base = recsys.load_config(CONFIG).model_dump(exclude_unset=True)
    if file is None:
        base["dataset"], path = {"name": dataset}, workspace.root / "raw" / dataset / "ratings.csv"
    else:
        base |= {"dataset": {"name": "files", "interactions": str(file)}, "features": COLUMNS}
        base["model"].pop("rerank")
        path = file
    return base, pl.read_csv(path).sort("timestamp", maintain_order=True)


def at_moment(share: float, dataset: str, file: Path | None, workspace: recsys.Workspace, without: list[str]) -> Moment:
    """Return the metric of all variants of the stack and of the stages at a moment."""
    base, ratings = base_of(dataset, file, workspace)
    variants_of = STAGES
    if (ratings["rating"] > 3).all():  # then models of all rows and of positives are the same
        base["model"]["candidates"] = [part for part in base["model"]["candidates"] if part.get("positive_only")]
        variants_of = {name: without_twins(variants) for name, variants in STAGES.items()}
    base["split"] = write_split(ratings, share, workspace.root / "splits" / dataset / f"{share:g}")
    recsys.etl(recsys.load_config(base), workspace, progress=False)
    stacks = {name: options for name, options in STACKS.items() if file is None or name != RE_RANKED}
    configs = {STACK: {name: recsys.load_config(base, options) for name, options in stacks.items()}}
    for stage, variants in variants_of.items():
        if stage not in without:
            configs[stage] = {name: recsys.load_config({**base, "model": model}) for name, model in variants.items()}
    moment = Moment()
    for system, variants in configs.items():
        moment.systems[system] = {}
        for name, config in variants.items():
            moment.systems[system][name] = users = measured(config, workspace, moment)
            print(dataset, share, system, name, means_of(users), f"{len(users['test'])} users", flush=True)
    return moment


def without_twins(variants: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the variants but those with a twin of positives alone."""
    twins = [model for model in variants.values() if model.get("positive_only")]
    return {
        name: model
        for name, model in variants.items()
        if model in twins or {**model, "positive_only": True} not in twins
    }


def means_of(users: dict[str, Users]) -> dict[str, float]:
    """Return the mean over users by split."""
    return {split: round(float(np.mean(list(values.values()))), 4) for split, values in users.items()}


def chosen(moments: list[Moment], system: str) -> str:
    """Return the variant of a system with the highest mean over the valid users of some moments."""
    variants = moments[0].systems[system]
    means = {
        name: np.mean([value for moment in moments for value in moment.systems[system][name]["valid"].values()])
        for name in variants
    }
    return max(means, key=lambda name: means[name])


def pooled(moments: list[Moment]) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Return the gains of the chosen stack over each chosen stage on the test users of all moments, and the choices."""
    choices = {
        system: [chosen(moments[: number + 1], system) for number in range(len(moments))]
        for system in moments[0].systems
    }
    values, owners, in_train = defaultdict(list), [], []
    for number, moment in enumerate(moments):
        of_stack = moment.systems[STACK][choices[STACK][number]]["test"]
        ranked = sorted(of_stack)
        owners += ranked
        in_train += [user in moment.in_train for user in ranked]
        for system, variants in moment.systems.items():
            of_users = variants[choices[system][number]]["test"]
            values[system] += [of_users[user] for user in ranked]
    known = np.array(in_train)
    parts = {"all": known | True, "in train": known, "cold-start": ~known}
    arrays = {system: np.array(part) for system, part in values.items()}
    return {name: gains_of(arrays, np.array(owners, np.uint64), part) for name, part in parts.items()}, choices


def gains_of(
    values: dict[str, npt.NDArray[np.float64]], owners: npt.NDArray[np.uint64], part: npt.NDArray[np.bool_]
) -> dict[str, Any]:
    """Return means and gains of the stack over each stage on some rankings; all shapes (N,)."""
    systems = {
        name: Outcomes.of_users({METRIC: by_owner(-of_system[part], owners[part])})
        for name, of_system in values.items()
    }
    (figure,) = figures_of(systems, [METRIC], resamples=2_000, seed=0)
    gains = {
        name: {
            "gain": round(one.value, 4), "interval": [round(one.low, 4), round(one.high, 4)], "verdict": one.verdict,
            "smallest gain with 80 % power": detectable(one),
        }
        for name, one in figure.differences.items()
    }  # fmt: skip
    means = {name: round(float(of_system[part].mean()), 4) for name, of_system in values.items()}
    return {
        "rankings": int(part.sum()), "users": len(np.unique(owners[part])), METRIC: means, "gain over": gains
    }  # fmt: skip


def detectable(one: Difference) -> float:
    """Return the gain with a significant result in four of five tests of this size."""
    return round((1.96 + 0.84) * (one.high - one.low) / 2 / 1.96, 4)


def main() -> None:
    """Measure all moments and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zip", type=Path)
    parser.add_argument("--datasets", nargs="*", choices=ZIPPED, default=[])
    parser.add_argument("--data", nargs="*", metavar="NAME=FILE", default=[])
    parser.add_argument("--moments", nargs="+", type=float, default=MOMENTS)
    parser.add_argument("--without", nargs="*", choices=list(STAGES), default=[])
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    files: dict[str, Path | None] = dict.fromkeys(given.datasets)
    files |= {name: Path(file).resolve() for name, _, file in (each.partition("=") for each in given.data)}
    before = RESULTS / f"{NAME}.json"
    results = json.loads(before.read_text(encoding="utf-8")) if before.is_file() else {}
    with tempfile.TemporaryDirectory() as scratch:
        workspace = recsys.Workspace(given.folder or Path(scratch))
        for dataset, file in files.items():
            if file is None:
                source = ["--from-file", str(given.zip)] if given.zip and dataset != "synthetic" else []
                run([RECSYS, "-q", "-w", str(workspace.root), "download", dataset, *source])
            moments = [at_moment(share, dataset, file, workspace, given.without) for share in given.moments]
            figures, choices = pooled(moments)
            results[dataset] = {
                **figures,
                "moments": {
                    str(share): {
                        system: {
                            "chosen": choices[system][number],
                            **{name: means_of(users) for name, users in variants.items()},
                        }
                        for system, variants in moments[number].systems.items()
                    }
                    for number, share in enumerate(given.moments)
                },
                "machine": machine("torch", "lightgbm"),
            }
            keep(NAME, {**results, "work": __doc__.splitlines()[0]})


if __name__ == "__main__":
    main()
