"""Training on two GPUs through NCCL: the steps of one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from recsys_cli.config import RunConfig
from recsys_cli.stages.train import train_on
from recsys_cli.workspace import Workspace

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two CUDA devices")]


@pytest.mark.parametrize("optimizer", [None, "adam", "adagrad", "sgd"])
@pytest.mark.parametrize("placement", ["device", "host"])
def test_two_gpus_make_the_steps_of_one(make_prepared, tmp_path: Path, optimizer: str | None, placement: str) -> None:
    """1,009 rows, which is prime, so that pieces differ."""
    if placement == "host" and optimizer is None:
        pytest.skip("tables in host memory need train.sparse")
    data = make_prepared(rows=1_009)
    sparse = {} if optimizer is None else {"sparse": True, "embedding_optimizer": optimizer}
    curves, measured = [], []
    for devices in (1, 2):
        config = RunConfig.model_validate({
            "dataset": {"name": "synthetic-small"},
            "features": {"user": "userId", "item": "movieId", "label": "label", "ops": [
                {"op": "Categorify", "columns": ["userId", "movieId"]},
                {"op": "LambdaOp", "expression": "rating > 3", "output": "label", "dtype": "int8"},
            ]},
            "model": {"name": "mlp", "embedding_dim": 8, "hidden": [16], "embedding": {"placement": placement}},
            "train": {
                "batch_size": 101, "learning_rate": 0.001, "device": "cuda", "precision": "fp32", "devices": devices,
                "trackers": [], **sparse,
            },
        })  # fmt: skip
        run = train_on(data, config, Workspace(tmp_path / str(devices))).artifact
        lines = [json.loads(line) for line in run.metrics.read_text().splitlines()]
        curves.append([line["loss"] for line in lines if line["event"] == "step"])
        measured.append([run.manifest["valid"]["loss"], run.manifest["valid"]["auc"]])
        assert run.manifest["devices"] == devices

    assert curves[1] == pytest.approx(curves[0], abs=0.01)
    assert measured[1] == pytest.approx(measured[0], abs=0.02)
