"""Remarks on the selection of the best epoch."""

from __future__ import annotations

from collections.abc import Sequence

from recsys_cli.training.events import EpochRecord
from recsys_cli.training.objective import Monitor
from recsys_cli.training.progress import best_epoch


def notes(history: Sequence[EpochRecord], monitor: Monitor, *, early_stopping: bool, has_ranking: bool) -> list[str]:
    """Return remarks for the manifest of a finished run, as sentences without a period.

    `has_ranking` recommends a ranking metric in place of an undefined one.
    """
    best, name = best_epoch(history, monitor), monitor.name
    if best is None or not best.valid:
        return []
    if all(monitor.quality(record.valid) == -float("inf") for record in history):
        return [
            f"train.monitor={name} was not defined in any epoch, so the last epoch is kept; "
            f"monitor a metric of this model and data ({_defined(history[-1], has_ranking) or 'none was measured'})"
        ]
    remarks = []
    if all(record.valid[name] is None for record in history):
        remarks.append(
            f"train.monitor={name} was not defined in any epoch, so the epoch with the lowest valid loss is kept"
        )
    if best is history[-1] and len(history) > 1:
        number = len(history)
        stopping = "" if early_stopping else f" train.early_stopping={max(2, number // 4)}"
        remarks.append(
            f"the best epoch is the last of {number}: more may be better, such as train.epochs={2 * number}{stopping}"
        )
    return remarks


def _defined(record: EpochRecord, has_ranking: bool) -> str:
    names = (name for name, value in record.valid.items() if value is not None)
    others = ("ndcg@10",) if has_ranking else ()
    return ", ".join(dict.fromkeys([*others, *names]))
