"""The catalog of named datasets.

A family module (`movielens.py`, `synthetic.py`, ...) has three functions: `source(name, options)`, named in
`registry.DATASETS`; `info(name)`, the catalog entry; `options(name)`, the options of the dataset.
"""

from __future__ import annotations

from collections.abc import Mapping

from recsys_cli import registry
from recsys_cli.data.source import (
    DatasetFactory,
    DatasetInfo,
    DatasetOptions,
    FetchRequest,
    RawColumn,
    RawTable,
    Source,
)
from recsys_cli.errors import ConfigError
from recsys_cli.plugins import guard_class, guarded

__all__ = [
    "DatasetFactory", "DatasetInfo", "DatasetOptions", "FetchRequest", "RawColumn", "RawTable", "Source", "catalog", "open_given",
    "open_source", "options_of",
]  # fmt: skip
_PARTS = ("info", "identity", "fetch", "tables")
"""Attributes of a `Source`."""


def open_source(name: str, options: Mapping[str, object] | None = None) -> Source:
    """Open the dataset of a config or a command line.

    Args:
        name: A name of the catalog, or the import path of another package's factory (docs/security.md).
        options: The other keys of the config's dataset section.

    Raises:
        ConfigError: The name is unknown or not trusted, the path is not a factory, or an option is invalid.
    """
    path = registry.lookup(registry.DATASETS, name, what="dataset")
    factory = registry.load(path)
    if registry.is_own(path):
        own: Source = factory(name, options or {})
        return own
    return _open_foreign(factory, path, name, options or {})


def _open_foreign(factory: object, path: str, name: str, options: Mapping[str, object]) -> Source:
    if not isinstance(factory, DatasetFactory):
        raise ConfigError(
            f"{path!r} is not declared as a dataset",
            hint="decorate it with @DatasetFactory of recsys_cli.data",
        )
    with guarded(f"{path!r} cannot be opened"):
        source = factory(name, options)
        missing = [part for part in _PARTS if not hasattr(source, part)]
    if missing:
        raise ConfigError(f"{path!r} returned no Source: it has no {', '.join(missing)}")
    guard_class(type(source), f"the dataset {path} failed")
    return source


def open_given(name: str, options: Mapping[str, object], path: str) -> Source:
    """Open a file with the interactions of one split; for a `files` dataset, in the dialect of its own files.

    Args:
        name: Name of the dataset.
        options: Options of the dataset.
        path: File, glob, folder or URL.

    Raises:
        ConfigError: The name is unknown, or an option is invalid.
    """
    from recsys_cli.data.files import Files

    dataset = open_source(name, options)
    return (
        dataset.with_interactions(path) if isinstance(dataset, Files) else open_source("files", {"interactions": path})
    )


def options_of(name: str) -> DatasetOptions | None:
    """Return the options of a dataset of the catalog; None for other packages, whose options are opaque."""
    path = registry.DATASETS.get(name)
    options: DatasetOptions | None = registry.load(path.partition(":")[0] + ":options")(name) if path else None
    return options


def catalog() -> list[DatasetInfo]:
    """List all named datasets, in the catalog's order."""
    return [registry.load(path.partition(":")[0] + ":info")(name) for name, path in registry.DATASETS.items()]
