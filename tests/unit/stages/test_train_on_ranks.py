"""Training with several processes: the same steps as with one, with failures, for all launchers."""

import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from torch.optim import AdamW

from recsys_cli.config import RunConfig, dump
from recsys_cli.errors import ConfigError, TrainingError
from recsys_cli.events import Event, Message, Progress
from recsys_cli.stages.run_selection import run_key
from recsys_cli.stages.train import train_on
from recsys_cli.training import launch, optimizers
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace
from tests import checkerboard
from tests.checkerboard import losses_of, same_weights
from tests.ranks import on_ranks


def a_config(model: dict[str, Any] | None = None, **train: Any) -> RunConfig:
    defaults = {"batch_size": 101, "learning_rate": 0.01, "trackers": [], "checkpoint_steps": 4}
    plain = {"name": "mlp", "embedding_dim": 8, "hidden_dims": [16], "dropout": 0.0, "embedding_dropout": 0.0}
    return checkerboard.a_config(model or plain, **{**defaults, **train})


def train_here(
    data: PreparedData, config: RunConfig, root: Path, resume: bool, stop: int, eps: float
) -> dict[str, Any]:
    """Train in this process, one of several perhaps; tell what was said and which files were written.

    Args:
        data: Prepared.
        config: How.
        root: The workspace.
        resume: Whether to go on.
        stop: After how many steps this process sends itself SIGTERM, as torchrun does; 0 is never.
        eps: That of Adam. Without one it makes a whole step of a gradient that is nothing but rounding, as that of a bias in
            front of batch normalisation is.
    """
    told: list[Event] = []
    written: set[str] = set()
    steps = 0

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]).startswith(str(root)) and arguments[2] & (os.O_WRONLY | os.O_RDWR):
            written.add(Path(arguments[0]).name)

    def emit(event: Event) -> None:
        nonlocal steps
        told.append(event)
        steps += isinstance(event, Progress) and event.task.startswith("train")
        if stop and steps == stop:
            os.kill(os.getpid(), signal.SIGTERM)

    sys.addaudithook(look)
    optimizers.AdamW = partial(AdamW, eps=eps)  # type: ignore[misc, assignment]
    try:
        train_on(data, config, Workspace(root), resume=resume, emit=emit)
    except KeyboardInterrupt:
        told.append(Message("interrupted"))
    return {"told": [event.text for event in told if isinstance(event, Message)], "written": sorted(written)}


def trained(
    data: PreparedData,
    config: RunConfig,
    root: Path,
    *,
    ranks: int,
    resume: bool = False,
    stop: int = 0,
    eps: float = 1e-3,
) -> tuple[TrainedRun, list[dict[str, Any]]]:
    """Train in several processes; return the run and the reports of `train_here`."""
    told = on_ranks(ranks, train_here, data, config, root, resume, stop, eps)
    assert all(isinstance(one, dict) for one in told), told
    (run,) = Workspace(root).runs()
    return run, told


def measured(run: TrainedRun) -> list[list[float]]:
    return [[record["valid"]["loss"], record["valid"]["auc"]] for record in run.manifest["history"]]


@pytest.mark.parametrize(
    "train",
    [{}, {"sparse_embeddings": True, "gradient_accumulation_steps": 2}]
    + [{"sparse_embeddings": True, "embedding_optimizer": name} for name in ("adam", "adagrad", "sgd")],
    ids=["dense", "accumulated", "adam", "adagrad", "sgd"],
)
def test_any_number_of_ranks_makes_the_same_steps(make_prepared, tmp_path, train):
    """1,009 rows, a prime, for pieces of different sizes; one file has no rows."""
    data = make_prepared(rows=1_009)
    first = data.shards("train")[0]
    pq.write_table(pq.read_table(first).slice(0, 0), first.with_name("99999.parquet"))
    runs, many = {}, (2, 3) if not train else (3,)
    for ranks in (1, *many):
        runs[ranks], told = trained(data, a_config(**train, max_grad_norm=1.0), tmp_path / str(ranks), ranks=ranks)
        assert told[0]["written"]
        assert [one["written"] for one in told[1:]] == [[]] * (ranks - 1)
        assert [one["told"] for one in told[1:]] == [[]] * (ranks - 1)
    for ranks in many:
        assert runs[ranks].key == runs[1].key
        assert runs[ranks].manifest["devices"] == ranks
        assert runs[ranks].manifest["rows"] == 2_018
        assert losses_of(runs[ranks]) == pytest.approx(losses_of(runs[1]), abs=1e-3)
        for found, expected in zip(measured(runs[ranks]), measured(runs[1]), strict=True):
            assert found == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(
    "train", [{}, {"sparse_embeddings": True, "gradient_accumulation_steps": 3}], ids=["dense", "accumulated"]
)
def test_any_number_of_ranks_drops_the_same_elements(make_prepared, tmp_path, train):
    """A small learning rate, because a large one amplifies rounding errors."""
    data = make_prepared(rows=1_009)
    model = {"name": "mlp", "embedding_dim": 8, "hidden_dims": [16], "dropout": 0.2, "embedding_dropout": 0.3}
    config = a_config(model=model, **train | {"learning_rate": 0.001})
    one, three = (trained(data, config, tmp_path / str(ranks), ranks=ranks)[0] for ranks in (1, 3))
    assert losses_of(three) == pytest.approx(losses_of(one), abs=2e-6)


