"""Runs with collaborative features: resumed, on several processes, continued, and on permuted labels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from recsys_cli.config import RunConfig
from recsys_cli.events import Event, Progress
from recsys_cli.stages.train import train_on
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace
from tests.ranks import on_ranks
from tests.rated import FEATURES
from tests.sealing import reseal

MakePrepared = Callable[..., PreparedData]
OPTIONS = {"embedding_dim": 4, "positions": 4, "factor_rounds": 3}
MODEL = {"name": "mlp", "embedding_dim": 8, "hidden_dims": [16], "embedding_dropout": 0.0, "collaborative": OPTIONS}


def a_config(**train: Any) -> RunConfig:
    return RunConfig.model_validate({
        "dataset": {"name": "synthetic-small"},
        "features": FEATURES,
        "model": MODEL,
        "train": {
            "epochs": 3, "batch_size": 256, "learning_rate": 0.01, "device": "cpu", "precision": "fp32", "trackers": [],
            **train,
        },
    })  # fmt: skip


def weights(run: TrainedRun, which: str = "last") -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in load_file(run.checkpoint(which)).items()}


def train_here(data: PreparedData, config: RunConfig, root: Path, stop: int) -> None:
    """Train in this process, resumed if there is a run, and interrupted in the step `stop`."""
    steps = 0

    def emit(event: Event) -> None:
        nonlocal steps
        steps += isinstance(event, Progress) and event.task.startswith("train")
        if stop and steps == stop:
            raise KeyboardInterrupt

    train_on(data, config, Workspace(root), resume=any(Workspace(root).runs()), emit=emit)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_an_interrupted_run_resumes_to_the_same_bits(make_prepared: MakePrepared, tmp_path: Path, sparse: bool) -> None:
    """Folds are fitted anew on resume; 4 steps per epoch and a checkpoint in each."""
    data, config = make_prepared(rows=1_000), a_config(sparse_embeddings=sparse, checkpoint_steps=1)
    whole = train_on(data, config, Workspace(tmp_path / "whole")).artifact
    with pytest.raises(KeyboardInterrupt):
        train_here(data, config, tmp_path / "left", stop=6)
    train_here(data, config, tmp_path / "left", stop=0)
    (left,) = Workspace(tmp_path / "left").runs()
    for which in ("last", "best"):
        assert weights(left, which) == weights(whole, which)


def test_two_processes_have_the_features_of_one(make_prepared: MakePrepared, tmp_path: Path) -> None:
    data, config = make_prepared(rows=1_009), a_config(epochs=2, sparse_embeddings=True)
    runs = []
    for ranks in (1, 2):
        assert on_ranks(ranks, train_here, data, config, tmp_path / str(ranks), 0) == [None] * ranks
        runs += Workspace(tmp_path / str(ranks)).runs()
    one, two = (weights(run) for run in runs)
    fitted = [name for name in one if "collaborative." in name]
    assert fitted
    assert [one[name] for name in fitted] == [two[name] for name in fitted]
    aucs = [[record["valid"]["auc"] for record in run.manifest["history"]] for run in runs]
    assert aucs[1] == pytest.approx(aucs[0], abs=1e-3)


def settle(data: PreparedData, workspace: Workspace) -> PreparedData:
    target = workspace.data(data.key)
    target.folder.parent.mkdir(parents=True, exist_ok=True)
    data.folder.rename(target.folder)
    return target


def test_a_continued_run_fits_the_features_of_its_own_train_rows(
    make_prepared: MakePrepared, workspace: Workspace, tmp_path: Path
) -> None:
    data, more = (settle(make_prepared(**sizes), workspace) for sizes in ({}, {"users": 60, "items": 40}))
    run = train_on(data, a_config(), workspace).artifact
    continued = train_on(more, a_config(epochs=1, continue_from=run.folder.name), workspace).artifact
    new = train_on(more, a_config(epochs=1), Workspace(tmp_path / "new")).artifact
    found, expected = weights(continued), weights(new)
    fitted = [name for name in found if "collaborative." in name]
    assert fitted
    assert [found[name] for name in fitted] == [expected[name] for name in fitted]
    losses = [one.manifest["history"][0]["train_loss"] for one in (continued, new)]
    assert losses[0] < losses[1]


def permuted(data: PreparedData, seed: int) -> np.ndarray:
    """Permute the labels over all rows of both splits; return those of valid."""
    paths = [path for split in ("train", "valid") for path in data.shards(split)]
    tables = [pq.read_table(path) for path in paths]
    labels = np.random.default_rng(seed).permutation(np.concatenate([one["label"].to_numpy() for one in tables]))
    for path, table in zip(paths, tables, strict=True):
        own, labels = labels[: len(table)], labels[len(table) :]
        index = table.column_names.index("label")
        pq.write_table(table.set_column(index, "label", pa.array(own)), path)
    reseal(data)
    return np.concatenate([pq.read_table(path)["label"].to_numpy() for path in data.shards("valid")])


def test_permuted_labels_give_nothing(make_prepared: MakePrepared, workspace: Workspace) -> None:
    """A label among its own row's features would be learned in training and mislead on other rows of its pair."""
    data = make_prepared(users=60, items=60, rows=8_000)
    labels = permuted(data, seed=0)
    config = a_config(epochs=2, early_stopping=None)
    run = train_on(data, config, workspace).artifact
    positives = labels.sum()
    deviation = np.sqrt((len(labels) + 1) / (12 * positives * (len(labels) - positives)))
    last = run.manifest["history"][-1]
    assert last["valid"]["auc"] == pytest.approx(0.5, abs=3 * deviation)
    assert last["train_loss"] > 0.68
