"""The catalog: every dataset that `recsys` knows by name, opened or only listed.

A family file (`movielens.py`, `synthetic.py`, ...) has two functions: `source(name, options)`, named in
`registry.DATASETS`, and `info(name)`, the catalog's line, which needs no options.
"""

from __future__ import annotations

from collections.abc import Mapping

from recsys_cli import registry
from recsys_cli.data.source import DatasetInfo, FetchRequest, RawColumn, RawTable, Source

__all__ = ["DatasetInfo", "FetchRequest", "RawColumn", "RawTable", "Source", "catalog", "open_given", "open_source"]


def open_source(name: str, options: Mapping[str, object] | None = None) -> Source:
    """Get the dataset that a config or a command line names.

    Args:
        name: A name of the catalog, or the import path of a foreign factory ("my_package.data:source").
        options: The other keys of the config's dataset section.

    Raises:
        ConfigError: The name is not known, or an option is wrong.
    """
    factory = registry.load(registry.lookup(registry.DATASETS, name, what="dataset"))
    source: Source = factory(name, options or {})
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


def catalog() -> list[DatasetInfo]:
    """List every dataset that has a name of its own, in the catalog's order."""
    return [registry.load(path.partition(":")[0] + ":info")(name) for name, path in registry.DATASETS.items()]
