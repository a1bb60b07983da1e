"""An interrupted and resumed run in each tracker: each line of metrics.jsonl once."""

from __future__ import annotations

import json
import socket
import struct
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from recsys_cli.config import RunConfig
from recsys_cli.errors import ConfigError, MissingExtraError
from recsys_cli.events import Event, Message, Progress
from recsys_cli.stages.train import train_on
from recsys_cli.training.trackers import Series, Tracker, Trackers, find
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace
from tests.rated import FEATURES

MakePrepared = Callable[..., PreparedData]
Points = dict[str, list[tuple[int, float]]]


def a_config(*trackers: str, **train: Any) -> RunConfig:
    return RunConfig.model_validate({
        "dataset": {"name": "synthetic-small"},
        "features": FEATURES,
        "model": {"name": "mlp", "embedding_dim": 8, "hidden_dims": [16]},
        "train": {"epochs": 3, "batch_size": 256, "device": "cpu", "checkpoint_steps": 3, "trackers": trackers, **train},
    })  # fmt: skip


class KilledError(Exception):
    pass


def breaks_in(step: int) -> Callable[[Event], None]:
    """Return a function that ends training like a kill, without saving."""
    steps = 0

    def emit(event: Event) -> None:
        nonlocal steps
        steps += isinstance(event, Progress) and event.task.startswith("train")
        if steps == step:
            raise KilledError

    return emit


def broken_and_resumed(data: PreparedData, config: RunConfig, workspace: Workspace) -> TrainedRun:
    """Train 3 epochs of 8 steps; kill in step 14, after its line in metrics.jsonl; resume from step 12."""
    with pytest.raises(KilledError):
        train_on(data, config, workspace, emit=breaks_in(14))
    return train_on(data, config, workspace, resume=True).artifact


def lines_of(run: TrainedRun) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run.metrics.read_text().splitlines()]


def expected(run: TrainedRun) -> Points:
    """Return the time-independent metrics of metrics.jsonl."""
    points: Points = {}
    for line in lines_of(run):
        figures = {
            f"{line['event']}/{name}": line[name] for name in ("loss", "learning_rate", "train_loss") if name in line
        }
        figures |= {f"epoch/valid/{name}": value for name, value in line.get("valid", {}).items()}
        for name, value in figures.items():
            points.setdefault(name, []).append((line["step"], value))
    assert [len(points[name]) for name in ("step/loss", "epoch/train_loss", "epoch/valid/auc")] == [24, 3, 3]
    return points


def assert_same(found: Points, run: TrainedRun) -> None:
    wanted = expected(run)
    for name, points in wanted.items():
        assert [step for step, _ in found[name]] == [step for step, _ in points], name
        assert [value for _, value in found[name]] == pytest.approx([value for _, value in points], rel=1e-6), name
    assert {"step/rows_per_second", "step/waiting_share", "epoch/rows"} < set(found)


# -- each tracker -----------------------------------------------------------------------------------------------------


def in_tensorboard(run: TrainedRun) -> tuple[Points, Any]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.folder / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}, events


