"""Our half of bench_peers.py: `recsys run` in a workspace of its own, whose rankings become what the peers' programs write."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import yaml
from fixed_splits import latest_run, split_of
from measure import Run, run
from quality_topk import CONFIG
from rating_tasks import FEATURES

from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.features.schema import FIRST

RECSYS = str(Path(sys.executable).with_name("recsys"))
RANKED = ("read", "prepare the ranking", "score rows", "rank by model")
"""What of an evaluation's seconds is of the model: not the baselines, the metrics, the cohorts, and their intervals."""
SCORED = ("read", "score rows")


@dataclass(frozen=True)
class Ours:
    """Runs our models on one split.

    Attributes:
        kind: `top-k` or `ranking`.
        files: Its train, valid and test.
        workspace: Has the raw dataset and nothing else; each run gets a copy, so that all of its stages run.
    """

    kind: str
    files: dict[str, str]
    workspace: Path

    def fit_and_rank(self, model: str, out: Path, *, seed: int, epochs: int | None) -> tuple[Run, dict[str, float]]:
        """Run the pipeline; keep lists or probabilities in `out`, and return the process and the seconds by part."""
        copy = self.workspace.with_name("ours")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.workspace, copy)
        config = copy / "config.yaml"
        config.write_text(self._config(), encoding="utf-8")
        overrides = [f"model.name={model}", f"train.seed={seed}", split_of(self.files)]
        overrides += [] if epochs is None else [f"train.epochs={epochs}"]
        done = run([RECSYS, "-q", "-w", str(copy), "run", str(config), *overrides])
        ran = latest_run(copy)
        rankings = Rankings.read(ran / "rankings.safetensors")
        trained = json.loads((ran / "manifest.json").read_text(encoding="utf-8"))
        data = copy / "data" / trained["data"]["folder"]
        np.savez(out, **(_rows(rankings, data) if self.kind == "ranking" else _lists(rankings, data)))
        prepared = json.loads((data / "manifest.json").read_text(encoding="utf-8"))
        evaluated = json.loads((ran / "evaluation.json").read_text(encoding="utf-8"))["seconds"]
        return done, {
            "prepare": prepared["seconds"]["total"],
            "fit": trained["seconds"]["last_session"],
            "rank": sum(evaluated[part] for part in (SCORED if self.kind == "ranking" else RANKED)),
        }

    def _config(self) -> str:
        if self.kind == "top-k":
            return CONFIG.format(Path(self.files["test"]).parent)
        sections = {
            "dataset": {"name": "movielens-latest-small"}, "features": FEATURES,
            "evaluate": {"max_ranking_users": 10, "bootstrap": 10},
        }  # fmt: skip
        return yaml.safe_dump(sections, sort_keys=False)


def _lists(rankings: Rankings, data: Path) -> dict[str, Any]:
    users, items = _raw(rankings.users, data, "userId"), _raw(rankings.items["model"], data, "movieId")
    order = np.argsort(users)
    return {"users": users[order], "items": items[order]}


def _rows(rankings: Rankings, data: Path) -> dict[str, Any]:
    probabilities = 1 / (1 + np.exp(-rankings.logits.astype(np.float64)))
    users = _raw(rankings.row_users, data, "userId")
    return {"users": users, "labels": rankings.labels != 0, "probabilities": probabilities}


def _raw(ids: np.ndarray, data: Path, column: str) -> np.ndarray:
    """Return what ids stand for; 0 for those that stand for nothing."""
    values = pq.read_table(data / "vocab" / f"{column}.parquet")["value"].to_numpy()
    return np.concatenate([np.zeros(FIRST, np.int64), values])[ids]
