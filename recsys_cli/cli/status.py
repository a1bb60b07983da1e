"""The command `recsys status`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from recsys_cli.cli.quantities import size
from recsys_cli.cli.session import Session
from recsys_cli.cli.tables import facts, line, table
from recsys_cli.errors import DataError, RecsysError

if TYPE_CHECKING:
    from rich.console import Console

    from recsys_cli.config import RunConfig
    from recsys_cli.workspace import Artifact, PreparedData, TrainedRun, TunedStudy, Workspace


def status(ctx: typer.Context) -> None:
    """Show the workspace and the next command."""
    session: Session = ctx.obj
    found = survey(session.workspace)
    if "next" in found["current"]:
        found["current"]["next"] = session.located(found["current"]["next"])
    session.answer(found, _draw_status)


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
    except RecsysError as error:
        if "download" in command and isinstance(error, DataError):  # the tables are not here
            command = f"recsys validate {workspace.current}"
        unfinished = _unfinished(config, workspace) if command == "recsys train" else None
        if unfinished is None:
            return {**progress, "next": command}
        trainer = workspace.trainer(unfinished)
        return {**progress, "next": f"wait: {trainer} is training it" if trainer else "recsys train --resume"}
    run, data = workspace.run(progress["run"]), workspace.data(progress["data"])
    if not data.rows("valid") + data.rows("test"):  # of a winner of `auto`
        return {**progress, "next": "recsys export"}
    return {**progress, "next": "recsys report" if run.evaluated().evaluation.is_file() else "recsys evaluate"}


def _unfinished(config: RunConfig, workspace: Workspace) -> TrainedRun | None:
    from recsys_cli.config import dump

    text = dump(config).encode()
    runs = [run for run in workspace.runs() if not run.exists and run.config.read_bytes() == text]
    return runs[-1] if runs else None


def _draw_status(to: Console, result: Mapping[str, Any]) -> None:
    if not (result["raw"] or result["data"] or result["runs"] or result["current"]["config"]):
        line(to, f"{result['workspace']} is empty")
        line(to, "next: recsys ls datasets, then recsys download NAME, or recsys init TABLE for your own", style="dim")
        return
    table(to, "raw", ("dataset", "size"), [(r["name"], size(r["bytes"])) for r in result["raw"]])
    cells = [
        (d["key"], *(f"{d['rows'].get(s, 0):,}" for s in ("train", "valid", "test")), size(d["bytes"]))
        for d in result["data"]
    ]
    table(to, "prepared", ("key", "train", "valid", "test", "size"), cells)
    heads, cells = _runs(result["runs"], has_data=len(result["data"]) > 1)
    table(to, "runs", heads, cells, text=heads.index("state") + 1)
    studies = [
        (s["name"], ", ".join(s["keys"]), f"{s['metric'] or ''} {_figure(s, 'best') or '–'}",
         f"{sum(s['trials'].get(state, 0) for state in ('finished', 'pruned', 'failed'))} of {s['trials'].get('wanted', 0)}")
        for s in result["studies"]
    ]  # fmt: skip
    table(to, "studies", ("study", "keys", "best", "trials"), studies, text=3)
    for problem in [
        one["problem"] for kind in ("raw", "data", "runs", "studies") for one in result[kind] if one["problem"]
    ]:
        line(to, problem, style="red")
    for path in result["leftovers"]:
        line(to, f"{path} is incomplete, and no command reads it: remove it, unless one is writing it", style="red")
    current, finished = result["current"], {run["data"] for run in result["runs"]} - {None}
    if finished and current.get("data") not in finished:
        text = "the current config has no run on its data; the others work by name, such as recsys recommend RUN"
        line(to, text, style="yellow")
    shown = ("config", "problem", "dataset", "data", "run", "next")
    facts(to, [(name, str(current.get(name) or "")) for name in shown])


def _runs(
    runs: Sequence[Mapping[str, Any]], *, has_data: bool = False
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return heads and cells; RMSE only for runs with a numeric label."""
    from recsys_cli.metrics.named import BINARY, REGRESSION

    of_classes, of_numbers = BINARY.default, REGRESSION.default
    errors = [{} if of_classes.name in run["metrics"] else run["metrics"] for run in runs]
    has_errors, has_options = any(of_numbers.name in one for one in errors), any(run["options"] for run in runs)
    cells = [
        (
            run["name"], *([run["data"] or ""] if has_data else []), *([_written(run["options"])] if has_options else []),
            run["state"],
            _figure(run["metrics"], of_classes.name),
            *([_figure(one, of_numbers.name)] if has_errors else []),
            _figure(run["metrics"], "ndcg@10"), size(run["bytes"]),
        )
        for run, one in zip(runs, errors, strict=True)
    ]  # fmt: skip
    heads = ("run", *(["data"] if has_data else []), *(["options"] if has_options else []), "state")
    return (*heads, of_classes.title, *([of_numbers.title] if has_errors else []), "NDCG@10", "size"), cells


def _written(options: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}={value:,g}" if isinstance(value, float) else f"{name}={value}" for name, value in options.items()
    )


def _figure(metrics: Mapping[str, float | None], name: str) -> str:
    value = metrics.get(name)
    return "" if value is None else f"{value:.4f}"
