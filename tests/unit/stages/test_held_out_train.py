"""Number of epochs without a valid split: early stopping on rows held out of train, then all of train."""

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from recsys_cli.config import RunConfig
from recsys_cli.events import Event, Message
from recsys_cli.stages.held_out_train import _divide
from recsys_cli.stages.train import train_on
from recsys_cli.workspace import PreparedData, Workspace
from tests.checkerboard import a_config, same_weights
from tests.ranks import on_ranks, stopped_in
from tests.unit.stages.test_train import without_valid

OVERFITS = {"epochs": 30, "early_stopping": 2, "batch_size": 128, "model": {"name": "mlp", "embedding_dim": 16}}
MF: dict[str, Any] = {
    "epochs": 4, "early_stopping": 2, "monitor": "ndcg@10", "model": {"name": "mf", "embedding_dim": 8}
}  # fmt: skip


@pytest.fixture
def bare(make_prepared, tmp_path):
    return without_valid(make_prepared(users=200, items=200, rows=1_000), tmp_path / "bare")


def said(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Message)]


@pytest.mark.parametrize("train", [OVERFITS, MF], ids=["of rows", "of rankings"])
def test_all_of_train_is_fitted_for_the_epochs_found(bare, workspace, train):
    events: list[Event] = []
    run = train_on(bare, a_config(**train), workspace, emit=events.append).artifact
    manifest, found = run.manifest, run.manifest["held_out"]
    assert found["epochs"] == manifest["epochs"] == manifest["best_epoch"] < train["epochs"]
    assert found["tried"] == min(found["epochs"] + 2, train["epochs"])
    assert manifest["rows"] == found["epochs"] * bare.rows("train"), "held-out rows are trained as well"
    assert not (run.folder / "held-out").exists()
    assert sum("rows are held out of train" in text for text in said(events)) == 1
    assert (
        sum("all of train for" in text and f"of {found['tried']} epochs, found in" in text for text in said(events))
        == 1
    )
    assert not any("the best checkpoint is the last" in text for text in said(events))
    asked = train_on(bare, a_config(**{**train, "epochs": found["epochs"], "early_stopping": None}), workspace)
    assert same_weights(asked.artifact, run)


def test_a_valid_split_a_warm_start_or_null_leaves_train_whole(make_prepared, bare, workspace):
    assert "held_out" not in train_on(make_prepared(), a_config(early_stopping=2), workspace).artifact.manifest
    events: list[Event] = []
    run = train_on(bare, a_config(), workspace, emit=events.append).artifact
    assert "held_out" not in run.manifest
    assert (run.manifest["best_epoch"], run.manifest["valid"]) == (2, None)
    (warning,) = [event.text for event in events if isinstance(event, Message) and event.level == "warning"]
    assert "no valid split: the best checkpoint is the last" in warning
    last, best = load_file(run.checkpoint("last")), load_file(run.checkpoint("best"))
    assert all((best[name] == last[name]).all() for name in best)
    shutil.copytree(bare.folder, workspace.data(bare.key).folder)
    warm = a_config(early_stopping=2, continue_from=run.folder.name)
    events.clear()
    assert "held_out" not in train_on(bare, warm, workspace, emit=events.append).artifact.manifest
    (warning,) = [event.text for event in events if isinstance(event, Message) and event.level == "warning"]
    assert "no valid split: early stopping has no effect, and the best checkpoint is the last" in warning


@pytest.mark.parametrize("step", [11, 45], ids=["in the search", "after it"])
def test_a_killed_run_resumes_to_the_same_bits(bare, workspace, tmp_path, step):
    """4 steps an epoch: the search has 4 epochs at least."""
    config = a_config(**{**OVERFITS, "batch_size": 256, "checkpoint_steps": 3, "epochs": 6, "early_stopping": 3})
    whole = train_on(bare, config, workspace).artifact
    searched = 4 * whole.manifest["held_out"]["tried"]
    assert searched > 11
    broken = Workspace(tmp_path / "broken")
    step = step if step < searched else searched + 3
    assert stopped_in(step, signal.SIGKILL, train_on, bare, config, broken) == -signal.SIGKILL
    (left,) = broken.runs()
    assert (left.folder / "held_out.json").is_file() == (step > searched)
    (left.folder / "held-out" / "train").mkdir(parents=True, exist_ok=True)  # as of a kill before the removal
    events: list[Event] = []
    assert train_on(bare, config, broken, resume=True, emit=events.append).artifact == left
    assert not (left.folder / "held-out").exists()
    assert any(text.startswith("resuming held-out at step") for text in said(events)) == (step < searched)
    assert same_weights(left, whole)
    kept = ("epochs", "valid", "rows", "tried")
    assert [left.manifest["held_out"][name] for name in kept] == [whole.manifest["held_out"][name] for name in kept]


