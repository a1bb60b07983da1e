"""Our half of bench_sequence_peers.py: trains a sequence model with its default options and keeps its lists and its curve.

usage: run_ours.py JOB.json

Processor seconds are those of training with its own validations, in this process. Where a validation has all users, its NDCG@10
is that of the curve; else the lists of each epoch are made afterwards, from the weights that were kept, and not counted. The
job has a workspace, in which the data of its config are prepared.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from peers.curve import Curve, ndcg

from recsys_cli.config import EvaluateConfig, RunConfig, load
from recsys_cli.evaluation.measure import measure
from recsys_cli.features.schema import FIRST, Role
from recsys_cli.models.model import Model
from recsys_cli.stages.etl import prepared_data
from recsys_cli.stages.trainer import new_model, trainer_of
from recsys_cli.training.distributed.ranks import Ranks
from recsys_cli.training.events import EpochEnded
from recsys_cli.workspace import PreparedData, Workspace

ROUNDING = 1e-5


def main() -> None:
    """Train, rank and keep."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    config = load(Path(job["config"]), [f"model.name={job['model']}", f"train.seed={job['seed']}", *job["overrides"]])
    data = prepared_data(config, Workspace(Path(job["workspace"])))
    valid = pq.read_table(job["valid"])
    wanted = dict(zip(*(valid[name].to_pylist() for name in ("userId", "movieId")), strict=True))
    started = time.perf_counter()
    model, epochs = _trained(config, data)
    fit = time.perf_counter() - started
    model.load_state_dict(epochs[0].weights)
    with_all_users = abs(ndcg(_lists(model, data, "valid"), wanted) - epochs[0].reached) < ROUNDING
    curve = Curve(wanted)
    for seconds, reached, weights in epochs:
        if with_all_users:
            curve.points.append((seconds, round(reached, 5)))
        else:
            model.load_state_dict(weights)
            curve.add(_lists(model, data, "valid"), seconds=seconds)
    curve.ended = (
        "all epochs"
        if len(epochs) == config.train.epochs
        else f"{config.train.early_stopping} epochs without a better one"
    )
    model.load_state_dict(epochs[curve.best - 1].weights)
    if with_all_users:
        assert abs(ndcg(_lists(model, data, "valid"), wanted) - curve.points[curve.best - 1][1]) < ROUNDING
    started = time.perf_counter()
    found = _lists(model, data, "test")
    rank = time.perf_counter() - started
    users = np.array(sorted(found))
    np.savez(job["out"], users=users, items=np.array([found[user] for user in users]))
    kept = {"prepare": 0.0, "fit": fit, "rank": rank, "curve": curve.facts}
    Path(job["out"]).with_suffix(".json").write_text(json.dumps(kept), encoding="utf-8")


class _Epoch(NamedTuple):
    """Processor seconds so far, NDCG@10 of the validation, and weights."""

    seconds: float
    reached: float
    weights: dict[str, Any]


def _trained(config: RunConfig, data: PreparedData) -> tuple[Model, list[_Epoch]]:
    """Return the model, and what is there after each epoch."""
    started, epochs = time.process_time(), []
    model = new_model(data, config.model, config.train)
    trainer = trainer_of(model, config.model.name, data, config.train, ranks=Ranks())
    for event in trainer.events():
        if isinstance(event, EpochEnded):
            seconds = round(time.process_time() - started, 2)
            weights = {name.removeprefix("model."): value.clone() for name, value in trainer.weights().items()}
            epochs.append(_Epoch(seconds, event.record.valid["ndcg@10"] or 0.0, weights))
            print(event.record.epoch, seconds, event.record.valid, flush=True)
    return model.eval(), epochs


def _lists(model: Model, data: PreparedData, split: str) -> dict[int, Any]:
    """Return ten items of each user by raw ids; 0 where there is none."""
    only = EvaluateConfig(split=split, relevance="all", k=(10,), max_ranking_users=None, bootstrap=10)
    _, rankings = measure(model, data, config=only)
    names = data.schema.only(Role.USER).name, data.schema.only(Role.ITEM).name
    users, items = (
        _raw(ids, data, name) for ids, name in zip((rankings.users, rankings.items["model"]), names, strict=True)
    )
    return dict(zip(users.tolist(), items, strict=True))


def _raw(ids: Any, data: PreparedData, column: str) -> Any:
    values = pq.read_table(data.folder / "vocab" / f"{column}.parquet")["value"].to_numpy()
    return np.concatenate([np.zeros(FIRST, np.int64), values.astype(np.int64)])[ids]


if __name__ == "__main__":
    main()
