"""Remarks on how a run chose its best epoch: a figure that was never defined, a best epoch that is the last."""

from __future__ import annotations

from recsys_cli.training.loop import Training


def notes(training: Training) -> tuple[str, ...]:
    """Return sentences without a dot for the manifest of a finished run; none where there is nothing to look at.

    Args:
        training: At its end.
    """
    history, best, name = training.progress.history, training.best, training.goal.monitor.name
    if training.valid is None or best is None:
        return ()
    if all(training.goal.monitor.quality(record.valid) == -float("inf") for record in history):
        return (
            f"train.monitor={name} was not defined in any epoch, so the last epoch is kept; "
            f"monitor a figure that this model and this data have ({_defined(training) or 'none was measured'})",
        )
    found = []
    if all(record.valid[name] is None for record in history):
        found.append(
            f"train.monitor={name} was not defined in any epoch, so the epoch with the lowest valid loss is kept"
        )
    if best is history[-1] and len(history) > 1:
        number = len(history)
        stopping = "" if training.config.early_stopping else f" train.early_stopping={max(2, number // 4)}"
        found.append(
            f"the best epoch is the last of {number}: more may be better, such as train.epochs={2 * number}{stopping}"
        )
    return tuple(found)


def _defined(training: Training) -> str:
    names = (name for name, value in training.progress.history[-1].valid.items() if value is not None)
    others = ("ndcg@10",) if training.model.rows == "users" else ()
    return ", ".join(dict.fromkeys([*others, *names]))
