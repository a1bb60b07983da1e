"""Quality floors through the installed commands, in a clean clone: planted data, so that no file of somebody else is needed.

Floors follow from the generator: its ceiling for labels, and popularity for rankings. A broken join, encoding, split, loader or
update drops a model below them; the numbers of MovieLens are held in test_pipeline, where a copy of it is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
RECSYS = Path(sys.executable).with_name("recsys")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("planted")
    recsys(made, "download", "synthetic-small")
    recsys(made, "etl", str(CONFIGS / "demo.yaml"))
    return made


def recsys(folder: Path, *line: str) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([RECSYS, *line], cwd=folder, env=environment, text=True, capture_output=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def evaluated(folder: Path, *overrides: str) -> dict:
    before = set(folder.glob("workspace/runs/*"))
    recsys(folder, "train", *overrides)
    recsys(folder, "evaluate", "evaluate.bootstrap=50")
    (run,) = set(folder.glob("workspace/runs/*")) - before
    return json.loads((run / "evaluation.json").read_text())


def test_a_ranking_model_comes_near_the_ceiling(folder: Path) -> None:
    found = evaluated(folder, "model.name=fm", "train.epochs=4")
    auc = found["pointwise"]["model"]["auc"]["value"]
    assert found["ceiling"]["auc"] - 0.03 < auc < found["ceiling"]["auc"] + 0.005


def test_catalog_models_beat_popularity(folder: Path) -> None:
    ranking = evaluated(folder, "model.name=item-knn")["ranking"]
    ndcg = {system: metrics["ndcg@10"]["value"] for system, metrics in ranking.items()}
    assert ndcg["model"] > 1.5 * ndcg["popularity"]
    assert ndcg["ease"] > 1.8 * ndcg["popularity"]
