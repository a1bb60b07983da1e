"""Files of a training run: metrics.jsonl, and the `last` and `best` checkpoints."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from recsys_cli.training.checkpoint import Checkpoint
from recsys_cli.training.events import EpochEnded, Stepped, TrainingEvent
from recsys_cli.training.trackers import Trackers
from recsys_cli.workspace import TrainedRun, naming, read_text, write_text

if TYPE_CHECKING:
    from recsys_cli.training.trainer import Trainer

_LINES = 100
"""Approximate number of step lines per epoch in metrics.jsonl."""


class Recorder:
    """Writes metrics and checkpoints of a run, if `writes`, and passes metrics to trackers.

    The `last` checkpoint, written after every epoch and some steps, stores the number of lines in metrics.jsonl: a
    resumed run neither repeats nor loses a line. It also has `key`, a hash of the inputs of the run, as an unfinished
    run has no manifest.
    """

    def __init__(
        self, run: TrainedRun, training: Trainer, *, key: str, checkpoint_steps: int, trackers: Trackers, writes: bool
    ) -> None:
        self._run = run
        self.trackers = trackers
        self._key = key
        self._training = training
        self._writes = writes
        self._checkpoint_steps = checkpoint_steps
        self._lines = 0
        self._since = (0, 0.0)  # rows and loss sum of the epoch at the previous line

    def resume(self) -> dict[str, int]:
        """Restore the training and truncate the metrics to the state of `last`; return the last step of each event before."""
        if self._run.checkpoint("last").is_file():  # missing if the run ended before the first checkpoint
            saved = Checkpoint.load(self._run.checkpoint("last"))
            self._training.restore(saved)
            self._lines, self._since = int(saved.meta["lines"]), tuple(saved.meta["since"])
        if not (self._writes and self._run.metrics.is_file()):
            return {}
        lines = read_text(self._run.metrics, hint="recsys train --force").splitlines(keepends=True)
        write_text(self._run.metrics, "".join(lines[: self._lines]))
        return _last_steps(lines)

    def record(self, event: TrainingEvent, *, steps_per_epoch: int) -> None:
        """Write metrics and checkpoints after an event."""
        if isinstance(event, Stepped):
            if event.step % max(1, steps_per_epoch // _LINES) == 0:
                self._write_step(event)
            if event.step % self._checkpoint_steps == 0:
                self.save_last()
        elif isinstance(event, EpochEnded):
            self._write({"event": "epoch", **asdict(event.record)})
            self._since = (0, 0.0)
            if event.best:
                meta = {"epoch": event.record.epoch, "metrics": asdict(event.record)}
                self._save("best", Checkpoint(self._training.weights(), meta))
            self.save_last()

    def save_last(self) -> None:
        """Write the `last` checkpoint."""
        state = self._training.state()
        meta = {**state.meta, "key": self._key, "lines": self._lines, "since": self._since}
        self._save("last", Checkpoint(state.tensors, meta))

    def _write_step(self, event: Stepped) -> None:
        rows, loss_sum = self._since
        self._since = (event.rows, event.loss * event.rows)
        self._write({
            "event": "step",
            "epoch": event.epoch,
            "step": event.step,
            "learning_rate": event.learning_rate,
            "loss": (self._since[1] - loss_sum) / max(event.rows - rows, 1),
            "rows_per_second": event.rows / event.seconds if event.seconds else None,
            "waiting_share": event.waiting / event.seconds if event.seconds else None,
        })  # fmt: skip

    def _save(self, which: str, saved: Checkpoint) -> None:
        if self._writes:
            saved.save(self._run.checkpoint(which))

    def _write(self, line: dict[str, Any]) -> None:
        if not self._writes:
            return
        self._run.folder.mkdir(parents=True, exist_ok=True)
        with naming(self._run.metrics), self._run.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self._lines += 1
        self.trackers.log(line)


def _last_steps(lines: Iterable[str]) -> dict[str, int]:
    steps: dict[str, int] = {}
    for text in lines:
        with suppress(ValueError, LookupError, TypeError):
            line = json.loads(text)
            steps[line["event"]] = line["step"]
    return steps
