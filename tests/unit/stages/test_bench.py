"""A bench on the checkerboard, where mlp learns what popularity cannot know; broken off, gone on with, and with failures."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recsys_cli.config import RunConfig, dump
from recsys_cli.errors import ConfigError, TrainingError
from recsys_cli.evaluation import Evaluation
from recsys_cli.evaluation.compare.leaderboard import Leaderboard, in_words
from recsys_cli.events import Event, Message, Progress
from recsys_cli.features.plan import FittedPlan
from recsys_cli.stages.bench import bench, bench_on
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace

GOOD = {"name": "mlp", "embedding_dim": 8, "hidden": [16]}
POOR = {**GOOD, "train": {"epochs": 1, "learning_rate": 1e-6}}


@pytest.fixture
def data(workspace: Workspace, make_prepared) -> PreparedData:
    made = make_prepared(rows=3_000)
    place = workspace.data(made.key)
    shutil.copytree(made.folder, place.folder)
    return place


def a_config(data: PreparedData, *models: Any, seeds: tuple[int, ...] = (1,), **bench: Any) -> RunConfig:
    return RunConfig.model_validate({
        "dataset": {"name": "movielens-latest-small"},
        "features": FittedPlan.read(data.folder).plan,
        "train": {"epochs": 4, "batch_size": 100, "learning_rate": 0.02, "device": "cpu", "precision": "fp32"},
        "evaluate": {"k": [5], "bootstrap": 100},
        "bench": {"models": models, "seeds": seeds, "metrics": ["ndcg@5", "auc"], **bench},
    })  # fmt: skip


def said(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Message)]


def figures(run: TrainedRun, metric: str) -> float | None:
    found = Evaluation.read(run.evaluation)
    return {**found.pointwise["model"], **found.ranking["model"]}[metric].value


def test_models_are_ranked_over_their_seeds(data: PreparedData, workspace: Workspace, tmp_path: Path) -> None:
    events: list[Event] = []
    config = a_config(data, "popularity", POOR, GOOD, seeds=(1, 2))
    found = bench_on(data, config, workspace, html=tmp_path / "x.html", emit=events.append)
    standings = {one.label: one for one in found.standings}
    best = found.standings[0]
    assert best.label == "mlp embedding_dim=8, hidden=[16]"
    assert [one.place for one in found.standings] == list(range(1, len(found.standings) + 1))
    assert (found.metric, found.metrics, found.seeds, found.failures) == ("ndcg@5", ("ndcg@5", "auc"), (1, 2), ())
    values = [figures(workspace.run(name), "ndcg@5") for name in best.runs]
    assert len(set(values)) == 2
    score = best.scores["ndcg@5"]
    assert score.value == pytest.approx(sum(values) / 2)
    assert score.deviation == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    assert score.low < score.value < score.high
    assert best.scores["auc"].value > 0.9
    assert best.from_best is None
    assert standings["popularity"].from_best.verdict == "worse"
    assert not standings["popularity"].is_baseline  # a model of the bench, and not twice in the table
    assert standings["popularity"].parameters == workspace.run(standings["popularity"].runs[0]).manifest["parameters"]
    assert any(one.is_baseline for one in found.standings)
    assert "is better by NDCG@5 than all others" in in_words(found)
    assert [text for text in said(events) if text.startswith("2 of 6")] == [
        "2 of 6: mlp embedding_dim=8, hidden=[16], epochs=1, learning_rate=1e-06, seed 1"
    ]
    bars = [event for event in events if isinstance(event, Progress) and event.task == "bench"]
    assert (bars[-1].done, bars[-1].total) == (6, 6)
    assert "Leaderboard by NDCG@5" in (tmp_path / "x.html").read_text()


def test_what_is_there_is_not_trained_again_and_more_is_added(data: PreparedData, workspace: Workspace) -> None:
    first = bench_on(data, a_config(data, GOOD), workspace)
    runs = [run.folder.name for run in workspace.runs()]
    before = workspace.run(runs[0]).evaluation.stat().st_mtime_ns
    again = bench_on(data, a_config(data, GOOD), workspace)
    assert again == first
    more = bench_on(data, a_config(data, GOOD, "popularity", seeds=(1, 2)), workspace, metric="auc")
    assert [run.folder.name for run in workspace.runs()][:1] == runs
    assert workspace.run(runs[0]).evaluation.stat().st_mtime_ns == before
    assert len(workspace.runs()) == 4
    assert (more.metric, more.metrics) == ("auc", ("auc", "ndcg@5"))
    assert next(one for one in more.standings if one.label == "mlp").runs[0] == runs[0]


def test_seeds_alone_cannot_be_told_apart(data: PreparedData, workspace: Workspace) -> None:
    """Two entries that train alike, but for a batch that is a little larger."""
    other = {**GOOD, "train": {"batch_size": 101}}
    found = bench_on(data, a_config(data, GOOD, other), workspace)
    second = next(one for one in found.standings[1:] if one.runs)
    assert second.from_best.verdict == "noise"
    assert "cannot be told apart from it" in in_words(found)


def test_a_model_that_fails_is_told_and_the_others_go_on(
    data: PreparedData, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recsys_cli.stages import bench as stage

    def broken(data: PreparedData, config: RunConfig, *args: Any, **options: Any) -> Any:
        if config.model.name == "popularity":
            raise ValueError("shapes do not match")
        return train_on(data, config, *args, **options)

    train_on = stage.train_on
    monkeypatch.setattr(stage, "train_on", broken)
    events: list[Event] = []
    diverging = {**GOOD, "hidden": [], "train": {"learning_rate": 1e30}}
    found = bench_on(data, a_config(data, "popularity", diverging, GOOD), workspace, emit=events.append)
    assert [one["label"] for one in found.failures] == ["popularity", found.failures[1]["label"]]
    assert found.failures[0]["message"] == "ValueError: shapes do not match"
    assert "not a finite number" in found.failures[1]["message"]
    assert [one.label for one in found.standings if one.runs] == ["mlp embedding_dim=8, hidden=[16]"]
    assert any(event.level == "warning" for event in events if isinstance(event, Message))
    with pytest.raises(
        TrainingError, match="none of 1 runs could be made; the last one, popularity: ValueError: shapes"
    ):
        bench_on(data, a_config(data, "popularity"), workspace)


def test_without_a_section_it_says_what_to_write(data: PreparedData, workspace: Workspace) -> None:
    config = a_config(data, GOOD)
    with pytest.raises(ConfigError, match="no bench section") as caught:
        bench_on(data, config.model_copy(update={"bench": None}), workspace)
    assert "models:" in str(caught.value.hint)
    with pytest.raises(ConfigError, match="unknown metric 'ndgc@5'"):
        bench_on(data, config, workspace, metric="ndgc@5")
    assert bench.__doc__ is not None


CHILD = """
import os, sys
from pathlib import Path
from recsys_cli.config import load
from recsys_cli.events import Progress
from recsys_cli.stages.bench import bench_on
from recsys_cli.workspace import PreparedData, Workspace

