"""The workspace: the only author of paths in it, and of how an artifact comes to be there: whole, or not at all."""

from __future__ import annotations

from recsys_cli.workspace.artifacts import (
    Artifact,
    PreparedData,
    RawData,
    TrainedRun,
    TunedStudy,
    key_of,
    write_manifest,
    write_text,
)
from recsys_cli.workspace.unfinished import not_finished
from recsys_cli.workspace.workspace import Workspace

__all__ = [
    "Artifact", "PreparedData", "RawData", "TrainedRun", "TunedStudy", "Workspace", "key_of", "not_finished", "write_manifest",
    "write_text",
]  # fmt: skip
