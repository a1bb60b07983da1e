"""Trainer of closed-form models: no epochs, one line of metrics, the same files as any other run."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass

import torch

from recsys_cli.events import Emit, Message, Progress
from recsys_cli.models.model import Model, TrainingContext
from recsys_cli.training.checkpoint import Checkpoint, weights
from recsys_cli.training.data import validation_batches
from recsys_cli.training.distributed.ranks import Ranks
from recsys_cli.training.events import EpochRecord
from recsys_cli.training.objective import Figures, Objective
from recsys_cli.training.result import TrainingResult
from recsys_cli.training.validation import Validation
from recsys_cli.workspace import PreparedData, TrainedRun, write_text


@dataclass(frozen=True)
class ClosedFormTrainer:
    """Fits a closed-form model on all interactions of train; `memory` is the budget of validation batches in MiB."""

    name: str
    model: Model
    data: PreparedData
    context: TrainingContext
    objective: Objective
    memory: int
    emit: Emit

    def fit(self, run: TrainedRun) -> TrainingResult:
        """Fit and validate the model; write metrics and weights, as the `best` checkpoint of the run."""
        model = self.model
        started = time.perf_counter()
        with torch.no_grad():
            model.fit(
                self.context, progress=lambda done, total: self.emit(Progress(f"fit {self.name}", done, total, "parts"))
            )
            seconds = time.perf_counter() - started
            model.set_context(self.context)
            model.eval()
            valid = self._validate()
        rows = self.data.rows("train")
        record = EpochRecord(epoch=1, step=1, rows=rows, train_loss=None, valid=valid, seconds=seconds, waiting=0.0)
        Checkpoint(weights(model), {"epoch": 1, "metrics": asdict(record)}).save(run.checkpoint("best"))
        write_text(run.metrics, json.dumps({"event": "epoch", **asdict(record)}) + "\n")
        self._report(record)
        return TrainingResult([record], record, None, {
            "parameters": sum(buffer.numel() for buffer in model.buffers()),
            "steps": 0,
            "precision": "fp32",
            "device": model.device.type,
            "devices": 1,
            "left_out": asdict(model.left_out) if model.left_out is not None else None,
            "notes": [],
            "chosen": dict(model.chosen),
        })  # fmt: skip

    def _validate(self) -> Figures:
        validation = Validation(self.data.rows("valid"), self.objective, Ranks())
        loader = validation_batches(self.data, self.model.device, memory=self.memory, ranks=Ranks())
        if loader is None:
            return {}
        for batch in loader:
            validation.add(self.model, batch)
            self.emit(Progress("validate", validation.rows, loader.num_rows))
        return validation.figures(self.model)

    def _report(self, record: EpochRecord) -> None:
        model = self.model
        chosen = "".join(f", {option} {value:g} chosen on train" for option, value in model.chosen.items())
        figures = "".join(f", valid {name} {value:.4f}" for name, value in record.valid.items() if value is not None)
        self.emit(Message(f"{self.name} is fitted{chosen}{figures}", facts=asdict(record)))
        if model.left_out is not None:
            self.emit(Message(model.left_out.sentence(self.name), "warning", facts=asdict(model.left_out)))
