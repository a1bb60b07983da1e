"""Download: a dataset of the catalog to raw/<dataset> in the workspace, whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recsys_cli.config import DatasetConfig
from recsys_cli.data import FetchRequest, Source, open_source
from recsys_cli.events import Emit, Message, ignore
from recsys_cli.stages import Made, tell_version
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
) -> Made[RawData]:
    """Fetch a dataset into the workspace, unless it is there already.

    Args:
        dataset: Which one, with its options.
        workspace: Where to put it.
        mirror: Base URL to take instead of the publisher's.
        from_file: A local archive to unpack instead of downloading.
        force: Fetch it again even if it is there.
        emit: Takes progress and messages.

    Raises:
        ConfigError: The dataset is not known, or an option is wrong.
        DataError: The download or the archive is not what it should be.
    """
    source = open_source(dataset.name, dataset.options)
    key = source_key(dataset.name, source, workspace)
    raw = workspace.raw(dataset.name)
    with workspace.lock(f"download-{dataset.name.replace(':', '-')}", emit=emit):
        if not force and is_fresh(raw, source, key):
            tell_version(raw, emit)
            return Made(raw, up_to_date=True)
        if source.info.notice:
            emit(Message(source.info.notice))
        manifest: dict[str, Any] = {"key": key, "dataset": dataset.name, "options": dataset.options}
        workspace.cache.mkdir(parents=True, exist_ok=True)
        with workspace.create(raw, manifest) as folder:
            request = FetchRequest(folder=folder, cache=workspace.cache, mirror=mirror, from_file=from_file)
            manifest["facts"] = source.fetch(request, emit)
    return Made(raw, up_to_date=False)


def is_fresh(raw: RawData, source: Source, key: str) -> bool:
    """Whether a dataset is there, as its options say, and none of its files was removed since."""
    if not raw.is_made(key):
        return False
    return all(file.is_file() for table in source.tables(raw.folder) for file in table.files)
