"""`model: {name: auto}`: the best of quick candidates on valid, as an ordinary run."""

import io
import os
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from rich.console import Console

from recsys_cli.cli.runs import find_run
from recsys_cli.cli.train import draw_plan as draw
from recsys_cli.config import RunConfig, TuneConfig
from recsys_cli.config.load import load
from recsys_cli.errors import ConfigError, DataError, MissingArtifactError
from recsys_cli.events import Event, Message
from recsys_cli.models.matrix import ease
from recsys_cli.registry import AUTO, find_model
from recsys_cli.stages.auto import candidates_of
from recsys_cli.stages.etl import etl
from recsys_cli.stages.evaluate import evaluate, selected_on
from recsys_cli.stages.plan import plan
from recsys_cli.stages.train import train
from recsys_cli.stages.tune import tune
from recsys_cli.workspace import Workspace
from tests.event_configs import config_text


def halves(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Users of two halves, each with its own 20 items, equally popular: co-occurrence tells what popularity cannot."""
    users = np.repeat(np.arange(80), 10)
    items = np.concatenate([rng.choice(20, 10, replace=False) for _ in range(80)])
    return users, items + 20 * (users % 2)


def chance(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Users with items of a steep popularity, and nothing else to learn."""
    weights = 1 / np.arange(1, 41) ** 2
    users = np.repeat(np.arange(80), 4)
    items = np.concatenate([rng.choice(40, 4, replace=False, p=weights / weights.sum()) for _ in range(80)])
    return users, items


def config_of(
    folder: Path, world: object, split: str = "{method: random, valid: 0.2, test: 0.2, seed: 1}"
) -> RunConfig:
    users, items = world(np.random.default_rng(7))  # type: ignore[operator]
    pl.DataFrame({"user": users, "item": items}).write_csv(folder / "rows.csv")
    path = folder / "auto.yaml"
    more = f"split: {split}\nmodel: {{name: auto}}\n"
    path.write_text(config_text(folder / "rows.csv", label="user * 0 + 1", time="null", more=more))
    return load(path)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """The config of the halves, a workspace with their data, and one where it is trained."""
    folder = tmp_path_factory.mktemp("halves")
    config, workspace = config_of(folder, halves), Workspace(folder / "prepared")
    etl(config, workspace)
    shutil.copytree(workspace.root, folder / "trained")
    return config, workspace.root, train(config, Workspace(folder / "trained")), folder / "trained"


@pytest.fixture
def config(world):
    return world[0]


@pytest.fixture
def workspace(world, tmp_path):
    """A workspace with the data of the halves."""
    shutil.copytree(world[1], tmp_path / "workspace")
    return Workspace(tmp_path / "workspace")


@pytest.fixture
def trained(world, tmp_path):
    """A workspace where the halves were trained, and its run."""
    shutil.copytree(world[3], tmp_path / "trained")
    workspace = Workspace(tmp_path / "trained")
    return workspace, workspace.run_named(world[2].artifact.folder.name)


def timed_of(folder: Path, config: RunConfig) -> RunConfig:
    """Return the config of the same rows with a time."""
    rows = pl.read_csv(config.dataset.options["interactions"]).with_columns(time=pl.int_range(pl.len()) * 100)
    rows.write_csv(folder / "timed.csv")
    features = config.features.model_copy(update={"timestamp": "time"})
    dataset = config.dataset.model_copy(update={"interactions": str(folder / "timed.csv")})
    return config.model_copy(update={"features": features, "dataset": dataset})


def test_the_best_on_valid_is_the_run_of_the_config(config, workspace):
    made = train(config, workspace)
    assert {one.label for one in made.candidates} == {"popularity", "item-knn", "ease"}
    values = {one.label: one.value for one in made.candidates}
    assert values == {one.label: workspace.run_named(one.run).manifest["valid"]["ndcg@10"] for one in made.candidates}
    assert made.candidates[0].value == max(values.values())  # type: ignore[type-var]
    assert made.artifact.folder.name == made.candidates[0].run
    assert made.artifact.manifest["model"] in {"ease", "item-knn"}
    assert min(values["ease"], values["item-knn"]) > 1.5 * values["popularity"]  # type: ignore[operator, type-var]
    assert find_run(config, workspace).folder == made.artifact.folder
    assert selected_on("valid", made.artifact, workspace) == ("model",)
    assert not selected_on("valid", workspace.run("popularity"), workspace)
    evaluate(made.artifact, workspace)
    assert (
        "Valid chose this model among several; these figures are of test." in made.artifact.read_evaluation()["notes"]
    )

    again = train(config, workspace)
    assert again.up_to_date
    assert len(workspace.runs()) == 3


def test_popularity_is_kept_where_nothing_is_better(tmp_path, workspace):
    config = config_of(tmp_path, chance)
    etl(config, workspace)
    made = train(config, workspace)
    best, *others = made.candidates
    assert all(best.value >= one.value for one in others)  # type: ignore[operator]
    assert made.artifact.folder.name == best.run


def test_without_valid_rows_the_choice_is_by_rows_held_out_of_train(tmp_path, workspace):
    config = config_of(tmp_path, halves, "{method: random, valid: 0.0, test: 0.2, seed: 1}")
    data = etl(config, workspace).artifact
    events: list[Event] = []
    made = train(config, workspace, emit=events.append)
    values = {one.label: one.value for one in made.candidates}
    assert min(values["ease"], values["item-knn"]) > 1.5 * values["popularity"]  # type: ignore[operator, type-var]
    for one in made.candidates:
        run = workspace.run_named(one.run).manifest
        assert run["held_out"]["valid"]["ndcg@10"] == one.value
        assert run["history"][0]["rows"] == data.rows("train")  # the model itself knows all of train
    assert sum("held out of train" in event.text for event in events if isinstance(event, Message)) == 2
    assert not any("epochs" in event.text for event in events if isinstance(event, Message))  # closed forms have none
    assert find_run(config, workspace).folder == made.artifact.folder


def test_a_failed_candidate_stops_no_other(config, workspace, monkeypatch):
    monkeypatch.setattr(ease.EASE, "learn", lambda *_: (_ for _ in ()).throw(MemoryError("too large")))
    events: list[Event] = []
    made = train(config, workspace, emit=events.append)
    assert made.artifact.manifest["model"] == "item-knn"
    assert any("ease failed: too large" in event.text for event in events if isinstance(event, Message))
    assert len(workspace.runs()) == 2  # the failed one does not count as interrupted
    assert find_run(config, workspace).folder == made.artifact.folder


def test_tune_begins_with_the_chosen_model(config, workspace, trained):
    config = config.model_copy(update={"tune": TuneConfig(trials=1)})
    with pytest.raises(MissingArtifactError, match="not trained"):
        tune(config, workspace)
    workspace, chosen = trained
    study = tune(config, workspace).artifact
    assert study.manifest["best"]["run"] == chosen.folder.name


def test_an_interrupted_choice_is_no_choice(config, workspace, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(ease.EASE, "learn", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            train(config, workspace)
    with pytest.raises(MissingArtifactError, match=r"-ease-.* is not finished") as caught:
        find_run(config, workspace)
    assert caught.value.hint == "recsys train --resume continues the candidates of auto"  # as after the interrupt
    made = train(config, workspace).artifact
    assert find_run(config, workspace).folder == made.folder


def test_a_damaged_choice_is_not_replaced_by_another_model(config, trained):
    workspace, chosen = trained
    weights = next(chosen.folder.glob("checkpoints/best*"))
    os.truncate(weights, 1_000)
    assert find_run(config, workspace).folder == chosen.folder
    with pytest.raises(DataError, match="best"):
        find_run(config, workspace).verify()


def test_times_add_half_lives_and_sasrec(tmp_path, config, workspace):
    timed = timed_of(tmp_path, config)
    found = candidates_of(timed, etl(timed, workspace).artifact)
    assert [*found.configs] == [
        "popularity, half-life 1/8 of train", "popularity, half-life 1/64 of train", "popularity", "item-knn", "ease", "sasrec",
    ]  # fmt: skip
    assert 9_000 < float(found.configs["popularity, half-life 1/8 of train"].model.options["half_life"]) < 10_100
    assert found.configs["sasrec"].train.monitor == "ndcg@10"


def test_work_of_candidates_has_a_bound(tmp_path, config, workspace, monkeypatch):
    timed = timed_of(tmp_path, config)
    data = etl(timed, workspace).artifact
    found = candidates_of(timed, data)
    assert found.configs["ease"].model.options["max_items"] is None
    assert (found.configs["sasrec"].train.epochs, found.configs["sasrec"].train.early_stopping) == (100, 3)

    monkeypatch.setattr("recsys_cli.models.configs.matrix.WORK", 80 * 25**2)
    monkeypatch.setattr("recsys_cli.models.configs.matrix.SPARSE_WORK", 0)
    monkeypatch.setattr("recsys_cli.stages.auto._ROWS", 7 * data.rows("train") + 1)
    found = candidates_of(timed, data)
    assert found.configs["ease"].model.options["max_items"] == 25
    assert any("25 most popular of 40 items" in text for text in found.left_out)
    assert found.configs["sasrec"].train.epochs == 7

    monkeypatch.setattr("recsys_cli.stages.auto._ROWS", 3 * data.rows("train") - 1)
    found = candidates_of(timed, data)
    assert "sasrec" not in found.configs
    assert any("sasrec is no candidate for more than" in text for text in found.left_out)


def test_auto_is_refused_where_one_model_is_needed(tmp_path, config, workspace, monkeypatch):
    with pytest.raises(MissingArtifactError):
        train(config, Workspace(tmp_path / "empty"))
    data = workspace.all_data()[0]
    with pytest.raises(ConfigError, match=r"model.name=auto stands for the best of several"):
        find_model(AUTO)
    warm = config.model_copy(update={"train": config.train.model_copy(update={"continue_from": "x"})})
    with pytest.raises(ConfigError, match=r"train\.continue_from is of one"):
        candidates_of(warm, data)
    monkeypatch.setattr("os.environ", {**os.environ, "RANK": "0", "WORLD_SIZE": "2"})
    for command in (train, tune):
        with pytest.raises(ConfigError, match="torchrun has started 2"):
            command(config, workspace)


def test_a_plan_has_those_of_the_candidates(tmp_path, config, workspace):
    timed = timed_of(tmp_path, config)
    etl(timed, workspace)
    found = plan(timed, workspace)
    assert found["candidates"]["ease"] is None
    assert found["candidates"]["sasrec"]["model"] == "sasrec"
    screen = io.StringIO()
    draw(Console(file=screen, width=120), found)
    assert "ease: fitted at once" in screen.getvalue()
