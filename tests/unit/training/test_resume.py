"""Interrupted and resumed training with each row-wise optimizer gives the same bits, and learns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from recsys_cli.config import TrainConfig
from recsys_cli.loader import Loader
from recsys_cli.models import build
from recsys_cli.training.checkpoint import Checkpoint
from recsys_cli.training.data import TrainingData
from recsys_cli.training.objective import Objective
from recsys_cli.training.trainer import Trainer
from recsys_cli.workspace import PreparedData

RATES = {"adam": 0.05, "adagrad": 0.1, "sgd": 100.0}
FIELDS = {"adam": {"step", "exp_avg", "exp_avg_sq"}, "adagrad": {"sum"}, "sgd": set()}
every_rule = pytest.mark.parametrize("rule", RATES)


def trainer(data: PreparedData, rule: Any, *, epochs: int) -> Trainer:
    torch.manual_seed(1)
    config = TrainConfig(
        epochs=epochs,
        batch_size=256,
        sparse_embeddings=True,
        embedding_optimizer=rule,
        embedding_learning_rate=RATES[rule],
    )
    model = build("mlp", {"embedding_dim": 8, "hidden_dims": [16], "dropout": 0.1}, data.schema, sparse=True)
    train = Loader(data, "train", batch_size=256, shuffle=True, seed=42)
    batches = TrainingData(train, Loader(data, "valid", batch_size=256))
    return Trainer(model, batches, config, objective=Objective(label="label"))


def run(one: Trainer) -> dict[str, torch.Tensor]:
    for _ in one.events():
        pass
    return one.state().tensors


@every_rule
def test_four_epochs_are_two_and_two(rule: str, make_prepared: Callable[..., PreparedData], tmp_path: Path) -> None:
    data = make_prepared()
    whole = run(trainer(data, rule, epochs=4))
    half = trainer(data, rule, epochs=2)
    run(half)
    half.state().save(tmp_path / "half.safetensors")
    again = trainer(data, rule, epochs=4)
    again.restore(Checkpoint.load(tmp_path / "half.safetensors"))
    then = run(again)
    assert {name.rpartition(":")[2] for name in whole if name.startswith("optimizer.embeddings.")} == FIELDS[rule]
    assert whole.keys() == then.keys()
    for name, tensor in whole.items():
        assert torch.equal(tensor, then[name]), name


@every_rule
def test_each_rule_learns_the_checkerboard(rule: str, make_prepared: Callable[..., PreparedData]) -> None:
    one = trainer(make_prepared(rows=4_000), rule, epochs=8)
    run(one)
    assert one.best is not None
    assert one.best.valid["auc"] > 0.95
