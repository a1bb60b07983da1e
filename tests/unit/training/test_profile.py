"""Profiled steps: the slow part is found, and each phase occurs once per step."""

from __future__ import annotations

import gzip
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from recsys_cli.batch import Batch
from recsys_cli.config import RunConfig, TrainConfig
from recsys_cli.events import Event, Progress
from recsys_cli.loader import Loader
from recsys_cli.models import build
from recsys_cli.stages.profile import profile_on
from recsys_cli.training.data import TrainingData
from recsys_cli.training.objective import Objective
from recsys_cli.training.profile import STEPS, WARM_UP, profile_steps
from recsys_cli.training.trainer import Trainer
from recsys_cli.workspace import PreparedData, Workspace
from tests.rated import FEATURES

MakePrepared = Callable[..., PreparedData]
PHASES = ["waiting for data", "forward", "backward", "optimizer", "everything else"]


def a_config(**train: Any) -> RunConfig:
    return RunConfig.model_validate({
        "dataset": {"name": "synthetic-small"},
        "features": FEATURES,
        "model": {"name": "mlp", "embedding_dim": 8, "hidden_dims": [16]},
        "train": {"batch_size": 256, "device": "cpu", **train},
    })  # fmt: skip


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_profile_keeps_a_trace_and_no_run(make_prepared: MakePrepared, workspace: Workspace, sparse: bool) -> None:
    events: list[Event] = []
    found = profile_on(make_prepared(), a_config(sparse_embeddings=sparse), workspace, emit=events.append)
    assert workspace.runs() == []
    assert [phase["name"] for phase in found["phases"]] == PHASES
    assert sum(phase["seconds"] for phase in found["phases"]) == pytest.approx(found["seconds"], rel=0.01)
    assert (found["steps"], found["rows"], found["device"]) == (STEPS, 256, "cpu")
    times = [operation["seconds"] for operation in found["operations"]]
    assert times == sorted(times, reverse=True)
    assert sum(times) <= found["seconds"]
    assert "Python and numpy in forward" in [operation["name"] for operation in found["operations"]]
    with gzip.open(found["trace"], "rt") as file:
        ranges = Counter(
            event["name"] for event in json.load(file)["traceEvents"] if event.get("cat") == "user_annotation"
        )
    assert [ranges[f"recsys: {phase}"] for phase in PHASES[:-1]] == [STEPS] * 4
    bars = [event for event in events if isinstance(event, Progress)]
    assert (bars[-1].done, bars[-1].total, bars[-1].unit) == (WARM_UP + STEPS, WARM_UP + STEPS, "steps")


class Slow(Loader):
    """A slow loader."""

    def __iter__(self) -> Iterator[Batch]:
        for batch in super().__iter__():
            time.sleep(0.01)
            yield batch


def test_what_is_slow_is_found(make_prepared: MakePrepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, config = make_prepared(), TrainConfig(epochs=30, batch_size=256, device="cpu", gradient_accumulation_steps=2)
    model = build("mlp", {"embedding_dim": 4, "hidden_dims": [8]}, data.schema)
    loss = model.loss

    def slow_loss(*args: Any, **options: Any) -> Tensor:
        time.sleep(0.005)
        return loss(*args, **options)

    monkeypatch.setattr(model, "loss", slow_loss)
    trainer = Trainer(model, TrainingData(Slow(data, "train", batch_size=256)), config, objective=Objective("label"))
    done: list[int] = []
    found = profile_steps(trainer, tmp_path / "trace.json", on_step=done.append)
    assert done == list(range(1, WARM_UP + STEPS + 1))
    phases = {phase.name: phase.seconds for phase in found.phases}
    assert phases["waiting for data"] >= 0.01
    assert phases["forward"] >= 2 * 0.005
    assert found.seconds >= 0.02
    assert found.unprofiled_seconds >= 0.02
    own = {operation.name: operation for operation in found.operations}
    assert own["Python and numpy in forward"].seconds >= 2 * 0.005
    assert own["Python and numpy in forward"].calls == 2
    assert (tmp_path / "trace.json").is_file()
