"""Programs to export: encoded ids, numbers and padded lists to scores or vectors, with the dimension tables inside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy.typing as npt
import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch, Feature, Padded, Ragged
from recsys_cli.features.columns import row_column
from recsys_cli.features.schema import UNSEEN, Column, Kind, Schema
from recsys_cli.loader import DimensionTables


@dataclass(frozen=True)
class Input:
    """An encoded input of an exported program.

    Attributes:
        name: Column, and name of the tensor.
        dtype: int64 of ids, or float32.
        shape: Names of the dimensions, all dynamic.
        cardinality: Exclusive upper bound of ids; None for numbers.
        rows: Exclusive upper bound of table rows, for keys with cold rows; None if ids are the only values.
    """

    name: str
    dtype: str
    shape: tuple[str, ...]
    cardinality: int | None = None
    rows: int | None = None

    def described(self) -> dict[str, Any]:
        """Return the entry of signature.json."""
        entry: dict[str, Any] = {"name": self.name, "dtype": self.dtype, "shape": list(self.shape)}
        if self.cardinality is not None:
            entry |= {"cardinality": self.cardinality, "out_of_range": "unseen"}
            if len(self.shape) > 1:
                entry["padding"] = 0
        if self.rows is not None:
            entry["rows"] = self.rows
        return entry

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> Input:
        """Return the input of an entry of signature.json."""
        shape = tuple(entry["shape"])
        return cls(entry["name"], entry["dtype"], shape, entry.get("cardinality"), entry.get("rows"))


def signature(inputs: Sequence[Input], *, output: str, width: int | None, program: str) -> dict[str, Any]:
    """Return the signature of a program as JSON values.

    Args:
        inputs: Inputs in order.
        output: Name of the output.
        width: Width of output vectors; None for one score per row.
        program: Name of the file.
    """
    shape: list[str | int] = ["batch"] if width is None else ["batch", width]
    return {
        "file": program,
        "inputs": [one.described() for one in inputs],
        "outputs": [{"name": output, "dtype": "float32", "shape": shape}],
    }


def length_of(name: str) -> str:
    """Return the name of the dimension of a list's elements."""
    return f"length of {name}"


Score = Callable[[Batch], Tensor]
Array = npt.NDArray[Any]


class TableConstants(nn.Module):
    """A dimension table as tensors: features by row, lists padded to the longest, and the encoded id of each row.

    Args:
        key: Key column.
        tables: The dimension tables.
        names: Features in use.
    """

    def __init__(self, key: Column, tables: DimensionTables, names: frozenset[str]) -> None:
        super().__init__()
        num_rows = max(tables.num_rows(key.name), int(key.cardinality or 0))
        self.num_rows = num_rows
        self.columns: dict[str, str] = {}
        rows = torch.arange(num_rows)
        encoded = tables.ids(key.name, rows)
        self.register_buffer("ids", None if encoded is rows else encoded.long())
        for name, feature in tables.features({key.name: rows}).items():
            if name in names:
                self.columns[name] = f"column_{len(self.columns)}"
                self._add(self.columns[name], feature)

    def _add(self, place: str, feature: Feature) -> None:
        weights = None
        if isinstance(feature, Ragged):
            length = max(1, int(feature.offsets.diff().max()) if feature.offsets.numel() > 1 else 1)
            values, mask = feature.padded(length)
            weights = mask.float()
            if feature.weights is not None:
                weights = Ragged(feature.weights, feature.offsets).padded(length)[0]
        else:
            values = feature
        kept = values.float() if values.is_floating_point() else values.int()
        self.register_buffer(place, kept)
        self.register_buffer(f"{place}_weights", weights)

    def forward(self, rows: Tensor, kinds: Mapping[str, Kind]) -> dict[str, Tensor | Padded]:
        """Return the features of table rows.

        Args:
            rows: Table rows, int64, shape (B,).
            kinds: Kind of each column.
        """
        features: dict[str, Tensor | Padded] = {}
        for name, place in self.columns.items():
            values = self.get_buffer(place).index_select(0, rows)
            if kinds[name] is Kind.NUMERIC:
                features[name] = values.float()
                continue
            weights = getattr(self, f"{place}_weights")
            features[name] = Padded(values.long(), None if weights is None else weights.index_select(0, rows))
        return features


