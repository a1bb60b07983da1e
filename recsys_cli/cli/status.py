"""The report of `recsys status`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from recsys_cli.errors import RecsysError

if TYPE_CHECKING:
    from recsys_cli.config import RunConfig
    from recsys_cli.workspace import Artifact, PreparedData, TrainedRun, TunedStudy, Workspace


def survey(workspace: Workspace) -> dict[str, Any]:
    """Return all artifacts of a workspace and the progress of its current config."""
    config, problem = _current(workspace)
    raw = [{"name": a.folder.name, "problem": a.damage, **_size(a)} for a in workspace.all_raw()]
    data = [_data(data) for data in workspace.all_data()]
    runs = [_run(run, workspace) for run in workspace.runs()]
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
        "leftovers": [str(path) for path in workspace.leftovers()],
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


def _data(data: PreparedData) -> dict[str, Any]:
    problem = data.damage
    rows = {} if problem else data.manifest["rows"]
    return {"key": data.folder.name, "rows": rows, "problem": problem, **_size(data)}


def _run(run: TrainedRun, workspace: Workspace) -> dict[str, Any]:
    metrics, problem = _measured(run)
    trainer = None if run.exists else workspace.trainer(run)
    state = "evaluated" if metrics else "trained" if run.exists else "training" if trainer else "unfinished"
    return {
        "name": run.folder.name,
        "options": _options(run),
        "data": run.manifest["data"].get("folder") if run.exists and not run.damage else None,
        "state": "damaged" if problem else state,
        "process": asdict(trainer) if trainer else None,
        "metrics": metrics,
        "problem": problem,
        **_size(run),
    }


def _options(run: TrainedRun) -> dict[str, Any]:
    """Return the model options of a run other than the defaults; none of an unreadable config."""
    from recsys_cli.config import ModelConfig, load
    from recsys_cli.config.load import spelled_out

    with suppress(RecsysError):
        model = load(run.config).model
        defaults = spelled_out(ModelConfig(name=model.name)).options
        return {name: value for name, value in model.options.items() if value != defaults[name]}
    return {}


def _measured(run: TrainedRun) -> tuple[dict[str, Any], str | None]:
    from recsys_cli.workspace import whole

    problem = run.damage if run.exists else None
    run = run.evaluated()
    if problem or not run.evaluation.is_file():
        return {}, problem
    try:
        with whole(run.evaluation, hint="recsys evaluate --force"):
            evaluation = run.read_evaluation()
            estimates = {**evaluation["pointwise"].get("model", {}), **evaluation["ranking"].get("model", {})}
            return {name: estimate["value"] for name, estimate in estimates.items()}, None
    except RecsysError as error:
        return {}, f"{error.message} ({error.hint})"


def _study(study: TunedStudy) -> dict[str, Any]:
    facts: dict[str, Any] = {"keys": [], "metric": None, "trials": {}, "best": None}
    if (problem := study.damage) is None:
        manifest = study.manifest
        facts = {
            "keys": list(manifest["space"]), "metric": manifest["metric"]["name"], "trials": manifest["trials"],
            "best": (manifest["best"] or {}).get("value"),
        }  # fmt: skip
    return {"name": study.folder.name, **facts, "problem": problem, **_size(study)}


def _progress(config: RunConfig, workspace: Workspace) -> dict[str, Any]:
    from recsys_cli.cli.runs import find_run
    from recsys_cli.stages.etl import prepared_data, raw_identity

    dataset = config.dataset
    progress: dict[str, Any] = {"dataset": dataset.name, "data": None, "run": None}
    command = f"recsys download {workspace.current if dataset.options else dataset.name}"
    try:
        raw_identity(config, workspace)
        command = "recsys etl"
        progress["data"] = prepared_data(config, workspace).folder.name
        command = "recsys train"
        progress["run"] = find_run(config, workspace).folder.name
    except RecsysError:
        unfinished = _unfinished(config, workspace) if command == "recsys train" else None
        if unfinished is None:
            return {**progress, "next": command}
        trainer = workspace.trainer(unfinished)
        return {**progress, "next": f"wait: {trainer} is training it" if trainer else "recsys train --resume"}
    run = workspace.run(progress["run"])
    return {**progress, "next": "recsys report" if run.evaluated().evaluation.is_file() else "recsys evaluate"}


def _unfinished(config: RunConfig, workspace: Workspace) -> TrainedRun | None:
    from recsys_cli.config import dump

    text = dump(config).encode()
    runs = [run for run in workspace.runs() if not run.exists and run.config.read_bytes() == text]
    return runs[-1] if runs else None
