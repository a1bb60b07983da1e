"""Batches, steps, placements, processes and plans on a GPU are those of the CPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from recsys_cli.batch import Batch, Ragged
from recsys_cli.config import RunConfig
from recsys_cli.loader import Loader
from recsys_cli.loader.loader import SideStream, to_device
from recsys_cli.models import build
from recsys_cli.stages.plan import plan_on
from recsys_cli.stages.train import train_on
from recsys_cli.training.checkpoint import Checkpoint
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace
from tests.rated import FEATURES

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


Make = Callable[..., PreparedData]
CUDA = torch.device("cuda")
BUSY = 100_000_000
"""Cycles for which a stream sleeps: tens of milliseconds, in which a copy that did not wait would be seen half done."""


def digest(batch: Batch) -> list[torch.Tensor]:
    """A number for each tensor of a batch, computed on the device."""
    return [tensor.double().sum() for tensor in batch.tensors()]


@pytest.mark.parametrize("memory", [1, 4096], ids=["streamed", "resident"])
def test_batches_are_whole_when_they_are_used_at_once(make_prepared: Make, memory: int) -> None:
    data = make_prepared(rows=400_000, shards=8)
    how = {"batch_size": 5_000, "shuffle": True, "seed": 3, "memory": memory}
    expected = [[float(number) for number in digest(batch)] for batch in Loader(data, "train", **how)]
    found = []
    loader = Loader(data, "train", device="cuda", **how)
    assert loader.resident == (memory > 1)
    for batch in loader:
        found.append(digest(batch))  # only queued, and the batch is dropped: its memory is free for those to come
        torch.cuda._sleep(BUSY // 1000)
    assert [[float(number) for number in numbers] for numbers in found] == expected


def test_a_batch_is_waited_for_on_the_device_and_not_on_the_host() -> None:
    side = SideStream(CUDA)
    values = torch.arange(1_000_000.0)

    def make() -> Batch:
        column = to_device(values, CUDA)
        assert isinstance(column, torch.Tensor)
        return Batch({"column": column}, {})

    def late() -> Batch:
        torch.cuda._sleep(BUSY)
        return make()

    float(side.take(side.build(make)).features["column"].sum())  # type: ignore[union-attr]
    torch.cuda.synchronize()  # and now there is memory, pinned and on the device, that nobody has to wait for
    built = side.build(late)
    assert built.ready is not None
    assert not built.ready.query(), "building waited"
    batch = side.take(built)
    total = batch.features["column"].sum()  # type: ignore[union-attr]
    assert not built.ready.query(), "taking waited"
    assert float(total) == float(values.cuda().sum())
    assert built.ready.query()
    side.close()


def test_memory_of_a_batch_is_not_handed_on_while_it_is_in_use() -> None:
    side, size = SideStream(CUDA), 10_000_000
    built = side.build(lambda: Batch({"a": torch.ones(size, device=CUDA)}, {}))
    batch = side.take(built)
    torch.cuda._sleep(BUSY)
    total = batch.features["a"].sum()  # type: ignore[union-attr]
    del batch, built
    again = side.build(lambda: Batch({"a": torch.zeros(size, device=CUDA)}, {}))  # would take the same memory
    torch.cuda.synchronize()
    assert float(total) == size
    assert again.batch.num_rows == size
    side.close()


@pytest.mark.parametrize("ragged", [False, True])
def test_columns_keep_their_types_on_the_way(ragged: bool) -> None:
    ids = torch.arange(10, dtype=torch.int32)
    column = Ragged(ids, torch.tensor([0, 4, 10]), ids / 2) if ragged else ids
    moved = to_device(column, CUDA)
    torch.cuda.synchronize()
    pairs = zip(moved.tensors(), column.tensors(), strict=True) if isinstance(moved, Ragged) else [(moved, ids)]  # type: ignore[union-attr]
    for there, here in pairs:
        assert there.is_cuda
        assert there.dtype == here.dtype
        assert torch.equal(there.cpu(), here)


def test_rows_that_stay_on_the_host_are_copied_on_the_side_stream(
    make_prepared: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (0, 0))  # as if the device were full
    loader = Loader(make_prepared(rows=20_000), "train", batch_size=1_000, device="cuda")
    assert loader.resident
    streams: dict[str, set[int]] = {"Memcpy HtoD (Pinned": set(), "reduce_kernel": set()}
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as found:
        for batch in islice(loader, 10):
            digest(batch)
        torch.cuda.synchronize()
    for event in found.profiler.kineto_results.events():
        for name, found_on in streams.items():
            if name in event.name():
                found_on.add(event.device_resource_id())
    copied, summed = streams.values()
    assert copied, "no copy came from pinned memory"
    assert summed
    assert not copied & summed


def test_padded_lists_are_the_same_on_the_device() -> None:
    lists = Ragged(torch.arange(6, dtype=torch.int32), torch.tensor([0, 0, 5, 6, 6]))
    for here, there in zip(lists.padded(3), lists.to("cuda").padded(3), strict=True):
        assert torch.equal(here, there.cpu())


def trained(data: Any, workspace: Workspace, **train: Any) -> TrainedRun:
    config = RunConfig.model_validate({
        "dataset": {"name": "synthetic-small"},
        "features": FEATURES,
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


MakePrepared = Callable[..., PreparedData]


def config_of_placement(*, placement: str = "device", **train: Any) -> RunConfig:
    return RunConfig.model_validate({
        "dataset": {"name": "synthetic-small"},
        "features": FEATURES,
        "model": {"name": "mlp", "embedding_dim": 64, "hidden_dims": [16], "embedding": {"placement": placement}},
        "train": {"batch_size": 256, "device": "cuda", "sparse_embeddings": True, **train},
    })  # fmt: skip


def test_tables_that_do_not_fit_on_the_gpu_fit_on_the_host(make_prepared: MakePrepared) -> None:
    data = make_prepared(users=200_000)
    there = {"host": 1 << 40, "device": 20_000_000}
    found = plan_on(data, config_of_placement(), free=there)
    assert [(place["place"], place["fits"]) for place in found["places"]] == [("host", True), ("device", False)]
    moved = plan_on(data, config_of_placement(placement="host"), free=there)
    assert all(place["fits"] for place in moved["places"])
    assert {need["place"] for need in moved["needs"] if "tables" in need["what"]} == {"host", "device"}


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
        "features": FEATURES,
        "model": {"embedding_dim": {"userId": 6, "movieId": 8, "genres": 6}, "hidden_dims": [],
                  "dropout": 0.0, "embedding_dropout": 0.0,
                  "embedding": {"placement": placement}},
        "train": {**options, "trackers": [], **train},
    })  # fmt: skip


def the_same(one: TrainedRun, other: TrainedRun) -> None:
    first, second = (Checkpoint.load(run.checkpoint("last")).whole() for run in (one, other))
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


needs_two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two CUDA devices")


UNDRAWN = [
    {"name": "dcn-v2", "hidden_dims": [16], "dropout": 0.0, "embedding_dropout": 0.0},
    {"name": "two-tower", "num_negatives": 0},
    {"name": "sasrec", "max_seq_len": 60, "dropout": 0.0},
]
"""One model of rows, one that compares rows of all processes, and one of users; with options by which nothing is drawn."""


def trained_on(
    data: PreparedData, root: Path, devices: int, model: dict[str, Any], **train: Any
) -> tuple[list[float], dict[str, float]]:
    """Train on so many GPUs; return the losses of the steps, and what the valid split says at the end."""
    config = RunConfig.model_validate({
        "dataset": {"name": "synthetic-small"},
        "features": FEATURES,
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


@needs_two
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
    (one, of_one), (two, of_two) = (trained_on(data, tmp_path, devices, model, **sparse) for devices in (1, 2))
    assert two == pytest.approx(one, abs=0.01)
    assert [of_two["loss"], of_two["auc"]] == pytest.approx([of_one["loss"], of_one["auc"]], abs=0.02)


@needs_two
@pytest.mark.parametrize("model", UNDRAWN, ids=lambda model: model["name"])
def test_two_gpus_make_the_steps_of_one_whatever_the_model(
    make_prepared, tmp_path: Path, model: dict[str, Any]
) -> None:
    data = make_prepared(rows=1_009)
    (one, of_one), (two, of_two) = (trained_on(data, tmp_path, devices, model) for devices in (1, 2))
    assert two == pytest.approx(one, abs=0.01)
    assert of_two["auc"] == pytest.approx(of_one["auc"], abs=0.02)
