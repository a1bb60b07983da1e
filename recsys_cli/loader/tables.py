"""Features that belong to an id rather than to an interaction, ready to be looked up for a whole batch at once.

They are looked up by the row of the table. For ids of the vocabulary that is the id; cold keys, which share an id, have rows
behind those of all ids.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pyarrow.parquet as pq
import torch
from torch import Tensor

from recsys_cli.batch import Feature
from recsys_cli.errors import DataError
from recsys_cli.features.columns import SHARED_ID
from recsys_cli.features.schema import Column, Schema
from recsys_cli.loader.reading import REDO, groups_of, open_parquet
from recsys_cli.loader.records import Layout, Records, read_records
from recsys_cli.workspace import PreparedData


class DimensionTables:
    """Look up what a join would have brought, such as a movie's genres, by encoded id or by row of the table.

    Args:
        data: Prepared data; `tables/<key column>.parquet` holds one row for each id of the key column, and then one for each
            cold key.
        device: Where the tables are kept and looked up.
        keys: Read the tables of these key columns alone; None is all that there are.

    Raises:
        DataError: A table has no row for an id, or holds ids that its columns cannot have.
    """

    def __init__(
        self, data: PreparedData, *, device: torch.device | str = "cpu", keys: Collection[str] | None = None
    ) -> None:
        schema = data.schema
        if keys is None:
            keys = sorted(path.stem for path in (data.folder / "tables").glob("*.parquet"))
        self._tables = {key: _read(data, schema, key, device) for key in keys if key in schema.names}

    def features(self, rows: Mapping[str, Tensor]) -> dict[str, Feature]:
        """Return the features of table rows, without the keys. Lists come as `Ragged` with int64 offsets of length B + 1.

        Args:
            rows: By key column, int32 or int64, shape (B,); a column that is no key has none.
        """
        found: dict[str, Feature] = {}
        for key, table in self._tables.items():
            if key in rows:
                found |= {name: feature for name, feature in table.records.pick(rows[key]).items() if name not in found}
        return found

    def join(self, features: Mapping[str, Tensor]) -> dict[str, Feature]:
        """Return the given features and, for each key column among them, the features of its ids; as `features` does.

        A given feature is not replaced, but for the row of a cold key, which becomes the id that the key shares.

        Args:
            features: By name; the key columns are ids or rows of the table, int32 or int64, shape (B,).
        """
        encoded = {key: self.ids(key, rows) for key, rows in features.items()}
        return self.features(features) | encoded

    def ids(self, key: str, rows: Tensor) -> Tensor:
        """Return the encoded ids of table rows of a key, shape (B,): where all have their own, the rows as they are."""
        shared = self._tables[key].shared if key in self._tables else None
        return rows if shared is None else shared.index_select(0, rows).to(rows.dtype)

    def num_rows(self, key: str) -> int:
        """Return how many rows a key's table has, those of cold keys included; 0 where there is none."""
        return self._tables[key].records.num_rows if key in self._tables else 0


@dataclass(frozen=True)
class _Table:
    """A table on a device: its features, and where there are cold keys the id of each row, int32."""

    records: Records
    shared: Tensor | None

    @property
    def num_bytes(self) -> int:
        """Memory of both."""
        return self.records.num_bytes + (0 if self.shared is None else self.shared.nbytes)


def _read(data: PreparedData, schema: Schema, key: str, device: torch.device | str) -> _Table:
    path, cardinality = data.table(key), schema[key].cardinality
    with open_parquet(path) as file:
        names = file.schema_arrow.names
    columns = [column for column in schema.features if _belongs(column, key, names)]
    groups = groups_of(path, columns)
    num_rows = sum(group.num_rows for group in groups)
    if num_rows != cardinality and not (num_rows > int(cardinality or 0) and SHARED_ID in names):
        raise DataError(f"{path}: has {num_rows} rows, but {key!r} has {cardinality} ids", hint=REDO)
    shared = None
    if SHARED_ID in names:
        shared = torch.from_numpy(pq.read_table(path, columns=[SHARED_ID])[SHARED_ID].to_numpy().copy()).to(device)
    return _Table(read_records(Layout.of(columns, groups), groups).to(device), shared)


def _belongs(column: Column, key: str, names: Collection[str]) -> bool:
    """Whether a column is looked up by this key: the schema says so, or it was joined flat and the table has it too."""
    return column.table == key or (column.table is None and column.name in names and column.name != key)
