"""Features that belong to an id rather than to an interaction, ready to be looked up for a whole batch at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from recsys_cli.batch import Feature
from recsys_cli.errors import DataError
from recsys_cli.features.schema import Column, Kind, Role, Schema
from recsys_cli.loader.ragged import Lists
from recsys_cli.loader.reading import REDO, ListArrays, open_parquet, require_columns, to_arrays
from recsys_cli.workspace import PreparedData

_FEATURES = {Role.USER, Role.ITEM, Role.FEATURE}


@dataclass(frozen=True)
class _Table:
    """The feature columns of one key: row i belongs to id i."""

    plain: Mapping[str, Tensor]
    lists: Mapping[str, Lists]

    def rows(self, ids: Tensor) -> dict[str, Feature]:
        found: dict[str, Feature] = {name: values.index_select(0, ids) for name, values in self.plain.items()}
        found.update({name: lists.pick(ids) for name, lists in self.lists.items()})
        return found


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
        self._tables = {key: _read(data, schema, key, torch.device(device)) for key in keys if key in schema.names}

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
                for name, feature in table.rows(ids).items():
                    joined.setdefault(name, feature)
        return joined


def _read(data: PreparedData, schema: Schema, key: str, device: torch.device) -> _Table:
    path, key_column = data.table(key), schema[key]
    with open_parquet(path) as file:
        names = file.schema_arrow.names
        columns = [column for column in schema.columns if _belongs(column, key, names)]
        require_columns(file.schema_arrow, columns, path)
        content = file.read(columns=[column.name for column in columns])
    if content.num_rows != key_column.cardinality:
        raise DataError(f"{path}: has {content.num_rows} rows, but {key!r} has {key_column.cardinality} ids", hint=REDO)
    plain: dict[str, Tensor] = {}
    lists: dict[str, Lists] = {}
    arrays = to_arrays(content, columns, path)
    for column in columns:
        dtype = torch.int32 if column.kind is Kind.CATEGORICAL else torch.float32
        array = arrays[column.name]
        if isinstance(array, ListArrays):
            values, lengths = torch.tensor(array.values, dtype=dtype), torch.tensor(array.lengths, dtype=torch.int64)
            lists[column.name] = Lists.of(values, lengths).to(device)
        else:
            plain[column.name] = torch.tensor(array, dtype=dtype, device=device)
    return _Table(plain, lists)


def _belongs(column: Column, key: str, names: Collection[str]) -> bool:
    """Whether a column is looked up by this key: the schema says so, or it was joined flat and the table has it too."""
    if column.name == key or column.role not in _FEATURES:
        return False
    return column.table == key or (column.table is None and column.name in names)