def test_more_ranks_than_rows_make_the_same_steps(make_prepared, tmp_path):
    data, config = make_prepared(rows=5, shards=1), a_config(batch_size=2, sparse_embeddings=True)
    one, three = (trained(data, config, tmp_path / str(ranks), ranks=ranks)[0] for ranks in (1, 3))
    assert len(losses_of(one)) == 2 * 2  # the last row joins the step before
    assert losses_of(three) == pytest.approx(losses_of(one), abs=1e-3)
    assert measured(three)[0] == pytest.approx(measured(one)[0], abs=1e-3)


def test_what_is_measured_is_exactly_the_same_for_the_same_weights(make_prepared, tmp_path):
    """A tiny learning rate keeps the weights, so that only the validation differs."""
    data, config = make_prepared(rows=500), a_config(epochs=1, learning_rate=1e-12)
    one, three = (measured(trained(data, config, tmp_path / str(ranks), ranks=ranks)[0]) for ranks in (1, 3))
    assert one[0][1] == three[0][1]
    assert three[0][0] == pytest.approx(one[0][0], rel=1e-6)


def test_a_run_that_was_asked_to_stop_goes_on_with_any_number_of_ranks(make_prepared, tmp_path):
    data, config = make_prepared(rows=1_009), a_config(sparse_embeddings=True, batch_size=128)
    whole, _ = trained(data, config, tmp_path / "whole", ranks=2)
    left, told = trained(data, config, tmp_path / "left", ranks=2, stop=3)
    assert [one["told"][-1] for one in told] == ["interrupted"] * 2
    assert len(losses_of(left)) == 3
    for ranks in (2, 3):
        shutil.copytree(tmp_path / "left", tmp_path / f"left{ranks}")
        run, told = trained(data, config, tmp_path / f"left{ranks}", ranks=ranks, resume=True)
        assert any("at step 4" in text for text in told[0]["told"])
        if ranks == 2:
            assert same_weights(run, whole)
        assert losses_of(run) == pytest.approx(losses_of(whole), abs=1e-3)
        assert measured(run)[-1] == pytest.approx(measured(whole)[-1], abs=1e-3)


def test_a_run_without_a_checkpoint_begins_again_in_its_folder(make_prepared, workspace):
    data, config = make_prepared(), a_config(epochs=1)
    left = workspace.new_run("mlp", run_key(config, data))
    left.folder.mkdir(parents=True)
    left.config.write_text(dump(config))
    left.metrics.write_text('{"event": "step", "step": 1, "loss": 9.0}\n')
    events: list[Event] = []
    made = train_on(data, config, workspace, resume=True, emit=events.append)
    assert made.artifact == left
    assert left.exists
    assert any(isinstance(event, Message) and "at step 1" in event.text for event in events)
    assert 9.0 not in losses_of(left)


@pytest.mark.parametrize(("rule", "factor"), [("none", 1.0), ("linear", 4.0), ("sqrt", 2.0)])
def test_learning_rates_follow_the_batch_size_where_that_is_wanted(make_prepared, workspace, rule, factor):
    config = a_config(epochs=1, batch_size=400, reference_batch_size=100, scale_learning_rate=rule)
    events: list[Event] = []
    run = train_on(make_prepared(rows=400), config, workspace, emit=events.append).artifact
    first = json.loads(run.metrics.read_text().splitlines()[0])
    assert first["learning_rate"] == pytest.approx(0.01 * factor)
    said = [
        event.text for event in events if isinstance(event, Message) and "learning rates are multiplied" in event.text
    ]
    assert [f"by {factor:g} for batch_size 400 instead of 100" in text for text in said] == (
        [] if rule == "none" else [True]
    )


