"""Training on planted data: users like the items of their own half of a checkerboard."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from recsys_cli.config import RunConfig, load
from recsys_cli.errors import ConfigError, DataError, MissingArtifactError, TrainingError
from recsys_cli.evaluation.loaded_run import model_of
from recsys_cli.events import Event, Message, Progress
from recsys_cli.stages.run_selection import run_key
from recsys_cli.stages.train import train, train_on
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace
from tests.rated import FEATURES
from tests.sealing import reseal

MODEL = {"name": "mlp", "embedding_dim": 8, "hidden_dims": [16], "dropout": 0.1}
TRAIN = {"epochs": 2, "batch_size": 256, "learning_rate": 0.05, "device": "cpu"}


def a_config(*, model: dict[str, Any] | None = None, **train: Any) -> RunConfig:
    return RunConfig.model_validate({
        "dataset": {"name": "synthetic-small"},
        "features": FEATURES,
        "model": model or MODEL,
        "train": {**TRAIN, **train},
    })  # fmt: skip


def lines(run: TrainedRun) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run.metrics.read_text().splitlines()]


def same_weights(one: TrainedRun, other: TrainedRun, which: str = "last") -> bool:
    """Compare all tensors of two checkpoints (weights, optimizer states) bit for bit."""
    a, b = load_file(one.checkpoint(which)), load_file(other.checkpoint(which))
    return a.keys() == b.keys() and all(a[name].tobytes() == b[name].tobytes() for name in a)


def without_valid(data: PreparedData, folder: Path) -> PreparedData:
    shutil.copytree(data.folder, folder)
    shutil.rmtree(folder / "valid")
    made = PreparedData(folder)
    rows = {split: number for split, number in made.manifest["rows"].items() if split != "valid"}
    reseal(made, rows=rows)
    return made


MakePrepared = Callable[..., PreparedData]


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_train_learns_the_checkerboard(make_prepared: MakePrepared, workspace: Workspace, sparse: bool) -> None:
    run = train_on(make_prepared(rows=4_000), a_config(epochs=6, sparse_embeddings=sparse), workspace).artifact
    assert run.manifest["valid"]["auc"] > 0.95
    assert run.manifest["history"][-1]["train_loss"] < 0.4


def test_train_learns_it_in_bf16_too(make_prepared: MakePrepared, workspace: Workspace) -> None:
    run = train_on(make_prepared(rows=4_000), a_config(epochs=6, precision="bf16"), workspace).artifact
    assert run.manifest["precision"] == "bf16"
    assert run.manifest["valid"]["auc"] > 0.95


def test_train_leaves_a_whole_run(make_prepared: MakePrepared, workspace: Workspace) -> None:
    events: list[Event] = []
    data, config = make_prepared(), a_config()
    made = train_on(data, config, workspace, emit=events.append)
    run = made.artifact
    assert not made.up_to_date
    assert run.key == run_key(config, data)
    assert run.folder.name.endswith(f"-mlp-{run.key[:8]}")
    assert run_key(load(run.config), data) == run.key
    assert load(run.config).train == config.train
    manifest = run.manifest
    assert (manifest["rows"], manifest["steps"], manifest["epochs"]) == (4_000, 16, 2)
    assert manifest["data"] == {"key": data.key, "folder": data.folder.name}
    assert manifest["peak_memory"]["host"] > 1e6
    assert 0 <= manifest["waiting_share"] <= 1
    assert [line["epoch"] for line in lines(run) if line["event"] == "epoch"] == [1, 2]
    assert [line["step"] for line in lines(run) if line["event"] == "step"] == list(range(1, 17))
    assert {path.name.partition(".tfevents")[0] for path in run.folder.rglob("*") if path.is_file()} == {
        "config.yaml", "manifest.json", "metrics.jsonl", "best.safetensors", "last.safetensors", "events.out"
    }  # fmt: skip
    bars = [event for event in events if isinstance(event, Progress) and event.task == "train epoch 2/2"]
    assert (bars[-1].done, bars[-1].total) == (2_000, 2_000)
    assert set(bars[-1].fields) == {"loss", "rows/s", "waiting"}
    assert any(isinstance(event, Message) and "valid auc" in event.text for event in events)


def test_mean_loss_of_the_lines_is_that_of_the_epoch(make_prepared: MakePrepared, workspace: Workspace) -> None:
    run = train_on(make_prepared(rows=2_048), a_config(epochs=1), workspace).artifact
    steps = [line["loss"] for line in lines(run) if line["event"] == "step"]
    assert sum(steps) / len(steps) == pytest.approx(lines(run)[-1]["train_loss"])


def test_train_is_skipped_where_it_is_done(make_prepared: MakePrepared, workspace: Workspace) -> None:
    data, config = make_prepared(), a_config(epochs=1)
    first = train_on(data, config, workspace)
    again = train_on(data, config, workspace)
    assert (again.up_to_date, again.artifact) == (True, first.artifact)
    elsewhere = a_config(epochs=1, checkpoint_steps=3)
    assert train_on(data, elsewhere, workspace).up_to_date
    assert not train_on(data, a_config(epochs=1, memory_mib=64), workspace).up_to_date
    assert train_on(data, config, workspace, resume=True).up_to_date
    assert not train_on(data, a_config(epochs=1, seed=1), workspace).up_to_date
    forced = train_on(data, config, workspace, force=True)
    assert not forced.up_to_date
    assert forced.artifact != first.artifact
    assert same_weights(forced.artifact, first.artifact)


def test_an_up_to_date_training_reads_no_weights(make_prepared: MakePrepared, workspace: Workspace) -> None:
    """Damage of a later write is found by the file's time; damage of the disk, with the old time, by the reader."""
    data, config = make_prepared(), a_config(epochs=1)
    run = train_on(data, config, workspace).artifact
    weights = run.checkpoint("best")
    content = bytearray(weights.read_bytes())
    content[-2] ^= 1
    times = weights.stat().st_atime_ns, weights.stat().st_mtime_ns
    weights.write_bytes(content)
    os.utime(weights, ns=times)
    assert train_on(data, config, workspace).artifact == run
    with pytest.raises(DataError, match=r"best\.safetensors is damaged") as caught:
        model_of(run, config, data)
    assert caught.value.hint == f"recsys train {run.config} --force"

    weights.touch()
    again = train_on(data, config, workspace)
    assert not again.up_to_date
    model_of(again.artifact, config, data)


