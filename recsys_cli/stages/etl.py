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
from recsys_cli.stages import StageResult, report_other_version
from recsys_cli.stages.keys import by_content, code_of, code_of_dataset, files_in, source_key
from recsys_cli.workspace import PreparedData, Workspace, key_of

_FORMAT = 3
"""Version of the results of etl, apart from ops; each op has its own `format`."""
_NAMED = 5
"""Highest number of changed files in a message."""


def etl(
    config: RunConfig, workspace: Workspace, *, force: bool = False, emit: Emit = ignore
) -> StageResult[PreparedData]:
    """Prepare the data of a config, unless it is up to date.

    Raises:
        MissingArtifactError: The dataset is missing.
        ConfigError: The features do not match the tables.
        DataError: A row is unreadable.
        MissingExtraError: The engine is not installed.
    """
    key = data_key(config, workspace)
    data = workspace.data(key)
    with workspace.lock("etl", emit=emit):
        if data.is_made(key) and not force:
            report_other_version(data, emit)
            return StageResult(data, up_to_date=True)
        from recsys_cli.etl.prepare import Preparation

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
    if leakage := config.leakage:
        emit(Message(leakage))
    return StageResult(data, up_to_date=False)


def prepared_data(config: RunConfig, workspace: Workspace) -> PreparedData:
    """Return the prepared data of a config.

    Raises:
        MissingArtifactError: The data is not prepared.
    """
    data = workspace.data(data_key(config, workspace))
    if not data.exists:
        changed = _changed_since(config, workspace)
        reason = f": {changed}" if changed else ""
        raise MissingArtifactError(
            f"the data of this config is not prepared in {workspace.root}{reason}", hint="recsys etl CONFIG"
        )
    return data


def warn_of(data: PreparedData, emit: Emit) -> bool:
    """Emit the warnings of the data report, and return whether there are any."""
    from recsys_cli.etl.report import Facts

    findings = Facts.read(data.facts).findings if data.facts.is_file() else ()
    warnings = [finding.text for finding in findings if finding.level == "warning"]
    for text in warnings:
        emit(Message(text, "warning"))
    return bool(warnings)


def raw_identity(config: RunConfig, workspace: Workspace) -> dict[str, Any]:
    """Return the identity of a dataset's content, as input of a key."""
    source = open_source(config.dataset.name, config.dataset.options)
    if source.info.is_own:
        return {"own": by_content(source.identity(), workspace), "code": code_of_dataset(config.dataset.name)}
    key = source_key(config.dataset.name, source, workspace)
    raw = workspace.raw(config.dataset.name)
    if not raw.exists or raw.key != key:
        state = "has changed or has other options" if raw.exists else "is missing"
        argument = "CONFIG" if config.dataset.options else config.dataset.name  # options need a config
        hint = f"recsys download {argument}, or recsys run CONFIG"
        raise MissingArtifactError(f"dataset {config.dataset.name} {state} in {workspace.root}", hint=hint)
    facts = raw.manifest.get("facts", {})
    return {"key": key, "facts": {name: fact for name, fact in facts.items() if name != "origin"}}


def data_key(config: RunConfig, workspace: Workspace) -> str:
    """Return the key of the prepared data, without the engine, because all engines give the same result."""
    return key_of("data", recipe(config), inputs(config, workspace))


def recipe(config: RunConfig) -> str:
    """Return the hash of the settings and code of the preparation."""
    return key_of(
        _FORMAT,
        config.split.model_dump(mode="json"),
        config.features.model_dump(mode="json"),
        {op.name: op.format for op in config.features.ops},
        config.etl.model_dump(mode="json", exclude=set(EXECUTION_KEYS)),
        *(digest for op in config.features.ops for digest in code_of(type(op).__module__)),
        *(["whole impressions"] if config.features.impression and "impression" in config.split.reads else []),
    )


def inputs(config: RunConfig, workspace: Workspace) -> dict[str, Any]:
    """Return the identities of the dataset, files of splits, and files of ops."""
    identities: dict[str, Any] = {"raw": raw_identity(config, workspace)}
    if isinstance(config.split, FilesSplit):
        dataset = config.dataset
        paths = config.split.paths()
        given = {split: open_given(dataset.name, dataset.options, path) for split, path in paths.items()}
        identities["splits"] = {split: by_content(source.identity(), workspace) for split, source in given.items()}
    files = sorted({path for op in config.features.ops for path in op.files})
    identities["given"] = [{"path": path, "checksum": digest(Path(path))} for path in files]
    return identities


def _changed_since(config: RunConfig, workspace: Workspace) -> str | None:
    """Describe files changed since the last preparation with the same settings; None without any."""
    digest = recipe(config)
    earlier = [data for data in workspace.all_data() if data.damage is None and data.manifest.get("recipe") == digest]
    new = files_in(inputs(config, workspace))
    for data in sorted(earlier, key=lambda data: str(data.manifest["created"]), reverse=True):
        old = data.manifest.get("files_read", {})
        names = sorted(path for path in {*old, *new} if old.get(path) != new.get(path))
        if names and {*old} & {*new}:
            changed = f"{', '.join(names[:_NAMED])}{' and others' if len(names) > _NAMED else ''}"
            return f"{changed} changed since {data.folder.name} was prepared"
    return None


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read: {error.strerror}", hint=f"paths are relative to {Path.cwd()}"
        ) from error
