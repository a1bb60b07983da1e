"""`recsys download`: atomic download of a dataset to raw/<dataset> in the workspace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recsys_cli.config import DatasetConfig
from recsys_cli.data import FetchRequest, Source, open_source
from recsys_cli.events import Emit, Message, ignore
from recsys_cli.stages import StageResult, report_other_version
from recsys_cli.stages.keys import source_key
from recsys_cli.workspace import RawData, Workspace


def download(
    dataset: DatasetConfig,
    workspace: Workspace,
    *,
    mirror: str | None = None,
    from_file: Path | None = None,
    force: bool = False,
    emit: Emit = ignore,
) -> StageResult[RawData]:
    """Download a dataset into the workspace, unless it is up to date; a mirror replaces the publisher's base URL.

    Raises:
        ConfigError: The dataset is unknown, or an option is invalid.
        DataError: The download or the archive is damaged.
    """
    source = open_source(dataset.name, dataset.options)
    key = source_key(dataset.name, source, workspace)
    raw = workspace.raw(dataset.name)
    with workspace.lock(f"download-{dataset.name.replace(':', '-')}", emit=emit):
        if not force and is_fresh(raw, source, key):
            report_other_version(raw, emit)
            return StageResult(raw, up_to_date=True)
        if source.info.notice:
            emit(Message(source.info.notice))
        manifest: dict[str, Any] = {"key": key, "dataset": dataset.name, "options": dataset.options}
        workspace.cache.mkdir(parents=True, exist_ok=True)
        with workspace.create(raw, manifest) as folder:
            request = FetchRequest(folder=folder, cache=workspace.cache, mirror=mirror, from_file=from_file)
            manifest["facts"] = source.fetch(request, emit)
    return StageResult(raw, up_to_date=False)


def is_fresh(raw: RawData, source: Source, key: str) -> bool:
    """Return whether a dataset is complete, with the same options and files."""
    if not raw.is_made(key):
        return False
    files = [file for table in source.tables(raw.folder) for file in table.files]
    return all(file.is_file() or file in raw.absent for file in files)
