"""Results do not depend on the placement of embedding tables: host memory, or sharded over processes."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from recsys_cli.config import RunConfig, load
from recsys_cli.errors import ConfigError, MissingExtraError
from recsys_cli.models import build, torchrec_releases
from recsys_cli.models.embedding import HostEmbeddings
from recsys_cli.models.ranking.networks import MLP
from recsys_cli.stages.evaluate import evaluate
from recsys_cli.stages.train import train_on
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace
from tests.rated import FEATURES
from tests.sealing import reseal

MakePrepared = Callable[..., PreparedData]
DIMS = {"userId": 6, "movieId": 8, "genres": 6}
"""Widths that FBGEMM takes, and others; two tables of one of them."""


def a_config(placement: str, *, model: dict[str, Any] | None = None, **train: Any) -> RunConfig:
    options = {
        "epochs": 2, "batch_size": 256, "learning_rate": 0.05, "device": "cpu", "precision": "fp32", "sparse_embeddings": True,
        "trackers": [], **train,
    }  # fmt: skip
    return RunConfig.model_validate({
        "dataset": {"name": "synthetic-small"},
        "features": FEATURES,
        # No BatchNorm: a bias before one has no gradient, and Adam would make the noise of rounding as large as any step.
        "model": {"embedding_dim": DIMS, "hidden_dims": [], "embedding": {"placement": placement}, **(model or {})},
        "train": options,
    })  # fmt: skip


def measured(run: TrainedRun) -> dict[str, Any]:
    """The results, without durations and checksums of files with durations."""
    timed = {"seconds", "files", "checksum"}
    return {key: value for key, value in json.loads(run.evaluation.read_text()).items() if key not in timed}


def tensors(run: TrainedRun, which: str = "last") -> dict[str, torch.Tensor]:
    return load_file(run.checkpoint(which))


def test_initial_tables_are_equal_for_every_placement(make_prepared: MakePrepared) -> None:
    models, schema = [], make_prepared(rows=300).schema
    for placement in ("device", "host"):
        torch.manual_seed(3)
        models.append(build("mlp", {}, schema, placement=placement))
    first, second = (model.state_dict() for model in models)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_host_tables_stay_on_the_host(make_prepared: MakePrepared) -> None:
    """The meta device stands in for a GPU: a moved tensor loses its values."""
    model = build("mlp", {}, make_prepared(rows=300).schema, sparse=True, placement="host")
    assert isinstance(model, MLP)
    assert isinstance(model.embeddings, HostEmbeddings)
    before = model.embeddings.table("userId").clone()
    model.to("meta")
    assert model.device.type == "meta"
    assert model.tower.first.linear.weight.is_meta
    assert torch.equal(model.embeddings.table("userId"), before)


@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
def test_on_a_cpu_host_computes_what_device_does_bit_for_bit(
    make_prepared: MakePrepared, tmp_path: Path, optimizer: str
) -> None:
    data = make_prepared(rows=1_000)
    runs = [
        train_on(data, a_config(place, embedding_optimizer=optimizer), Workspace(tmp_path / place)).artifact
        for place in ("device", "host")
    ]
    first, second = (tensors(run) for run in runs)
    assert first.keys() == second.keys()
    assert all(first[name].numpy().tobytes() == second[name].numpy().tobytes() for name in first)


def test_gradient_clipping_includes_host_tables(make_prepared: MakePrepared, tmp_path: Path) -> None:
    data = make_prepared(rows=600)
    runs = [
        train_on(data, a_config(place, max_grad_norm=0.01, epochs=1), Workspace(tmp_path / place)).artifact
        for place in ("device", "host")
    ]
    assert torch.equal(*(tensors(run)["model.embeddings.tables.of_userId.weight"] for run in runs))


@pytest.mark.parametrize("placement", ["host", "sharded"])
def test_a_run_of_any_placement_is_evaluated_in_one_process(
    make_prepared: MakePrepared, workspace: Workspace, placement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = make_prepared(rows=600)
    run = train_on(data, a_config("device", epochs=1), workspace).artifact
    monkeypatch.setattr(Workspace, "data_of", lambda *_: data)
    first = measured(evaluate(run, workspace).artifact)
    run.config.write_text(run.config.read_text().replace("placement: device", f"placement: {placement}"))
    reseal(run)
    assert load(run.config).model.embedding.placement == placement
    assert measured(evaluate(run, workspace, force=True).artifact) == first


# -- what is said of it -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("placement", "train", "message"),
    [
        (
            "host",
            {"sparse_embeddings": False},
            "placement=host updates only the rows of a batch: set train.sparse_embeddings=true",
        ),
        (
            "sharded",
            {"sparse_embeddings": False},
            "placement=sharded updates only the rows of a batch: set train.sparse_embeddings=true",
        ),
        ("sharded", {"max_grad_norm": 1.0}, "does not support train.max_grad_norm=1.0"),
        ("sharded", {"gradient_accumulation_steps": 2}, "does not support train.gradient_accumulation_steps=2"),
        ("sharded", {"precision": "fp16"}, "does not support train.precision=fp16"),
        ("sharded", {"compile": True}, "does not support train.compile=True"),
    ],
)
def test_options_in_conflict_with_a_placement_are_config_errors(
    placement: str, train: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        a_config(placement, **train)


CONFIG = """
dataset: {name: synthetic-small}
features: {user: userId, item: movieId, label: rating, ops: [{op: Categorify, columns: [userId, movieId]}]}
model: {embedding_dim: 4, embedding: {%s}}
train: {sparse_embeddings: false}
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("placment: host", r"config.yaml:4: model.embedding.placment: unknown key \(did you mean placement\?\)"),
        ("placement: gpu", r"config.yaml:4: model.embedding.placement: .*device.*host.*sharded"),
        ("placement: host", r"model.embedding.placement=host .* set train.sparse_embeddings=true"),
    ],
)
def test_errors_name_the_line_of_the_config_file(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG % text)
    with pytest.raises(ConfigError, match=message):
        load(tmp_path / "config.yaml")