def test_of_equal_trainings_at_once_the_second_waits_and_finds_the_run(
    make_prepared: MakePrepared, workspace: Workspace
) -> None:
    data, config = make_prepared(rows=300), a_config(epochs=1)
    said: list[str] = []
    waits = threading.Event()

    def hear(event: Event) -> None:
        if isinstance(event, Message):
            said.append(event.text)
            if "waiting for it" in event.text:
                waits.set()

    second = threading.Thread(target=train_on, args=(data, config, workspace), kwargs={"emit": hear})

    def start_the_second(_: Event) -> None:
        if second.ident is None:
            second.start()
            waits.wait(60)  # the first goes on when the second is there

    train_on(data, config, workspace, emit=start_the_second)
    second.join()
    assert [run.exists for run in workspace.runs()] == [True]
    assert any(f"process {os.getpid()} on " in text and "waiting for it" in text for text in said)


def test_runs_of_one_second_have_folders_of_their_own(make_prepared: MakePrepared, workspace: Workspace) -> None:
    data = make_prepared(rows=300)
    configs = [a_config(epochs=1, seed=seed) for seed in (1, 2)]
    threads = [threading.Thread(target=train_on, args=(data, config, workspace)) for config in configs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [run.exists for run in workspace.runs()] == [True, True]


def test_best_is_the_best_epoch_not_the_last(make_prepared: MakePrepared, workspace: Workspace) -> None:
    """Few rows and a wide network, for early overfitting."""
    config = a_config(
        epochs=30, early_stopping=2, learning_rate=0.05, batch_size=128, model={"name": "mlp", "embedding_dim": 16}
    )
    run = train_on(make_prepared(users=200, items=200, rows=1_000), config, workspace).artifact
    areas = [record["valid"]["auc"] for record in run.manifest["history"]]
    best = run.manifest["best_epoch"]
    assert areas[best - 1] == max(areas) == run.manifest["valid"]["auc"]
    assert len(areas) == best + 2
    last, kept = load_file(run.checkpoint("last")), load_file(run.checkpoint("best"))
    assert kept.keys() == {name for name in last if name.startswith("model.")}
    assert any((kept[name] != last[name]).any() for name in kept)


def test_without_valid_the_best_is_the_last(make_prepared: MakePrepared, workspace: Workspace, tmp_path: Path) -> None:
    events: list[Event] = []
    data = without_valid(make_prepared(), tmp_path / "bare")
    run = train_on(data, a_config(), workspace, emit=events.append).artifact
    assert (run.manifest["best_epoch"], run.manifest["valid"]) == (2, None)
    said = [event.text for event in events if isinstance(event, Message) and event.level == "warning"]
    assert len(said) == 1
    assert "no valid split: the best checkpoint is the last" in said[0]
    last, best = load_file(run.checkpoint("last")), load_file(run.checkpoint("best"))
    assert all((best[name] == last[name]).all() for name in best)


def test_a_loss_that_is_not_finite_names_the_step(make_prepared: MakePrepared, workspace: Workspace) -> None:
    with pytest.raises(TrainingError, match=r"not a finite number at step \d+ \(epoch \d\)") as caught:
        train_on(
            make_prepared(), a_config(epochs=9, learning_rate=1e30, model={"name": "mlp", "hidden_dims": []}), workspace
        )
    assert "learning_rate" in str(caught.value.hint)
    (left,) = workspace.runs()
    assert left.metrics.read_text(encoding="utf-8"), "what was measured before is what there is to look at"


def test_a_gpu_that_is_not_there_is_a_config_error(make_prepared: MakePrepared, workspace: Workspace) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ConfigError, match="torch sees no GPU"):
        train_on(make_prepared(), a_config(device="cuda"), workspace)
    assert not list((workspace.root / "runs").iterdir()), "nothing was measured, so there is no run"


