"""Tables that are not on the GPU with the rest of the model: the same numbers, as far as two devices agree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from recsys_cli.config import RunConfig
from recsys_cli.models import build
from recsys_cli.stages.train import train_on
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
MakePrepared = Callable[..., PreparedData]


def a_config(placement: str, **train: Any) -> RunConfig:
    options = {
        "epochs": 2,
        "batch_size": 256,
        "learning_rate": 0.05,
        "device": "cuda",
        "precision": "fp32",
        "sparse_embeddings": True,
    }
    return RunConfig.model_validate({
        "dataset": {"name": "synthetic-small"},
        "features": {"user": "userId", "item": "movieId", "label": "label", "ops": [
            {"op": "Categorify", "columns": ["userId", "movieId"]},
            {"op": "LambdaOp", "expression": "rating > 3", "output": "label", "dtype": "int8"},
        ]},
        "model": {"embedding_dim": {"userId": 6, "movieId": 8, "genres": 6}, "hidden_dims": [],
                  "dropout": 0.0, "embedding_dropout": 0.0,
                  "embedding": {"placement": placement}},
        "train": {**options, "trackers": [], **train},
    })  # fmt: skip


def the_same(one: TrainedRun, other: TrainedRun) -> None:
    first, second = load_file(one.checkpoint("last")), load_file(other.checkpoint("last"))
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        torch.testing.assert_close(second[name], tensor, rtol=1e-4, atol=1e-5)


def test_host_tables_stay_on_the_host_and_their_rows_come(make_prepared: MakePrepared) -> None:
    model = build("mlp", {}, make_prepared(rows=300).schema, sparse=True, placement="host").to("cuda")
    table = model.embeddings.table("userId")
    ids = torch.tensor([0, 3, 4], device="cuda")
    rows = model.embeddings.rows({"userId": ids})["userId"]
    assert (table.device.type, rows.device.type, model.device.type) == ("cpu", "cuda", "cuda")
    assert torch.equal(rows.cpu(), table[[0, 3, 4]])
    rows.sum().backward()
    assert table.grad is not None
    assert (table.grad.is_sparse, table.grad.device.type) == (True, "cpu")
    assert table.grad._indices()[0].tolist() == [3, 4]


@pytest.mark.parametrize(
    "options", [{}, {"max_grad_norm": 0.01}, {"precision": "fp16"}, {"embedding_optimizer": "adagrad"}], ids=str
)
def test_host_trains_as_device_does(make_prepared: MakePrepared, tmp_path: Path, options: dict[str, Any]) -> None:
    data = make_prepared(rows=1_000)
    runs = [
        train_on(data, a_config(place, **options), Workspace(tmp_path / place)).artifact for place in ("device", "host")
    ]
    the_same(*runs)


@pytest.mark.parametrize("optimizer", ["adam", "adagrad", "sgd"])
def test_sharded_trains_as_device_does(make_prepared: MakePrepared, tmp_path: Path, optimizer: str) -> None:
    pytest.importorskip("torchrec")
    data = make_prepared(rows=1_000)
    runs = [
        train_on(data, a_config(place, embedding_optimizer=optimizer), Workspace(tmp_path / place)).artifact
        for place in ("device", "sharded")
    ]
    the_same(*runs)


def test_a_checkpoint_of_one_device_is_taken_by_another(make_prepared: MakePrepared, tmp_path: Path) -> None:
    data = make_prepared(rows=1_000)
    run = train_on(data, a_config("host", epochs=1), Workspace(tmp_path / "w")).artifact
    (run.folder / "manifest.json").unlink()
    again = train_on(data, a_config("device", epochs=1, device="cpu"), Workspace(tmp_path / "w"), resume=True).artifact
    assert again == run
    assert again.exists
