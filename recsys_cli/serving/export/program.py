"""Programs to export, and their check: encoded ids, numbers and padded lists to scores or vectors; dimension tables are inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from recsys_cli.batch import Batch, Feature, Padded, Ragged
from recsys_cli.errors import ConfigError, DataError
from recsys_cli.features.columns import row_column
from recsys_cli.features.schema import NULL, UNSEEN, Column, Kind, Schema
from recsys_cli.loader import DimensionTables
from recsys_cli.models.model import Model, TrainingContext
from recsys_cli.models.ranking.model import RankingModel
from recsys_cli.models.retrieval.two_tower import TwoTower
from recsys_cli.serving.served import ServedModel


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


@dataclass(frozen=True)
class Export:
    """A program with the function that it has to equal.

    Attributes:
        name: File name without suffix.
        output: Name of the output.
        program: The program.
        eager: The function of a batch with Ragged lists.
    """

    name: str
    output: str
    program: Program | VectorProgram
    eager: Score


EXPORTABLE = (
    *("mf", "lightgcn", "two-tower", "fm", "wide-deep", "deepfm", "dcn-v2", "dlrm", "mlp", "logistic"),
    *("mmoe", "ple", "neumf"),
)
"""Models with programs; most predict labels."""


def programs_of(served: ServedModel) -> list[Export]:
    """Return the programs of a model, the scores first.

    Raises:
        ConfigError: The model has no exportable program.
    """
    model, cold, rows = served.model, served.cold, served.histories.interactions
    if not model.folds_in:
        model.set_context(TrainingContext(lambda: cold.hidden(rows()), served.tables.join))
    if isinstance(model, TwoTower):

        def users(batch: Batch) -> Tensor:
            return model.users(batch.features) / model.config.temperature

        def items(batch: Batch) -> Tensor:
            vectors: Tensor = model.items(batch.features)
            return vectors

        sides: tuple[tuple[str, Score, nn.Module], ...] = (("user", users, model.users), ("item", items, model.items))
        return [
            _export(served, model.score, model, "model", "score"),
            *(_export(served, side, module, f"{name}_tower", "vector") for name, side, module in sides),
        ]
    if isinstance(model, RankingModel) and model.collaborative is None and model.history is None:
        return [_export(served, model.score, model, "model", "score")]
    if model.scoring == "dot_product" and not model.folds_in:
        return [_by_vectors(served)]
    raise ConfigError(
        f"{served.source.name} {_why_not(model)}, so it cannot be exported as ONNX or torch.export",
        hint=f"recsys export {served.source.name} --format bundle, or triton, takes every model; onnx and torch take "
        f"{', '.join(EXPORTABLE)}, without model.collaborative and model.history",
    )


def _why_not(model: Model) -> str:
    if isinstance(model, RankingModel) and model.history is not None:
        return "reads the histories of users (model.history)"
    if isinstance(model, RankingModel):
        return "computes collaborative features (model.collaborative) from all interactions"
    return "scores from the user's history" if model.folds_in else "is no neural network over the columns of a row"


def _export(served: ServedModel, score: Score, module: nn.Module, name: str, output: str) -> Export:
    program = Program(score, module, served.schema, served.tables, _read_by(score, served))
    return Export(name, output, program.eval(), score)


def _by_vectors(served: ServedModel) -> Export:
    with torch.inference_mode():
        users = served.model.user_vectors(torch.arange(int(served.user.cardinality or 0))).clone()
        items = served.model.item_vectors(torch.arange(int(served.item.cardinality or 0))).clone()
    program = VectorProgram(users, items, served.schema, (served.user.name, served.item.name))
    return Export("model", "score", program.eval(), served.model.score)


class _Recorded(Mapping[str, Feature]):
    """Features that record the names read."""

    def __init__(self, features: Mapping[str, Feature]) -> None:
        self._features, self.read = features, set[str]()

    def __getitem__(self, name: str) -> Feature:
        self.read.add(name)
        return self._features[name]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._features)

    def __len__(self) -> int:
        return len(self._features)

    def values(self) -> ValuesView[Feature]:
        """Return all features, without a record: batches look at any of them for their size and device."""
        return self._features.values()


def _read_by(score: Score, served: ServedModel) -> frozenset[str]:
    """Return the features that a function reads, by a trial with one row."""
    recorded = _Recorded(encoded_sample(served, 1).features)
    with torch.inference_mode():
        score(Batch(recorded, {}))
    return frozenset(recorded.read)


_LONGEST = 5
"""Maximum length of a random list."""


def encoded_sample(served: ServedModel, num_rows: int, *, seed: int = 0) -> Batch:
    """Return rows with random ids, null and unseen among them, joined features, and the table rows of keys."""
    rng = np.random.default_rng(seed)
    sizes = {column.name: served.tables.num_rows(column.name) for column in served.schema.categorical}
    keys = {name: torch.from_numpy(rng.integers(NULL, size, num_rows)) for name, size in sizes.items() if size}
    features: dict[str, Feature] = served.tables.join(keys)
    for column in served.schema.features:
        if column.name not in features:
            features[column.name] = _random_feature(column, num_rows, rng)
    return Batch(features | {row_column(key): rows for key, rows in keys.items()}, {})


def _random_feature(column: Column, num_rows: int, rng: np.random.Generator) -> Feature:
    if not column.ragged and column.kind is Kind.NUMERIC:
        return torch.from_numpy(rng.standard_normal(num_rows, dtype=np.float32))
    if not column.ragged:
        return torch.from_numpy(rng.integers(NULL, int(column.cardinality or 0), num_rows))
    offsets = torch.from_numpy(np.concatenate(([0], np.cumsum(rng.integers(0, _LONGEST, num_rows)))))
    size = int(offsets[-1])
    if column.kind is Kind.NUMERIC:
        return Ragged(torch.from_numpy(rng.standard_normal(size, dtype=np.float32)), offsets)
    values = torch.from_numpy(rng.integers(NULL, int(column.cardinality or 0), size))
    weights = None if column.weights is None else torch.from_numpy(rng.random(size, dtype=np.float32))
    return Ragged(values, offsets, weights)


BATCH_SIZES = (1, 2, 257)
TOLERANCE = 1e-5
"""Maximum difference of scores, relative to scores beyond 1."""


def largest_difference(eager: torch.Tensor, exported: npt.NDArray[np.float32], *, what: str) -> float:
    """Return the largest difference of outputs, relative to outputs beyond 1.

    Raises:
        DataError: It exceeds the tolerance; the message names the first such row.
    """
    expected = eager.float().numpy()
    if expected.shape != exported.shape:
        raise DataError(f"{what}: the shape is {exported.shape} instead of {expected.shape}")
    differences = np.abs(expected - exported) / np.maximum(1, np.abs(expected))
    wrong = ~(differences <= TOLERANCE) & ~(np.isnan(expected) & np.isnan(exported))
    if wrong.any():
        place = tuple(int(index) for index in np.argwhere(wrong)[0])
        raise DataError(
            f"{what}: row {place[0] + 1} of a batch of {len(expected)} is {exported[place]}, and the model's is {expected[place]}",
            hint="use the bundle: recsys export RUN --format bundle",
        )
    return float(np.nanmax(differences, initial=0.0))


def eager_outputs(eager: Score, batch: Batch) -> torch.Tensor:
    """Return the outputs of the model."""
    with torch.inference_mode():
        return eager(batch)
