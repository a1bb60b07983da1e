"""`recsys etl --apply`: new rows, prepared with the fitted plan of a run or prepared data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from recsys_cli.config import load
from recsys_cli.errors import ConfigError
from recsys_cli.etl.new_rows import Applied, NewRows, apply_plan
from recsys_cli.events import Emit, ignore
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.program import INTERACTIONS
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace, check_output

ALLOWED_OVERRIDES = ("etl.engine=", "etl.device=", "etl.memory_mib=")
"""Overrides without effect on the result."""


def apply(
    name: str,
    files: Sequence[str],
    workspace: Workspace,
    *,
    output: Path | None = None,
    overrides: Sequence[str] = (),
    force: bool = False,
    emit: Emit = ignore,
) -> Applied:
    """Transform new rows with a fitted plan: all rows, in order, with all joined columns, in one Parquet file.

    `files` are files, globs, folders or URLs in the format of the dataset's interactions. The default output is the
    first file's name with .prepared.parquet, in the working directory.

    Raises:
        ConfigError: There are no files, the output exists, or an override is not allowed.
        MissingArtifactError: The run or prepared data does not exist.
        DataError: A required column is missing, or a file is unreadable.
        MissingExtraError: The engine is not installed.
    """
    target = _output(files, output, force=force)
    others = [text for text in overrides if not text.startswith(ALLOWED_OVERRIDES)]
    if others:
        allowed = ", ".join(key.rstrip("=") for key in ALLOWED_OVERRIDES)
        raise ConfigError(f"{', '.join(others)}: the plan is already fitted; only {allowed} go with --apply")
    data = find_data(name, workspace)
    data.verify()
    config = load(data.folder / "config.yaml", overrides)
    fitted = FittedPlan.read(data.folder)
    rows = NewRows(config, tuple(files), fitted.inputs[INTERACTIONS])
    with workspace.scratch() as scratch:
        return apply_plan(data, rows, target, fitted=fitted, scratch=scratch, emit=emit)


def find_data(name: str, workspace: Workspace) -> PreparedData:
    """Return prepared data by folder or key (or a prefix), or by the folder or name (or a prefix or suffix) of a run.

    Raises:
        MissingArtifactError: The name has no match, or several.
    """
    folder = Path(name)
    if (folder / "plan.json").is_file() and PreparedData(folder).exists:
        return PreparedData(folder)
    if (folder / "checkpoints").is_dir() and (folder / "config.yaml").is_file():
        return Workspace(folder.resolve().parent.parent).data_of(TrainedRun(folder))
    artifact = workspace.run_or_data(name)
    return artifact if isinstance(artifact, PreparedData) else workspace.data_of(artifact)


def _output(files: Sequence[str], output: Path | None, *, force: bool) -> Path:
    if not files:
        raise ConfigError("no files of new rows", hint="recsys etl --apply RUN_OR_DATA NEW.parquet")
    if output is None:
        name = files[0].rstrip("/").rpartition("/")[2]
        output = Path(f"{name.partition('.')[0].replace('*', '') or 'new'}.prepared.parquet")
    if any(Path(file).exists() and output.exists() and Path(file).samefile(output) for file in files):
        raise ConfigError(f"{output} is one of the input files", hint="choose another file with --out")
    check_output(output, force=force)
    return output
