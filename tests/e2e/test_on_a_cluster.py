"""Recommendations to all users, evaluations, runs of a bench and trials of a study on a cluster: the same as in one process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from recsys_cli.serving import every_user
from tests.random_tables import CONFIG

RECSYS = Path(sys.executable).with_name("recsys")
OPTIONS = {
    **CONFIG,
    "dataset": {"name": "synthetic", "users": 3_000, "items": 1_500, "rows": 40_000},
    "model": {"name": "mf", "embedding_dim": 8},
    "train": {"epochs": 1},
    "bench": {"models": ["popularity", {"name": "mf", "embedding_dim": 4}, "item-knn"], "seeds": [1, 2]},
    "tune": {"trials": 4, "space": {"train.learning_rate": {"low": 0.001, "high": 0.1, "log": True}}},
    "evaluate": {"bootstrap": 20},
}  # fmt: skip


def recsys(folder: Path, *line: str) -> str:
    done = subprocess.run(
        [RECSYS, *line], cwd=folder, capture_output=True, text=True, env={**os.environ, "COLUMNS": "300"}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a workspace of trained models."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "x.yaml").write_text(yaml.safe_dump(OPTIONS))
    for line in (
        ["download", "x.yaml"],
        ["etl", "x.yaml"],
        ["train", "x.yaml"],
        ["train", "x.yaml", "model={name: ease}"],
    ):
        recsys(folder, "-q", *line)
    return folder


def on(kind: str) -> str:
    if find_spec({"local": "distributed", "ray": "ray"}[kind]) is None:
        pytest.skip(f"{kind} needs an extra")
    return kind


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "suffix", "kind"), [("mf", "parquet", "local"), ("ease", "csv", "local"), ("mf", "jsonl", "ray")]
)
def test_recommendations_to_all_users_are_the_same_bytes(trained: Path, model: str, suffix: str, kind: str) -> None:
    options = ["--all", "--k=5", "--explain", "--force", "--where=genres contains Comedy"]
    line = ["recommend", model, *options, "--out"]
    recsys(trained, *line, f"here.{suffix}")
    recsys(trained, *line, f"there.{suffix}", "--cluster", on(kind))
    assert (trained / f"there.{suffix}").read_bytes() == (trained / f"here.{suffix}").read_bytes()
    assert list((trained / "workspace" / ".scratch").iterdir()) == []


def test_parts_are_whole_blocks(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from recsys_cli.evaluation.ranking import users_per_block
    from recsys_cli.stages.recommend import open_recommender
    from recsys_cli.workspace import Workspace

    workspace = Workspace(trained / "workspace")
    run = next(run for run in workspace.runs() if "-mf-" in run.folder.name)
    recommender = open_recommender(run, workspace)
    users = every_user.np.arange(100_000)
    parts = every_user.parts_of(recommender, users, None)
    assert len(parts) > 1
    assert every_user.np.array_equal(every_user.np.concatenate(parts), users)
    assert {len(part) % users_per_block(len(recommender.catalog.candidates)) for part in parts[:-1]} == {0}


@pytest.mark.slow
def test_runs_of_a_bench_are_the_same(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "there")
    line = ["--json", "bench", "x.yaml"]
    here = standings(recsys(trained, *line))
    there = standings(recsys(tmp_path / "there", *line, f"etl.cluster={on('local')}", "etl.workers=2"))
    assert there == here
    assert {"mf", "item-knn", "popularity"} <= {one["label"] for one in here}


def standings(answer: str) -> list[dict[str, object]]:
    """Return the standings without times and names of runs."""
    found = json.loads(answer)["standings"]
    return [{name: value for name, value in one.items() if name not in {"seconds", "runs"}} for one in found]


@pytest.mark.slow
def test_trials_run_on_a_cluster(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "there")
    line = ["--json", "tune", "x.yaml", f"etl.cluster={on('local')}", "etl.workers=2"]
    found = json.loads(recsys(tmp_path / "there", *line))
    assert len(found["ranking"]) == 4
    assert {trial["state"] for trial in found["ranking"]} == {"finished"}
    assert len({trial["trial"] for trial in found["ranking"]}) == 4
    assert json.loads(recsys(tmp_path / "there", *line))["up_to_date"]
