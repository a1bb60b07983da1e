"""Training on planted data: users like the items of their own half of a checkerboard."""

import os
import shutil
import signal
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from recsys_cli.config import load
from recsys_cli.errors import ConfigError, DataError, MissingArtifactError
from recsys_cli.evaluation.loaded_run import model_of
from recsys_cli.events import Event, Message, Progress
from recsys_cli.stages.run_selection import run_key
from recsys_cli.stages.train import train, train_on
from recsys_cli.workspace import PreparedData, Workspace
from tests.checkerboard import a_config, lines_of, losses_of, same_weights, set_column
from tests.ranks import stopped_in
from tests.sealing import reseal


def without_valid(data: PreparedData, folder: Path) -> PreparedData:
    shutil.copytree(data.folder, folder)
    shutil.rmtree(folder / "valid")
    made = PreparedData(folder)
    rows = {split: number for split, number in made.manifest["rows"].items() if split != "valid"}
    reseal(made, rows=rows)
    return made


@pytest.mark.parametrize("options", [{}, {"sparse_embeddings": True}, {"precision": "bf16"}], ids=str)
def test_train_learns_the_checkerboard(make_prepared, workspace, options):
    run = train_on(make_prepared(rows=4_000), a_config(epochs=6, **options), workspace).artifact
    assert run.manifest["precision"] == options.get("precision", "fp32")
    assert run.manifest["valid"]["auc"] > 0.95
    assert run.manifest["history"][-1]["train_loss"] < 0.4


def test_train_leaves_a_whole_run(make_prepared, workspace):
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
    assert [line["epoch"] for line in lines_of(run) if line["event"] == "epoch"] == [1, 2]
    assert [line["step"] for line in lines_of(run) if line["event"] == "step"] == list(range(1, 17))
    assert {path.name.partition(".tfevents")[0] for path in run.folder.rglob("*") if path.is_file()} == {
        "config.yaml", "manifest.json", "metrics.jsonl", "best.safetensors", "last.safetensors", "events.out"
    }  # fmt: skip
    bars = [event for event in events if isinstance(event, Progress) and event.task == "train epoch 2/2"]
    assert (bars[-1].done, bars[-1].total) == (2_000, 2_000)
    assert set(bars[-1].fields) == {"loss", "rows/s", "waiting"}
    assert any(isinstance(event, Message) and "valid auc" in event.text for event in events)


def test_mean_loss_of_the_lines_is_that_of_the_epoch(make_prepared, workspace):
    run = train_on(make_prepared(rows=2_048), a_config(epochs=1), workspace).artifact
    steps = losses_of(run)
    assert sum(steps) / len(steps) == pytest.approx(lines_of(run)[-1]["train_loss"])


def test_options_without_an_effect_are_announced_by_each_call(make_prepared, workspace):
    data, config = make_prepared(), a_config(model={"name": "ease"}, positive_weight=2.0)
    for up_to_date in (False, True):
        events: list[Event] = []
        assert train_on(data, config, workspace, emit=events.append).up_to_date == up_to_date
        said = [event.text for event in events if isinstance(event, Message) and event.level == "warning"]
        assert said == ["train.positive_weight has no effect on ease"]


def test_train_is_skipped_where_it_is_done(make_prepared, workspace):
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


def test_an_up_to_date_training_reads_no_weights(make_prepared, workspace):
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


def test_of_equal_trainings_at_once_the_second_waits_and_finds_the_run(make_prepared, workspace):
    data, config = make_prepared(rows=300), a_config(epochs=1)
    said: list[str] = []
    waits = threading.Event()

    def hear(event):
        if isinstance(event, Message):
            said.append(event.text)
            if "waiting for it" in event.text:
                waits.set()

    second = threading.Thread(target=train_on, args=(data, config, workspace), kwargs={"emit": hear})

    def start_the_second(_):
        if second.ident is None:
            second.start()
            waits.wait(60)  # the first goes on when the second is there

    train_on(data, config, workspace, emit=start_the_second)
    second.join()
    assert [run.exists for run in workspace.runs()] == [True]
    assert any(f"process {os.getpid()} on " in text and "waiting for it" in text for text in said)


