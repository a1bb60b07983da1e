"""--plan and --profile where there is a GPU: what is in which memory, and which time is whose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from recsys_cli.config import RunConfig
from recsys_cli.stages.plan import plan_on
from recsys_cli.stages.profile import profile_on
from recsys_cli.workspace import PreparedData, Workspace

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
MakePrepared = Callable[..., PreparedData]


def a_config(*, placement: str = "device", **train: Any) -> RunConfig:
    return RunConfig.model_validate({
        "dataset": {"name": "synthetic-small"},
        "features": {"user": "userId", "item": "movieId", "label": "label", "ops": [
            {"op": "Categorify", "columns": ["userId", "movieId"]},
            {"op": "LambdaOp", "expression": "rating > 3", "output": "label", "dtype": "int8"},
        ]},
        "model": {"name": "mlp", "embedding_dim": 64, "hidden_dims": [16], "embedding": {"placement": placement}},
        "train": {"batch_size": 256, "device": "cuda", "sparse_embeddings": True, **train},
    })  # fmt: skip


def test_time_on_the_gpu_is_told_by_phase(make_prepared: MakePrepared, workspace: Workspace) -> None:
    found = profile_on(make_prepared(), a_config(), workspace)
    on_gpu = {phase["name"]: phase["device_seconds"] for phase in found["phases"]}
    assert all(on_gpu[name] > 0 for name in ("forward", "backward", "optimizer"))
    assert sum(on_gpu.values()) <= found["seconds"]
    assert found["peak_memory"]["device"] > 0
    assert sum(operation["seconds"] for operation in found["operations"]) <= found["seconds"]


def test_tables_that_do_not_fit_on_the_gpu_are_advised_to_the_host(make_prepared: MakePrepared) -> None:
    data = make_prepared(users=200_000)
    there = {"host": 1 << 40, "device": 20_000_000}
    found = plan_on(data, a_config(), free=there)
    assert [(place["place"], place["fits"]) for place in found["places"]] == [("host", True), ("device", False)]
    assert found["ways"][-1] == {"set": "model.embedding.placement=host", "short": 0, "fits": True}
    moved = plan_on(data, a_config(placement="host"), free=there)
    assert all(place["fits"] for place in moved["places"])
    assert {need["place"] for need in moved["needs"] if "tables" in need["what"]} == {"host", "device"}
