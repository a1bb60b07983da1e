"""Tables sharded by TorchRec: the same values and checkpoints as with whole tables."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.checkerboard import put_prepared
from tests.rated import FEATURES

pytest.importorskip("torchrec")

from recsys_cli.config import RunConfig
from recsys_cli.errors import RecsysError, TrainingError
from recsys_cli.events import Event, Message
from recsys_cli.features.schema import Column, Kind, Role
from recsys_cli.models.embedding import Embeddings, ShardedEmbeddings, sharding
from recsys_cli.stages.train import train_on
from recsys_cli.training.checkpoint import Checkpoint
from recsys_cli.training.ranks import local_process_group
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace

MakePrepared = Callable[..., PreparedData]
DIMS = {"userId": 6, "movieId": 8, "genres": 6}
"""Widths supported by FBGEMM, and others; two tables share one."""
QUIET = {"dropout": 0.0, "embedding_dropout": 0.0}
"""No dropout, because masks depend on the number of processes."""


def a_config(placement: str, *, dims: Any = DIMS, optimizer: str = "adagrad", **train: Any) -> RunConfig:
    options = {
        "epochs": 3,
        "batch_size": 256,
        "learning_rate": 0.05,
        "device": "cpu",
        "precision": "fp32",
        "sparse_embeddings": True,
    }
    return RunConfig.model_validate({
        "dataset": {"name": "synthetic-small"},
        "features": FEATURES,
        # No BatchNorm: a bias before one has no gradient, and Adam would make the noise of rounding as large as any step.
        "model": {"embedding_dim": dims, "hidden_dims": [], **QUIET, "embedding": {"placement": placement}},
        "train": {**options, "trackers": [], "embedding_optimizer": optimizer, **train},
    })  # fmt: skip


def the_same(one: TrainedRun, other: TrainedRun, which: str = "last") -> None:
    first, second = (Checkpoint.load(run.checkpoint(which)).whole() for run in (one, other))
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        torch.testing.assert_close(
            second[name], tensor, rtol=1e-5, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}"
        )


def until(epoch: int) -> Callable[[Event], None]:
    """Press Ctrl-C when an epoch is over."""

    def emit(event: Event) -> None:
        if isinstance(event, Message) and event.text.startswith(f"epoch {epoch}/"):
            raise KeyboardInterrupt

    return emit


def test_a_run_may_change_its_placement_at_every_break(make_prepared: MakePrepared, tmp_path: Path) -> None:
    """On the device, then in parts, then in host memory: as if it had been on the device throughout."""
    data = make_prepared(rows=1_000)
    straight = train_on(data, a_config("device"), Workspace(tmp_path / "straight")).artifact
    workspace = Workspace(tmp_path / "broken")
    with pytest.raises(KeyboardInterrupt):
        train_on(data, a_config("device"), workspace, emit=until(1))
    with pytest.raises(KeyboardInterrupt):
        train_on(data, a_config("sharded"), workspace, resume=True, emit=until(2))
    run = train_on(data, a_config("host"), workspace, resume=True).artifact
    the_same(run, straight)
    the_same(run, straight, "best")
    assert len(workspace.runs()) == 1


def test_two_processes_resume_a_run_of_one(make_prepared: MakePrepared, tmp_path: Path) -> None:
    data = make_prepared(rows=1_001)
    straight = train_on(data, a_config("device", epochs=2), Workspace(tmp_path / "straight")).artifact
    workspace = Workspace(tmp_path / "broken")
    with pytest.raises(KeyboardInterrupt):
        train_on(data, a_config("device", epochs=2), workspace, emit=until(1))
    run = train_on(data, a_config("sharded", epochs=2, devices=2), workspace, resume=True).artifact
    assert run.manifest["devices"] == 2
    assert run.manifest["valid"] == pytest.approx(straight.manifest["valid"], rel=1e-5)
    the_same(run, straight)


@pytest.mark.parametrize("ranks", [1, 3])
def test_shards_of_two_processes_load_on_any_number(make_prepared: MakePrepared, tmp_path: Path, ranks: int) -> None:
    data = make_prepared(rows=1_001)
    straight = train_on(data, a_config("device"), Workspace(tmp_path / "straight")).artifact
    workspace = Workspace(tmp_path / "broken")
    with pytest.raises(KeyboardInterrupt):
        train_on(data, a_config("sharded", devices=2), workspace, emit=until(1))
    (left,) = workspace.runs()
    last = left.checkpoint("last")
    assert len(shard_files(left)) == 2
    assert not any("tables" in name for name in load_file(last))
    assert {shard.name for shard in Checkpoint.load(last).shards} == {
        f"{name}{field}"
        for column in DIMS
        for name, field in (
            (f"model.embeddings.tables.of_{column}.weight", ""),
            (f"optimizer.embeddings.tables.of_{column}.weight", ":sum"),
        )
    }
    for name in ("last-0badcafe-1.safetensors", ".last-0badcafe-0.safetensors.00000000.partial"):
        last.with_name(name).write_bytes(b"of a save that was killed")
    run = train_on(data, a_config("sharded", devices=ranks), workspace, resume=True).artifact
    assert run.folder == left.folder
    the_same(run, straight)
    the_same(run, straight, "best")
    assert len(shard_files(run)) == ranks


def shard_files(run: TrainedRun) -> list[Path]:
    """Return the files of shards, which are those in the header of `last`."""
    last = run.checkpoint("last")
    found = sorted(path for path in last.parent.iterdir() if path.name not in {"last.safetensors", "best.safetensors"})
    assert [path.stem for path in found] == sorted(Checkpoint.load(last).meta["shards"])
    return found


@pytest.mark.parametrize("damage", ["gone", "cut", "changed"])
def test_a_damaged_shard_is_named(make_prepared: MakePrepared, workspace: Workspace, damage: str) -> None:
    data = make_prepared(rows=300)
    with pytest.raises(KeyboardInterrupt):
        train_on(data, a_config("sharded"), workspace, emit=until(1))
    (run,) = workspace.runs()
    (path,) = shard_files(run)
    content = path.read_bytes()
    match damage:
        case "gone":
            path.unlink()
        case "cut":
            path.write_bytes(content[:-8])
        case "changed":
            path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(RecsysError, match=path.name):
        train_on(data, a_config("sharded"), workspace, resume=True)


@pytest.mark.parametrize("optimizer", ["adagrad", "sgd"])
def test_one_process_trains_as_with_whole_tables(make_prepared: MakePrepared, tmp_path: Path, optimizer: str) -> None:
    data = make_prepared(rows=1_000)
    schedule = {"name": "cosine", "warmup_steps": 3}  # rates have to reach the kernels
    runs = [
        train_on(
            data, a_config(place, optimizer=optimizer, schedule=schedule, epochs=2), Workspace(tmp_path / place)
        ).artifact
        for place in ("device", "sharded")
    ]
    the_same(*runs)
    assert runs[0].manifest["parameters"] == runs[1].manifest["parameters"]


def test_a_warm_start_continues_whole_and_sharded_tables_alike(workspace: Workspace) -> None:
    old, new = put_prepared(workspace), put_prepared(workspace, users=60, items=50)
    first = train_on(old, a_config("device"), workspace).artifact.folder.name
    warm = (a_config(place, continue_from=first) for place in ("device", "sharded"))
    the_same(*(train_on(new, one, workspace, force=True).artifact for one in warm))


def test_tables_may_be_cut_by_columns(
    make_prepared: MakePrepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    real = sharding.shard_tables

    def watched(*args: Any) -> Any:
        seen.append(real(*args)[1])
        return real(*args)

    monkeypatch.setattr(sharding, "_constraints", lambda *_: (["column_wise"], ["fused"]))
    monkeypatch.setattr(sharding, "shard_tables", watched)
    data = make_prepared(rows=500)
    runs = [
        train_on(data, a_config(place, dims=254, optimizer="sgd", epochs=1), Workspace(tmp_path / place)).artifact
        for place in ("device", "sharded")
    ]
    assert [shard.column for shard in seen[0]["of_userId"]] == [0, 128]
    the_same(*runs)


# -- the tables by themselves -----------------------------------------------------------------------------------------

COLUMNS = [
    Column(name=name, role=Role.FEATURE, kind=Kind.CATEGORICAL, dtype="int32", cardinality=rows, vocabulary=name)
    for name, rows in (("a.b", 20), ("c", 7))
]
WIDTHS = {"a.b": 6, "c": 4}


@pytest.fixture
def tables() -> Iterator[ShardedEmbeddings]:
    torch.manual_seed(5)
    made = ShardedEmbeddings(COLUMNS, WIDTHS, sparse=True)
    made.write_rows("a.b", torch.tensor([19, 3]), torch.full((2, 6), 2.0))  # before they are sharded
    with local_process_group(torch.device("cpu")):
        made.distribute("adagrad", {"lr": 0.1, "eps": 1e-8}, torch.device("cpu"))
        yield made


def whole() -> Embeddings:
    torch.manual_seed(5)
    made = Embeddings(COLUMNS, WIDTHS, sparse=True)
    made.write_rows("a.b", torch.tensor([19, 3]), torch.full((2, 6), 2.0))
    return made


def test_sharded_tables_equal_whole_tables(tables: ShardedEmbeddings) -> None:
    for _ in range(2):
        expected, found = whole(), tables.state_dict()
        assert found.keys() == expected.state_dict().keys()
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.state_dict().items())
        tables.write_rows("a.b", torch.tensor([3]), torch.full((1, 6), 2.0))  # after, too
    assert tables.num_external_parameters == 20 * 6 + 7 * 4
    assert list(tables.parameters()) == []


def test_rows_are_looked_up_on_any_rank(tables: ShardedEmbeddings) -> None:
    used = {"a.b": torch.tensor([0, 3, 19]), "c": torch.tensor([], dtype=torch.int64)}
    found = tables.rows(used)
    assert torch.equal(found["a.b"], whole().table("a.b")[used["a.b"]])
    assert found["c"].shape == (0, 4)


def test_padding_gets_no_gradient(tables: ShardedEmbeddings) -> None:
    before = tables.table("a.b")
    rows = tables.rows({"a.b": torch.tensor([0, 4]), "c": torch.tensor([0])})
    (rows["a.b"].sum() + rows["c"].sum()).backward()
    after = tables.table("a.b")
    assert not after[0].any()
    assert (after[4] < before[4]).all()
    assert not tables.table("c")[0].any()


def test_optimizer_state_round_trips(tables: ShardedEmbeddings) -> None:
    sums = torch.arange(20.0)
    tables.load_optimizer_state({"tables.of_a%2Eb.weight:sum": sums})
    ((row, column, found),) = [
        found for entry, *found in tables.local_shards() if entry == "tables.of_a%2Eb.weight:sum"
    ]
    assert (row, column) == (0, 0)
    assert torch.equal(found, sums)
    with pytest.raises(KeyError, match="adagrad has no state 'exp_avg'"):
        tables.load_optimizer_state({"tables.of_c.weight:exp_avg": torch.zeros(7, 4)})


def test_shards_of_any_cut_are_loaded(tables: ShardedEmbeddings) -> None:
    wanted, sums = torch.rand(20, 6), torch.rand(20)
    path = "tables.of_a%2Eb.weight"
    for rows, columns in itertools.product(([0, 7], [7, 8], [8, 20]), ([0, 4], [4, 6])):
        part = wanted[slice(*rows), slice(*columns)]
        tables.load_shard(path, rows[0], columns[0], part.clone())
        tables.load_shard(f"{path}:sum", rows[0], 0, sums[slice(*rows)].clone())
    assert torch.equal(tables.table("a.b"), wanted)
    found = {entry: values for entry, _, _, values in tables.local_shards()}
    assert torch.equal(found[f"{path}:sum"], sums)


def test_a_table_of_another_size_is_rejected(tables: ShardedEmbeddings) -> None:
    state = whole().state_dict()
    with pytest.raises(
        RuntimeError, match=r"size mismatch for tables.of_c.weight: \(5, 4\) in the checkpoint, \(7, 4\) here"
    ):
        tables.load_state_dict({**state, "tables.of_c.weight": torch.zeros(5, 4)})
    with pytest.raises(RuntimeError, match=r"Missing key.*of_c"):
        tables.load_state_dict({name: tensor for name, tensor in state.items() if "of_c" not in name})
    with pytest.raises(RuntimeError, match=r"Unexpected key.*of_d"):
        tables.load_state_dict({**state, "tables.of_d.weight": torch.zeros(5, 4)})


def test_a_checkpoint_of_another_optimizer_is_rejected(make_prepared: MakePrepared, workspace: Workspace) -> None:
    data = make_prepared(rows=300)
    with pytest.raises(KeyboardInterrupt):
        train_on(data, a_config("device"), workspace, emit=until(1))
    (run,) = workspace.runs()
    last = run.checkpoint("last")
    saved = Checkpoint.load(last)
    renamed = {name.replace(".weight:sum", ".weight:SUM"): tensor for name, tensor in saved.tensors.items()}
    Checkpoint(renamed, saved.meta).save(last)
    with pytest.raises(TrainingError, match=r"does not fit the model: .*adagrad has no state 'SUM'"):
        train_on(data, a_config("sharded"), workspace, resume=True)
