"""`recsys etl`: raw interactions to prepared data."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from recsys_cli.config import EXECUTION_KEYS, RunConfig
from recsys_cli.data import open_given, open_source
from recsys_cli.errors import DataError, MissingArtifactError
from recsys_cli.events import Emit, Message, ignore
from recsys_cli.features.split import FilesSplit
from recsys_cli.stages import Made, tell_version
from recsys_cli.stages.keys import by_content, code_of_dataset, code_of_op, files_in, source_key
from recsys_cli.workspace import PreparedData, Workspace, key_of

_FORMAT = 1
"""Version of what is made of any data beside what its ops make: each op has a `format` of its own."""
_NAMED = 5
"""So many changed files are named."""


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
    with workspace.lock("etl", emit=emit):
        if data.is_made(key) and not force:
            tell_version(data, emit)
            return Made(data, up_to_date=True)
        from recsys_cli.etl.prepare import Preparation  # loads Polars; other commands need only the key

        if data.exists and (damage := data.damage):
            emit(Message(f"{damage}: preparing the data again", "warning"))
        manifest: dict[str, Any] = {
            "key": key,
            "dataset": config.dataset.name,
            "recipe": recipe(config),
            "files_read": files_in(inputs(config, workspace)),
        }
        raw = workspace.raw(config.dataset.name)
        if raw.exists:
            raw.verify()
        with workspace.scratch() as scratch, workspace.create(data, manifest) as folder:
            manifest |= Preparation(config, raw.folder, scratch, folder, emit).run()
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
        changed = _changed_since(config, workspace)
        why = f": {changed}" if changed else ""
        raise MissingArtifactError(
            f"the data of this config is not prepared in {workspace.root}{why}", hint="recsys etl CONFIG"
        )
    return data


def raw_identity(config: RunConfig, workspace: Workspace) -> dict[str, Any]:
    """Return what tells a dataset's content apart from any other.

    Raises:
        MissingArtifactError: It has not been downloaded.
    """
    source = open_source(config.dataset.name, config.dataset.options)
    if source.info.is_own:
        return {"own": by_content(source.identity(), workspace), "code": code_of_dataset(config.dataset.name)}
    key = source_key(config.dataset.name, source, workspace)
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
    return key_of("data", recipe(config), inputs(config, workspace))


def recipe(config: RunConfig) -> str:
    """Return what the config and this program's code make of any data."""
    return key_of(
        _FORMAT,
        config.split.model_dump(mode="json"),
        config.features.model_dump(mode="json"),
        {op.name: op.format for op in config.features.ops},
        config.etl.model_dump(mode="json", exclude=set(EXECUTION_KEYS)),
        *(digest for op in config.features.ops for digest in code_of_op(op)),
    )


def inputs(config: RunConfig, workspace: Workspace) -> dict[str, Any]:
    """Return what data goes in: the dataset, files that are splits, and files that ops read.

    Raises:
        MissingArtifactError: The dataset has not been downloaded.
        DataError: A file is not there.
    """
    found: dict[str, Any] = {"raw": raw_identity(config, workspace)}
    if isinstance(config.split, FilesSplit):
        dataset = config.dataset
        paths = config.split.paths()
        given = {split: open_given(dataset.name, dataset.options, path) for split, path in paths.items()}
        found["splits"] = {split: by_content(source.identity(), workspace) for split, source in given.items()}
    files = sorted({path for op in config.features.ops for path in op.files})
    found["given"] = [{"path": path, "checksum": _digest(Path(path))} for path in files]
    return found


def _changed_since(config: RunConfig, workspace: Workspace) -> str | None:
    """Say which files changed since the same config was prepared the last time; None where it never was."""
    wanted = recipe(config)
    before = [data for data in workspace.all_data() if data.damage is None and data.manifest.get("recipe") == wanted]
    now = files_in(inputs(config, workspace))
    for data in sorted(before, key=lambda data: str(data.manifest["created"]), reverse=True):
        then = data.manifest.get("files_read", {})
        names = sorted(path for path in {*then, *now} if then.get(path) != now.get(path))
        if names and {*then} & {*now}:
            changed = f"{', '.join(names[:_NAMED])}{' and others' if len(names) > _NAMED else ''}"
            return f"{changed} changed since {data.folder.name} was prepared"
    return None


def _digest(path: Path) -> str:
    """Return what tells the content of a file apart that an op reads; it is small beside the data."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(
            f"{path}: cannot read it: {error.strerror}", hint=f"paths are relative to {Path.cwd()}"
        ) from error
