"""What there is to say of a run that has no manifest: how far it came, and the two commands that lead on."""

from __future__ import annotations

import json
from contextlib import suppress

from recsys_cli.errors import MissingArtifactError
from recsys_cli.workspace.artifacts import TrainedRun


def not_finished(run: TrainedRun) -> MissingArtifactError:
    """Return the error of asking for a run that did not come to its end, or that is not there."""
    name = run.folder.name
    if not run.folder.is_dir():
        return MissingArtifactError(f"run {name} is not there", hint="recsys status shows all runs")
    epochs = _epochs(run)
    kept = ", and keeps the best epoch until then" if run.checkpoint("best").is_file() else ""
    return MissingArtifactError(
        f"run {name} is not finished: unless it is being trained right now, it was interrupted after {epochs} "
        f"epoch{'' if epochs == 1 else 's'}{kept}",
        hint=f"recsys train {run.config} --resume goes on to its end; recsys train {run.config} --force begins anew",
    )


def _epochs(run: TrainedRun) -> int:
    """Return how many epochs a run has told of; the last line may be half a line."""
    number = 0
    if run.metrics.is_file():
        for text in run.metrics.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError, TypeError, KeyError):
                number += json.loads(text)["event"] == "epoch"
    return number
