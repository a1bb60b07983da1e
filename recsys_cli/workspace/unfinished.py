"""Error for a run without a manifest."""

from __future__ import annotations

import json
from contextlib import suppress

from recsys_cli.errors import MissingArtifactError
from recsys_cli.workspace.artifacts import TrainedRun


def not_finished(run: TrainedRun) -> MissingArtifactError:
    """Return the error for a missing or unfinished run: its progress, and the commands to continue."""
    name = run.folder.name
    if not run.folder.is_dir():
        return MissingArtifactError(f"run {name} does not exist", hint="recsys status lists all runs")
    epochs = _epochs(run)
    best = ", and keeps its best checkpoint" if run.checkpoint("best").is_file() else ""
    return MissingArtifactError(
        f"run {name} is not finished: it is still training, or was interrupted after {epochs} "
        f"epoch{'' if epochs == 1 else 's'}{best}",
        hint=f"recsys train {run.config} --resume continues it; recsys train {run.config} --force starts over",
    )


def _epochs(run: TrainedRun) -> int:
    """Return the number of logged epochs; the last line may be incomplete."""
    number = 0
    if run.metrics.is_file():
        for text in run.metrics.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError, TypeError, KeyError):
                number += json.loads(text)["event"] == "epoch"
    return number
