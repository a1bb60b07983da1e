"""Dimension tables: features of ids, joined to a batch by row number.

The row of an id of the vocabulary is the id itself. Cold keys share an id; their rows follow those of all ids.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor

from recsys_cli.batch import Feature
from recsys_cli.errors import DataError
from recsys_cli.features.columns import SHARED_ID
from recsys_cli.features.parquet import read_parquet
from recsys_cli.features.schema import Schema
from recsys_cli.loader.reading import REDO, ListArrays, RowGroup, arrays_of, groups_of, open_parquet
from recsys_cli.loader.records import Layout, Records, read_records
from recsys_cli.workspace import PreparedData


class DimensionTables:
    """Lookup join of dimension tables, such as the genres of movies, by encoded id or table row.

    `tables/<key column>.parquet` has one row per id of the key column, then one per cold key. Without `keys` all tables
    are read.

    Raises:
        DataError: A table has no row for an id, or ids out of range.
    """

    def __init__(
        self, data: PreparedData, *, device: torch.device | str = "cpu", keys: Collection[str] | None = None
    ) -> None:
        schema = data.schema
        if keys is None:
            keys = sorted(unquote(path.stem) for path in (data.folder / "tables").glob("*.parquet"))
        self._tables = {key: _read(data, schema, key, device) for key in keys if key in schema.names}

    def features(self, rows: Mapping[str, Tensor]) -> dict[str, Feature]:
        """Return the features of table rows, shape (B,) by key column, without the keys; other columns are ignored."""
        features: dict[str, Feature] = {}
        for key, table in self._tables.items():
            if key in rows:
                features |= {n: feature for n, feature in table.records.pick(rows[key]).items() if n not in features}
        return features

    def join(self, features: Mapping[str, Tensor]) -> dict[str, Feature]:
        """Return features by name together with the table features of their key columns, given as ids or table rows.

        Existing features take precedence. Table rows of cold keys become the shared id.
        """
        encoded = {key: self.ids(key, rows) for key, rows in features.items()}
        return self.features(features) | encoded

    def ids(self, key: str, rows: Tensor) -> Tensor:
        """Return the encoded ids of table rows of a key, shape (B,); without cold keys, the rows themselves."""
        shared = self._tables[key].shared if key in self._tables else None
        return rows if shared is None else shared.index_select(0, rows).to(rows.dtype)

    def num_rows(self, key: str) -> int:
        """Return the number of rows of a key's table, including cold keys; 0 without a table."""
        return self._tables[key].records.num_rows if key in self._tables else 0

    def with_rows(self, key: str, rows: pa.Table, order: npt.NDArray[np.int64]) -> DimensionTables:
        """Return the tables with changed and further rows of a key.

        Args:
            key: Key column of a table.
            rows: Prepared rows as in the file of the table, with the column SHARED_ID.
            order: Position of each row of the new table among the present rows followed by `rows`.
        """
        tables = copy(self)
        tables._tables = {**self._tables, key: self._tables[key].with_rows(rows, order)}
        return tables


@dataclass(frozen=True)
class _Table:
    """A table on a device: its features and, with cold keys, the id of each row, int32."""

    records: Records
    shared: Tensor | None

    def with_rows(self, rows: pa.Table, order: npt.NDArray[np.int64]) -> _Table:
        columns, group = self.records.layout.columns, RowGroup(Path(), 0, rows.num_rows, {})
        arrays = arrays_of(rows, group, columns)
        num_values = {name: array.values.size for name, array in arrays.items() if isinstance(array, ListArrays)}
        places = torch.from_numpy(order)
        records = self.records.with_rows(arrays, RowGroup(Path(), 0, rows.num_rows, num_values), places)
        present = torch.arange(self.records.num_rows, dtype=torch.int32) if self.shared is None else self.shared
        further = torch.from_numpy(rows[SHARED_ID].to_numpy().astype(np.int32))
        return _Table(records, torch.cat([present, further]).index_select(0, places))


def _read(data: PreparedData, schema: Schema, key: str, device: torch.device | str) -> _Table:
    path, cardinality = data.table(key), schema[key].cardinality
    with open_parquet(path) as file:
        names = file.schema_arrow.names
    # By the schema, or as a flat-joined column also in the table.
    joined = {name for name in names if name != key}
    columns = [one for one in schema.features if one.table == key or (one.table is None and one.name in joined)]
    groups = groups_of(path, columns)
    num_rows = sum(group.num_rows for group in groups)
    if num_rows != cardinality and not (num_rows > int(cardinality or 0) and SHARED_ID in names):
        raise DataError(f"{path}: has {num_rows} rows, but {key!r} has {cardinality} ids", hint=REDO)
    shared = None
    if SHARED_ID in names:
        shared = torch.from_numpy(read_parquet(path, [SHARED_ID])[SHARED_ID].to_numpy().copy()).to(device)
    return _Table(read_records(Layout.of(columns, groups), groups).to(device), shared)
