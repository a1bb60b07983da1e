"""The catalog: every dataset that `recsys` knows by name, opened or only listed.

A family file (`movielens.py`, `synthetic.py`, ...) has three functions: `source(name, options)`, named in
`registry.DATASETS`, `info(name)`, the catalog's line, which needs no options, and `options(name)`, which there are.
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
from recsys_cli.plugins import guarded

__all__ = [
    "DatasetFactory", "DatasetInfo", "DatasetOptions", "FetchRequest", "RawColumn", "RawTable", "Source", "catalog", "open_given",
    "open_source", "options_of",
]  # fmt: skip
_PARTS = ("info", "identity", "fetch", "tables")
"""What a `Source` has."""


def open_source(name: str, options: Mapping[str, object] | None = None) -> Source:
    """Get the dataset that a config or a command line names.

    Args:
        name: A name of the catalog, or what leads to the factory of another package (docs/security.md).
        options: The other keys of the config's dataset section.

    Raises:
        ConfigError: The name is not known or not trusted, it leads to no factory, or an option is wrong.
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
            hint="its author puts @DatasetFactory of recsys_cli.data before it",
        )
    with guarded(f"{path!r} cannot be opened"):
        source = factory(name, options)
        missing = [part for part in _PARTS if not hasattr(source, part)]
    if missing:
        raise ConfigError(f"{path!r} returned no Source: it has no {', '.join(missing)}")
    return source


def open_given(name: str, options: Mapping[str, object], path: str) -> Source:
    """Get a file with the interactions of one split, written as the dataset's own files are, if it is one of such.

    Args:
        name: The dataset's name.
        options: Its options.
        path: The file, glob, folder or URL.

    Raises:
        ConfigError: The name is not known, or an option is wrong.
    """
    from recsys_cli.data.files import Files

    dataset = open_source(name, options)
    return (
        dataset.with_interactions(path) if isinstance(dataset, Files) else open_source("files", {"interactions": path})
    )


def options_of(name: str) -> DatasetOptions | None:
    """Return the options of a dataset of the catalog; None for one of another package, whose options only it knows."""
    path = registry.DATASETS.get(name)
    found: DatasetOptions | None = registry.load(path.partition(":")[0] + ":options")(name) if path else None
    return found


def catalog() -> list[DatasetInfo]:
    """List every dataset that has a name of its own, in the catalog's order."""
    return [registry.load(path.partition(":")[0] + ":info")(name) for name, path in registry.DATASETS.items()]