def test_runs_of_one_second_have_folders_of_their_own(make_prepared, workspace):
    data = make_prepared(rows=300)
    configs = [a_config(epochs=1, seed=seed) for seed in (1, 2)]
    threads = [threading.Thread(target=train_on, args=(data, config, workspace)) for config in configs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [run.exists for run in workspace.runs()] == [True, True]


def test_a_gpu_that_is_not_there_is_a_config_error(make_prepared, workspace):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ConfigError, match="torch sees no GPU"):
        train_on(make_prepared(), a_config(device="cuda"), workspace)
    assert not list((workspace.root / "runs").iterdir()), "nothing was measured, so there is no run"


def test_a_run_that_cannot_be_gone_on_with_stays_as_it_was(make_prepared, workspace, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    def fail(*_):
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


def test_sparse_leaves_unused_rows_as_they_began(make_prepared, workspace):
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


def test_train_without_data_says_what_to_run_first(workspace):
    with pytest.raises(MissingArtifactError, match="synthetic-small is missing") as caught:
        train(a_config(), workspace)
    assert str(caught.value.hint).startswith("recsys download synthetic-small")


# -- resuming ---------------------------------------------------------------------------------------------------------


def test_ctrl_c_keeps_the_very_step_and_can_be_resumed(make_prepared, workspace, tmp_path):
    """SIGTERM and SIGHUP are told in the same way: tests/unit/training/test_interrupt.py."""
    data, config = make_prepared(), a_config(epochs=2)
    whole = train_on(data, config, workspace).artifact
    broken = Workspace(tmp_path / "broken")
    assert stopped_in(5, signal.SIGINT, train_on, data, config, broken) == 130
    events: list[Event] = []
    made = train_on(data, config, broken, resume=True, emit=events.append)
    assert any(isinstance(event, Message) and "at step 6" in event.text for event in events)
    assert same_weights(made.artifact, whole)


def test_what_is_left_of_a_run_is_resumed_mentioned_or_refused(make_prepared, workspace):
    data, config = make_prepared(), a_config(epochs=1)
    with pytest.raises(MissingArtifactError, match="nothing to resume") as caught:
        train_on(data, config, workspace, resume=True)
    assert caught.value.hint == "recsys train"
    run = train_on(data, config, workspace).artifact
    weights, manifest = run.checkpoint("last"), run.folder / "manifest.json"
    before = weights.read_bytes()
    manifest.unlink()
    with pytest.raises(MissingArtifactError, match=r"another config: train\.epochs is 2 and was 1"):
        train_on(data, a_config(epochs=2), workspace, resume=True)
    weights.write_bytes(before[: len(before) // 2])
    with pytest.raises(MissingArtifactError, match="unfinished run"):
        train_on(data, config, workspace, resume=True)
    weights.write_bytes(before)
    assert train_on(data, config, workspace, resume=True).artifact == run  # which only lacked its manifest
    assert (run.manifest["epochs"], weights.read_bytes()) == (1, before)
    manifest.unlink()
    events: list[Event] = []
    assert train_on(data, config, workspace, emit=events.append).artifact != run
    assert not run.exists
    said = [event.text for event in events if isinstance(event, Message)]
    assert any(f"unfinished run of this config, {run.folder.name}" in text for text in said)


def test_label_that_is_no_probability_is_refused(make_prepared, workspace):
    data = make_prepared(rows=300)
    set_column(data, "train", "label", lambda shard, rows: [4 * (shard == 0)] * rows)
    with pytest.raises(DataError, match="the label label ranges from 0 to 4 in train; it must be 0 or 1"):
        train_on(data, a_config(), workspace)
