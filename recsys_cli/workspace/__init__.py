"""The workspace of artifacts."""

from __future__ import annotations

from recsys_cli.workspace.artifacts import (
    Artifact,
    Bundle,
    PreparedData,
    RawData,
    TrainedRun,
    TunedStudy,
    key_of,
    read_evaluation,
    write_manifest,
)
from recsys_cli.workspace.folders import replacing_folder
from recsys_cli.workspace.reading import MAX_JSON, read_json, read_text, whole
from recsys_cli.workspace.unfinished import not_finished
from recsys_cli.workspace.workspace import Workspace, run_lock
from recsys_cli.workspace.writing import naming, replacing, write_json, write_text

__all__ = [
    "MAX_JSON", "Artifact", "Bundle", "PreparedData", "RawData", "TrainedRun", "TunedStudy", "Workspace", "key_of", "naming",
    "not_finished", "read_evaluation", "read_json", "read_text", "replacing", "replacing_folder", "run_lock",
    "whole", "write_json", "write_manifest", "write_text",
]  # fmt: skip
