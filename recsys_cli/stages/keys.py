"""Inputs of artifact keys besides the config: content of files, and code of other packages."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsys_cli.metrics.foreign import foreign_path
from recsys_cli.registry import DATASETS, find_model, is_own, lookup
from recsys_cli.workspace import Workspace, key_of
from recsys_cli.workspace.files import FileChecksums

if TYPE_CHECKING:
    from recsys_cli.data import Source


def source_key(dataset: str, source: Source, workspace: Workspace) -> str:
    """Return the key of a dataset; it depends on the content of files, not on their times."""
    return key_of(by_content(source.identity(), workspace), *code_of_dataset(dataset))


def by_content(identity: Any, workspace: Workspace) -> Any:
    """Replace the modification times of the user's own files by checksums."""

    def replaced(value: Any) -> Any:
        if isinstance(value, Mapping) and {"path", "mtime_ns"} <= value.keys():
            stamp = {name: one for name, one in value.items() if name != "mtime_ns"}
            return {**stamp, "checksum": checksums.of(Path(value["path"]))}
        if isinstance(value, Mapping):
            return {name: replaced(one) for name, one in value.items()}
        return [replaced(one) for one in value] if isinstance(value, list | tuple) else value

    with FileChecksums(workspace.root / ".checksums.json") as checksums:
        return replaced(identity)


def files_in(identity: Any) -> dict[str, str]:
    """Return the checksums of all files in an identity, by path."""
    if isinstance(identity, Mapping) and {"path", "checksum"} <= identity.keys():
        return {str(identity["path"]): str(identity["checksum"])}
    inner = identity.values() if isinstance(identity, Mapping) else identity if isinstance(identity, list) else ()
    return {path: checksum for value in inner for path, checksum in files_in(value).items()}


def code_of_dataset(name: str) -> list[str]:
    """Return the digest of a dataset from another package."""
    return code_of(lookup(DATASETS, name, what="dataset"))


def code_of_model(name: str) -> list[str]:
    """Return the digest of a model from another package."""
    return code_of(find_model(name).model.removesuffix(".model:Model"))


def code_of_metrics(names: Iterable[str]) -> list[str]:
    """Return the digests of metrics from other packages."""
    paths = (foreign_path(name) for name in names)
    return [digest for path in paths if path is not None for digest in code_of(path)]


def code_of(path: str) -> list[str]:
    """Return the digest of a component of another package, by import path; none for own ones, which have a `format`."""
    if is_own(path):
        return []
    module = path.partition(":")[0]
    digest = hashlib.sha256()
    for name, content in sorted(_sources(module).items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return [digest.hexdigest()]


def _sources(module: str) -> dict[str, bytes]:
    """Return the source files of a module or package by name, without importing it."""
    spec = _spec(module)
    if spec is None:
        return {}
    if spec.submodule_search_locations is None:
        files = {Path(spec.origin).name: Path(spec.origin)} if spec.origin else {}
    else:
        folders = [Path(folder) for folder in spec.submodule_search_locations]
        files = {str(file.relative_to(folder)): file for folder in folders for file in folder.rglob("*.py")}
    return {name: file.read_bytes() for name, file in files.items() if file.is_file()}


def _spec(module: str) -> ModuleSpec | None:
    """Find a module; `importlib.util.find_spec` would import its parent packages."""
    spec, path = None, None
    parts = module.split(".")
    for depth in range(1, len(parts) + 1):
        name = ".".join(parts[:depth])
        finders = (getattr(finder, "find_spec", None) for finder in sys.meta_path)
        spec = next((found for find in finders if find and (found := find(name, path))), None)
        if spec is None:
            return None
        path = spec.submodule_search_locations
    return spec