# -- train.devices ----------------------------------------------------------------------------------------------------


@pytest.fixture
def started(monkeypatch):
    """The launched processes."""
    found: list[subprocess.Popen[str]] = []

    class Noted(subprocess.Popen[str]):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            found.append(self)

    monkeypatch.setattr(launch.subprocess, "Popen", Noted)
    yield found
    assert all(process.poll() is not None for process in found)


def test_a_rank_that_is_killed_ends_the_run_which_goes_on_where_it_was(make_prepared, tmp_path, started):
    data, config = make_prepared(rows=1_009), a_config(devices=2, batch_size=128, epochs=3, checkpoint_steps=1_000)
    workspace = Workspace(tmp_path / "broken")
    events: list[Event] = []

    def emit(event):
        events.append(event)
        if isinstance(event, Progress) and event.task.startswith("train epoch 2") and len(started) == 2:
            started[1].kill()

    with pytest.raises(TrainingError, match="rank 1 was killed by SIGKILL") as caught:
        train_on(data, config, workspace, emit=emit)
    assert "--resume" in str(caught.value.hint)
    (left,) = workspace.runs()
    assert not left.exists
    done = len(losses_of(left))
    assert done >= 9
    kept = next(event.text for event in events if isinstance(event, Message) and event.level == "warning")
    assert kept == f"a process is gone: saving the state after step {done}"
    train_on(data, config, workspace, resume=True, emit=events.append)
    assert any(isinstance(event, Message) and f"at step {done + 1}" in event.text for event in events)
    whole, _ = trained(data, config, tmp_path / "whole", ranks=2, eps=1e-8)
    assert left.exists
    assert losses_of(left) == losses_of(whole)
    assert same_weights(left, whole)


FAILING = """
from recsys_cli.models.ranking.networks import MLP
import os


class Model(MLP):
    steps = 0

    def loss(self, batch, *, scores=None):
        self.steps += self.training
        if self.steps == 3 and os.environ.get("RANK") == "1":
            raise ValueError("bad luck")
        return super().loss(batch, scores=scores)
"""


def test_the_error_of_the_rank_that_failed_is_the_one_that_is_told(make_prepared, workspace, tmp_path, monkeypatch):
    package = tmp_path / "mine" / "my_models" / "failing"
    package.mkdir(parents=True)
    (package / "model.py").write_text(FAILING)
    (package / "config.py").write_text("from recsys_cli.models.configs.ranking import MLPConfig as Config\n")
    monkeypatch.syspath_prepend(tmp_path / "mine")
    monkeypatch.setenv("RECSYS_TRUST", "my_models")
    config = a_config(devices=2, model={"name": "my_models.failing", "embedding_dim": 4, "hidden_dims": [8]})
    with pytest.raises(RuntimeError, match="rank 1: ValueError: bad luck") as caught:
        train_on(make_prepared(), config, workspace)
    assert "in loss" in caught.value.__notes__[0]
    (left,) = workspace.runs()
    assert left.checkpoint("last").is_file()
    assert len(losses_of(left)) == 2


def test_more_gpus_than_there_are_is_an_error_before_anything_is_started(
    make_prepared, workspace, monkeypatch, started
):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    with pytest.raises(ConfigError, match="2 processes on a machine with 1 GPU"):
        train_on(make_prepared(), a_config(devices=2, device="cuda"), workspace)
    assert not started


@pytest.mark.slow
def test_torchrun_starts_the_command(make_prepared, tmp_path):
    data, config = make_prepared(rows=1_009), a_config(sparse_embeddings=True)
    (tmp_path / "x.yaml").write_text(dump(config))
    program = (
        "import sys; from pathlib import Path; from recsys_cli.config import load; from recsys_cli.stages.train import train_on; "
        "from recsys_cli.workspace import PreparedData, Workspace; "
        "train_on(PreparedData(Path(sys.argv[1])), load(Path('x.yaml')), Workspace(Path('w')))"
    )
    subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--no-python", sys.executable, "-c", program,
         str(data.folder)],
        cwd=tmp_path, check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    (run,) = Workspace(tmp_path / "w").runs()
    whole, _ = trained(data, config, tmp_path / "whole", ranks=2, eps=1e-8)
    assert same_weights(run, whole)