def in_wandb(run: TrainedRun) -> tuple[Points, dict[str, Any]]:
    """Read the history and the config of all sessions; the files are LevelDB logs of protocol buffers."""
    from wandb.proto.wandb_internal_pb2 import Record

    points: Points = {}
    config: dict[str, Any] = {}
    for path in sorted((run.folder / "wandb").glob("offline-run-*/*.wandb")):
        for content in leveldb_records(path.read_bytes()[7:], ahead=7):
            record = Record.FromString(content)
            config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
            row = {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
            for name, value in row.items():
                if not name.startswith("_"):
                    points.setdefault(name, []).append((row["_step"], value))
    return points, config


def leveldb_records(data: bytes, *, ahead: int, block: int = 32_768) -> list[bytes]:
    """Join the records of a LevelDB log; the first block lacks `ahead` bytes."""
    records, parts, place = [], b"", 0
    while place + 7 <= len(data):
        left = block - (place + ahead) % block
        if left < 7:
            place += left
            continue
        _, size, kind = struct.unpack("<IHB", data[place : place + 7])
        parts += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in {1, 4}:  # whole, or the last part
            records.append(parts)
            parts = b""
    return records


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse connections to other machines, and clear the developer's settings of trackers."""
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "WANDB_PROJECT", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    connect = socket.socket.connect

    def local(self: socket.socket, address: Any) -> None:
        assert self.family == socket.AF_UNIX or address[0] in {"127.0.0.1", "::1", "localhost"}, address
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", local)


def test_tensorboard_shows_a_broken_run_as_one_series(make_prepared: MakePrepared, workspace: Workspace) -> None:
    run = broken_and_resumed(make_prepared(), a_config("tensorboard"), workspace)
    assert len(list((run.folder / "tensorboard").iterdir())) == 2
    found, events = in_tensorboard(run)
    assert_same(found, run)
    metadata = events.SummaryMetadata("_hparams_/session_start_info")
    assert b"train.learning_rate" in metadata.plugin_data.content


def test_events_are_there_before_the_file_is_closed(tmp_path: Path) -> None:
    run = TrainedRun(tmp_path)
    tracker = find(["tensorboard"])["tensorboard"](
        Series(run, {"train": {"epochs": 1, "max_grad_norm": None, "trackers": []}})
    )
    tracker.log(1, {"step/loss": 0.5, "step/other": float("nan")})
    assert in_tensorboard(run)[0]["step/loss"] == [(1, 0.5)]
    tracker.close(finished=False)


def test_mlflow_and_wandb_show_it_too_offline_and_silently(
    make_prepared: MakePrepared, workspace: Workspace, offline: None, capfd: pytest.CaptureFixture[str]
) -> None:
    from mlflow.tracking import MlflowClient

    run = broken_and_resumed(make_prepared(), a_config("mlflow", "wandb"), workspace)
    assert capfd.readouterr() == ("", "")
    found, config = in_wandb(run)
    assert_same(found, run)
    assert config["train"]["checkpoint_steps"] == 3
    client = MlflowClient(f"sqlite:///{workspace.root}/mlflow/mlflow.db")
    (logged,) = client.search_runs([client.get_experiment_by_name("recsys").experiment_id])
    assert logged.info.run_name == run.folder.name
    assert logged.info.status == "FINISHED"
    assert logged.data.params["train.checkpoint_steps"] == "3"
    histories = {name: client.get_metric_history(logged.info.run_id, name) for name in logged.data.metrics}
    assert_same({name: [(m.step, m.value) for m in history] for name, history in histories.items()}, run)
    assert not (workspace.root.parent / "mlruns").exists()


# -- all together -----------------------------------------------------------------------------------------------------


class Fragile(Tracker):
    """A foreign tracker that fails in its third line."""

    rewinds: ClassVar[bool] = False
    told: ClassVar[list[tuple[int, Mapping[str, float]]]] = []
    ended: ClassVar[list[bool]] = []

    def __init__(self, series: Series) -> None:
        self.told.clear()
        self.ended.clear()

    def log(self, step: int, values: Mapping[str, float]) -> None:
        if step == 3:
            raise OSError(28, "No space left on device")
        self.told.append((step, values))

    def close(self, *, finished: bool) -> None:
        self.ended.append(finished)


FRAGILE = f"{__name__}:Fragile"


@pytest.fixture(autouse=True)
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust this module."""
    monkeypatch.setenv("RECSYS_TRUST", __name__)


def test_a_tracker_that_fails_is_told_of_once_and_training_goes_on(
    make_prepared: MakePrepared, workspace: Workspace
) -> None:
    events: list[Event] = []
    run = train_on(make_prepared(), a_config(FRAGILE, "tensorboard"), workspace, emit=events.append).artifact
    said = [event.text for event in events if isinstance(event, Message) and event.level == "warning"]
    assert len(said) == 1
    assert "training continues without it: OSError: [Errno 28] No space left on device" in said[0]
    assert [step for step, _ in Fragile.told] == [1, 2]
    assert Fragile.ended == [False]
    assert run.manifest["steps"] == 24
    assert_same(in_tensorboard(run)[0], run)


def test_a_full_disk_ends_the_event_file_and_nothing_else(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    events: list[Event] = []
    trackers = Trackers(find(["tensorboard"]), events.append)
    with trackers.session(Series(TrainedRun(tmp_path), {}), logged={}):
        (written,) = trackers._open.values()
        written._file._writer.close()  # type: ignore[attr-defined]
        written._file._writer = Path("/dev/full").open("wb")  # type: ignore[attr-defined]  # noqa: SIM115
        for step in range(1, 40):
            trackers.log({"event": "step", "step": step, "loss": 1.0})
    said = [event.text for event in events if isinstance(event, Message)]
    assert len(said) == 1
    assert "No space left on device" in said[0]


def test_a_disk_that_is_full_from_the_start_leaves_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []

    def fails(records: Any) -> None:
        opened.append(records._writer)
        raise OSError("No space left on device")

    tracker = find(["tensorboard"])["tensorboard"]
    monkeypatch.setattr(f"{tracker.__module__}._Records.flush", fails)
    with pytest.raises(OSError, match="No space left"):
        tracker(Series(TrainedRun(tmp_path), {}))
    assert [file.closed for file in opened] == [True]


def test_a_tracker_that_cannot_open_is_left_out(tmp_path: Path) -> None:
    events: list[Event] = []
    (tmp_path / "tensorboard").write_text("a file where the folder would be")
    trackers = Trackers(find(["tensorboard"]), events.append)
    with trackers.session(Series(TrainedRun(tmp_path), {}), logged={}):
        trackers.log({"event": "step", "step": 1, "loss": 1.0})
    assert [event.level for event in events if isinstance(event, Message)] == ["warning"]


def test_what_was_seen_is_not_told_again_and_the_end_is_told(tmp_path: Path) -> None:
    trackers = Trackers(find([FRAGILE]), lambda event: pytest.fail(str(event)))
    with trackers.session(Series(TrainedRun(tmp_path), {}, done=4), logged={"step": 6, "epoch": 4}):
        for step in (5, 6, 7):
            trackers.log({"event": "step", "step": step, "loss": 1, "rows_per_second": None})
        trackers.log({"event": "epoch", "step": 6, "valid": {"auc": 0.5}})
    assert Fragile.told == [(7, {"step/loss": 1.0}), (6, {"epoch/valid/auc": 0.5})]
    assert Fragile.ended == [True]


def test_a_run_that_breaks_is_not_finished(make_prepared: MakePrepared, workspace: Workspace) -> None:
    with pytest.raises(KilledError):
        train_on(make_prepared(), a_config(FRAGILE, checkpoint_steps=100), workspace, emit=breaks_in(2))
    assert Fragile.ended == [False]


def test_a_missing_extra_is_told_before_there_is_a_run(
    make_prepared: MakePrepared, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.delitem(sys.modules, "recsys_cli.training.trackers.wandb", raising=False)
    with pytest.raises(MissingExtraError, match=r"train\.trackers: wandb needs the 'track' extra"):
        train_on(make_prepared(), a_config("wandb"), workspace)
    assert workspace.runs() == []


def test_unknown_trackers_are_config_errors(make_prepared: MakePrepared, workspace: Workspace) -> None:
    with pytest.raises(ValueError, match=r"unknown tracker 'tensorbord' \(did you mean tensorboard\?\)"):
        a_config("tensorbord")
    with pytest.raises(ValueError, match="'nowhere:Tracker' is code of a plugin and not trusted"):
        a_config("nowhere:Tracker")
    with pytest.raises(ConfigError, match=f"cannot load '{__name__}:Absent'"):
        train_on(make_prepared(), a_config(f"{__name__}:Absent"), workspace)
    assert workspace.runs() == []
