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
from recsys_cli.workspace.files import (
    MAX_JSON,
    check_output,
    naming,
    read_json,
    read_text,
    replacing,
    whole,
    write_json,
    write_text,
)
from recsys_cli.workspace.locks import replacing_folder
from recsys_cli.workspace.mirror import publishing
from recsys_cli.workspace.workspace import Workspace, finished, not_finished, run_lock

__all__ = [
    "MAX_JSON",
    "Artifact",
    "Bundle",
    "PreparedData",
    "RawData",
    "TrainedRun",
    "TunedStudy",
    "Workspace",
    "check_output",
    "finished",
    "key_of",
    "naming",
    "not_finished",
    "publishing",
    "read_evaluation",
    "read_json",
    "read_text",
    "replacing",
    "replacing_folder",
    "run_lock",
    "whole",
    "write_json",
    "write_manifest",
    "write_text",
]  # fmt: skip
