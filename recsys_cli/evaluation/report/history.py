"""Learning curves from metrics.jsonl; missing lines and values leave gaps instead of errors."""

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
    """Metrics of a training over steps.

    Attributes:
        step_loss: Training loss since the last point.
        valid: Validation metrics at the end of an epoch, by name: `auc`, `ndcg@10`.
    """

    step_loss: Curve
    train_loss: Curve
    valid_loss: Curve
    valid: dict[str, Curve]


def read_history(path: Path) -> TrainingHistory:
    """Read metrics.jsonl; a missing file, or a truncated last line, leaves the points before it."""
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
    """Return the values at a path of keys, over the steps."""
    points = [(_number(record.get("step")), _number(reduce(_get, path, record))) for record in records]
    complete = [(x, y) for x, y in points if x is not None and y is not None]
    return Curve(x=tuple(x for x, _ in complete), y=tuple(y for _, y in complete))


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