def test_a_run_that_cannot_be_gone_on_with_stays_as_it_was(
    make_prepared: MakePrepared, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def fail(*_: object) -> None:
        raise ConfigError("not now")

    data, config = make_prepared(), a_config(epochs=1)
    monkeypatch.setattr("recsys_cli.stages.train.new_model", interrupt)
    with pytest.raises(KeyboardInterrupt):
        train_on(data, config, workspace)
    monkeypatch.setattr("recsys_cli.stages.train.new_model", fail)
    with pytest.raises(ConfigError, match="not now"):
        train_on(data, config, workspace, resume=True)
    (left,) = workspace.runs()
    monkeypatch.undo()
    assert train_on(data, config, workspace, resume=True).artifact == left


def test_sparse_leaves_unused_rows_as_they_began(make_prepared: MakePrepared, workspace: Workspace) -> None:
    import torch

    from recsys_cli.models import build

    data, config = make_prepared(users=500, rows=300), a_config(epochs=1, sparse_embeddings=True)
    run = train_on(data, config, workspace).artifact
    used = set(pq.read_table(data.folder / "train")["userId"].to_pylist())
    unused = sorted(set(range(503)) - used)
    torch.manual_seed(config.train.seed)
    began = build("mlp", config.model.options, data.schema).embeddings.table("userId").detach().numpy()
    ended = load_file(run.checkpoint("last"))["model.embeddings.tables.of_userId.weight"]
    assert (ended[unused] == began[unused]).all()
    assert (ended[sorted(used)] != began[sorted(used)]).any(axis=1).all()


def test_train_without_data_says_what_to_run_first(workspace: Workspace) -> None:
    with pytest.raises(MissingArtifactError, match="synthetic-small is missing") as caught:
        train(a_config(), workspace)
    assert str(caught.value.hint).startswith("recsys download synthetic-small")


# -- resuming ---------------------------------------------------------------------------------------------------------

CHILD = """
import os, signal, sys
from pathlib import Path
from recsys_cli.config import RunConfig
from recsys_cli.events import Progress
from recsys_cli.stages.train import train_on
from recsys_cli.workspace import PreparedData, Workspace

config, data, root, number, rows = sys.argv[1:]
seen = 0

def emit(event):
    global seen
    if isinstance(event, Progress) and event.task.startswith("train"):
        seen += 1
        if seen == int(rows):
            os.kill(os.getpid(), int(number))

try:
    train_on(PreparedData(Path(data)), RunConfig.model_validate_json(Path(config).read_text()), Workspace(Path(root)), emit=emit)
except KeyboardInterrupt:
    sys.exit(130)  # Python's own -SIGINT is lost where an exit handler of torch imports something
"""


def stopped_by(number: signal.Signals, data: PreparedData, config: RunConfig, root: Path, *, step: int) -> int:
    """Train in a subprocess with a signal in a step; return its exit status."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "child.json").write_text(config.model_dump_json())
    arguments = [str(root / "child.json"), str(data.folder), str(root), str(int(number)), str(step)]
    return subprocess.run([sys.executable, "-c", CHILD, *arguments], capture_output=True, check=False).returncode


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_killed_run_resumes_to_the_same_bits(
    make_prepared: MakePrepared, workspace: Workspace, tmp_path: Path, sparse: bool
) -> None:
    """8 steps per epoch and a checkpoint every 3: killed in step 14, the run resumes from step 12 of 4 epochs."""
    data, config = make_prepared(), a_config(epochs=4, sparse_embeddings=sparse, checkpoint_steps=3)
    whole = train_on(data, config, workspace).artifact
    broken = Workspace(tmp_path / "broken")
    assert stopped_by(signal.SIGKILL, data, config, broken.root, step=14) == -signal.SIGKILL
    (left,) = broken.runs()
    assert not left.exists
    assert [line["step"] for line in lines(left) if line["event"] == "step"][-1] >= 13
    events: list[Event] = []
    made = train_on(data, config, broken, resume=True, emit=events.append)
    assert made.artifact == left
    assert any(isinstance(event, Message) and "at step 13" in event.text for event in events)
    assert same_weights(left, whole)
    assert same_weights(left, whole, "best")
    kept = ("event", "epoch", "step", "loss", "train_loss", "valid")
    assert [[x.get(k) for k in kept] for x in lines(left)] == [[x.get(k) for k in kept] for x in lines(whole)]
    assert {path.name for path in (left.folder / "checkpoints").iterdir()} == {"best.safetensors", "last.safetensors"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda one: one.name)
def test_ctrl_c_keeps_the_very_step_and_can_be_resumed(
    make_prepared: MakePrepared, workspace: Workspace, tmp_path: Path, number: signal.Signals
) -> None:
    """SIGTERM, and SIGHUP of a closed terminal, end training in the same way."""
    data, config = make_prepared(), a_config(epochs=2)
    whole = train_on(data, config, workspace).artifact
    broken = Workspace(tmp_path / "broken")
    assert stopped_by(number, data, config, broken.root, step=5) == 130
    events: list[Event] = []
    made = train_on(data, config, broken, resume=True, emit=events.append)
    assert any(isinstance(event, Message) and "at step 6" in event.text for event in events)
    assert same_weights(made.artifact, whole)


def test_a_run_broken_after_its_last_epoch_only_gets_its_manifest(
    make_prepared: MakePrepared, workspace: Workspace
) -> None:
    data, config = make_prepared(), a_config(epochs=1)
    run = train_on(data, config, workspace).artifact
    before = load_file(run.checkpoint("last"))
    (run.folder / "manifest.json").unlink()
    train_on(data, config, workspace, resume=True)
    assert run.manifest["epochs"] == 1
    assert all((load_file(run.checkpoint("last"))[name] == before[name]).all() for name in before)


def test_an_unfinished_run_is_mentioned_and_left_alone(make_prepared: MakePrepared, workspace: Workspace) -> None:
    data, config = make_prepared(), a_config(epochs=1)
    run = train_on(data, config, workspace).artifact
    (run.folder / "manifest.json").unlink()
    events: list[Event] = []
    made = train_on(data, config, workspace, emit=events.append)
    assert made.artifact != run
    assert not run.exists
    said = [event.text for event in events if isinstance(event, Message)]
    assert any(f"unfinished run of this config, {run.folder.name}" in text for text in said)


def test_nothing_to_resume_says_what_to_run(make_prepared: MakePrepared, workspace: Workspace) -> None:
    data = make_prepared()
    with pytest.raises(MissingArtifactError, match="nothing to resume") as caught:
        train_on(data, a_config(), workspace, resume=True)
    assert caught.value.hint == "recsys train"


def test_resuming_with_another_config_says_what_changed(make_prepared: MakePrepared, workspace: Workspace) -> None:
    data = make_prepared()
    run = train_on(data, a_config(epochs=1), workspace).artifact
    (run.folder / "manifest.json").unlink()
    with pytest.raises(MissingArtifactError, match=r"another config: train\.epochs is 2 and was 1"):
        train_on(data, a_config(epochs=2), workspace, resume=True)


def test_a_damaged_checkpoint_is_nothing_to_resume(make_prepared: MakePrepared, workspace: Workspace) -> None:
    data, config = make_prepared(), a_config(epochs=1)
    run = train_on(data, config, workspace).artifact
    (run.folder / "manifest.json").unlink()
    content = run.checkpoint("last").read_bytes()
    run.checkpoint("last").write_bytes(content[: len(content) // 2])
    with pytest.raises(MissingArtifactError, match="unfinished run"):
        train_on(data, config, workspace, resume=True)


def test_label_that_is_no_probability_is_refused(make_prepared, workspace: Workspace) -> None:
    data = make_prepared(rows=300)
    path = data.shards("train")[0]
    table = pq.read_table(path)
    place = table.column_names.index("label")
    pq.write_table(table.set_column(place, "label", pa.array([4] * table.num_rows, pa.int8())), path)
    reseal(data)

    with pytest.raises(DataError, match="the label label ranges from 0 to 4 in train; it must be 0 or 1"):
        train_on(data, a_config(), workspace)
