"""Signals end training between two steps; a closed terminal loses nothing."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path

import pytest

from recsys_cli.config import RunConfig, dump
from recsys_cli.errors import Terminated
from recsys_cli.training.checkpoint import Checkpoint
from recsys_cli.training.launch import deferred_interrupt
from recsys_cli.workspace import Workspace
from tests.rated import FEATURES

CHILD = """
import sys
from pathlib import Path
from recsys_cli.cli.render import renderer
from recsys_cli.config import load
from recsys_cli.stages.train import train_on
from recsys_cli.workspace import PreparedData, Workspace

config, data, root = (Path(text) for text in sys.argv[1:])
try:
    with renderer("train", quiet=False) as emit:
        train_on(PreparedData(data), load(config), Workspace(root), emit=emit)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda one: one.name)
def test_a_signal_is_told_when_somebody_asks(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with deferred_interrupt() as interrupted:
        assert not interrupted()
        os.kill(os.getpid(), number)
        assert interrupted()
    assert signal.getsignal(number) is before


@pytest.mark.parametrize(("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)])
def test_an_interrupted_block_ends_by_the_kind_of_its_signal(number: signal.Signals, kind: type[BaseException]) -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        stopped_by(number)
    assert caught.type is kind


def stopped_by(number: signal.Signals) -> None:
    with deferred_interrupt() as interrupted:
        os.kill(os.getpid(), number)
        if interrupted():
            raise KeyboardInterrupt


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with deferred_interrupt() as interrupted:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not interrupted()
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("devices", [1, 2])
def test_a_terminal_that_is_closed_ends_training_with_its_last_step_kept(
    make_prepared, tmp_path: Path, devices: int
) -> None:
    data = make_prepared()
    config = RunConfig.model_validate({
        "dataset": {"name": "synthetic-small"}, "features": FEATURES,
        "model": {"name": "mlp", "embedding_dim": 4, "hidden_dims": [4]},
        "train": {
            "epochs": 10_000, "batch_size": 1_000, "device": "cpu", "trackers": [], "checkpoint_steps": 10_000,
            "devices": devices,
        },
    })  # fmt: skip
    (tmp_path / "child.yaml").write_text(dump(config))
    workspace, (ours, terminal) = Workspace(tmp_path / "workspace"), pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path / "child.yaml"), str(data.folder), str(workspace.root)],
        stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0), env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(terminal)
    try:
        until = time.monotonic() + 120
        os.set_blocking(ours, False)
        while not any(run.metrics.is_file() for run in workspace.runs()):
            assert time.monotonic() < until
            assert child.poll() is None
            time.sleep(0.05)
            with suppress(BlockingIOError):
                os.read(ours, 1 << 16)  # somebody looks at the terminal, until it is closed
        os.close(ours)
        assert child.wait(60) == 130
    finally:
        child.kill()
    (run,) = workspace.runs()
    saved = Checkpoint.load(run.checkpoint("last")).meta
    assert not run.exists
    assert saved["lines"] == len(run.metrics.read_text().splitlines())  # every step that was told is in it
