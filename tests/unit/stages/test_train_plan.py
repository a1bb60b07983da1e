"""The memory estimate against the memory of training, exact."""

import json
from typing import Any

import pytest
import torch

from recsys_cli.config import RunConfig
from recsys_cli.errors import ConfigError
from recsys_cli.loader import Loader
from recsys_cli.loader.records import footprint, tables_footprint
from recsys_cli.stages.plan import plan_on
from recsys_cli.stages.trainer import new_model, trainer_of
from recsys_cli.training import hardware, optimizers
from recsys_cli.training.optimizers import Average
from recsys_cli.training.ranks import Ranks
from recsys_cli.training.trainer import Trainer
from recsys_cli.workspace import PreparedData, Workspace
from tests.rated import FEATURES
from tests.sealing import reseal


def a_config(*, dim: int = 8, placement: str = "device", **train: Any) -> RunConfig:
    return RunConfig.model_validate({
        "dataset": {"name": "synthetic-small"},
        "features": FEATURES,
        "model": {
            "name": "mlp", "embedding_dim": dim, "hidden_dims": [32, 16], "dropout": 0.0, "embedding_dropout": 0.0,
            "embedding": {"placement": placement},
        },
        "train": {"batch_size": 256, "device": "cpu", "precision": "fp32", **train},
    })  # fmt: skip


def needed(plan: dict[str, Any]) -> dict[str, int]:
    """Return the bytes of memory items, summed by name."""
    found: dict[str, int] = {}
    for need in plan["needs"]:
        found[need["what"]] = found.get(need["what"], 0) + need["num_bytes"]
    return found


def trained(data: PreparedData, config: RunConfig, workspace: Workspace, *, steps: int = 1) -> Trainer:
    """Run some training steps."""
    training = trainer_of(new_model(data, config.model, config.train), data, config, ranks=Ranks())
    events = training.events()
    for _ in range(steps):
        next(events)
    events.close()
    return training


def state_bytes(training: Trainer, parameter: torch.nn.Parameter) -> int:
    return sum(
        value.nbytes
        for optimizer in training.step.optimizers
        for value in optimizer.state.get(parameter, {}).values()
        if isinstance(value, torch.Tensor)
    )


@pytest.mark.parametrize(
    "train",
    [
        {},
        {"ema_decay": 0.9},
        {"sparse_embeddings": True},
        {"sparse_embeddings": True, "embedding_optimizer": "adagrad"},
        {"sparse_embeddings": True, "embedding_optimizer": "sgd", "ema_decay": 0.9},
    ],
    ids=["dense", "averaged", "adam by rows", "adagrad by rows", "sgd by rows"],
)
def test_what_the_model_takes_is_exact(make_prepared, workspace, train):
    data, config = make_prepared(), a_config(**train)
    plan = plan_on(data, config)
    training = trained(data, config, workspace)
    tables, rest = optimizers.split(training.model)
    by_size = sorted(tables, key=lambda table: -table.nbytes)
    assert [(t["rows"], t["width"]) for t in plan["tables"]] == [tuple(table.shape) for table in by_size]
    assert [t["name"] for t in plan["tables"]] == ["userId", "movieId", "genres"]
    assert [t["weights"] for t in plan["tables"]] == [table.nbytes for table in by_size]
    assert [t["state"] for t in plan["tables"]] == [state_bytes(training, table) for table in by_size]
    sparse = config.train.sparse_embeddings
    assert [t["gradient"] for t in plan["tables"]] == [0 if sparse else table.nbytes for table in by_size]
    found = needed(plan)
    assert found["embedding tables"] == sum(table.nbytes for table in tables)
    buffers = sum(buffer.nbytes for buffer in training.model.buffers())
    assert found["dense parameters"] == sum(parameter.nbytes for parameter in rest) + buffers
    dense = sum(state_bytes(training, parameter) + parameter.grad.nbytes for parameter in rest)  # type: ignore[union-attr]
    assert found["their optimizer state and gradients"] == dense
    average = Average(training.model, decay=config.train.ema_decay or 0.5, sparse=config.train.sparse_embeddings)
    averaged = sum(kept.nbytes for kept in average.state().values()) if config.train.ema_decay else 0
    assert found.get("moving average", 0) == pytest.approx(averaged, abs=8 * sum(1 for _ in training.model.buffers()))


def test_tables_that_nobody_has_memory_for_are_planned_at_once(make_prepared):
    data = make_prepared()
    schema = json.loads((data.folder / "schema.json").read_text())
    next(c for c in schema["columns"] if c["name"] == "userId")["cardinality"] = 400_000_000
    (data.folder / "schema.json").write_text(json.dumps(schema))
    reseal(data)
    before = hardware.peak_memory()["host"]
    plan = plan_on(data, a_config(dim=64))
    assert hardware.peak_memory()["host"] - before < 1 << 30
    assert plan["tables"][0]["weights"] == 400_000_000 * 64 * 4
    assert plan["tables"][0]["state"] == 2 * 400_000_000 * 64 * 4 + 4
    assert [place["fits"] for place in plan["places"]] == [False]


def test_the_rows_of_the_data_are_what_the_loader_holds(make_prepared):
    data = make_prepared()
    loader = Loader(data, "train", batch_size=100)
    assert footprint(data, "train") == loader._source.records.num_bytes  # type: ignore[union-attr]
    tables = loader._tables._tables.values()
    joined = sum(table.records.num_bytes + (0 if table.shared is None else table.shared.nbytes) for table in tables)
    assert joined <= tables_footprint(data) <= joined + 3  # footers count an empty list as one value
    plan = plan_on(data, a_config())
    assert needed(plan)["rows of train"] == footprint(data, "train")
    assert [need["note"] for need in plan["needs"] if need["what"] == "rows of train"] == ["kept in memory"]


def test_rows_that_do_not_fit_are_streamed(make_prepared):
    plan = plan_on(make_prepared(users=90_000, rows=400_000, shards=10), a_config(memory_mib=2))
    assert needed(plan)["rows of train"] == 2 << 20
    assert "streamed within train.memory_mib=2" in [need["note"] for need in plan["needs"]]


def test_each_process_has_tables_of_its_own_unless_they_are_sharded(make_prepared):
    data = make_prepared()
    several = {}, {"devices": 2}, {"devices": 2, "placement": "sharded"}
    one, two, sharded = (plan_on(data, a_config(sparse_embeddings=True, **train)) for train in several)
    assert needed(two)["embedding tables"] == 2 * needed(one)["embedding tables"]
    assert needed(sharded)["embedding tables"] == needed(one)["embedding tables"]


def test_a_model_of_the_whole_matrix_has_no_tables(make_prepared):
    config = RunConfig.model_validate({**a_config().model_dump(), "model": {"name": "lightgcn"}})
    assert not plan_on(make_prepared(), config)["tables"]


@pytest.mark.parametrize("name", ["ease", "two-stage"])
def test_a_closed_form_model_has_no_plan(make_prepared, name):
    config = RunConfig.model_validate({**a_config().model_dump(), "model": {"name": name}})
    with pytest.raises(ConfigError, match=f"{name} is fitted at once") as caught:
        plan_on(make_prepared(), config)
    assert "recsys ls models" in str(caught.value.hint)
