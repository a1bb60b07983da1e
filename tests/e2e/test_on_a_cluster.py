"""Recommendations to all users, evaluations, runs of a bench and trials of a study on a cluster: the same as in one process."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import yaml

from recsys_cli.errors import ConfigError
from recsys_cli.evaluation import measure
from recsys_cli.evaluation.ranking import Top
from recsys_cli.evaluation.systems import Part
from recsys_cli.events import Event, Message, Progress
from recsys_cli.serving import every_user
from recsys_cli.stages.evaluate import RankedBlock, evaluate
from recsys_cli.workspace import TrainedRun, Workspace
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
        ["etl", "x.yaml", "split.method=user"],
        ["train", "x.yaml", "split.method=user", "model={name: item-knn}"],
        ["train", "x.yaml", "split.method=user", "model={name: logistic}"],
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


def files(run: TrainedRun) -> list[bytes]:
    """Return the files of an evaluation without times."""
    found = json.loads(run.evaluation.read_text())
    kept = {name: value for name, value in found.items() if name not in {"seconds", "files", "checksum"}}
    report = re.sub(r"<dd>[^<]* s on cpu:[^<]*</dd>", "", run.report.read_text())
    assert len(report) < len(run.report.read_text())
    return [json.dumps(kept).encode(), report.encode(), run.rankings.read_bytes()]


def the_run(trained: Path, model: str) -> tuple[TrainedRun, Workspace]:
    workspace = Workspace(trained / "workspace")
    return workspace.run(model), workspace


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Blocks of few users, and one thread, as a worker has."""
    monkeypatch.setattr(measure, "users_per_block", lambda _: 64)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "model", "more"), [("local", "mf", []), ("ray", "item-knn", ["evaluate.candidates=sampled-uniform"])]
)
def test_evaluations_are_the_same(
    trained: Path, kind: str, model: str, more: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    run = the_run(trained, model)[0].evaluated("sampled-uniform" if more else "all")
    line = ["evaluate", model, *more, "--force"]
    recsys(trained, *line)
    here = files(run)
    recsys(trained, *line, "--cluster", on(kind))
    assert files(run) == here
    assert list((trained / "workspace" / ".scratch").iterdir()) == []


@pytest.mark.parametrize("model", ["mf", "item-knn"])
def test_parts_of_an_evaluation_in_any_order_are_the_same(
    trained: Path, model: str, blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a copy of the task, as after a loss: item-knn folds in groups of cold-start users, each a context of its own."""
    run, workspace = the_run(trained, model)
    here = files(evaluate(run, workspace, force=True).artifact)
    assert evaluate(run, workspace, cluster="tcp://127.0.0.1:1").up_to_date  # no part of the key

    class Backwards:
        def map(self, task: RankedBlock, parts: Iterable[Part]) -> Iterator[Top]:
            copy = pickle.loads(pickle.dumps(task))
            return reversed([copy(part) for part in [*parts][::-1]])

    monkeypatch.setattr("recsys_cli.stages.evaluate.open_cluster", lambda *_: nullcontext(Backwards()))
    assert files(evaluate(run, workspace, force=True).artifact) == here


def test_an_evaluation_without_a_ranking_says_so(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recsys_cli.stages.evaluate.open_cluster", lambda *_: nullcontext(object()))
    events: list[Event] = []
    evaluate(*the_run(trained, "logistic"), force=True, emit=events.append)
    assert Message("without a ranking there was nothing to do for the cluster") in events


def test_an_unknown_cluster_is_refused(trained: Path) -> None:
    with pytest.raises(ConfigError, match="local, local_cuda, ray, auto, or an address"):
        evaluate(*the_run(trained, "logistic"), force=True, cluster="lcoal")


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_changes_no_ranking(trained: Path, tmp_path: Path, blocks: None) -> None:
    on("local")
    from tests.e2e.test_dask import Dask

    run, workspace = the_run(trained, "item-knn")
    here = files(evaluate(run, workspace, force=True).artifact)
    dask, events = Dask(tmp_path), list[Event]()
    try:
        victim, _ = dask.worker(), dask.worker()

        def kill(event: Event) -> None:
            events.append(event)
            if isinstance(event, Progress) and event.task == "rank by model" and event.done and victim.poll() is None:
                victim.kill()
                victim.wait()
                time.sleep(1.5)  # the driver looks after its workers each second

        made = evaluate(run, workspace, force=True, cluster=dask.address, emit=kill).artifact
    finally:
        dask.stop()
    assert files(made) == here
    assert [event for event in events if isinstance(event, Message) and "is lost" in event.text]
