"""Reads metrics.jsonl for the learning curves; lines and values that are not there leave gaps, not errors."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from recsys_cli.evaluation.result import Curve


@dataclass(frozen=True)
class TrainingHistory:
    """What training measured, over steps.

    Attributes:
        step_loss: Loss of the training rows since the last point.
        train_loss: Mean loss of an epoch's training rows.
        valid_loss: Loss of the validation rows at the end of an epoch.
        valid: Everything else that was measured at the end of an epoch, by the metric's name: `auc`, `ndcg@10`.
    """

    step_loss: Curve
    train_loss: Curve
    valid_loss: Curve
    valid: dict[str, Curve]


def read_history(path: Path) -> TrainingHistory:
    """Read what there is; a run without the file, or with a cut last line, has the points before it."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    records = [record for record in map(_parse, lines) if record is not None]
    steps = [record for record in records if record.get("event") == "step"]
    epochs = [record for record in records if record.get("event") == "epoch"]
    measured = [record["valid"] for record in epochs if isinstance(record.get("valid"), dict)]
    names = dict.fromkeys(name for valid in measured for name in valid if name != "loss")
    curves = {name: _curve(epochs, "valid", name) for name in names}
    return TrainingHistory(
        step_loss=_curve(steps, "loss"),
        train_loss=_curve(epochs, "train_loss"),
        valid_loss=_curve(epochs, "valid", "loss"),
        valid={name: curve for name, curve in curves.items() if curve.x},
    )


def _parse(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _curve(records: Sequence[dict[str, Any]], *path: str) -> Curve:
    """Return what stands at a path of keys, over the steps of its records."""
    points = [(_number(record.get("step")), _number(reduce(_inside, path, record))) for record in records]
    there = [(x, y) for x, y in points if x is not None and y is not None]
    return Curve(x=tuple(x for x, _ in there), y=tuple(y for _, y in there))


def _inside(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
