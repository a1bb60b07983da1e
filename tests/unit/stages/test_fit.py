"""Runs of closed-form models and of models of users are runs like any other."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from recsys_cli.config import RunConfig
from recsys_cli.errors import ConfigError
from recsys_cli.events import Event, Progress
from recsys_cli.features.schema import UNSEEN
from recsys_cli.loader.interactions import read_interactions
from recsys_cli.stages.train import train_on
from recsys_cli.workspace import PreparedData, Workspace
from tests.checkerboard import a_config, losses_of, same_weights, set_column
from tests.ranks import on_ranks

POPULARITY = {"name": "popularity"}


def test_a_fitted_model_is_kept_and_measured(make_prepared, workspace):
    data = make_prepared()

    made = train_on(data, a_config(POPULARITY), workspace)

    run = made.artifact
    counts = load_file(run.checkpoint("best"))["model.counts"]
    assert counts.tolist() == np.bincount(read_interactions(data, "train").item_idx, minlength=33).tolist()
    assert run.manifest["steps"] == 0
    assert run.manifest["parameters"] == 33
    (line,) = [json.loads(text) for text in run.metrics.read_text().splitlines()]
    assert line["valid"] == run.manifest["valid"]
    assert line["valid"]["loss"] is None
    assert 0.4 < line["valid"]["auc"] < 0.6
    assert train_on(data, a_config(POPULARITY), workspace).up_to_date


def test_a_ranking_that_the_data_has_not_is_left_out(make_prepared, workspace):
    data = make_prepared()
    set_column(data, "valid", "userId", lambda _, rows: [UNSEEN] * rows)
    told: list[str] = []

    run = train_on(
        data, a_config(POPULARITY, monitor="ndcg@10"), workspace, emit=lambda event: told.append(str(event))
    ).artifact

    assert run.manifest["valid"].keys() == {"loss", "auc"}
    assert any("ndcg@10 cannot be measured" in text and "not measured after fitting" in text for text in told)


def test_a_run_cannot_be_continued_all_at_once(make_prepared, workspace):
    data = make_prepared()
    shutil.copytree(data.folder, workspace.data(data.key).folder)
    before = train_on(data, a_config(POPULARITY), workspace).artifact.folder.name

    with pytest.raises(ConfigError, match="popularity is fitted at once, in one process and without a warm start"):
        train_on(data, a_config(POPULARITY, continue_from=before), workspace)


SEQUENCES = ("sasrec", "gru4rec", "hstu", "bert4rec")


def of_users(model: dict[str, Any] | None = None, **train: Any) -> RunConfig:
    defaults = {"epochs": 3, "batch_size": 7, "learning_rate": 0.01, "monitor": "ndcg@10", "trackers": []}
    sasrec = {"name": "sasrec", "embedding_dim": 8, "max_seq_len": 60, "dropout": 0.0}
    return a_config({**sasrec, **(model or {})}, **{**defaults, **train})


def test_a_model_of_users_is_trained_and_measured(make_prepared, workspace):
    """40 users are 6 steps of 7 at most."""
    events: list[Event] = []
    run = train_on(make_prepared(), of_users(), workspace, emit=events.append).artifact
    manifest = run.manifest
    assert (manifest["rows"], manifest["unit"], manifest["steps"]) == (3 * 40, "users", 3 * 6)
    for record in manifest["history"]:
        assert record["valid"]["loss"] is None  # of rows, which such a model has no loss for
        assert 0 < record["valid"]["ndcg@10"] < 1
        assert 0 < record["valid"]["auc"] < 1
    bars = [event for event in events if isinstance(event, Progress) and event.task == "train epoch 3/3"]
    assert (bars[-1].done, bars[-1].total, bars[-1].unit) == (40, 40, "users")
    assert "users/s" in bars[-1].fields


@pytest.mark.parametrize(
    ("options", "model"),
    [
        ({}, {}),
        ({"sparse_embeddings": True}, {}),
        *(({"sparse_embeddings": True}, {"name": name, "item_features": ["genres"]}) for name in SEQUENCES),
    ],
    ids=["dense", "sparse", *(f"{name} with features" for name in SEQUENCES)],
)
def test_a_run_broken_off_within_an_epoch_ends_in_the_same_bits(make_prepared, workspace, tmp_path, options, model):
    data = make_prepared()
    config = of_users(model={"dropout": 0.2, "max_seq_len": 10, **model}, checkpoint_steps=4, **options)
    whole = train_on(data, config, workspace).artifact
    broken, steps = Workspace(tmp_path / "broken"), 0

    def stop(event):
        nonlocal steps
        steps += isinstance(event, Progress) and event.task.startswith("train")
        if steps == 10:
            raise InterruptedError("the tenth step")

    with pytest.raises(InterruptedError, match="the tenth step"):
        train_on(data, config, broken, emit=stop)
    again = train_on(data, config, broken, resume=True).artifact
    assert same_weights(again, whole)
    assert losses_of(again) == losses_of(whole)


def train_here(data: PreparedData, config: RunConfig, root: Path) -> None:
    train_on(data, config, Workspace(root))


def test_ranks_make_the_same_steps_even_with_fewer_users_than_ranks(make_prepared, tmp_path):
    """5 users in steps of 2: one of three ranks has none, and the last user joins the step before."""
    data, config = make_prepared(users=5, rows=100, shards=1), of_users(batch_size=2, epochs=2)
    runs = []
    for ranks in (1, 3):
        assert on_ranks(ranks, train_here, data, config, tmp_path / str(ranks)) == [None] * ranks
        runs += Workspace(tmp_path / str(ranks)).runs()
    one, three = runs
    assert len(losses_of(one)) == 2 * 2
    assert losses_of(three) == pytest.approx(losses_of(one), abs=1e-4)
    assert three.manifest["valid"]["auc"] == pytest.approx(one.manifest["valid"]["auc"], abs=1e-3)
