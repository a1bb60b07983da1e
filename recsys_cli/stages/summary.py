"""What a run's manifest says, however its model has learnt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch

from recsys_cli.config import RunConfig
from recsys_cli.stages.choice import run_key
from recsys_cli.training import hardware
from recsys_cli.training.events import EpochRecord
from recsys_cli.workspace import PreparedData


def summary(
    config: RunConfig, data: PreparedData, history: Sequence[EpochRecord], best: EpochRecord | None, **facts: Any
) -> dict[str, Any]:
    """Return what there is to know of a run.

    Args:
        config: The experiment.
        data: What it learnt from.
        history: Its epochs.
        best: The one whose weights are kept.
        facts: What else there is: parameters, steps, device, precision, devices, notes, unit (rows or users, of what is
            counted), and `last_session` and `compiling` in seconds.
    """
    seconds, rows = sum(record.seconds for record in history), sum(record.rows for record in history)
    wall, compiling = facts.pop("last_session"), facts.pop("compiling")
    return {
        "key": run_key(config, data),
        "model": config.model.name,
        "data": {"key": data.key, "folder": data.folder.name},
        "continues": config.train.continue_from,
        "rows": rows,
        "epochs": len(history),
        "monitor": config.train.monitor,
        "best_epoch": best.epoch if best else None,
        "valid": (best.valid or None) if best else None,
        "history": [asdict(record) for record in history],
        "seconds": {"train": round(seconds, 3), "last_session": round(wall, 3), "compiling": compiling},
        "rows_per_second": round(rows / max(seconds, 1e-9)),
        "waiting_share": round(sum(record.waiting for record in history) / max(seconds, 1e-9), 4),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "peak_memory": hardware.peak_memory(),
        **facts,
    }