class Program(nn.Module):
    """A function of a batch as a function of plain tensors by name.

    An id or table row out of range counts as unseen. Elements of lists with id 0 are padding.

    Args:
        score: The function, such as `Model.score`.
        model: The module with its weights.
        schema: Prepared columns.
        tables: Dimension tables.
        names: Features in use.
    """

    def __init__(
        self, score: Score, model: nn.Module, schema: Schema, tables: DimensionTables, names: frozenset[str]
    ) -> None:
        super().__init__()
        self.model, self._score, self._schema = model, score, schema
        self._kinds = {column.name: column.kind for column in schema.features}
        keys = [c for c in schema.categorical if _has(tables, c.name, names)]
        self.keys = nn.ModuleList(TableConstants(column, tables, names) for column in keys)
        self._keys = tuple(column.name for column in keys)
        joined = {name for module in self.keys for name in cast("TableConstants", module).columns}
        rest = [c for c in schema.features if c.name in names - joined - set(self._keys)]
        self.inputs = inputs_of(keys, [cast("TableConstants", m).num_rows for m in self.keys], rest)
        self._rest = tuple(rest)

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        """Return the result of the function, shape (B,) or (B, D).

        Args:
            inputs: Tensors by name, as in `inputs`.
        """
        features: dict[str, Any] = {}
        for key, module in zip(self._keys, self.keys, strict=True):
            constants = cast("TableConstants", module)
            rows = _in_range(inputs[key], constants.num_rows)
            ids = constants.get_buffer("ids") if constants.ids is not None else None
            features |= constants(rows, self._kinds)
            features[key] = Padded(rows if ids is None else ids.index_select(0, rows))
        for column in self._rest:
            features[column.name] = _given(column, inputs)
        return self._score(Batch(cast("Mapping[str, Feature]", features), {}))


class VectorProgram(nn.Module):
    """Dot products of precomputed user and item vectors, for models that score by ids.

    Args:
        users: Vectors by encoded user, shape (U, D).
        items: Vectors by encoded item, shape (I, D).
        schema: Prepared columns.
        names: User and item column.
    """

    def __init__(self, users: Tensor, items: Tensor, schema: Schema, names: tuple[str, str]) -> None:
        super().__init__()
        self.register_buffer("users", users.float().contiguous())
        self.register_buffer("items", items.float().contiguous())
        self._user, self._item = names
        self.inputs = inputs_of([schema[name] for name in names], [len(users), len(items)], [])

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        """Return the scores, shape (B,)."""
        users, items = self.get_buffer("users"), self.get_buffer("items")
        of_users = users.index_select(0, _in_range(inputs[self._user], len(users)))
        return (of_users * items.index_select(0, _in_range(inputs[self._item], len(items)))).sum(dim=1)


def _has(tables: DimensionTables, key: str, names: frozenset[str]) -> bool:
    """Return whether a key has a table, and it or a feature of the table is in use."""
    if not tables.num_rows(key):
        return False
    return key in names or bool(names & set(tables.features({key: torch.zeros(1, dtype=torch.int64)})))


def _in_range(ids: Tensor, num_rows: int) -> Tensor:
    return torch.where((ids < 0) | (ids >= num_rows), UNSEEN, ids)


def _given(column: Column, inputs: Mapping[str, Tensor]) -> Tensor | Padded:
    """Return the feature of an input column."""
    values = inputs[column.name]
    if column.kind is Kind.NUMERIC:
        return values
    ids = _in_range(values, int(column.cardinality or 0))
    if not column.ragged:
        return Padded(ids)
    weights = (ids != 0).float()
    return Padded(ids, weights if column.weights is None else weights * inputs[column.weights])


def inputs_of(keys: Sequence[Column], sizes: Sequence[int], rest: Sequence[Column]) -> tuple[Input, ...]:
    """Return the encoded inputs of a program.

    Args:
        keys: Columns with a dimension table.
        sizes: Rows of each table.
        rest: Further columns of the interactions.
    """
    found = [
        Input(column.name, "int64", ("batch",), cardinality, size if size > cardinality else None)
        for column, size in zip(keys, sizes, strict=True)
        for cardinality in [int(column.cardinality or 0)]
    ]
    for column in rest:
        shape = ("batch", length_of(column.name)) if column.ragged else ("batch",)
        if column.kind is Kind.NUMERIC:
            found.append(Input(column.name, "float32", shape))
            continue
        found.append(Input(column.name, "int64", shape, column.cardinality))
        if column.weights is not None:
            found.append(Input(column.weights, "float32", shape))
    return tuple(found)


def feed(inputs: Sequence[Input], features: Mapping[str, Feature]) -> dict[str, Array]:
    """Return the inputs of a program as arrays, lists padded to the longest.

    Args:
        inputs: Inputs of the program.
        features: Encoded features by column, with the table rows of keys under `row_column`.
    """
    return {one.name: _array(one, features) for one in inputs}


def _array(one: Input, features: Mapping[str, Feature]) -> Array:
    feature = features.get(row_column(one.name), features.get(one.name))
    if feature is None:  # weights belong to their list
        feature = next(
            Ragged(feature.weights, feature.offsets)
            for name, feature in features.items()
            if isinstance(feature, Ragged) and feature.weights is not None and one.shape[1] == length_of(name)
        )
    if isinstance(feature, Ragged):
        longest = int(feature.offsets.diff().max()) if feature.offsets.numel() > 1 else 1
        feature = feature.padded(max(1, longest))[0]
    return feature.numpy().astype(one.dtype)
