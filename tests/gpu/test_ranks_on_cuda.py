"""Training on two GPUs through NCCL: the steps of one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from recsys_cli.config import RunConfig
from recsys_cli.stages.train import train_on
from recsys_cli.workspace import PreparedData, Workspace

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two CUDA devices")]


UNDRAWN = [
    {"name": "dcn-v2", "hidden_dims": [16], "dropout": 0.0, "embedding_dropout": 0.0},
    {"name": "two-tower", "num_negatives": 0},
    {"name": "sasrec", "max_seq_len": 60, "dropout": 0.0},
]
"""One model of rows, one that compares rows of all processes, and one of users; with options by which nothing is drawn."""


def trained(
    data: PreparedData, root: Path, devices: int, model: dict[str, Any], **train: Any
) -> tuple[list[float], dict[str, float]]:
    """Train on so many GPUs; return the losses of the steps, and what the valid split says at the end."""
    config = RunConfig.model_validate({
        "dataset": {"name": "synthetic-small"},
        "features": {"user": "userId", "item": "movieId", "label": "label", "ops": [
            {"op": "Categorify", "columns": ["userId", "movieId"]},
            {"op": "LambdaOp", "expression": "rating > 3", "output": "label", "dtype": "int8"},
        ]},
        "model": model,
        "train": {
            "batch_size": 101, "learning_rate": 0.001, "device": "cuda", "precision": "fp32", "devices": devices,
            "trackers": [], **train,
        },
    })  # fmt: skip
    run = train_on(data, config, Workspace(root / str(devices))).artifact
    assert run.manifest["devices"] == devices
    lines = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    return [line["loss"] for line in lines if line["event"] == "step"], run.manifest["valid"]


@pytest.mark.parametrize("optimizer", [None, "adam", "adagrad", "sgd"])
@pytest.mark.parametrize("placement", ["device", "host"])
def test_two_gpus_make_the_steps_of_one(make_prepared, tmp_path: Path, optimizer: str | None, placement: str) -> None:
    """1,009 rows, which is prime, so that pieces differ."""
    if placement == "host" and optimizer is None:
        pytest.skip("tables in host memory need train.sparse_embeddings")
    data = make_prepared(rows=1_009)
    sparse = {} if optimizer is None else {"sparse_embeddings": True, "embedding_optimizer": optimizer}
    quiet = {"dropout": 0.0, "embedding_dropout": 0.0}
    model = {"name": "mlp", "embedding_dim": 8, "hidden_dims": [16], **quiet, "embedding": {"placement": placement}}
    (one, of_one), (two, of_two) = (trained(data, tmp_path, devices, model, **sparse) for devices in (1, 2))
    assert two == pytest.approx(one, abs=0.01)
    assert [of_two["loss"], of_two["auc"]] == pytest.approx([of_one["loss"], of_one["auc"]], abs=0.02)


@pytest.mark.parametrize("model", UNDRAWN, ids=lambda model: model["name"])
def test_two_gpus_make_the_steps_of_one_whatever_the_model(
    make_prepared, tmp_path: Path, model: dict[str, Any]
) -> None:
    data = make_prepared(rows=1_009)
    (one, of_one), (two, of_two) = (trained(data, tmp_path, devices, model) for devices in (1, 2))
    assert two == pytest.approx(one, abs=0.01)
    assert of_two["auc"] == pytest.approx(of_one["auc"], abs=0.02)
