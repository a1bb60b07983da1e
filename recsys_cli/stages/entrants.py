"""Models of a race, and the work on them in the process of `timed`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from recsys_cli.config import RunConfig, dump
from recsys_cli.errors import TrainingError
from recsys_cli.etl.report import Facts
from recsys_cli.events import Emit, Progress
from recsys_cli.serving.query import Query
from recsys_cli.stages.recommend import open_recommender
from recsys_cli.stages.run_selection import run_key, unfinished_run
from recsys_cli.stages.train import train_on
from recsys_cli.training.checkpoint import Checkpoint
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace, write_text

_REQUESTS = 50
"""Users of a latency."""
_SEQUENCE = "the order of events tells the next one"
STEPS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "sasrec": (_SEQUENCE, {"name": "sasrec"}),
    "sasrec LiGR": (f"{_SEQUENCE}; gated blocks", {"name": "sasrec", "layer": "ligr"}),
    "sasrec wide": (f"{_SEQUENCE}; twice the width", {"name": "sasrec", "embedding_dim": 128}),
    "gru4rec": (f"{_SEQUENCE}; recurrent", {"name": "gru4rec"}),
}  # fmt: skip
_FEW = {"epochs": 20, "early_stopping": 3}
QUICK_LABELS: Mapping[str, dict[str, Any]] = {
    "fm of one epoch": {"name": "fm", "train": {"epochs": 1}},
    "lightgbm": {"name": "lightgbm"},
}
LABELS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "fm": ("pairs of features", {"name": "fm", "train": _FEW}),
    "dcn-v2": ("crosses of features", {"name": "dcn-v2", "train": _FEW}),
}


def end_early(
    data: PreparedData, before: RunConfig, config: RunConfig, workspace: Workspace, *, emit: Emit
) -> str | None:
    """Make the run of a config from the interrupted one of more epochs: its state is that of the shorter run; return its name."""
    run, key = unfinished_run(workspace, run_key(before, data)), run_key(config, data)
    if run is None:
        return None
    saved = Checkpoint.load(run.checkpoint("last"))
    replace(saved, meta={**saved.meta, "key": key}).save(run.checkpoint("last"))
    write_text(run.config, dump(config))
    run.folder.replace(workspace.new_run(config.model.name, key).folder)
    return train_on(data, config, workspace, resume=True, emit=emit).artifact.folder.name


def latency(run: TrainedRun, workspace: Workspace, *, emit: Emit) -> float:
    """Return the milliseconds of 95 in 100 requests, each of one user."""
    recommender, seconds = open_recommender(run, workspace), []
    recommender.warm_up()
    users = recommender.users(_REQUESTS)
    for done, user in enumerate(users, start=1):
        started = time.perf_counter()
        recommender.recommend([Query(user=user)])
        seconds.append(time.perf_counter() - started)
        emit(Progress("requests", done, len(users), "users"))
    return 1_000 * statistics.quantiles(seconds, n=20)[-1]


def unmeasurable(data: PreparedData, metric: str, *, ranks: bool, again: str) -> TrainingError:
    """Return the error of a metric that is undefined on valid for every model, with what the split left there.

    The hint is the command `again` with other keys.
    """
    facts = Facts.read(data.facts)
    valid, new = facts.splits["valid"], "split.method=random, which holds out other rows"
    left = [f"{valid.rows:,} rows"]
    if valid.users is not None:
        left.append(f"{valid.users.distinct:,} users, {valid.users.cold:,} of them not in train")
    if valid.label.binary:
        left.append(f"{valid.label.mean or 0:.0%} positive labels")
    if ranks and facts.pairs is not None and (seen := facts.pairs.seen.get("valid", {}).get("train")):
        left.append(f"{seen:,} rows with a pair of user and item of train")
        new = f"evaluate.repeats=true, which keeps such pairs, or {new}"
    if facts.users is not None and facts.users.most == 1 and not valid.rows + facts.splits["test"].rows:
        left.append("each user has one row, from which nothing personal can be learned")
    what = "no user of valid has a target for a ranking" if ranks else f"{metric} is undefined on valid"
    return TrainingError(f"{what}: the split left {'; '.join(left)}", hint=f"{again} {new}")