def _train(data: PreparedData, config: RunConfig, root: Path) -> None:
    train_on(data, config, Workspace(root))


def test_ranks_search_together(bare, tmp_path):
    config = a_config(**{**MF, "precision": "fp32", "model": {"name": "mf", "embedding_dim": 8, "loss": "bpr"}})
    found = []
    for ranks in (1, 2):
        assert on_ranks(ranks, _train, bare, config, tmp_path / str(ranks)) == [None] * ranks
        (run,) = Workspace(tmp_path / str(ranks)).runs()
        found.append(run.manifest["held_out"])
        assert run.manifest["epochs"] == found[-1]["epochs"]
    assert found[0]["rows"] == found[1]["rows"]


# -- the rows ---------------------------------------------------------------------------------------------------------


def parts(data: PreparedData, folder: Path, config: RunConfig) -> tuple[pa.Table, pa.Table]:
    sizes = _divide(data, folder, config.train)
    train, valid = (pq.read_table(folder / split) for split in ("train", "valid"))
    assert (len(train), len(valid)) == sizes
    both = sorted(zip(*(column.to_pylist() for column in pa.concat_tables([train, valid]).columns), strict=True))
    assert both == sorted(
        zip(*(column.to_pylist() for column in pq.read_table(data.folder / "train").columns), strict=True)
    )
    return train, valid


@pytest.mark.parametrize("shape", [{"users": 200, "rows": 1_000}, {"users": 20, "rows": 2_000}], ids=["few", "many"])
def test_a_metric_of_rankings_holds_out_the_last_positive_rows_of_each_user(make_prepared, tmp_path, shape):
    data = make_prepared(**shape)
    rows = pq.read_table(data.folder / "train").to_pylist()
    positives: dict[int, list[int]] = {}
    for row in sorted(rows, key=lambda row: row["timestamp"]):
        if row["label"]:
            positives.setdefault(row["userId"], []).append(row["timestamp"])
    expected = {time for times in positives.values() if len(times) >= 3 for time in times[-max(1, len(times) // 10) :]}
    _, valid = parts(data, tmp_path / "held", a_config(**MF))
    assert set(valid["timestamp"].to_pylist()) == expected
    assert len(expected) > 1


def test_a_metric_of_rows_holds_out_a_tenth_by_seed(bare, tmp_path):
    one, again, other = (
        set(parts(bare, tmp_path / str(number), a_config(**OVERFITS, seed=seed))[1]["timestamp"].to_pylist())
        for number, seed in enumerate((1, 1, 2))
    )
    assert 70 < len(one) < 130
    assert one == again != other


def test_without_times_the_last_row_is_a_random_one(bare, tmp_path):
    """Lists of items are often sorted by id: their last items are no sample."""
    for path in bare.shards("train"):
        table = pq.read_table(path)
        number = table["timestamp"]
        pq.write_table(table.drop_columns("timestamp").append_column("number", number), path)
    schema = bare.folder / "schema.json"
    values = json.loads(schema.read_text())
    values["columns"] = [column for column in values["columns"] if column["name"] != "timestamp"]
    schema.write_text(json.dumps(values))
    _, valid = parts(bare, tmp_path / "held", a_config(**MF))
    positions = []
    rows = [row for row in pq.read_table(bare.folder / "train").to_pylist() if row["label"]]
    for row in valid.to_pylist():
        own = sorted(each["number"] for each in rows if each["userId"] == row["userId"])
        positions.append(own.index(row["number"]) / (len(own) - 1))
    assert len(positions) > 30
    assert 0.3 < np.mean(positions) < 0.7
