"""What is in a workspace: the datasets, the prepared data, the runs with their state, and what to do next."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from recsys_cli.errors import RecsysError

if TYPE_CHECKING:
    from recsys_cli.config import RunConfig
    from recsys_cli.workspace import Artifact, TrainedRun, TunedStudy, Workspace


def survey(workspace: Workspace) -> dict[str, Any]:
    """Look at everything that is there."""
    config, problem = _current(workspace)
    raw = [{"name": a.folder.name, **_size(a)} for a in workspace.all_raw()]
    data = [{"key": a.folder.name, "rows": a.manifest.get("rows"), **_size(a)} for a in workspace.all_data()]
    runs = [_run(run) for run in workspace.runs()]
    studies = [_study(study) for study in workspace.studies()]
    current = {"config": str(workspace.current) if workspace.current.is_file() else None, "problem": problem}
    if config:
        current |= _progress(config, workspace)
    return {
        "workspace": str(workspace.root),
        "raw": raw,
        "data": data,
        "runs": runs,
        "studies": studies,
        "current": current,
    }


def _size(artifact: Artifact) -> dict[str, Any]:
    files = [file for file in artifact.folder.rglob("*") if file.is_file()]
    return {"path": str(artifact.folder), "bytes": sum(file.stat().st_size for file in files)}


def _current(workspace: Workspace) -> tuple[RunConfig | None, str | None]:
    from recsys_cli.config import load

    if not workspace.current.is_file():
        return None, None
    try:
        return load(workspace.current), None
    except RecsysError as error:
        return None, error.message


def _run(run: TrainedRun) -> dict[str, Any]:
    metrics: dict[str, Any] = {}
    run = run.evaluated()
    if run.evaluation.is_file():
        found = json.loads(run.evaluation.read_text(encoding="utf-8"))
        measured = {**found["pointwise"].get("model", {}), **found["ranking"].get("model", {})}
        metrics = {name: estimate["value"] for name, estimate in measured.items()}
    state = "evaluated" if metrics else "trained" if run.exists else "unfinished"
    return {"name": run.folder.name, "state": state, "metrics": metrics, **_size(run)}


def _study(study: TunedStudy) -> dict[str, Any]:
    found = study.manifest
    facts = {"metric": found["metric"]["name"], "trials": found["trials"], "best": (found["best"] or {}).get("value")}
    return {"name": study.folder.name, "keys": list(found["space"]), **facts, **_size(study)}


def _progress(config: RunConfig, workspace: Workspace) -> dict[str, Any]:
    """Say how far the current config has come, and what its next command is."""
    from recsys_cli.cli.runs import find_run
    from recsys_cli.stages.etl import prepared_data, raw_identity

    dataset = config.dataset
    found: dict[str, Any] = {"dataset": dataset.name, "data": None, "run": None}
    command = f"recsys download {workspace.current if dataset.options else dataset.name}"
    try:
        raw_identity(config, workspace)
        command = "recsys etl"
        found["data"] = prepared_data(config, workspace).folder.name
        command = "recsys train"
        found["run"] = find_run(config, workspace).folder.name
    except RecsysError:
        resumable = command == "recsys train" and _is_unfinished(config, workspace)
        return {**found, "next": "recsys train --resume" if resumable else command}
    run = workspace.run(found["run"])
    return {**found, "next": "recsys report" if run.evaluated().evaluation.is_file() else "recsys evaluate"}


def _is_unfinished(config: RunConfig, workspace: Workspace) -> bool:
    """Whether a run of this very config was begun and can be gone on with."""
    from recsys_cli.config import dump

    begun = [run for run in workspace.runs() if not run.exists]
    return any(run.config.read_text(encoding="utf-8") == dump(config) for run in begun)
