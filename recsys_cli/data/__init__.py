"""The catalog of named datasets.

A family module (`movielens.py`, `synthetic.py`, ...) has three functions: `source(name, options)`, named in
`registry.DATASETS`; `info(name)`, the catalog entry; `options(name)`, the options of the dataset.
"""

from recsys_cli.data.source import (
    DatasetFactory,
    DatasetInfo,
    DatasetOptions,
    FetchRequest,
    RawColumn,
    RawTable,
    Source,
    catalog,
    open_given,
    open_source,
    options_of,
)

__all__ = [
    "DatasetFactory", "DatasetInfo", "DatasetOptions", "FetchRequest", "RawColumn", "RawTable", "Source", "catalog", "open_given",
    "open_source", "options_of",
]  # fmt: skip
