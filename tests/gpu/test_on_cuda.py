"""What the tensor half has to do on a GPU: the same batches, and a model that learns as on the CPU."""

from __future__ import annotations

import pytest
import torch

from recsys_cli.batch import Ragged
from recsys_cli.config import RunConfig
from recsys_cli.loader import Loader
from recsys_cli.stages.train import train_on
from recsys_cli.workspace import Workspace

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def same(a: torch.Tensor | Ragged, b: torch.Tensor | Ragged) -> bool:
    if isinstance(a, Ragged) and isinstance(b, Ragged):
        return same(a.values, b.values) and same(a.offsets, b.offsets)
    assert isinstance(a, torch.Tensor)
    assert isinstance(b, torch.Tensor)
    return torch.equal(a.cpu(), b.cpu())


@pytest.mark.parametrize("memory", [1, 4096], ids=["streamed", "resident"])
def test_loader_gives_the_same_batches_on_the_device(make_prepared, memory: int) -> None:
    data = make_prepared(rows=400_000, shards=8)

    def batches(device: str) -> list:
        loader = Loader(data, "train", batch_size=40_000, shuffle=True, seed=3, device=device, memory=memory)
        assert loader.resident == (memory > 1)
        return list(loader)

    for here, there in zip(batches("cpu"), batches("cuda"), strict=True):
        assert all(feature.values.is_cuda if isinstance(feature, Ragged) else feature.is_cuda
                   for feature in there.features.values())  # fmt: skip
        assert all(same(here.features[name], there.features[name]) for name in here.features)
        assert all(same(here.labels[name], there.labels[name]) for name in here.labels)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_training_learns_the_checkerboard_on_the_device(
    make_prepared, workspace: Workspace, precision: str, sparse: bool
) -> None:
    config = RunConfig.model_validate({
        "dataset": {"name": "synthetic-small"},
        "features": {"user": "userId", "item": "movieId", "label": "label", "ops": [
            {"op": "Categorify", "columns": ["userId", "movieId"]},
            {"op": "LambdaOp", "expression": "rating > 3", "output": "label", "dtype": "int8"},
        ]},
        "model": {"name": "mlp", "embedding_dim": 8, "hidden_dims": [16], "dropout": 0.0, "embedding_dropout": 0.0},
        "train": {
            "epochs": 6, "batch_size": 256, "learning_rate": 0.05, "device": "cuda", "precision": precision,
            "sparse_embeddings": sparse,
        },
    })  # fmt: skip

    run = train_on(make_prepared(rows=4_000), config, workspace).artifact

    assert run.manifest["device"].startswith("cuda")
    assert run.manifest["valid"]["auc"] > 0.95