def test_placement_is_no_option_of_the_model(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG % "placement: device")
    model = load(tmp_path / "config.yaml", ["model.embedding.placement=host", "train.sparse_embeddings=true"]).model
    assert (model.options["embedding_dim"], model.embedding.placement) == (4, "host")
    assert "embedding" not in model.options


def test_a_foreign_model_declares_its_placements(make_prepared: MakePrepared, monkeypatch: pytest.MonkeyPatch) -> None:
    from recsys_cli.models.configs.ranking import MLPConfig

    class Foreign(MLP):
        placements = ("device",)

    monkeypatch.setenv("RECSYS_TRUST", "their.own")
    monkeypatch.setitem(sys.modules, "their.own", types.ModuleType("their.own"))
    options = types.ModuleType("their.own.config")
    options.Config = MLPConfig
    monkeypatch.setitem(sys.modules, "their.own.config", options)
    module = types.ModuleType("their.own.model")
    module.Model = Foreign
    monkeypatch.setitem(sys.modules, "their.own.model", module)
    schema = make_prepared(rows=300).schema
    assert build("their.own", {}, schema, sparse=True).device.type == "cpu"
    with pytest.raises(ConfigError, match=r"placement is host, but the model their\.own supports only device"):
        build("their.own", {}, schema, sparse=True, placement="host")


def test_missing_requirements_of_sharding_are_reported_before_a_run(
    make_prepared: MakePrepared, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = make_prepared(rows=300)
    with pytest.raises(ConfigError, match="placement=sharded has no Adam on CPUs") as wrong:
        train_on(data, a_config("sharded"), workspace)
    assert "train.embedding_optimizer=adagrad" in str(wrong.value.hint)

    real = torchrec_releases.metadata.version

    def version(name: str) -> str:
        if name == "torch":
            return real(name)
        raise torchrec_releases.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(torchrec_releases.metadata, "version", version)
    with pytest.raises(MissingExtraError, match="sharded needs torchrec, which is not installed") as missing:
        train_on(data, a_config("sharded", embedding_optimizer="sgd"), workspace)
    assert "pip install 'recsys-cli[torchrec]' && pip install --no-deps 'torchrec==1." in str(missing.value.hint)
    assert workspace.runs() == []