config, data, root, number, step = sys.argv[1:]
seen = 0

def emit(event):
    global seen
    seen += isinstance(event, Progress) and event.task.startswith("train")
    if seen == int(step):
        os.kill(os.getpid(), int(number))

bench_on(PreparedData(Path(data)), load(Path(config)), Workspace(Path(root)), emit=emit)
"""


def test_a_killed_bench_goes_on_in_the_middle_of_a_run(
    data: PreparedData, workspace: Workspace, tmp_path: Path
) -> None:
    """30 steps an epoch, 120 a run: killed in the third epoch of the second run, after popularity and one of mlp."""
    config = a_config(data, "popularity", GOOD, seeds=(1, 2))
    broken = Workspace(tmp_path / "broken")
    broken_data = broken.data(data.key)
    shutil.copytree(data.folder, broken_data.folder)
    (tmp_path / "child.yaml").write_text(dump(config))
    arguments = [
        str(tmp_path / "child.yaml"),
        str(broken_data.folder),
        str(broken.root),
        str(int(signal.SIGKILL)),
        "195",
    ]
    child = subprocess.Popen([sys.executable, "-c", CHILD, *arguments], stderr=subprocess.DEVNULL)
    assert child.wait() == -signal.SIGKILL
    (left,) = (run for run in broken.runs() if not run.exists)
    begun = {run.folder.name: run.manifest["created"] for run in broken.runs() if run.exists}
    assert len(begun) == 3
    found = bench_on(broken_data, config, broken)
    assert left.exists
    assert {run.folder.name for run in broken.runs()} == {*begun, left.folder.name}
    whole = bench_on(data, config, workspace)
    assert _without_times(found) == _without_times(whole)


def _without_times(found: Leaderboard) -> list[Any]:
    return [one.model_dump(exclude={"seconds", "runs"}) for one in found.standings]


def test_an_interrupt_is_no_failure(data: PreparedData, workspace: Workspace) -> None:
    def stop(event: Event) -> None:
        if isinstance(event, Progress) and event.task.startswith("train"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench_on(data, a_config(data, GOOD), workspace, emit=stop)
