"""`recsys etl`: raw interactions to prepared data."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from recsys_cli.config import HOW, RunConfig
from recsys_cli.data import open_given, open_source
from recsys_cli.errors import DataError, MissingArtifactError
from recsys_cli.events import Emit, Message, ignore
from recsys_cli.features.split import FilesSplit
from recsys_cli.stages import Made
from recsys_cli.workspace import PreparedData, Workspace, key_of


def etl(config: RunConfig, workspace: Workspace, *, force: bool = False, emit: Emit = ignore) -> Made[PreparedData]:
    """Prepare the data of a config, unless that is done already.

    Raises:
        MissingArtifactError: The dataset is not there.
        ConfigError: The features do not fit the tables.
        DataError: Rows cannot be read.
        MissingExtraError: The engine is not installed.
    """
    key = data_key(config, workspace)
    data = workspace.data(key)
    with workspace.lock("etl"):
        if data.exists and not force:
            return Made(data, up_to_date=True)
        from recsys_cli.etl.prepare import Preparation  # loads Polars; other commands need only the key

        manifest: dict[str, Any] = {"key": key, "dataset": config.dataset.name}
        with workspace.scratch() as scratch, workspace.create(data, manifest) as folder:
            manifest |= Preparation(config, workspace.raw(config.dataset.name).folder, scratch, folder, emit).run()
    if isinstance(leakage := getattr(config.split, "leakage", None), str):
        emit(Message(leakage))
    return Made(data, up_to_date=False)


def prepared_data(config: RunConfig, workspace: Workspace) -> PreparedData:
    """Return the prepared data of a config.

    Raises:
        MissingArtifactError: It has not been prepared.
    """
    data = workspace.data(data_key(config, workspace))
    if not data.exists:
        raise MissingArtifactError(
            f"the data of this config is not prepared in {workspace.root}", hint="recsys etl CONFIG"
        )
    return data


def raw_identity(config: RunConfig, workspace: Workspace) -> dict[str, Any]:
    """Return what tells a dataset's content apart from any other.

    Raises:
        MissingArtifactError: It has not been downloaded.
    """
    source = open_source(config.dataset.name, config.dataset.options)
    key = key_of(source.identity())
    if source.info.is_own:
        return {"key": key}
    raw = workspace.raw(config.dataset.name)
    if not raw.exists or raw.key != key:
        state = "is there with other options" if raw.exists else "is not there"
        wanted = "CONFIG" if config.dataset.options else config.dataset.name  # only a config can say its options
        hint = f"recsys download {wanted}, or recsys run CONFIG"
        raise MissingArtifactError(f"dataset {config.dataset.name} {state} in {workspace.root}", hint=hint)
    facts = raw.manifest.get("facts", {})
    return {"key": key, "facts": {name: fact for name, fact in facts.items() if name != "origin"}}


def data_key(config: RunConfig, workspace: Workspace) -> str:
    """Return what the prepared data depends on: not the engine, because engines agree.

    Raises:
        MissingArtifactError: The dataset has not been downloaded.
        DataError: A file that an op reads is not there.
    """
    sections: dict[str, Any] = {
        "split": config.split.model_dump(mode="json"),
        "features": config.features.model_dump(mode="json"),
        "etl": config.etl.model_dump(mode="json", exclude=set(HOW)),
    }
    if isinstance(config.split, FilesSplit):
        dataset = config.dataset
        paths = config.split.paths()
        given = {split: open_given(dataset.name, dataset.options, path) for split, path in paths.items()}
        sections["files"] = {split: source.identity() for split, source in given.items()}
    if files := sorted({path for op in config.features.ops for path in op.files}):
        sections["given"] = {path: _digest(Path(path)) for path in files}
    return key_of("data", sections, raw_identity(config, workspace))


def _digest(path: Path) -> str:
    """Return what tells the content of a file apart that an op reads; it is small beside the data."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(
            f"{path}: cannot read it: {error.strerror}", hint=f"paths are relative to {Path.cwd()}"
        ) from error
