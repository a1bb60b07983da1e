"""Indexes of all vocabularies and cold keys of a fitted plan, by the names of `RowEncoder`, in one folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

from recsys_cli.features.columns import row_column
from recsys_cli.features.schema import file_of
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.serving.encoder.vocabulary import VocabularyIndex


def build_indexes(fitted: FittedPlan, built: Mapping[str, VocabularyIndex]) -> dict[str, VocabularyIndex]:
    """Return the indexes of all vocabularies, and of cold keys by their column of table rows.

    Args:
        fitted: The fitted plan.
        built: Indexes that exist already.
    """
    cold = {row_column(key): fitted.cold_keys(key) for key in fitted.program.keys}
    tables = fitted.vocabularies | {name: table for name, table in cold.items() if table is not None}
    rest = {name: table for name, table in tables.items() if name not in built}
    return {**built, **{name: VocabularyIndex.build(table.column("value")) for name, table in rest.items()}}


def write_indexes(indexes: Mapping[str, VocabularyIndex], folder: Path) -> None:
    """Write a subfolder for each index."""
    for name, index in indexes.items():
        index.write(folder / file_of(name).removesuffix(".parquet"))


def open_indexes(folder: Path) -> dict[str, VocabularyIndex]:
    """Memory-map the indexes of `write_indexes`.

    Raises:
        DataError: A file is missing or damaged.
    """
    return {unquote(path.name): VocabularyIndex.open(path) for path in sorted(folder.iterdir()) if path.is_dir()}
