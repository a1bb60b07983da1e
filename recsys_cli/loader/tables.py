"""Features that belong to an id rather than to an interaction, ready to be looked up for a whole batch at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from recsys_cli.batch import Feature
from recsys_cli.errors import DataError
from recsys_cli.features.schema import Column, Schema
from recsys_cli.loader.reading import REDO, groups_of, open_parquet
from recsys_cli.loader.records import Layout, Records, read_records
from recsys_cli.workspace import PreparedData


class Tables:
    """Look up what a join would have brought, such as a movie's genres, by encoded id.

    Args:
        data: Prepared data; `tables/<key column>.parquet` holds one row for each id of the key column.
        device: Where the tables are kept and looked up.
        keys: Read the tables of these key columns alone; None is all that there are.

    Raises:
        DataError: A table has not one row for each id, or holds ids that its columns cannot have.
    """

    def __init__(
        self, data: PreparedData, *, device: torch.device | str = "cpu", keys: Collection[str] | None = None
    ) -> None:
        schema = data.schema
        if keys is None:
            keys = sorted(path.stem for path in (data.folder / "tables").glob("*.parquet"))
        self._tables = {key: _read(data, schema, key).to(device) for key in keys if key in schema.names}

    def join(self, features: Mapping[str, Tensor]) -> dict[str, Feature]:
        """Return the given features and, for each key column among them, the features of its ids.

        A given feature is never replaced. Lists come as `Ragged` with int64 offsets of length B + 1.

        Args:
            features: By name; the key columns are ids, int32 or int64, shape (B,).
        """
        joined: dict[str, Feature] = dict(features)
        for key, table in self._tables.items():
            ids = features.get(key)
            if ids is not None:
                for name, feature in table.pick(ids).items():
                    joined.setdefault(name, feature)
        return joined


def _read(data: PreparedData, schema: Schema, key: str) -> Records:
    path, cardinality = data.table(key), schema[key].cardinality
    with open_parquet(path) as file:
        names = file.schema_arrow.names
    columns = [column for column in schema.features if _belongs(column, key, names)]
    groups = groups_of(path, columns)
    num_rows = sum(group.num_rows for group in groups)
    if num_rows != cardinality:
        raise DataError(f"{path}: has {num_rows} rows, but {key!r} has {cardinality} ids", hint=REDO)
    return read_records(Layout.of(columns, groups), groups)


def _belongs(column: Column, key: str, names: Collection[str]) -> bool:
    """Whether a column is looked up by this key: the schema says so, or it was joined flat and the table has it too."""
    return column.table == key or (column.table is None and column.name in names and column.name != key)
