"""Verification of a bundle: a sample of raw rows through ETL and model, and through the bundle."""

from __future__ import annotations

from recsys_cli.events import Emit, Message
from recsys_cli.serving.served import ServedModel
from recsys_cli.workspace import TrainedRun, Workspace


def verify_bundle(run: TrainedRun, workspace: Workspace, bundle: ServedModel, *, emit: Emit) -> int:
    """Compare the scores of a sample of raw rows, and return the number of rows."""
    del run, workspace, bundle
    emit(Message("the row encoder is not available: no raw row was verified", "warning"))
    return 0
