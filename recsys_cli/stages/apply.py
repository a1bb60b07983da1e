"""`recsys etl --apply`: new rows, prepared with what a run or prepared data has learnt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from recsys_cli.config import load
from recsys_cli.errors import ConfigError
from recsys_cli.etl.new_rows import Applied, NewRows, apply_plan
from recsys_cli.events import Emit, ignore
from recsys_cli.features.fitted_plan import FittedPlan
from recsys_cli.features.program import INTERACTIONS
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace

HOW = ("etl.engine=", "etl.device=", "etl.memory_mib=")
"""What may be said of an application: how, not what."""


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
    """Prepare new rows with a fitted plan: every row, in order, with all columns joined, in one parquet file.

    Args:
        name: A run, or prepared data; see `find_data`.
        files: The new rows: files, globs, folders or URLs, written as the interactions of the dataset are.
        workspace: Where runs and prepared data are looked for, and scratch files go.
        output: The file to write; None for the first file's name with .prepared.parquet, in the working directory.
        overrides: Any of `HOW`.
        force: Write over a file that is there.
        emit: Is told how it goes.

    Raises:
        ConfigError: No files are given, the output is there, or an override is no matter of how.
        MissingArtifactError: There is no such run or prepared data.
        DataError: The rows lack a column that is needed, or cannot be read.
        MissingExtraError: The engine is not installed.
    """
    target = _output(files, output, force=force)
    others = [text for text in overrides if not text.startswith(HOW)]
    if others:
        allowed = ", ".join(how.rstrip("=") for how in HOW)
        raise ConfigError(f"{', '.join(others)}: what was learnt is as it is; only {allowed} go with --apply")
    data = find_data(name, workspace)
    data.verify()
    config = load(data.folder / "config.yaml", overrides)
    fitted = FittedPlan.read(data.folder)
    rows = NewRows(config, tuple(files), fitted.inputs[INTERACTIONS])
    with workspace.scratch() as scratch:
        return apply_plan(data, rows, target, fitted=fitted, scratch=scratch, emit=emit)


def find_data(name: str, workspace: Workspace) -> PreparedData:
    """Return the prepared data of a name.

    Args:
        name: A run (its folder, its name, or the beginning or end of it), whose data is meant, or prepared data (its
            folder, its key, or the beginning of it).
        workspace: Where to look.

    Raises:
        MissingArtifactError: There is none, or more than one.
    """
    folder = Path(name)
    if (folder / "plan.json").is_file() and PreparedData(folder).exists:
        return PreparedData(folder)
    if (folder / "checkpoints").is_dir() and (folder / "config.yaml").is_file():
        return Workspace(folder.resolve().parent.parent).data_of(TrainedRun(folder))
    found = workspace.run_or_data(name)
    return found if isinstance(found, PreparedData) else workspace.data_of(found)


def _output(files: Sequence[str], output: Path | None, *, force: bool) -> Path:
    if not files:
        raise ConfigError("no new rows are given", hint="recsys etl --apply RUN_OR_DATA NEW.parquet")
    if output is None:
        name = files[0].rstrip("/").rpartition("/")[2]
        output = Path(f"{name.partition('.')[0].replace('*', '') or 'new'}.prepared.parquet")
    if any(Path(file).exists() and output.exists() and Path(file).samefile(output) for file in files):
        raise ConfigError(f"{output} is one of the files to read", hint="give another with --output")
    if output.exists() and not force:
        raise ConfigError(f"{output} is there already", hint="give another with --output, or --force to write over it")
    return output
