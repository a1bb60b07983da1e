"""What the loop does otherwise on a GPU: scaled losses, TF32, kernels of its own, and averages, figures that come to the host."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from recsys_cli.config import RunConfig
from recsys_cli.stages.train import train_on
from recsys_cli.training.checkpoint import Checkpoint
from recsys_cli.workspace import TrainedRun, Workspace

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def trained(data: Any, workspace: Workspace, **train: Any) -> TrainedRun:
    config = RunConfig.model_validate({
        "dataset": {"name": "synthetic-small"},
        "features": {"user": "userId", "item": "movieId", "label": "label", "ops": [
            {"op": "Categorify", "columns": ["userId", "movieId"]},
            {"op": "LambdaOp", "expression": "rating > 3", "output": "label", "dtype": "int8"},
        ]},
        "model": {"name": "mlp", "embedding_dim": 8, "hidden_dims": [16], "dropout": 0.0, "embedding_dropout": 0.0},
        "train": {"epochs": 6, "batch_size": 256, "learning_rate": 0.05, "device": "cuda", **train},
    })  # fmt: skip
    return train_on(data, config, workspace).artifact


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize(
    "options",
    [
        {"precision": "fp16", "max_grad_norm": 1.0},
        {"precision": "fp32", "tf32": True},
        {"precision": "bf16", "ema_decay": 0.9, "monitor": "ndcg@5"},
        {"precision": "fp32", "gradient_accumulation_steps": 3, "positive_weight": "balanced", "schedule": "cosine"},
    ],
    ids=str,
)
def test_the_checkerboard_is_learnt_with_each_option(
    make_prepared, workspace: Workspace, options: dict[str, Any], sparse: bool
) -> None:
    run = trained(make_prepared(rows=4_000), workspace, sparse_embeddings=sparse, **options)
    assert run.manifest["device"] == "cuda"
    assert run.manifest["valid"]["auc"] > 0.95


def test_fp16_keeps_its_scale_in_the_checkpoint(make_prepared, workspace: Workspace) -> None:
    run = trained(make_prepared(), workspace, epochs=1, precision="fp16")
    assert Checkpoint.load(run.checkpoint("last")).meta["scaler"]["scale"] >= 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch, while it compiles
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_compiled_loss_trains_as_the_loss_does(make_prepared, workspace: Workspace, sparse: bool) -> None:
    data = make_prepared(rows=4_000)
    plain, compiled = (
        trained(data, workspace, epochs=2, precision="fp32", sparse_embeddings=sparse, compile=choice)
        for choice in (False, True)
    )
    assert compiled.manifest["seconds"]["compiling"] > 0
    losses = [[record["train_loss"] for record in run.manifest["history"]] for run in (plain, compiled)]
    assert losses[0] == pytest.approx(losses[1], abs=0.01)
